"""Does VLA GRPO learn on a CPU? A small policy on "turn on the stove" (LIBERO-90), from the fingers on the knob.

    python benchmarks/libero_grpo.py [--seeds 3] [--steps 10] [--groups 4] [--n 8] [--json out.json]

1. Start states with the fingers closed on the knob (from several official initial states) and scripted demonstrations there.
2. SFT, stopped early, so that the policy succeeds now and then.
3. GRPO from that policy, for each seed: `sparse` (every group real), `dense` (progress model alone), `corrected` (progress
   model, one anchor group a step, both corrections).
Success is that of sampled episodes on start states apart from the training ones, with 95 % Wilson intervals pooled over seeds.
Pictures are small and textures shrunken: a statement about the method at this scale, not about LIBERO.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch

from wmrl_envs.correction import Corrector
from wmrl_envs.envs.libero import controllers
from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.vla.demonstrations import record
from wmrl_train.agents.vla.evaluation import Rate, versions
from wmrl_train.agents.vla.grpo import VLAGrpoConfig, train_grpo
from wmrl_train.agents.vla.model import small_config
from wmrl_train.agents.vla.policy import VLAPolicy
from wmrl_train.agents.vla.progress import ProgressModel
from wmrl_train.agents.vla.rollout import rollouts
from wmrl_train.agents.vla.sft import new_policy, train

HORIZON = 64
VARIANTS = ("sparse", "dense", "corrected")


def turn_knob(view: dict) -> controllers.Controller:
    """From the knob: turn it."""
    knob = view["eef"].copy()
    for _ in range(HORIZON):
        view = yield np.array([*np.clip((knob - view["eef"]) / 0.05, -1, 1), 0.0, 0.0, 0.4, 1.0])
    return view


def make(starts: Path, indices: list[int], **options) -> gym.Env:
    task = controllers.stove_task()
    env = gym.make(
        "LIBERO-Long-v0",
        task=task.index,
        suite=task.suite,
        init_states=starts,
        max_steps=HORIZON,
        image_size=64,
        texture_size=64,
        **options,
    )
    core = env.unwrapped
    core.start_states = type(core.start_states)(**(vars(core.start_states) | {"indices": tuple(indices)}))
    return env


def success(policy: VLAPolicy, envs: list[gym.Env], indices: list[int], n: int, seed: int) -> tuple[int, int, list]:
    batch = rollouts(policy, envs, indices, n, generator=torch.Generator().manual_seed(seed))
    valid = [t for t in batch if not t.infra]
    return sum(t.success for t in valid), len(valid), valid


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--sft-steps", type=int, default=60)
    parser.add_argument(
        "--starts", type=int, default=12, help="start states; two thirds for training, the others for evaluation"
    )
    parser.add_argument("--eval", type=int, default=8, help="evaluation episodes a start state and seed")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--workers", type=int, default=2, help="simulator processes, about 1 GB each")
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    if a.starts < 3:
        raise InvalidInput(f"--starts {a.starts}: expected at least 3.")
    began = time.perf_counter()
    work = Path(tempfile.mkdtemp(prefix="libero-grpo-"))
    starts = controllers.near_stove(work / "near_stove.npz", range(a.starts), texture_size=64)
    training, held_out = list(range(a.starts * 2 // 3)), list(range(a.starts * 2 // 3, a.starts))

    recorder = make(starts, training, action_chunk=1)
    demonstrations = [record(recorder, turn_knob, init_state=i, noise=0.1, seed=i) for i in training]
    recorder.close()
    kept = [d for d in demonstrations if d.success]
    print(f"{len(kept)} of {len(demonstrations)} demonstrations succeed, {time.perf_counter() - began:.0f} s", flush=True)

    envs = [make(starts, training) for _ in range(a.workers)]
    tally: dict[str, list[int]] = {name: [0, 0] for name in ("sft", *VARIANTS)}
    curves: dict[str, list] = {name: [] for name in VARIANTS}
    for seed in range(a.seeds):
        base = new_policy(kept, small_config(), vq_steps=500, seed=seed)
        train(base, kept, steps=a.sft_steps, batch=16, lr=5e-4, seed=seed)
        base.save(work / f"sft-{seed}")
        note(tally["sft"], success(base, envs, held_out, a.eval, seed))
        _, _, seen = success(base, envs, training, 2, seed + 100)
        progress = ProgressModel("final", seed=seed)
        progress.fit(kept, [t.observations for t in seen if not t.success], steps=300)
        for variant in VARIANTS:
            policy = VLAPolicy.load(work / f"sft-{seed}")
            config = VLAGrpoConfig(
                steps=a.steps,
                groups=a.groups,
                n=a.n,
                lr=a.lr,
                seed=seed,
                anchors={"sparse": None, "dense": 0, "corrected": 1}[variant],
            )
            world_model = None if variant == "sparse" else progress
            corrector = Corrector(min_pairs=3 * a.n, refit_every=2 * a.n) if variant == "corrected" else None
            curves[variant].append(train_grpo(policy, envs, config, world_model=world_model, corrector=corrector))
            note(tally[variant], success(policy, envs, held_out, a.eval, seed))
            print(f"seed {seed} {variant}: {Rate(*tally[variant])} so far, {time.perf_counter() - began:.0f} s", flush=True)
    for env in envs:
        env.close()
    result = {
        "settings": {k: v for k, v in vars(a).items() if k != "json"},
        "success": {
            name: {"rate": Rate(*t).value, "interval": Rate(*t).interval, "episodes": t[1]} for name, t in tally.items()
        },
        "training_success": {name: [[r.get("success") for r in run] for run in runs] for name, runs in curves.items()},
        "wall_s": time.perf_counter() - began,
        "cores": os.cpu_count(),
        "versions": versions(),
    }
    print(json.dumps(result, indent=2))
    for name, t in tally.items():
        print(f"{name:>10}: {Rate(*t)}")
    if a.json:
        a.json.write_text(json.dumps(result, indent=2))


def note(tally: list[int], found: tuple[int, int, list]) -> None:
    tally[0] += found[0]
    tally[1] += found[1]


if __name__ == "__main__":
    main()
