"""What a world model is: three protocols, told apart by the method they have.

* `OutcomeModel.predict` replaces execution (code tasks), batched.
* `RewardModel.score` reads the reward off the observations of an episode that was stepped for real (VLA).
* `DynamicsModel.step` replaces an ordinary Gymnasium environment, batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from wmrl_envs.context import Episode, TaskContext
from wmrl_envs.outcome import Outcome, Solution


@runtime_checkable
class OutcomeModel(Protocol):
    """Predicts what execution would report. `len(result) == len(solutions)`; every score lies in [0, 1].

    A model that learns online also has `update(solutions, contexts, outcomes)`, called with executed outcomes only.
    """

    def predict(self, solutions: Sequence[Solution], contexts: Sequence[TaskContext]) -> list[Outcome]: ...


@runtime_checkable
class RewardModel(Protocol):
    """Scores finished episodes; result of shape (len(episodes),), every score in [0, 1]."""

    def score(self, episodes: Sequence[Episode]) -> np.ndarray: ...


@runtime_checkable
class DynamicsModel(Protocol):
    """One batched step of a learned environment: (n, *obs), (n, *act) -> obs (n, *obs), reward (n,), terminated (n,)."""

    def step(self, observations: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...
