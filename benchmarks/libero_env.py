"""LIBERO-Long-v0 against the upstream environment it wraps: simulated steps a second, resets, two workers. Same machine, one run.

    python benchmarks/libero_env.py [--task 7] [--rounds 5] [--json out.json]

1. Stepping: chunks of 8 with a 224-pixel picture each, against upstream's `OffScreenRenderEnv` (its default two cameras,
   and one) drawing every step. The actions are the same. Random: the arm moves.
2. Reset: ours, to a start seen before (a group's second episode) and to a new one, against upstream's hard reset with its
   ten settling steps and first pictures.
3. Workers: steps a second of two environments, each in its process, against one.
Everything once a round, medians over rounds. Each as wall clock and as processor time: on a busy machine only the second says something (and nothing about workers).
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


def clock(job: Callable[[], object], pids: Sequence[int]) -> Cost:
    processes = [psutil.Process(pid) for pid in pids]

    def cpu_s() -> float:
        return sum(sum(p.cpu_times()[:2]) for p in processes)

    began, before = time.perf_counter(), cpu_s()
    job()
    return Cost(time.perf_counter() - began, cpu_s() - before)


def median(costs: list[Cost]) -> dict[str, float]:
    return {"wall": float(np.median([c.wall_s for c in costs])), "cpu": float(np.median([c.cpu_s for c in costs]))}


class Ours:
    """Two environments, each with its simulator's process."""

    def __init__(self, task: int, chunk: np.ndarray):
        self.envs: list[Any] = [gym.make("LIBERO-Long-v0", task=task, init_states="all", max_steps=10**6) for _ in range(2)]
        for env in self.envs:
            env.reset(options={"init_state": 0})
            env.step(chunk)  # numba compiles
        self.pids = [env.unwrapped._simulator.pid for env in self.envs]

    def play(self, chunks: np.ndarray, workers: int) -> Cost:
        """The chunks in `workers` environments at once."""
        threads = [threading.Thread(target=self._play, args=(env, chunks)) for env in self.envs[:workers]]
        return clock(lambda: ([t.start() for t in threads], [t.join() for t in threads]), self.pids[:workers])

    def _play(self, env: Any, chunks: np.ndarray) -> None:
        for chunk in chunks:
            *_, terminated, truncated, info = env.step(chunk)
            if info["wmrl"]["status"] != "ok" or terminated or truncated:
                raise RuntimeError(f"the benchmark episode ended early: {info}")

    def reset(self, index: int) -> Cost:
        return clock(lambda: self.envs[0].reset(options={"init_state": index}), self.pids[:1])


class Upstream:
    """The environment that LIBERO ships, drawing every step."""

    def __init__(self, task: int, cameras: list[str]):
        from libero.libero.envs import OffScreenRenderEnv

        found = catalog.find_task(task)
        self.states = catalog.initial_states(found)
        self.env = OffScreenRenderEnv(
            bddl_file_name=str(found.bddl), camera_names=cameras, camera_heights=224, camera_widths=224, ignore_done=True
        )
        self.reset(0)

    def play(self, chunks: np.ndarray) -> Cost:
        actions = chunks.reshape(-1, 7).astype(np.float64)
        return clock(lambda: [self.env.step(a) for a in actions], [os.getpid()])

    def reset(self, index: int) -> Cost:
        def hard() -> None:
            self.env.reset()
            self.env.set_init_state(self.states[index])
            for _ in range(10):
                self.env.step(IDLE)

        return clock(hard, [os.getpid()])


def ratio(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {clock: one[clock] / max(other[clock], 0.001) for clock in ("wall", "cpu")}  # a clock of milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=5, help="everything once a round, medians over rounds")
    parser.add_argument("--chunks", type=int, default=8, help="of 8 steps, a round; upstream steps a quarter of them")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    chunks = rng.uniform(-0.5, 0.5, (arguments.chunks, 8, 7)).astype(np.float32)
    few = chunks[: max(1, arguments.chunks // 4)]

    install.configure()
    ours, single = Ours(arguments.task, chunks[0]), Upstream(arguments.task, ["agentview"])
    both = Upstream(arguments.task, ["agentview", "robot0_eye_in_hand"])
    jobs: dict[str, Callable[[int], Cost]] = {
        "ours, 1 worker": lambda _: ours.play(chunks, 1), "upstream, 1 camera": lambda _: single.play(few),
        "upstream, 2 cameras": lambda _: both.play(few), "ours, 2 workers": lambda _: ours.play(chunks, 2),
        "new": ours.reset, "seen before": ours.reset, "upstream, hard": single.reset,
    }  # fmt: skip
    costs: dict[str, list[Cost]] = {name: [] for name in jobs}
    loads = []
    for start in range(1, 1 + arguments.rounds):
        for name, job in jobs.items():
            costs[name].append(job(start))
        loads.append(os.getloadavg()[0])
    steps = {"ours, 1 worker": chunks.size // 7, "ours, 2 workers": 2 * chunks.size // 7, "upstream, 1 camera": few.size // 7,
             "upstream, 2 cameras": few.size // 7}  # fmt: skip
    middle = {name: median(found) for name, found in costs.items()}
    rates = {name: {clock: steps[name] / seconds for clock, seconds in middle[name].items()} for name in steps}
    resets = {name: middle[name] for name in ("new", "seen before", "upstream, hard")}
    result: dict[str, Any] = {
        "cores": os.cpu_count(),
        "loads": loads,
        "rounds": arguments.rounds,
        "renderer": install.choose_renderer(),
        "mujoco": install.require_mujoco(),
        "steps_per_s": rates,
        "reset_s": resets,
        "ratios": {
            "stepping against upstream, 1 camera": ratio(rates["ours, 1 worker"], rates["upstream, 1 camera"]),
            "stepping against upstream, 2 cameras": ratio(rates["ours, 1 worker"], rates["upstream, 2 cameras"]),
            "reset seen before against hard": ratio(resets["upstream, hard"], resets["seen before"]),
            "reset new against hard": ratio(resets["upstream, hard"], resets["new"]),
            "2 workers against 1": ratio(rates["ours, 2 workers"], rates["ours, 1 worker"]),
        },
    }
    for env in ours.envs:
        env.close()
    print(json.dumps(result, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
