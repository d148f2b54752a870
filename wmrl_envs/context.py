"""What is known of a task and of a finished episode: all that a world model is ever told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class FileInfo:
    """One file the agent can read: name relative to DATA_DIR, rows (None if not tabular), columns -> dtype, size.

    `missing`: the columns in which values are missing (None: nobody looked).
    """

    name: str
    size_bytes: int = 0
    rows: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict)  # name -> "int" | "float" | "str" | "bool"
    missing: tuple[str, ...] | None = None


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
    data_dir: str | None = None  # the folder of competitions it was loaded from, where it is not the usual one
    installed: tuple[str, ...] = ()  # libraries a program may import, as "name==version"; () where that is not known
    history: tuple[tuple[str, str], ...] = ()  # (code, feedback) of earlier turns, oldest first


@dataclass(frozen=True)
class Episode:
    """A finished episode for a `RewardModel`. `frames`: (T, H, W, 3) uint8 or observations; `true`: real score if known."""

    observations: Sequence[Any]
    actions: Sequence[Any] = ()
    instruction: str = ""
    task: str = ""
    success: bool | None = None
