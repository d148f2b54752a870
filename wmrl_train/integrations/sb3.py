"""Inverse-variance denoising inside Stable-Baselines3: a rollout buffer that multiplies advantages by the fusion weight."""

from __future__ import annotations

from typing import Any

import numpy as np

from wmrl_envs.errors import InvalidInput, MissingExtra
from wmrl_envs.wrappers.sb3 import Sb3VecEnv

try:
    import torch
    from stable_baselines3.common.buffers import RolloutBuffer
    from stable_baselines3.common.callbacks import BaseCallback
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


class FusionWeights(BaseCallback):
    """Hands each step's weights from the environment's infos to the buffer, and logs the corrector's metrics."""

    def _on_training_start(self) -> None:
        buffer = getattr(self.model, "rollout_buffer", None)
        if not isinstance(buffer, AnchoredRolloutBuffer):
            raise InvalidInput(f"rollout buffer {type(buffer).__name__}: expected rollout_buffer_class=AnchoredRolloutBuffer.")
        self._anchored = _find(self.training_env)

    def _on_step(self) -> bool:
        # Called after the step and before the buffer's `add`, so `pos` is the row of this step.
        buffer: AnchoredRolloutBuffer = self.model.rollout_buffer  # type: ignore[attr-defined]
        buffer.set_weights(buffer.pos, np.array([info["wmrl"]["weight"] for info in self.locals["infos"]]))
        return True

    def _on_rollout_end(self) -> None:
        for key, value in self._anchored.venv.corrector.metrics().items():
            self.logger.record(f"wmrl/{key}", value)


def _find(env: VecEnv) -> Sb3VecEnv:
    while isinstance(env, VecEnvWrapper):
        env = env.venv
    if not isinstance(env, Sb3VecEnv):
        raise InvalidInput(f"environment {type(env).__name__}: expected an Sb3VecEnv, possibly under SB3's wrappers.")
    return env
