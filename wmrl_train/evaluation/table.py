"""The one aggregation of this project: attempts -> task -> category -> mean of the categories.

A task's avg@k is the mean score of its k attempts (an attempt's score is its best turn's), best@k their maximum, all@k
their minimum (for scores of 0 and 1: whether one, and whether every, attempt succeeded). A category is the mean of its
tasks, the overall value the mean of the categories, so that neither a category with many tasks nor a task with many attempts
weighs more. Intervals are percentile bootstraps that resample the attempts within each task: the tasks are the benchmark, not a
sample of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from wmrl_envs.errors import InvalidInput


@dataclass(frozen=True)
class Attempt:
    """One finished attempt. `score` in [0, 1], or None after a failure of ours (counted apart, never as 0)."""

    task: str
    category: str
    score: float | None
    valid: bool = False


@dataclass(frozen=True)
class Row:
    """One line of the table; scores are fractions, NaN where no attempt has one. `low`, `high`: interval of `avg`."""

    name: str
    tasks: int
    attempts: int
    failed: int
    avg: float
    low: float
    high: float
    best: float
    all: float
    valid: float


@dataclass(frozen=True)
class Table:
    """Rows by task, by category and for all of them."""

    tasks: tuple[Row, ...]
    categories: tuple[Row, ...]
    overall: Row
    confidence: float

    def as_dict(self) -> dict[str, Any]:
        """JSON-able: NaN becomes None."""
        return {
            "confidence": self.confidence,
            "overall": _jsonable(self.overall),
            "categories": {row.name: _jsonable(row) for row in self.categories},
            "tasks": {row.name: _jsonable(row) for row in self.tasks},
        }


def aggregate(attempts: Iterable[Attempt], *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0) -> Table:
    """Aggregate attempts, in any order, into a `Table`.

    Args:
        attempts: of one evaluation; a task belongs to one category.
        confidence: of the intervals, in (0, 1). resamples: of the bootstrap. seed: its seed; equal input gives an equal table.

    >>> a = [Attempt("t1", "tabular", 0.2, True), Attempt("t1", "tabular", 0.6, True), Attempt("t2", "text", 0.0)]
    >>> table = aggregate(a)
    >>> table.overall.avg, table.overall.best, table.overall.all, table.overall.valid
    (0.2, 0.3, 0.1, 0.5)
    """
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence={confidence!r}: expected a fraction between 0 and 1, for example 0.95.")
    rng = np.random.default_rng(seed)
    by_category: dict[str, dict[str, list[Attempt]]] = {}
    home: dict[str, str] = {}
    for attempt in sorted(map(_checked, attempts), key=_order):
        if home.setdefault(attempt.task, attempt.category) != attempt.category:
            raise InvalidInput(f"task {attempt.task!r} is in two categories, {home[attempt.task]!r} and {attempt.category!r}.")
        by_category.setdefault(attempt.category, {}).setdefault(attempt.task, []).append(attempt)

    task_rows, category_rows, category_means = [], [], []
    for category, tasks in by_category.items():
        rows, means = [], []
        for task, members in tasks.items():
            row, resampled = _task(task, members, confidence, resamples, rng)
            rows.append(row)
            means.append(resampled)
        task_rows += rows
        scored = [mean for mean in means if mean is not None]
        category_means.append(np.mean(scored, axis=0) if scored else None)
        category_rows.append(_mean_row(category, rows, category_means[-1], confidence))
    scored = [mean for mean in category_means if mean is not None]
    overall = _mean_row("overall", category_rows, np.mean(scored, axis=0) if scored else None, confidence)
    return Table(tuple(task_rows), tuple(category_rows), overall, confidence)


def _checked(attempt: Attempt) -> Attempt:
    score = attempt.score
    if score is not None and not (isinstance(score, (int, float, np.number)) and 0 <= score <= 1):
        raise InvalidInput(f"task {attempt.task!r} has a score of {score!r}: expected fractions in [0, 1].")
    return attempt


def _order(attempt: Attempt) -> tuple[str, str, bool, float]:
    """Sorting by everything makes the table, bootstrap included, independent of the order in which attempts finished."""
    return attempt.category, attempt.task, attempt.score is None, attempt.score or 0.0


def _task(
    name: str, members: Sequence[Attempt], confidence: float, resamples: int, rng: np.random.Generator
) -> tuple[Row, np.ndarray | None]:
    """A task's row, and the resampled means of its attempts, shape (resamples,), or None without a scored attempt."""
    ours = [m for m in members if m.score is None]
    scores = np.array([m.score for m in members if m.score is not None], float)
    if not len(scores):
        nan = float("nan")
        return Row(name, 1, 0, len(ours), nan, nan, nan, nan, nan, nan), None
    means = scores[rng.integers(len(scores), size=(resamples, len(scores)))].mean(axis=1)
    valid = float(np.mean([m.valid for m in members if m.score is not None]))
    low, high = _interval(means, confidence)
    row = Row(name, 1, len(scores), len(ours), float(scores.mean()), low, high, float(scores.max()), float(scores.min()), valid)
    return row, means


def _mean_row(name: str, rows: Sequence[Row], means: np.ndarray | None, confidence: float) -> Row:
    counted = [row for row in rows if row.attempts]

    def mean(values: list[float]) -> float:
        return float(np.mean(values)) if values else float("nan")

    low, high = (float("nan"), float("nan")) if means is None else _interval(means, confidence)
    return Row(
        name=name,
        tasks=sum(row.tasks for row in counted),
        attempts=sum(row.attempts for row in rows),
        failed=sum(row.failed for row in rows),
        avg=mean([row.avg for row in counted]),
        low=low,
        high=high,
        best=mean([row.best for row in counted]),
        all=mean([row.all for row in counted]),
        valid=mean([row.valid for row in counted]),
    )


def _interval(means: np.ndarray, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _jsonable(row: Row) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and np.isnan(value) else value for key, value in asdict(row).items()}
