"""Speed of the vector environment and of the correction: `python benchmarks/vector.py` prints a table.

Overhead is the time of a vector step less that of gymnasium's `SyncVectorEnv` over the same environments, divided by the
number of environments. The world model is free (it answers at once), so what remains is ours; in predicted slots the
environment's own step is saved, which is why the environment is one that costs nothing to step.
"""

from __future__ import annotations

import argparse
import time

import gymnasium
import numpy as np
from gymnasium import spaces

from wmrl_envs import AnchoredVecEnv
from wmrl_envs.context import TaskContext
from wmrl_envs.correction import AnchorPool, Recalibrator
from wmrl_envs.envs.executable import ExecutableEnv
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution

LIMITS = {"dynamics, overhead a step": 25.0, "outcome, overhead a step": 25.0}


class Idle(gymnasium.Env):
    """Costs nothing to step; episodes of 50 steps."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)
    _obs = np.zeros(4, dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._obs, {}

    def step(self, action):
        self.t += 1
        return self._obs, 0.5, self.t == 50, False, {}


class IdleExecutable(Idle, ExecutableEnv):
    """The same as an executable environment."""

    _context = TaskContext("idle")
    _outcome = Outcome(ExecutionStatus.OK, score=0.5)

    def propose(self, action):
        return Solution(action=action, task="idle")

    def execute(self, solution):
        return self._outcome

    def observe(self, outcome):
        return Idle.step(self, None)

    def context(self):
        return self._context

    def step(self, action):
        return self.observe(self.execute(self.propose(action)))


class Free:
    """A dynamics model that answers at once."""

    def step(self, observations, actions):
        n = len(observations)
        return observations, np.full(n, 0.5), np.zeros(n, dtype=bool)


class FreeOutcomes:
    """An outcome model that answers at once."""

    _outcome = Outcome(ExecutionStatus.OK, score=0.5, source="predicted")

    def predict(self, solutions, contexts):
        return [self._outcome] * len(solutions)


def step_seconds(venv, steps: int) -> float:
    """Median CPU seconds of a vector step, all threads (the world model is free, so nothing is waited for)."""
    venv.reset(seed=0)
    actions = np.zeros(venv.num_envs, dtype=np.int64)
    times = []
    for _ in range(steps):
        start = time.process_time()
        venv.step(actions)
        times.append(time.process_time() - start)
    venv.close()
    return float(np.median(times))


def overheads(n: int, steps: int) -> dict[str, float]:
    """Microseconds an environment step, over `SyncVectorEnv`, for both kinds; medians of three rounds, interleaved."""
    rounds: dict[str, list[float]] = {}
    for _ in range(3):
        for kind, env, model in (("dynamics", Idle, Free()), ("outcome", IdleExecutable, FreeOutcomes())):
            plain = step_seconds(gymnasium.vector.SyncVectorEnv([env] * n), steps)
            ours = step_seconds(AnchoredVecEnv([env] * n, model, max_episode_steps=50), steps)
            rounds.setdefault(f"{kind}, SyncVectorEnv a step", []).append(plain / n * 1e6)
            rounds.setdefault(f"{kind}, overhead a step", []).append((ours - plain) / n * 1e6)
    return {key: float(np.median(values)) for key, values in rounds.items()}


def refits(pairs: int) -> dict[str, float]:
    """Milliseconds of a refit with so many pairs in the pool."""
    rng = np.random.default_rng(0)
    true = rng.random(pairs)
    predicted = np.clip(0.3 + 0.5 * true**1.5 + 0.1 * rng.normal(size=pairs), 0, 1)
    out = {}
    for name, arguments in {"inverse": {}, "regression": {"direction": "regression"}, "two-stage": {"two_stage": True}}.items():
        f = Recalibrator(**arguments)
        f.pool.add(predicted, true)
        f.refit()
        times = []
        for _ in range(5):
            start = time.perf_counter()
            f.refit()
            times.append(time.perf_counter() - start)
        out[f"refit, {name}"] = 1e3 * float(np.median(times))
    return out


def insertions() -> dict[str, float]:
    """Microseconds to insert 8 pairs into an empty pool and into one of 100,000."""
    pool, scores, out = AnchorPool(), np.full(8, 0.5), {}
    for name, size in (("empty pool", 0), ("pool of 100,000", 100_000)):
        if size:
            pool.add(np.full(size - len(pool), 0.5), np.full(size - len(pool), 0.5))
        times = []
        for group in range(1000):
            start = time.perf_counter()
            pool.add(scores, scores, group=group)
            times.append(time.perf_counter() - start)
        out[f"insert 8 pairs, {name}"] = 1e6 * float(np.median(times))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=100_000)
    args = parser.parse_args()
    print(f"{args.envs} environments, {args.pairs:,} pairs\n")
    print(f"{'what':42} {'value':>9}  unit  limit")
    for rows, unit in ((overheads(args.envs, args.steps), "us"), (refits(args.pairs), "ms"), (insertions(), "us")):
        for name, value in rows.items():
            limit = LIMITS.get(name, 50.0 if name.startswith("refit") else None)
            print(f"{name:42} {value:9.1f}  {unit}    {'' if limit is None else limit}")


if __name__ == "__main__":
    main()
