"""Drop a world-model surrogate into a loop you already have: `python examples/surrogate_in_your_loop.py`.

The loop below is an ordinary single-file actor-critic (advantage actor-critic with GAE, CleanRL style) over a
`gymnasium.vector` environment. Everything that concerns WMRL is marked with `# <- wmrl`: the environment is an
`AnchoredVecEnv` instead of a `SyncVectorEnv`, and each step's advantage is multiplied by its fusion weight. Needs torch.

It learns CartPole from a learned dynamics model, and says how many real steps that took beside the imagined ones.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from wmrl_envs import AnchoredVecEnv  # <- wmrl
from wmrl_envs.world_models.dynamics import EnsembleDynamics  # <- wmrl


@dataclass
class Args:
    """Settings of a run."""

    updates: int = 60
    """policy updates"""
    num_envs: int = 16
    """parallel episodes"""
    num_steps: int = 64
    """steps of each between updates"""
    learning_rate: float = 3e-3
    gamma: float = 0.99
    gae_lambda: float = 0.95
    entropy: float = 0.01
    first_steps: int = 2000
    """real steps of random actions to fit the first dynamics model"""
    model_steps: int = 300
    """gradient steps of each fit of the dynamics model"""
    anchor_fraction: float = 0.125
    """share of the episodes that are real"""
    max_episode_steps: int = 200
    seed: int = 1


class Policy(nn.Module):
    """Two small networks: logits of the actions, value of the state."""

    def __init__(self, observations: int, actions: int):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(observations, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, actions))
        self.critic = nn.Sequential(nn.Linear(observations, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, obs: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        return Categorical(logits=self.actor(obs)), self.critic(obs)[..., 0]


def evaluate(policy: Policy, args: Args, episodes: int = 5) -> float:
    """Mean return of the greedy policy in the real environment."""
    env = gym.make("CartPole-v1", max_episode_steps=args.max_episode_steps)
    total = 0.0
    for episode in range(episodes):
        obs, _ = env.reset(seed=1000 + episode)
        done = False
        while not done:
            with torch.no_grad():
                action = int(policy(torch.as_tensor(obs))[0].logits.argmax())
            obs, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            done = terminated or truncated
    return total / episodes


def train(args: Args) -> dict[str, float]:
    """Run the loop; returns real steps, imagined steps and the return reached."""
    torch.manual_seed(args.seed)

    def make_env() -> gym.Env:
        return gym.make("CartPole-v1", max_episode_steps=args.max_episode_steps)

    probe = make_env()
    dynamics = EnsembleDynamics(  # <- wmrl
        probe.observation_space, probe.action_space, gradient_steps=args.model_steps, seed=args.seed
    )
    dynamics.collect(probe, args.first_steps, seed=args.seed)  # <- wmrl
    envs = AnchoredVecEnv(  # <- wmrl: was gym.vector.SyncVectorEnv([make_env] * args.num_envs)
        [make_env] * args.num_envs, dynamics, anchor_fraction=args.anchor_fraction, seed=args.seed
    )

    policy = Policy(int(np.prod(probe.observation_space.shape or ())), int(probe.action_space.n))  # type: ignore[attr-defined]
    optimizer = torch.optim.Adam(policy.parameters(), lr=args.learning_rate)
    obs_np, _ = envs.reset(seed=args.seed)
    next_obs, next_done = torch.as_tensor(obs_np), torch.zeros(args.num_envs)
    shape = (args.num_steps, args.num_envs)
    b_obs = torch.zeros((*shape, *(probe.observation_space.shape or ())))
    b_actions, b_rewards, b_values, b_dones, b_live, b_weights = (torch.zeros(shape) for _ in range(6))
    imagined = 0

    for update in range(args.updates):
        for t in range(args.num_steps):
            with torch.no_grad():
                distribution, b_values[t] = policy(next_obs)
                action = distribution.sample()
            b_obs[t], b_actions[t], b_live[t] = (
                next_obs,
                action,
                1 - next_done,
            )  # after an end comes a reset step: no action counts
            obs_np, reward, terminated, truncated, infos = envs.step(action.numpy())
            b_rewards[t] = torch.as_tensor(reward, dtype=torch.float32)
            next_obs, next_done = torch.as_tensor(obs_np), torch.as_tensor(terminated | truncated, dtype=torch.float32)
            b_dones[t] = torch.as_tensor(terminated, dtype=torch.float32)
            b_weights[t] = torch.as_tensor(infos["wmrl"]["weight"], dtype=torch.float32)  # <- wmrl
            imagined += int((~infos["wmrl"]["anchored"]).sum())  # <- wmrl
            # A truncated episode goes on in the value of its last state.
            with torch.no_grad():
                cut = torch.as_tensor(truncated & ~terminated, dtype=torch.float32)
                b_rewards[t] += args.gamma * cut * policy(next_obs)[1]
                b_dones[t] = torch.maximum(b_dones[t], cut)

        with torch.no_grad():
            next_value = policy(next_obs)[1]
        advantages, last = torch.zeros(shape), torch.zeros(args.num_envs)
        for t in reversed(range(args.num_steps)):
            delta = b_rewards[t] + args.gamma * next_value * (1 - b_dones[t]) - b_values[t]
            last = (delta + args.gamma * args.gae_lambda * (1 - b_dones[t]) * last) * b_live[t]
            advantages[t], next_value = last, b_values[t]
        returns = advantages + b_values

        distribution, values = policy(b_obs)
        weights = b_weights * b_live  # <- wmrl: was b_live
        scaled = (advantages - advantages[b_live > 0].mean()) / (advantages[b_live > 0].std() + 1e-8)
        policy_loss = -(weights * scaled * distribution.log_prob(b_actions)).sum() / weights.sum()
        value_loss = (b_live * (returns - values) ** 2).sum() / b_live.sum()
        loss = policy_loss + 0.25 * value_loss - args.entropy * (b_live * distribution.entropy()).sum() / b_live.sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        if update % 10 == 9:
            print(
                f"update {update + 1:4}: real steps {dynamics.n_transitions:6}, imagined {imagined:6}, return "
                f"{evaluate(policy, args):6.1f}"
            )

    envs.close()
    return {"real_steps": dynamics.n_transitions, "imagined_steps": imagined, "return": evaluate(policy, args)}


def main() -> None:
    args = Args()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in vars(args).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    print(train(Args(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
