"""Does VLA GRPO learn on a CPU? A small policy on "turn on the stove" (LIBERO-90), from starts with the fingers closed on the knob.

    python benchmarks/libero_grpo.py --work runs/libero-grpo --json docs/results/libero_grpo.json

1. Demonstrations by a hesitant script: every 8 steps it turns the knob at another speed, drawn from `--yaw` (negative: back), and it
   succeeds in some of its attempts. A policy that imitates it is middling too.
2. For each seed, SFT of a small policy on all attempts, and a progress model fitted to the successes and the failures.
3. GRPO from that policy with the one trainer, a run directory each: `sparse` (success of every group), `dense` (the progress model
   alone), `corrected` (the progress model, one anchor group a step, both corrections).
Success is that of sampled and of greedy episodes from unseen initial states, before and after, with 95 % Wilson intervals pooled
over seeds. Pictures are small, textures shrunken, the arm and the walls not drawn: a statement about the method at this scale,
not about LIBERO. What is finished is kept in `--work`, and a second call goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from wmrl_envs.envs.libero import controllers
from wmrl_envs.envs.libero.catalog import TRAIN_STATES
from wmrl_train.agents.vla.data.demonstrations import Demonstration, record
from wmrl_train.agents.vla.data.lerobot import LeRobotWriter, read_lerobot
from wmrl_train.agents.vla.imitate import new_policy, train
from wmrl_train.agents.vla.model import MiniVLAConfig, small_config
from wmrl_train.agents.vla.play import Simulators, Start, play
from wmrl_train.agents.vla.policy import VLAPolicy
from wmrl_train.agents.vla.progress import ProgressModel
from wmrl_train.agents.vla.vision import ViTConfig
from wmrl_train.agents.vla.vq import VQConfig
from wmrl_train.config import Config, load_config
from wmrl_train.evaluation.rates import Rate, versions
from wmrl_train.run import checkpoint
from wmrl_train.run.progress import Progress
from wmrl_train.run.rundir import RunDirectory
from wmrl_train.training.robots import robot_parts
from wmrl_train.training.trainer import Trainer

MAX_STEPS = 40  # turning without hesitation takes 24
ARMS = {"sparse": None, "dense": 0, "corrected": 1}  # anchor groups a step; None: every group, and no world model
TASK = controllers.stove_task().name
KEPT = ("step", "rollout/success", "reward/predicted", "reward/calibrated", "reward/executed", "groups/zero_range", "groups/dropped",
        "anchor/rho", "anchor/n_pairs", "rollout/steps", "policy/loss", "time/step_s")  # fmt: skip  # of a step's metrics


def hesitant(yaw: tuple[float, float], seed: int) -> Callable[[controllers.View], controllers.Controller]:
    """A script that stays where it is and turns at another random speed every 8 steps."""
    rng = np.random.default_rng(seed)

    def script(view: controllers.View) -> controllers.Controller:
        stay = view["eef"]
        while True:
            speed = rng.uniform(*yaw)
            for _ in range(8):
                view = yield np.array([*np.clip((stay - view["eef"]) / 0.05, -1, 1), 0.0, 0.0, speed, controllers.CLOSE])

    return script


def make(starts: Path, **options: Any) -> gym.Env:
    """The task with 64-pixel pictures; episodes begin at the first 16 of `starts`."""
    task = controllers.stove_task()
    cheap = {"image_size": 64, "texture_size": 64, "mesh_faces": 5000}
    env = gym.make(
        "LIBERO-Long-v0", task=task.index, suite=task.suite, init_states=starts, max_steps=MAX_STEPS, **cheap, **options
    )
    core: Any = env.unwrapped
    core.start_states = replace(core.start_states, indices=tuple(range(TRAIN_STATES)))
    return env


def demonstrations(work: Path, count: int, yaw: tuple[float, float]) -> list[Demonstration]:
    """The script's attempts, successful or not."""
    folder = work / "demonstrations"
    if not (folder / "meta" / "info.json").is_file():
        env = make(work / "starts.npz", action_chunk=1)
        with LeRobotWriter(folder) as writer:
            for i in range(count):
                writer.add(record(env, hesitant(yaw, i), init_state=i % TRAIN_STATES, noise=0.05, seed=i))
        env.close()
    return list(read_lerobot(folder))


