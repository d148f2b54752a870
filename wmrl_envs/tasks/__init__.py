"""Competitions: what they are, where their files lie, and how a submission is graded."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_LAZY = {
    "task_spec": "wmrl_envs.tasks.spec",
    "TaskSpec": "wmrl_envs.tasks.spec",
    "load_competition": "wmrl_envs.tasks.competition",
    "prepared_competitions": "wmrl_envs.tasks.competition",
    "Competition": "wmrl_envs.tasks.competition",
    "list_competitions": "wmrl_envs.tasks.catalog",
    "Leaderboard": "wmrl_envs.tasks.leaderboard",
    "Position": "wmrl_envs.tasks.leaderboard",
    "BoardPosition": "wmrl_envs.tasks.leaderboard",
    "grade": "wmrl_envs.tasks.grading",
    "InvalidSubmission": "wmrl_envs.tasks.validation",
    "SubmissionError": "wmrl_envs.tasks.validation",
    "task_context": "wmrl_envs.tasks.overview",
}
__all__ = [
    "BoardPosition",
    "Competition",
    "InvalidSubmission",
    "Leaderboard",
    "Position",
    "SubmissionError",
    "TaskSpec",
    "grade",
    "list_competitions",
    "load_competition",
    "prepared_competitions",
    "task_context",
    "task_spec",
]

if TYPE_CHECKING:
    from wmrl_envs.tasks.catalog import list_competitions
    from wmrl_envs.tasks.competition import Competition, load_competition, prepared_competitions
    from wmrl_envs.tasks.grading import grade
    from wmrl_envs.tasks.leaderboard import BoardPosition, Leaderboard, Position
    from wmrl_envs.tasks.overview import task_context
    from wmrl_envs.tasks.spec import TaskSpec, task_spec
    from wmrl_envs.tasks.validation import InvalidSubmission, SubmissionError


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'wmrl_envs.tasks' has no attribute {name!r}")
