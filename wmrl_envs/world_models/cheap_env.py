"""`CheapEnvModel`: a cheap simulator as the surrogate of an expensive one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from wmrl_envs.errors import InvalidInput

log = logging.getLogger(__name__)


class CheapEnvModel:
    """A `DynamicsModel` that is an environment: a coarser time step, a simpler scene, a smaller board. One a slot.

    Without `set_state`, predicted episodes are played in the cheap environment from its own reset (with the seed of the
    episode), so that the real reset is spared; beside an anchor it starts with the same seed and takes the same actions. With
    `set_state`, it is put where the real environment is before every step, so that anchors judge single steps.

    Args:
        make_env: makes one; observation and action spaces as those of the base of the real environment. Its own time limit does
            not count, the real environment's does.
        set_state: (environment, observation) -> None: puts it into the state of that observation.

    >>> import gymnasium as gym
    >>> from wmrl_envs import WorldModelEnv
    >>> env = WorldModelEnv(gym.make("CartPole-v1"), CheapEnvModel(lambda: gym.make("CartPole-v1")))
    >>> bool((env.reset(seed=1)[0] == gym.make("CartPole-v1").reset(seed=1)[0]).all()), env.step(0)[1]
    (True, 1.0)
    """

    def __init__(
        self, make_env: Callable[[], gymnasium.Env], *, set_state: Callable[[gymnasium.Env, np.ndarray], None] | None = None
    ):
        if not callable(make_env) or isinstance(make_env, gymnasium.Env):
            raise InvalidInput(
                f"CheapEnvModel({type(make_env).__name__}): expected a function that makes an environment, such as lambda: "
                "gym.make(...)."
            )
        self._make_env, self._set_state = make_env, set_state
        self._envs: dict[int, gymnasium.Env] = {}
        self._over: set[int] = set()
        self._warned = False

    # -- what a dynamics model does ----------------------------------------------------------------------------------
    def begin(
        self, slot: int, *, seed: int | None, options: dict[str, Any] | None, observation: Any
    ) -> tuple[Any, dict[str, Any]] | None:
        """An episode begins: where the cheap environment starts it, unless it is put where the real one is."""
        self._over.discard(slot)
        if self._set_state is not None:
            if slot not in self._envs or observation is not None:
                self._env(slot).reset(seed=seed, options=options)  # some environments refuse to step before a reset
            return None
        started, info = self._env(slot).reset(seed=seed, options=options)
        if observation is None:
            return started, dict(info)
        if not self._warned and not np.allclose(
            np.asarray(started, dtype=float), np.asarray(observation, dtype=float), atol=1e-6
        ):
            self._warned = True
            log.warning(
                "The cheap environment starts elsewhere than the real one with seed %s, so that its rewards beside an anchor "
                "are those of "
                "another episode: let both start alike, or pass set_state (said once).", seed,
            )  # fmt: skip
        return None

    def step_slots(
        self, slots: Sequence[int], observations: np.ndarray, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Next observations (n, *obs), rewards (n,), terminated (n,) and truncated (n,: never) of one step in each slot."""
        rows = [self._step(*row) for row in zip(slots, observations, actions, strict=True)]
        after, rewards, terminated = zip(*rows, strict=True)
        return (
            np.stack(after),
            np.array(rewards, dtype=float),
            np.array(terminated, dtype=bool),
            np.zeros(len(rows), dtype=bool),
        )

    def step(self, observations: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`step_slots` of slots 0, 1, ...: next observations, rewards, terminated."""
        return self.step_slots(range(len(observations)), observations, actions)[:3]

    def close(self) -> None:
        """Close the environments."""
        while self._envs:
            self._envs.popitem()[1].close()

    # -- inside ------------------------------------------------------------------------------------------------------
    def _step(self, slot: int, observation: np.ndarray, action: np.ndarray) -> tuple[Any, float, bool]:
        env = self._env(slot)
        if self._set_state is not None:
            self._set_state(env, observation)
        elif slot in self._over:
            raise ResetNeeded(f"the episode of slot {slot} has ended in the cheap environment: call begin() first.")
        after, reward, terminated, _, _ = env.step(action)
        if terminated and self._set_state is None:
            self._over.add(slot)
        return np.asarray(after), float(reward), bool(terminated)

    def _env(self, slot: int) -> gymnasium.Env:
        if slot not in self._envs:
            env = self._envs[slot] = self._make_env()
            if self._set_state is not None:
                env.reset()
        return self._envs[slot]