def network() -> MiniVLAConfig:
    """MiniVLA's make at a hundred thousand parameters: 16 patches, two layers, three codes of 32 a chunk."""
    vision = ViTConfig(32, 3, 2, 64, patch=16, image_size=64)
    return small_config(
        dino=vision, siglip=vision, hidden=64, layers=2, heads=2, kv_heads=1, mlp=128, groups=3, codes=32, proprioception=9
    )


def success(policy: VLAPolicy, simulators: Simulators, starts: list[int], seed: int) -> dict[str, list[int]]:
    """[successes, episodes] of sampled and of greedy episodes, one from each start; those lost to the simulator are left out."""
    found = {}
    for kind, temperature in (("sampled", 1.0), ("greedy", 0.0)):
        wanted = [Start(TASK, index, 1000 * seed + index) for index in starts]
        kept = [p for p in play(policy, simulators, wanted, temperature=temperature) if p.lost is None]
        found[kind] = [sum(p.success for p in kept), len(kept)]
    return found


def settings(a: argparse.Namespace, seed: int, arm: str) -> Config:
    """Of one run."""
    anchors, groups = ARMS[arm], a.groups
    reward = a.work / f"seed{seed}" / "progress.safetensors"
    chosen = [f"anchors.fraction={anchors / groups}", f"anchors.min_groups={anchors}", f"libero.reward={reward}"] if anchors is not None else ["libero.reward=null"]  # fmt: skip
    if arm == "dense":
        chosen += ["correction.debias=false", "correction.denoise=false"]
    if arm == "corrected":
        chosen += [f"correction.min_pairs={2 * a.n}", f"correction.refit_every={a.n}"]
    return load_config("libero", [
        f"run.dir={a.work / f'seed{seed}'}", f"run.name={arm}", f"run.seed={seed}", f"train.steps={a.steps}", "train.save_every=4",
        f"libero.suite={controllers.stove_task().suite}", f"libero.task={controllers.stove_task().index}", f"libero.simulators={a.workers}",
        f"libero.max_steps={MAX_STEPS}", f"policy.model={a.work / f'seed{seed}'}", "policy.device=cpu", f"rollout.groups={groups}",
        f"rollout.group_size={a.n}", f"optim.lr={a.lr}", f"optim.epochs={a.epochs}", f"optim.clip_low={a.clip}",
        f"optim.clip_high={a.clip}", "eval.k=0", *chosen,
    ])  # fmt: skip


def grpo(config: Config, folder: Path, simulators: Simulators, seed: int, unseen: list[int]) -> dict[str, Any]:
    """Train the policy of `folder`, or go on where a killed run stopped; its success, and the metrics of its steps."""
    run = RunDirectory(config.run_dir)
    run.acquire()
    policy, reward = VLAPolicy.load(folder), config.libero.reward
    parts = robot_parts(policy, simulators, None if reward is None else ProgressModel.load(reward), {TASK: range(TRAIN_STATES)})
    trainer = Trainer(config, parts, run, Progress(config.train.steps, config.run.name))
    try:
        if checkpoint.checkpoints(run.checkpoints):
            trainer.load(checkpoint.latest(run.checkpoints))
        else:
            run.truncate({})
        run.config_file.write_text(config.to_yaml())
        trainer.run()
        curve = [{key: r[key] for key in KEPT if key in r} for r in run.read("metrics.jsonl")]
        return {"success": success(policy, simulators, unseen, seed), "curve": curve}
    finally:
        trainer.close()  # the simulators too
        run.release()


class Clock:
    """Prints what happened and when."""

    def __init__(self) -> None:
        self.began = time.perf_counter()

    def say(self, what: str) -> None:
        print(f"{time.perf_counter() - self.began:6.0f} s  {what}", flush=True)


