"""What a world model is: three protocols, told apart by the method they have.

* `OutcomeModel.predict` replaces execution (code tasks), batched.
* `RewardModel.score` reads the reward off the observations of an episode that was stepped for real (VLA).
* `DynamicsModel.step` replaces an ordinary Gymnasium environment, batched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from wmrl_envs.outcome import Outcome, Solution


@dataclass(frozen=True)
class FileInfo:
    """One file the agent can read: name relative to DATA_DIR, rows (None if not tabular), columns -> dtype, size."""

    name: str
    size_bytes: int = 0
    rows: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict)  # name -> "int" | "float" | "str" | "bool"


@dataclass(frozen=True)
class TaskContext:
    """What the agent may know about its task; all a world model is ever told. Never holds an answer."""

    task: str
    overview: str = ""
    category: str = ""  # tabular | text | image
    metric: str = ""
    higher_is_better: bool = True
    files: tuple[FileInfo, ...] = ()
    submission_columns: tuple[str, ...] = ()
    id_columns: tuple[str, ...] = ()
    target_columns: tuple[str, ...] = ()
    submission_rows: int | None = None
    timeout_s: float = 1200.0
    scaffold: str | None = None  # "sklearn": the prelude has loaded and split the data (names in `scaffold_names`)
    scaffold_names: Mapping[str, Any] = field(default_factory=dict)  # e.g. {"num": [...], "cat": [...], "rows": 1000}
    history: tuple[tuple[str, str], ...] = ()  # (code, feedback) of earlier turns, oldest first


@dataclass(frozen=True)
class Episode:
    """A finished episode for a `RewardModel`. `frames`: (T, H, W, 3) uint8 or observations; `true`: real score if known."""

    observations: Sequence[Any]
    actions: Sequence[Any] = ()
    instruction: str = ""
    task: str = ""
    success: bool | None = None


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
