"""By how much two sides differ: paired differences, task by task and over all tasks, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from wmrl_train.evaluation.compare.sides import Side

RESAMPLES, CONFIDENCE = 2000, 0.95


@dataclass(frozen=True)
class Difference:
    """One row: what both sides have.

    Attributes:
        name: of a task, or "all tasks".
        first, second: mean scores, fractions. difference: second minus first.
        low, high: 95 % interval of the difference; None where one pair says nothing about it.
        pairs: repeats, initial states or tasks that both sides have.
        better, worse: pairs in which the second scores higher, or lower.
    """

    name: str
    first: float
    second: float
    difference: float
    low: float | None
    high: float | None
    pairs: int
    better: int
    worse: int


@dataclass(frozen=True)
class Comparison:
    """Of `second` with `first`.

    Attributes:
        over: what the interval of "all tasks" is over: "pairs" within the tasks, or "tasks" where only their means are known.
        overall: None where there is no task in common.
        left_out: tasks that only one side has.
    """

    first: str
    second: str
    over: str
    tasks: tuple[Difference, ...]
    overall: Difference | None
    left_out: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(first: Side, second: Side, seed: int = 0) -> Comparison:
    """Paired differences of two sides. Equal input gives an equal answer.

    "All tasks" is the mean over categories of the mean over tasks, as in the table of an evaluation. Intervals are percentile
    bootstraps of the paired differences within each task; where the sides have only a mean a task, over the tasks.

    Args:
        first: the side that differences are counted from.
        second: the side compared with it; a difference is second minus first.
        seed: of the bootstrap.
    """
    rng = np.random.default_rng(seed)
    common = {
        task: sorted(first.scores[task].keys() & second.scores[task].keys()) for task in first.scores if task in second.scores
    }
    by_task = {task: units for task, units in common.items() if units}
    for task in common.keys() - by_task.keys():  # a run's mean against an evaluation's episodes
        by_task[task] = []
    pairs = {task: _pairs(first, second, task, units) for task, units in sorted(by_task.items())}
    rows = [_row(task, p, _resampled(p, rng)) for task, p in pairs.items()]
    over = "pairs" if any(len(p) > 1 for p in pairs.values()) else "tasks"
    groups: dict[str, list[np.ndarray]] = {}
    for task, p in pairs.items():
        category = second.categories.get(task) or first.categories.get(task) or ""
        groups.setdefault(category if over == "pairs" else "", []).append(p)
    overall = _overall(list(groups.values()), over, rng) if rows else None
    left_out = tuple(sorted(first.scores.keys() ^ second.scores.keys()))
    return Comparison(first.name, second.name, over, tuple(rows), overall, left_out)


def _pairs(first: Side, second: Side, task: str, units: Sequence[tuple[Any, ...]]) -> np.ndarray:
    """Scores of both sides, shape (pairs, 2)."""
    if not units:
        return np.array([[np.mean(list(side.scores[task].values())) for side in (first, second)]])
    return np.array([[side.scores[task][unit] for side in (first, second)] for unit in units])


def _resampled(pairs: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """Means of the difference in bootstrap samples, shape (RESAMPLES,); None for a single pair."""
    if len(pairs) < 2:
        return None
    difference = pairs[:, 1] - pairs[:, 0]
    return difference[rng.integers(len(pairs), size=(RESAMPLES, len(pairs)))].mean(axis=1)


def _row(name: str, pairs: np.ndarray, resampled: np.ndarray | None, means: Sequence[float] | None = None) -> Difference:
    first, second = pairs.mean(axis=0) if means is None else means
    low = high = None
    if resampled is not None:
        low, high = map(float, np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]))
    gap = pairs[:, 1] - pairs[:, 0]
    better, worse = int((gap > 0).sum()), int((gap < 0).sum())
    return Difference(name, float(first), float(second), float(second - first), low, high, len(pairs), better, worse)


def _overall(categories: Sequence[Sequence[np.ndarray]], over: str, rng: np.random.Generator) -> Difference:
    every = np.concatenate([p for tasks in categories for p in tasks])
    if over == "tasks":
        return _row("all tasks", every, _resampled(every, rng))
    means = _mean([_mean([p.mean(axis=0) for p in tasks]) for tasks in categories])
    resampled = _mean([_mean([_within(p, rng) for p in tasks]) for tasks in categories])
    return _row("all tasks", every, resampled, means.tolist())


def _within(pairs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    found = _resampled(pairs, rng)
    return np.full(RESAMPLES, (pairs[:, 1] - pairs[:, 0]).mean()) if found is None else found


def _mean(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.mean(list(parts), axis=0)
