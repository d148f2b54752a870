"""Inverse-variance denoising inside Stable-Baselines3: buffers that know the fusion weights, and the bill in its logs.

On-policy (PPO, A2C): `AnchoredRolloutBuffer` multiplies advantages by the weight. Off-policy (DQN, SAC, TD3, ...): their losses
take no weights, so `AnchoredReplayBuffer` draws transitions with probabilities proportional to them, which has the same
expectation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wmrl_envs.errors import InvalidInput, MissingExtra
from wmrl_envs.wrappers.sb3 import Sb3VecEnv

try:
    import torch
    from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.type_aliases import ReplayBufferSamples
    from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
except ImportError:
    raise MissingExtra("stable-baselines3", "sb3", "AnchoredRolloutBuffer") from None


class AnchoredRolloutBuffer(RolloutBuffer):
    """A rollout buffer for PPO and A2C on a `Sb3VecEnv`: the policy loss becomes its fusion-weighted mean.

    The weight of a transition is that of its episode (rho for anchors, 1 for others, 0 if its group was dropped), divided
    by the mean weight of the rollout. Minibatch advantages are scaled by it; returns (the value loss) are not. PPO
    normalises advantages within a minibatch, which would put a weighted batch on a scale of its own: pass
    `normalize_advantage=False` to PPO, and `normalize=True` here (default) normalises once over the rollout, before
    weighting.

    Usage: `PPO("MlpPolicy", env, rollout_buffer_class=AnchoredRolloutBuffer, normalize_advantage=False)` and
    `model.learn(n, callback=FusionWeights())`. Without the callback nothing tells the buffer the weights, so the end of
    the first rollout raises.
    """

    def __init__(self, *args: Any, normalize: bool = True, **kwargs: Any):
        self.normalize = normalize
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        super().reset()
        self.weights = np.full((self.buffer_size, self.n_envs), np.nan, dtype=np.float32)

    def set_weights(self, step: int, weights: np.ndarray) -> None:
        """The fusion weights (n_envs,) of the transitions of one step of the rollout."""
        self.weights[step] = weights

    def compute_returns_and_advantage(self, last_values: torch.Tensor, dones: np.ndarray) -> None:
        super().compute_returns_and_advantage(last_values, dones)
        if np.isnan(self.weights).any():
            raise InvalidInput("AnchoredRolloutBuffer was told no fusion weights: pass callback=FusionWeights() to learn().")
        if self.normalize:
            valid = self.advantages[self.weights > 0]
            mean, std = (valid.mean(), valid.std()) if valid.size else (0.0, 1.0)
            self.advantages = (self.advantages - mean) / (std + 1e-8)
        self.advantages = self.advantages * self.weights / max(float(self.weights.mean()), 1e-8)


class AnchoredReplayBuffer(ReplayBuffer):
    """A replay buffer for off-policy algorithms on a `Sb3VecEnv`: transitions are drawn in proportion to their fusion weights.

    The weight is that of the episode when the transition was added (rho for anchors, 1 for others); transitions of groups that
    were dropped, or predicted while the audit said "freeze", are never drawn. Box and discrete observations.

    Usage: `SAC("MlpPolicy", env, replay_buffer_class=AnchoredReplayBuffer)`.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        if kwargs.get("optimize_memory_usage"):
            raise InvalidInput(
                "AnchoredReplayBuffer(optimize_memory_usage=True): expected False, next observations have to be stored."
            )
        super().__init__(*args, **kwargs)
        self.weights = np.zeros((self.buffer_size, self.n_envs), dtype=np.float32)
        self._draw = np.random.default_rng(0)

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: list[dict[str, Any]]) -> None:
        self.weights[self.pos] = [info["wmrl"]["weight"] for info in infos]
        super().add(obs, next_obs, action, reward, done, infos)

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples:
        rows, slots = self._drawn(batch_size)
        done = self.dones[rows, slots] * (1 - self.timeouts[rows, slots])
        return ReplayBufferSamples(
            observations=self.to_torch(self._normalize_obs(self.observations[rows, slots], env)),  # type: ignore[arg-type]
            actions=self.to_torch(self.actions[rows, slots]),
            next_observations=self.to_torch(self._normalize_obs(self.next_observations[rows, slots], env)),  # type: ignore[arg-type]
            dones=self.to_torch(done[:, None]),
            rewards=self.to_torch(self._normalize_reward(self.rewards[rows, slots][:, None], env)),
        )

    def _drawn(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and slots of `n` transitions, by rejection: no sum over the whole buffer at every step."""
        filled = self.size()
        most = float(self.weights[:filled].max(initial=0.0))
        if most <= 0:
            raise InvalidInput(
                "AnchoredReplayBuffer has no transition with a weight above 0: every group was dropped, or is frozen."
            )
        rows, slots = np.zeros(0, dtype=int), np.zeros(0, dtype=int)
        while len(rows) < n:
            some_rows = self._draw.integers(filled, size=2 * n)
            some_slots = self._draw.integers(self.n_envs, size=2 * n)
            kept = self._draw.random(2 * n) * most < self.weights[some_rows, some_slots]
            rows, slots = np.concatenate([rows, some_rows[kept]]), np.concatenate([slots, some_slots[kept]])
        return rows[:n], slots[:n]


class AnchorLog(BaseCallback):
    """Writes the bill (`wmrl/real_steps`, ...) and the corrector's metrics to SB3's logger, hence to TensorBoard."""

    def _on_training_start(self) -> None:
        self._anchored = _find(self.training_env)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        venv = self._anchored.venv
        for key, value in {**venv.counts, **venv.corrector.metrics()}.items():
            self.logger.record(f"wmrl/{key}", value)


class FusionWeights(AnchorLog):
    """Hands each step's weights from the environment's infos to the `AnchoredRolloutBuffer`; and what `AnchorLog` does."""

    def _on_training_start(self) -> None:
        buffer = getattr(self.model, "rollout_buffer", None)
        if not isinstance(buffer, AnchoredRolloutBuffer):
            raise InvalidInput(f"rollout buffer {type(buffer).__name__}: expected rollout_buffer_class=AnchoredRolloutBuffer.")
        super()._on_training_start()

    def _on_step(self) -> bool:
        # Called after the step and before the buffer's `add`, so `pos` is the row of this step.
        buffer: AnchoredRolloutBuffer = self.model.rollout_buffer  # type: ignore[attr-defined]
        buffer.set_weights(buffer.pos, np.array([info["wmrl"]["weight"] for info in self.locals["infos"]]))
        return True


def _find(env: VecEnv) -> Sb3VecEnv:
    while isinstance(env, VecEnvWrapper):
        env = env.venv
    if not isinstance(env, Sb3VecEnv):
        raise InvalidInput(f"environment {type(env).__name__}: expected an Sb3VecEnv, possibly under SB3's wrappers.")
    return env
