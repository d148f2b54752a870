"""What a world model is: three protocols, told apart by the method they have.

* `OutcomeModel.predict` replaces execution (code tasks), batched.
* `RewardModel.score` reads the reward off the observations of an episode that was stepped for real (VLA).
* `DynamicsModel.step` replaces an ordinary Gymnasium environment, batched.

What a model may be able to do besides is declared too: `LearningModel`, `Resumable`, `Seedable`, `Doubting`, `Priced`,
`EpisodicModel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from wmrl_envs.context import Episode, TaskContext
from wmrl_envs.outcome import Outcome, Solution


@runtime_checkable
class OutcomeModel(Protocol):
    """Predicts what execution would report. `len(result) == len(solutions)`; every score lies in [0, 1]."""

    def predict(self, solutions: Sequence[Solution], contexts: Sequence[TaskContext]) -> list[Outcome]: ...


@runtime_checkable
class RewardModel(Protocol):
    """Scores finished episodes; result of shape (len(episodes),), every score in [0, 1]."""

    def score(self, episodes: Sequence[Episode]) -> np.ndarray: ...


@runtime_checkable
class DynamicsModel(Protocol):
    """One batched step of a learned environment: (n, *obs), (n, *act) -> obs (n, *obs), reward (n,), terminated (n,)."""

    def step(self, observations: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...


@runtime_checkable
class EpisodicModel(DynamicsModel, Protocol):
    """A dynamics model that keeps something from step to step of an episode, and may start episodes by itself."""

    def begin(
        self, slot: int, *, seed: int | None, options: dict[str, Any] | None, observation: Any
    ) -> tuple[Any, dict] | None:
        """An episode begins in the slot.

        Args:
            slot: number of the environment.
            seed: seed of the reset.
            options: options of the reset.
            observation: the real one it starts from; None if the model may start it (a predicted episode): then what `reset`
                would return, (observation, info), and the real reset is spared; or None, and it is called again with the real
                observation.
        """

    def step_slots(
        self, slots: Sequence[int], observations: np.ndarray, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `step`, of these slots; and truncated (n,): the model does not trust itself any further."""


@runtime_checkable
class LearningModel(Protocol):
    """A world model that learns from what was executed, after it was paid.

    Outcome models: `update(solutions, contexts, outcomes)`, executed outcomes only, none that failed for reasons of ours.
    Dynamics models: `update(observations, actions, rewards, next_observations, terminated)`, arrays with n rows each.
    """

    def update(self, *executed: Any) -> None: ...


@runtime_checkable
class Resumable(Protocol):
    """State that goes into a checkpoint. `state_dict` of outcome models is JSON-able."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Any, /) -> None: ...


@runtime_checkable
class Seedable(Protocol):
    """A model with randomness of its own, started over by `reset(seed=...)`."""

    def seed(self, seed: int, /) -> Any: ...


@runtime_checkable
class Doubting(Protocol):
    """A model that knows where it is in doubt: there anchors are worth most."""

    def spread(self, task: str, /) -> float:
        """Standard deviation of its opinions on solutions of a task lately, in units of the score."""


@runtime_checkable
class Priced(Protocol):
    """A model whose predictions cost executions, and that keeps processes to be ended."""

    @property
    def cost_s(self) -> float:
        """CPU seconds of the sandbox that a prediction costs, as seen so far."""

    def close(self) -> None: ...
