"""PPO from Stable-Baselines3 on an anchored CartPole: `python examples/cartpole_sb3.py` (needs the extra [sb3]).

One episode in eight is played in the real CartPole, the others in a dynamics model learned from those. It prints real
steps used and return reached, beside plain PPO given the same number of real steps and beside plain PPO given as many
steps in all. One run with `--steps 40000` (one seed, so an example and not a measurement): anchored PPO 500 with 7,652 real
steps, plain PPO 240 with as many, 500 with 40,000.
"""

from __future__ import annotations

import argparse
import logging

import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecMonitor

from wmrl_envs import AnchoredVecEnv
from wmrl_envs.world_models.dynamics import EnsembleDynamics
from wmrl_envs.wrappers.sb3 import Sb3VecEnv
from wmrl_train.integrations.sb3 import AnchoredRolloutBuffer, FusionWeights

PPO_SETTINGS = {"n_steps": 128, "batch_size": 256, "n_epochs": 10, "learning_rate": 1e-3, "gae_lambda": 0.95, "device": "cpu"}


def make() -> gym.Env:
    return gym.make("CartPole-v1")


def real_return(model: PPO, episodes: int = 10) -> float:
    """Mean return of the greedy policy in the real environment (500 is the most)."""
    mean, _ = evaluate_policy(model, Monitor(make()), n_eval_episodes=episodes)
    return float(mean)  # type: ignore[arg-type]


def anchored(steps: int, envs: int, fraction: float, first_steps: int, seed: int, model_steps: int = 300) -> tuple[PPO, int]:
    """PPO on predicted and real episodes; returns the model and the real steps used."""
    env = make()
    dynamics = EnsembleDynamics(env.observation_space, env.action_space, seed=seed, refit_every=500, gradient_steps=model_steps)
    dynamics.collect(env, first_steps, seed=seed)
    venv = AnchoredVecEnv([make] * envs, dynamics, anchor_fraction=fraction, seed=seed)
    model = PPO("MlpPolicy", VecMonitor(Sb3VecEnv(venv), info_keywords=("anchored", "wm_reward", "real_reward")), seed=seed,
                rollout_buffer_class=AnchoredRolloutBuffer, normalize_advantage=False, **PPO_SETTINGS)  # fmt: skip
    model.learn(steps, callback=FusionWeights())
    model.get_env().close()  # type: ignore[union-attr]
    return model, dynamics.n_transitions


class StopAt(BaseCallback):
    """Ends `learn` at a number of steps exactly counted, not rounded up to a rollout."""

    def __init__(self, steps: int):
        super().__init__()
        self.steps = steps

    def _on_step(self) -> bool:
        return self.num_timesteps < self.steps


def plain(steps: int, envs: int, seed: int) -> PPO:
    """PPO on the real environment alone."""
    model = PPO("MlpPolicy", make_vec_env(make, n_envs=envs, seed=seed), seed=seed, **PPO_SETTINGS)
    model.learn(steps, callback=StopAt(steps))
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60_000, help="steps in all, real and predicted")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--fraction", type=float, default=0.125, help="share of the episodes that is real")
    parser.add_argument("--first-steps", type=int, default=2000, help="real steps of random actions for the first model")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.getLogger("wmrl_envs").setLevel(logging.ERROR)  # CartPole's reward is constant: nothing to calibrate

    model, real_steps = anchored(args.steps, args.envs, args.fraction, args.first_steps, args.seed)
    rows = [
        ("anchored PPO", real_steps, real_return(model)),
        ("plain PPO, as many real steps", real_steps, real_return(plain(real_steps, args.envs, args.seed))),
        ("plain PPO, as many steps in all", args.steps, real_return(plain(args.steps, args.envs, args.seed))),
    ]
    print(f"{'':32} {'real steps':>10} {'return':>7}")
    for name, steps, score in rows:
        print(f"{name:32} {steps:10,} {score:7.1f}")


if __name__ == "__main__":
    main()