def run(a: argparse.Namespace) -> list[dict[str, Any]]:
    """One entry a seed and arm (and one a seed before GRPO)."""
    clock, log = Clock(), a.work / "results.jsonl"
    a.work.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []

    def note(entry: dict[str, Any]) -> None:
        done.append(entry)
        with log.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        clock.say(f"seed {entry['seed']} {entry['arm']}: {entry['success']}")

    if not (a.work / "starts.npz").is_file():
        controllers.near_stove(a.work / "starts.npz", range(TRAIN_STATES + a.eval), texture_size=64)
        clock.say(f"{TRAIN_STATES + a.eval} starts")
    shown = demonstrations(a.work, a.demos, tuple(a.yaw))
    clock.say(f"the script succeeds in {sum(d.success for d in shown)} of {len(shown)} attempts")

    def simulators() -> Simulators:
        return Simulators(lambda task: make(a.work / "starts.npz"), a.workers)

    unseen = list(range(TRAIN_STATES, TRAIN_STATES + a.eval))
    for seed in range(a.seeds):
        folder, began = a.work / f"seed{seed}", time.perf_counter()
        if not (folder / "progress.safetensors").is_file():
            vq = VQConfig(groups=3, codes=32, latent=16, hidden=64)
            policy = new_policy(shown, network(), vq=vq, vq_steps=400, seed=seed)
            train(policy, shown, steps=a.sft_steps, batch=24, lr=5e-4, seed=seed)
            policy.save(folder)
            progress = ProgressModel("final", seed=seed)
            progress.fit(shown, [d.images for d in shown if not d.success], steps=300)
            progress.save(folder / "progress.safetensors")
            clock.say(f"seed {seed}: SFT")
        if not any(e["seed"] == seed and e["arm"] == "sft" for e in done):
            pool = simulators()
            found = success(VLAPolicy.load(folder), pool, unseen, seed)
            pool.close()
            note({"seed": seed, "arm": "sft", "success": found, "wall_s": time.perf_counter() - began})
        for arm in ARMS:
            if any(e["seed"] == seed and e["arm"] == arm for e in done):
                continue
            began = time.perf_counter()
            result = grpo(settings(a, seed, arm), folder, simulators(), seed, unseen)
            note({"seed": seed, "arm": arm, "wall_s": time.perf_counter() - began} | result)
    return done


def report(entries: list[dict[str, Any]], arguments: dict[str, Any]) -> dict[str, Any]:
    """Success of each arm pooled over seeds, and everything behind it."""
    pooled: dict[str, Any] = {}
    for arm in ("sft", *ARMS):
        found = [e["success"] for e in entries if e["arm"] == arm]
        rates = {kind: Rate(*(sum(f[kind][i] for f in found) for i in (0, 1))) for kind in ("sampled", "greedy")}
        pooled[arm] = {
            kind: {"rate": rate.value if rate.episodes else None, "interval": rate.interval, "episodes": rate.episodes}
            for kind, rate in rates.items()
        }
        print(f"{arm:>10}: " + ", ".join(f"{kind} {rate}" for kind, rate in rates.items()))
    wall_s = sum(e["wall_s"] for e in entries)
    machine = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "wall_s": wall_s}
    return {"settings": arguments, "success": pooled, "machine": machine, "versions": versions(), "runs": entries}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help="of GRPO")
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--n", type=int, default=4, help="episodes a group")
    parser.add_argument("--epochs", type=int, default=4, help="updates a step")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--clip", type=float, default=0.5, help="of the probability ratio")
    parser.add_argument("--demos", type=int, default=32, help="attempts of the script")
    parser.add_argument(
        "--yaw", type=float, nargs=2, default=(-0.9, 0.7), help="slowest and fastest turn, of a full rotation action"
    )
    parser.add_argument("--sft-steps", type=int, default=150)
    parser.add_argument("--eval", type=int, default=24, help="unseen initial states, one sampled and one greedy episode each")
    parser.add_argument("--workers", type=int, default=2, help="simulator processes, about 1 GB each")
    parser.add_argument("--work", type=Path, default=Path("runs/libero-grpo"))
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    result = report(run(a), {k: v for k, v in vars(a).items() if k not in ("json", "work")})
    if a.json:
        a.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
