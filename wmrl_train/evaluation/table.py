"""The one aggregation of this project: episodes -> task -> category -> mean of the categories.

A task's avg@k is the mean score of its k episodes (an episode's score is its best turn's), best@k their maximum, all@k
their minimum (for scores of 0 and 1: whether one, and whether every, episode succeeded). A category is the mean of its
tasks, the overall value the mean of the categories, so that neither a category with many tasks nor a task with many episodes
weighs more. Intervals are percentile bootstraps that resample the episodes within each task: the tasks are the benchmark, not a
sample of one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

from wmrl_envs.errors import InvalidInput


class Scored(Protocol):
    """A finished episode, of which a `Trajectory` of `wmrl_train.episodes.store` is one.

    Attributes:
        score: in [0, 1], or None after a failure of ours (counted apart, never as 0).
        valid: whether any of its turns was accepted.
        statuses: how each of its turns ended (`ExecutionStatus`).
    """

    @property
    def task(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def score(self) -> float | None: ...
    @property
    def valid(self) -> bool: ...
    @property
    def statuses(self) -> Sequence[str]: ...


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        episodes: with a score. failed: without one, by a failure of ours.
        avg, best, all: scores, fractions in [0, 1]; NaN where no episode has one. low, high: interval of `avg`.
        valid: share of the episodes with an accepted turn.
        statuses: turns by how they ended, those of episodes without a score too.
    """

    name: str
    tasks: int
    episodes: int
    failed: int
    avg: float
    low: float
    high: float
    best: float
    all: float
    valid: float
    statuses: dict[str, int] = field(default_factory=dict)


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


def aggregate(episodes: Iterable[Scored], *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0) -> Table:
    """Aggregate episodes, in any order, into a `Table`.

    Args:
        episodes: of one evaluation; a task belongs to one category.
        confidence: of the intervals, in (0, 1).
        resamples: of the bootstrap.
        seed: of the bootstrap; equal input gives an equal table.

    >>> from types import SimpleNamespace
    >>> scores = [("t1", "tabular", 0.2), ("t1", "tabular", 0.6), ("t2", "text", 0.0)]
    >>> table = aggregate(SimpleNamespace(task=t, category=c, score=s, valid=s > 0, statuses=("ok",)) for t, c, s in scores)
    >>> table.overall.avg, table.overall.best, table.overall.all, table.overall.valid
    (0.2, 0.3, 0.1, 0.5)
    """
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence={confidence!r}: expected a fraction between 0 and 1, for example 0.95.")
    rng = np.random.default_rng(seed)
    by_category: dict[str, dict[str, list[Scored]]] = {}
    home: dict[str, str] = {}
    for e in sorted(map(_checked, episodes), key=_order):
        if home.setdefault(e.task, e.category) != e.category:
            raise InvalidInput(f"task {e.task!r} is in two categories, {home[e.task]!r} and {e.category!r}.")
        by_category.setdefault(e.category, {}).setdefault(e.task, []).append(e)

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


def _checked(episode: Scored) -> Scored:
    score = episode.score
    if score is not None and not (isinstance(score, (int, float, np.number)) and 0 <= score <= 1):
        raise InvalidInput(f"task {episode.task!r} has a score of {score!r}: expected fractions in [0, 1].")
    return episode


def _order(episode: Scored) -> tuple[str, str, bool, float]:
    """Sorting by everything makes the table, bootstrap included, independent of the order in which episodes finished."""
    return episode.category, episode.task, episode.score is None, episode.score or 0.0


def _task(
    name: str, members: Sequence[Scored], confidence: float, resamples: int, rng: np.random.Generator
) -> tuple[Row, np.ndarray | None]:
    """A task's row, and the resampled means of its episodes, shape (resamples,), or None without a scored episode."""
    ours = [m for m in members if m.score is None]
    scores = np.array([m.score for m in members if m.score is not None], float)
    statuses = count_statuses(members)
    if not len(scores):
        nan = float("nan")
        return Row(name, 1, 0, len(ours), nan, nan, nan, nan, nan, nan, statuses), None
    means = scores[rng.integers(len(scores), size=(resamples, len(scores)))].mean(axis=1)
    valid = float(np.mean([m.valid for m in members if m.score is not None]))
    low, high = _interval(means, confidence)
    best, worst = float(scores.max()), float(scores.min())
    return Row(name, 1, len(scores), len(ours), float(scores.mean()), low, high, best, worst, valid, statuses), means


def count_statuses(episodes: Iterable[Scored]) -> dict[str, int]:
    """Turns by how they ended, the most frequent first."""
    return dict(Counter(sorted(status for e in episodes for status in e.statuses)).most_common())


def _mean_row(name: str, rows: Sequence[Row], means: np.ndarray | None, confidence: float) -> Row:
    counted = [row for row in rows if row.episodes]

    def mean(values: list[float]) -> float:
        return float(np.mean(values)) if values else float("nan")

    low, high = (float("nan"), float("nan")) if means is None else _interval(means, confidence)
    return Row(
        name=name,
        tasks=sum(row.tasks for row in counted),
        episodes=sum(row.episodes for row in rows),
        failed=sum(row.failed for row in rows),
        avg=mean([row.avg for row in counted]),
        low=low,
        high=high,
        best=mean([row.best for row in counted]),
        all=mean([row.all for row in counted]),
        valid=mean([row.valid for row in counted]),
        statuses=dict(sum((Counter(row.statuses) for row in rows), Counter()).most_common()),
    )


def _interval(means: np.ndarray, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _jsonable(row: Row) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and np.isnan(value) else value for key, value in asdict(row).items()}
