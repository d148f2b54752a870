"""LIBERO-Long-v0 against the upstream environment it wraps: simulated steps a second, resets, two workers. Same machine, one run.

    python benchmarks/libero_env.py [--task 7] [--steps 160] [--json out.json]

1. Stepping: chunks of 8 with a 224-pixel picture each, against upstream's `OffScreenRenderEnv` (its default two cameras,
   and one) drawing every step. The actions are the same. Random: the arm moves.
2. Reset: ours, to a start seen before (a group's second episode) and to a new one, against upstream's hard reset with its
   ten settling steps and first pictures.
3. Workers: steps a second of two environments, each in its process, against one.
Each as wall clock and as processor time: on a busy machine only the second says something (and nothing about workers).
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil

import wmrl_envs  # noqa: F401
from wmrl_envs.envs.libero import catalog, install
from wmrl_envs.envs.libero.simulator import IDLE


@dataclass
class Cost:
    """Of a job: seconds of wall clock, and of processor time in all processes that simulate (which a busy machine does not change much)."""

    wall_s: float
    cpu_s: float

    def per_second(self, steps: int) -> dict[str, float]:
        return {"wall": steps / self.wall_s, "cpu": steps / self.cpu_s}


def clock(job: Callable[[], object], pids: Sequence[int]) -> Cost:
    processes = [psutil.Process(pid) for pid in pids]

    def cpu_s() -> float:
        return sum(sum(p.cpu_times()[:2]) for p in processes)

    began, before = time.perf_counter(), cpu_s()
    job()
    return Cost(time.perf_counter() - began, cpu_s() - before)


def median(costs: list[Cost]) -> dict[str, float]:
    return {"wall": float(np.median([c.wall_s for c in costs])), "cpu": float(np.median([c.cpu_s for c in costs]))}


def ours(task: int, chunks: np.ndarray, workers: int, resets: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Steps a second of `workers` environments at once, and seconds of `resets` resets of the first."""
    envs: list[Any] = [gym.make("LIBERO-Long-v0", task=task, init_states="all", max_steps=10**6) for _ in range(workers)]
    for env in envs:
        env.reset(options={"init_state": 0})
        env.step(chunks[0])  # numba compiles
    pids = [env.unwrapped._simulator.pid for env in envs]

    def play(env: Any) -> None:
        for chunk in chunks:
            *_, terminated, truncated, info = env.step(chunk)
            if info["wmrl"]["status"] != "ok" or terminated or truncated:
                raise RuntimeError(f"the benchmark episode ended early: {info}")

    threads = [threading.Thread(target=play, args=(env,)) for env in envs]
    cost = clock(lambda: ([t.start() for t in threads], [t.join() for t in threads]), pids)
    found: dict[str, Any] = {}
    for kind in ("new", "seen before") if resets else ():
        starts = range(1, 1 + resets)
        found[kind] = median([clock(lambda i=i: envs[0].reset(options={"init_state": i}), pids) for i in starts])
    for env in envs:
        env.close()
    return cost.per_second(workers * chunks.shape[0] * chunks.shape[1]), found


def upstream(task: int, chunks: np.ndarray, cameras: list[str], resets: int) -> tuple[dict[str, float], dict[str, float]]:
    """Steps a second of the upstream environment, and seconds of `resets` hard resets."""
    from libero.libero.envs import OffScreenRenderEnv

    found = catalog.find_task(task)
    states = catalog.initial_states(found)
    env = OffScreenRenderEnv(
        bddl_file_name=str(found.bddl), camera_names=cameras, camera_heights=224, camera_widths=224, ignore_done=True
    )

    def hard(index: int) -> None:
        env.reset()
        env.set_init_state(states[index])
        for _ in range(10):
            env.step(IDLE)

    hard(0)
    actions = chunks.reshape(-1, 7).astype(np.float64)
    cost = clock(lambda: [env.step(a) for a in actions], [os.getpid()])
    reset = median([clock(lambda i=i: hard(i), [os.getpid()]) for i in range(1, 1 + resets)]) if resets else {}
    env.close()
    return cost.per_second(len(actions)), reset


def ratio(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {clock: one[clock] / max(other[clock], 0.001) for clock in ("wall", "cpu")}  # a clock of milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", type=int, default=7)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--upstream-steps", type=int, default=40)
    parser.add_argument("--resets", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="without the second camera and the second worker")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chunks = np.random.default_rng(0).uniform(-0.5, 0.5, (arguments.steps // 8, 8, 7)).astype(np.float32)

    install.configure()
    one, reset = ours(arguments.task, chunks, 1, arguments.resets)
    few = chunks[: arguments.upstream_steps // 8]
    single, hard = upstream(arguments.task, few, ["agentview"], arguments.resets)
    result: dict[str, Any] = {
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "renderer": install.choose_renderer(),
        "mujoco": install.require_mujoco(),
        "steps_per_s": {"ours, 1 worker": one, "upstream, 1 camera": single},
        "reset_s": {**reset, "upstream, hard": hard},
        "ratios": {
            "stepping against upstream, 1 camera": ratio(one, single),
            "reset seen before against hard": ratio(hard, reset["seen before"]),
            "reset new against hard": ratio(hard, reset["new"]),
        },
    }
    if not arguments.quick:
        both, _ = upstream(arguments.task, few, ["agentview", "robot0_eye_in_hand"], 0)
        two, _ = ours(arguments.task, chunks, 2, 0)
        result["steps_per_s"] |= {"upstream, 2 cameras": both, "ours, 2 workers": two}
        result["ratios"] |= {"stepping against upstream, 2 cameras": ratio(one, both), "2 workers against 1": ratio(two, one)}
    print(json.dumps(result, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
