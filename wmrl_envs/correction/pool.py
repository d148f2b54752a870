"""`AnchorPool`: the score pairs P = {(r_hat, r)} of the anchor groups, in numpy columns with O(1) insertion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from wmrl_envs.correction.scores import ScoreRange, check_positive, check_range, check_scores, per_pair
from wmrl_envs.errors import InvalidInput


class AnchorPool:
    """The latest `max_pairs` pairs of predicted and true score, each with its group, task and prequential residual.

    Groups and tasks are any JSON-able labels. The pool does no I/O: its owner writes `records()` to a JSONL file and
    reads them back with `extend`.

    >>> pool = AnchorPool()
    >>> pool.add([0.2, 0.6], [0.1, 0.9], group=7, task="titanic")
    >>> len(pool), pool.true.tolist(), next(iter(pool.records()))["task"]
    (2, [0.1, 0.9], 'titanic')
    """

    def __init__(self, max_pairs: int = 100_000, score_range: ScoreRange = (0.0, 1.0)):
        check_positive(max_pairs=max_pairs)
        self.max_pairs, self.score_range = max_pairs, check_range(score_range)
        self.n_seen = 0  # pairs ever added, the forgotten ones included
        self._columns = np.empty((4, min(1024, max_pairs)))  # predicted, true, residual, number of the task
        self._labels: list[tuple[Any, Any]] = []  # (group, task), same order
        self._task_codes: dict[Any, int] = {}
        self._next = 0  # where the next pair goes once the pool is full

    def __len__(self) -> int:
        return len(self._labels)

    def add(self, predicted: Any, true: Any, *, group: Any = None, task: Any = None, residual: Any = None) -> None:
        """Append pairs; amortised O(1) a pair. `group` and `task`: one for all pairs, or one a pair.

        Raises:
            InvalidInput: a score is not finite or out of range (nothing is added), or lengths differ.
        """
        origin = "" if group is None or np.ndim(group) else f" of group {group!r}"
        p = check_scores(predicted, f"predicted{origin}", self.score_range)
        t = check_scores(true, f"true{origin}", self.score_range)
        if p.shape != t.shape:
            raise InvalidInput(f"{p.size} predicted and {t.size} true scores{origin}: expected one of each a pair.")
        labels = list(zip(per_pair(group, p.shape), per_pair(task, p.shape), strict=True))
        codes = [self._task_codes.setdefault(task, len(self._task_codes)) for _, task in labels]
        rows = np.empty((4, len(labels)))
        rows[0], rows[1], rows[2], rows[3] = (
            p.ravel(),
            t.ravel(),
            (p - t).ravel() if residual is None else np.ravel(residual),
            codes,
        )
        for i, label in enumerate(labels):
            if len(self._labels) < self.max_pairs:
                if len(self._labels) == self._columns.shape[1]:
                    self._grow()
                self._columns[:, len(self._labels)] = rows[:, i]
                self._labels.append(label)
            else:
                self._columns[:, self._next] = rows[:, i]
                self._labels[self._next] = label
                self._next = (self._next + 1) % self.max_pairs
        self.n_seen += len(labels)

    def _grow(self) -> None:
        bigger = np.empty((4, min(2 * self._columns.shape[1], self.max_pairs)))
        bigger[:, : self._columns.shape[1]] = self._columns
        self._columns = bigger

    def _order(self) -> np.ndarray:
        return np.roll(np.arange(len(self)), -self._next)  # oldest first

    @property
    def predicted(self) -> np.ndarray:
        """Predicted scores r_hat as the world model gave them, shape (n,), in no promised order."""
        return self._columns[0, : len(self)]

    @property
    def true(self) -> np.ndarray:
        """True scores r, shape (n,), same order as `predicted`."""
        return self._columns[1, : len(self)]

    def by_task(self) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
        """(task, predicted, true) of each task in the pool."""
        codes = self._columns[3, : len(self)]
        for task, code in self._task_codes.items():
            mine = codes == code
            if mine.any():
                yield task, self.predicted[mine], self.true[mine]

    def records(self) -> Iterator[dict[str, Any]]:
        """The pairs, oldest first, as JSON-able dictionaries."""
        for i in self._order():
            p, t, r, _ = self._columns[:, i].tolist()
            group, task = self._labels[i]
            yield {"predicted": p, "true": t, "residual": r, "group": group, "task": task}

    def extend(self, records: Iterable[dict[str, Any]]) -> None:
        """Append pairs as `records` wrote them."""
        for row in records:
            self.add([row["predicted"]], [row["true"]], group=row["group"], task=row["task"], residual=[row["residual"]])

    def state_dict(self) -> dict[str, Any]:
        order = self._order()
        predicted, true, residual = self._columns[:3, order].tolist()
        groups, tasks = ([self._labels[i][k] for i in order] for k in (0, 1))
        columns = {"predicted": predicted, "true": true, "residual": residual, "group": groups, "task": tasks}
        return {"n_seen": self.n_seen, **columns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.__init__(self.max_pairs, self.score_range)  # type: ignore[misc]
        self.add(state["predicted"], state["true"], group=state["group"], task=state["task"], residual=state["residual"])
        self.n_seen = int(state["n_seen"])
