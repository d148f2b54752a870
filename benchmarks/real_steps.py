"""Does it pay? Real steps until a policy reaches a threshold, anchored against plain: `python benchmarks/real_steps.py` prints a table.

PPO (and SAC on continuous actions) from Stable-Baselines3, with their plain environments, and anchored with a learned `EnsembleDynamics` or with a
`CheapEnvModel` of the same simulator at another time step. Every 2,048 (SAC: 1,000) steps in all, the greedy policy plays ten real episodes; the bill is
`venv.counts["real_steps"]` plus the first random steps of the learned model. Needs the extra [sb3]; minutes to hours, so pick with `--task`, `--how`, `--seeds`.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import gymnasium as gym
import numpy as np

from wmrl_envs import AnchoredVecEnv, CheapEnvModel
from wmrl_envs.world_models.dynamics import EnsembleDynamics

ENVS, FIRST = 8, 2000


@dataclass(frozen=True)
class Task:
    """An environment, the return that counts as solved, and the most steps in all."""

    env: str
    threshold: float
    steps: int
    gamma: float = 0.99
    step_size: str | None = None  # attribute of the simulator that `CheapEnvModel` doubles


TASKS = {
    "cartpole": Task("CartPole-v1", 475.0, 80_000, step_size="tau"),
    "acrobot": Task("Acrobot-v1", -100.0, 120_000, step_size="dt"),
    "pendulum": Task("Pendulum-v1", -250.0, 200_000, 0.9, step_size="dt"),
    "hopper": Task("Hopper-v5", 1000.0, 300_000),
}
HOW = ("plain", "ensemble", "cheap")


@dataclass
class Run:
    """Result of one run; `real_steps`: at the threshold, None if it was not reached."""

    task: str
    how: str
    algorithm: str
    seed: int
    real_steps: int | None
    best: float
    spent: int
    cpu_s: float


def coarse(task: Task) -> gym.Env:
    """The simulator with twice the time step."""
    env = gym.make(task.env)
    if task.step_size is not None:
        base = env.unwrapped
        setattr(base, task.step_size, 2 * getattr(base, task.step_size))
    return env


def run(name: str, how: str, algorithm: str, seed: int) -> Run:
    """Train until the threshold or the end."""
    from stable_baselines3 import PPO, SAC
    from stable_baselines3.common.callbacks import BaseCallback, CallbackList
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    from wmrl_envs.wrappers.sb3 import Sb3VecEnv
    from wmrl_train.integrations.sb3 import AnchoredReplayBuffer, AnchoredRolloutBuffer, FusionWeights

    task = TASKS[name]

    def make() -> gym.Env:
        return gym.make(task.env)

    first, venv = 0, None
    if how == "plain":
        env = make_vec_env(make, n_envs=ENVS, seed=seed)
    else:
        model = CheapEnvModel(lambda: coarse(task)) if how == "cheap" else learned(task, seed)
        first = 0 if how == "cheap" else FIRST
        venv = AnchoredVecEnv([make] * ENVS, model, anchor_fraction=0.125, seed=seed)
        env = Sb3VecEnv(venv)

    def real(steps: int) -> int:
        return steps if venv is None else first + venv.counts["real_steps"]

    class Watch(BaseCallback):
        every, best, reached = (2048 if algorithm == "ppo" else 1000), -np.inf, None
        due = every

        def _on_step(self) -> bool:
            if self.num_timesteps < self.due:
                return True
            self.due += self.every
            mean = float(evaluate_policy(self.model, Monitor(make()), n_eval_episodes=10)[0])
            self.best = max(self.best, mean)
            if mean >= task.threshold:
                self.reached = real(self.num_timesteps)
            return self.reached is None

    watch, began = Watch(), time.process_time()
    if algorithm == "ppo":
        settings = {
            "n_steps": 128,
            "batch_size": 256,
            "n_epochs": 10,
            "learning_rate": 1e-3,
            "gae_lambda": 0.95,
            "gamma": task.gamma,
        }
        if venv is not None:
            settings |= {"rollout_buffer_class": AnchoredRolloutBuffer, "normalize_advantage": False}
        agent = PPO("MlpPolicy", env, seed=seed, device="cpu", **settings)
        agent.learn(task.steps, callback=watch if venv is None else CallbackList([FusionWeights(), watch]))
    else:
        settings = {"learning_starts": 500, "batch_size": 64, "gradient_steps": 4, "learning_rate": 1e-3, "gamma": task.gamma}
        if venv is not None:
            settings |= {"replay_buffer_class": AnchoredReplayBuffer}
        agent = SAC("MlpPolicy", env, seed=seed, device="cpu", policy_kwargs={"net_arch": [64, 64]}, **settings)
        agent.learn(task.steps, callback=watch)
    spent = real(agent.num_timesteps)
    env.close()
    return Run(name, how, algorithm, seed, watch.reached, round(watch.best, 1), spent, round(time.process_time() - began, 1))


def learned(task: Task, seed: int) -> EnsembleDynamics:
    """A dynamics model fitted on the first random steps."""
    env = gym.make(task.env)
    base = env.unwrapped
    model = EnsembleDynamics(base.observation_space, base.action_space, seed=seed, refit_every=500, gradient_steps=300)
    return model.collect(env, FIRST, seed=seed)


def table(runs: list[Run], reduce: Callable[..., float] = np.median) -> list[str]:
    """One line a task and algorithm: medians of the real steps of each way, and how many seeds arrived."""
    lines = [f"{'task':18} " + " ".join(f"{how:>22}" for how in HOW)]
    for key in dict.fromkeys((r.task, r.algorithm) for r in runs):
        cells = []
        for how in HOW:
            mine = [r for r in runs if (r.task, r.algorithm) == key and r.how == how]
            steps = [r.real_steps if r.real_steps is not None else float("inf") for r in mine]
            cells.append(f"{reduce(steps):>12,.0f} ({sum(np.isfinite(steps))}/{len(mine)})" if mine else "-")
        lines.append(f"{' '.join(key):18} " + " ".join(f"{cell:>22}" for cell in cells))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="*", choices=TASKS, default=["cartpole", "acrobot", "pendulum"])
    parser.add_argument("--how", nargs="*", choices=HOW, default=list(HOW))
    parser.add_argument("--algorithm", nargs="*", choices=("ppo", "sac"), default=["ppo"])
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    logging.getLogger("wmrl_envs").setLevel(logging.ERROR)
    import torch

    torch.set_num_threads(1)
    runs = []
    for name in args.task:
        discrete = isinstance(gym.make(TASKS[name].env).action_space, gym.spaces.Discrete)
        for algorithm in args.algorithm:
            for how in args.how:
                if (algorithm == "sac" and discrete) or (how == "cheap" and TASKS[name].step_size is None):
                    continue
                for seed in range(args.seeds):
                    runs.append(run(name, how, algorithm, seed))
                    print(json.dumps(asdict(runs[-1])), flush=True)
    print("\n" + "\n".join(table(runs)))


if __name__ == "__main__":
    main()
