"""Does VLA GRPO learn on a CPU? A small policy on "turn on the stove" (LIBERO-90), from the official initial states.

    python benchmarks/libero_grpo.py [--seeds 3] [--steps 6] [--groups 4] [--n 6] [--json out.json]

1. Scripted demonstrations from the first initial states, with noise.
2. SFT of one small policy to a middling success rate.
3. GRPO from that policy, for each seed: `sparse` (every group real), `dense` (progress model alone), `corrected` (progress
   model, one anchor group a step, both corrections), all with sampled codes on the 16 training states.
Success before and after is that of sampled episodes on unseen initial states, with 95 % Wilson intervals pooled over seeds.
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
import torch

from wmrl_envs.correction import Corrector
from wmrl_envs.envs.libero import controllers
from wmrl_envs.envs.libero.catalog import TRAIN_STATES
from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.vla.demonstrations import record
from wmrl_train.agents.vla.evaluation import Rate, versions
from wmrl_train.agents.vla.grpo import VLAGrpoConfig, train_grpo
from wmrl_train.agents.vla.model import small_config
from wmrl_train.agents.vla.policy import VLAPolicy
from wmrl_train.agents.vla.progress import ProgressModel
from wmrl_train.agents.vla.rollout import rollouts
from wmrl_train.agents.vla.sft import new_policy, train

HORIZON = 96  # the script takes 57 steps
VARIANTS = ("sparse", "dense", "corrected")


def make(**options) -> gym.Env:
    task = controllers.stove_task()
    fixed = {"max_steps": HORIZON, "image_size": 64, "texture_size": 64}
    return gym.make("LIBERO-Long-v0", task=task.index, suite=task.suite, init_states="train", **fixed, **options)


def success(policy: VLAPolicy, envs: list[gym.Env], indices: list[int], n: int, seed: int) -> tuple[int, int, list]:
    batch = rollouts(policy, envs, indices, n, generator=torch.Generator().manual_seed(seed))
    valid = [t for t in batch if not t.infra]
    return sum(t.success for t in valid), len(valid), valid


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--n", type=int, default=6)
    parser.add_argument("--demos", type=int, default=8)
    parser.add_argument("--sft-steps", type=int, default=400)
    parser.add_argument("--eval", type=int, default=20, help="evaluation episodes a policy, each from another unseen state")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--workers", type=int, default=2, help="simulator processes, about 1 GB each")
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    if not 1 <= a.demos <= TRAIN_STATES or not 1 <= a.eval <= 50 - TRAIN_STATES:
        raise InvalidInput(f"--demos {a.demos}, --eval {a.eval}: expected 1 to {TRAIN_STATES} and 1 to {50 - TRAIN_STATES}.")
    began = time.perf_counter()
    work = Path(tempfile.mkdtemp(prefix="libero-grpo-"))
    unseen = list(range(TRAIN_STATES, TRAIN_STATES + a.eval))

    recorder = make(action_chunk=1)
    kept = [d for i in range(a.demos) if (d := record(recorder, init_state=i, noise=0.1, seed=i)).success]
    recorder.close()
    print(f"{len(kept)} of {a.demos} demonstrations succeed, {time.perf_counter() - began:.0f} s", flush=True)
    base = new_policy(kept, small_config(), vq_steps=800)
    train(base, kept, steps=a.sft_steps, batch=24, lr=5e-4)
    base.save(work / "sft")
    print(f"SFT done, {time.perf_counter() - began:.0f} s", flush=True)

    envs = [make() for _ in range(a.workers)]
    tally: dict[str, list[int]] = {name: [0, 0] for name in ("sft", *VARIANTS)}
    curves: dict[str, list] = {name: [] for name in VARIANTS}
    _, _, seen = success(base, envs, list(range(TRAIN_STATES)), 1, 100)
    progress = ProgressModel("final")
    progress.fit(kept, [t.observations for t in seen if not t.success], steps=300)
    for seed in range(a.seeds):
        note(tally["sft"], success(base, envs, unseen, 1, seed))
        for variant in VARIANTS:
            policy = VLAPolicy.load(work / "sft")
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
            note(tally[variant], success(policy, envs, unseen, 1, seed))
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
