"""LIBERO-Long-v0 against the upstream environment it wraps: simulated steps a second, resets, two workers. Same machine, one run.

    python benchmarks/libero_env.py [--task 7] [--steps 160] [--json out.json]

1. Stepping: chunks of 8 with a 224-pixel picture each, against upstream's `OffScreenRenderEnv` (its default two cameras,
   and one) drawing every step. The actions are the same. Random: the arm moves.
2. Reset: ours, to a start seen before (a group's second episode) and to a new one, against upstream's hard reset with its
   ten settling steps and first pictures.
3. Workers: steps a second of two environments, each in its process, against one.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import numpy as np

import wmrl_envs  # noqa: F401
from wmrl_envs.envs.libero import catalog, install
from wmrl_envs.envs.libero.simulator import IDLE


def clock(job: Callable[[], object]) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def ours(task: int, chunks: np.ndarray, workers: int) -> tuple[float, dict[str, float]]:
    """Steps a second of `workers` environments at once, and reset times of the first."""
    envs = [gym.make("LIBERO-Long-v0", task=task, init_states="all", max_steps=10**6) for _ in range(workers)]
    for env in envs:
        env.reset(options={"init_state": 0})
        env.step(chunks[0])  # numba compiles

    def play(env: gym.Env) -> None:
        for chunk in chunks:
            *_, terminated, truncated, info = env.step(chunk)
            if info["wmrl"]["status"] != "ok" or terminated or truncated:
                raise RuntimeError(f"the benchmark episode ended early: {info}")

    threads = [threading.Thread(target=play, args=(env,)) for env in envs]
    wall = clock(lambda: ([t.start() for t in threads], [t.join() for t in threads]))
    resets: dict[str, float] = {}
    if workers == 1:
        env = envs[0]
        resets["new"] = float(np.median([clock(lambda i=i: env.reset(options={"init_state": i})) for i in range(1, 6)]))
        resets["seen before"] = float(np.median([clock(lambda i=i: env.reset(options={"init_state": i})) for i in range(1, 6)]))
    for env in envs:
        env.close()
    return workers * chunks.shape[0] * chunks.shape[1] / wall, resets


def upstream(task: int, chunks: np.ndarray, cameras: list[str], resets: int) -> tuple[float, float]:
    """Steps a second of the upstream environment, and seconds of a hard reset (0 resets: not measured)."""
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
    wall = clock(lambda: [env.step(a) for a in actions])
    reset = float(np.median([clock(lambda i=i: hard(i)) for i in range(1, 1 + resets)])) if resets else 0.0
    env.close()
    return len(actions) / wall, reset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", type=int, default=7)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chunks = np.random.default_rng(0).uniform(-0.5, 0.5, (arguments.steps // 8, 8, 7)).astype(np.float32)

    one, reset = ours(arguments.task, chunks, 1)
    two, _ = ours(arguments.task, chunks, 2)
    install.configure()
    both, hard = upstream(arguments.task, chunks[:5], ["agentview", "robot0_eye_in_hand"], 3)
    single, _ = upstream(arguments.task, chunks[:5], ["agentview"], 0)
    result = {
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "renderer": install.choose_renderer(),
        "mujoco": install.require_mujoco(),
        "steps_per_s": {
            "ours, 1 worker": one,
            "ours, 2 workers": two,
            "upstream, 2 cameras": both,
            "upstream, 1 camera": single,
        },
        "reset_s": {**reset, "upstream, hard": hard},
        "ratios": {
            "stepping against upstream, 1 camera": one / single,
            "stepping against upstream, 2 cameras": one / both,
            "reset seen before against hard": hard / reset["seen before"],
            "reset new against hard": hard / reset["new"],
            "2 workers against 1": two / one,
        },
    }
    print(json.dumps(result, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
