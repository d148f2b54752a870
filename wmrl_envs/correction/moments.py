"""The recent window of anchor pairs, and its second moments within groups: what fusion rules are chosen by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wmrl_envs.errors import InvalidInput

NO_SPREAD = 1e-9  # a variance of true scores below this is no yardstick


def variance(x: np.ndarray) -> float:
    """Of a vector (divisor n); as `x.var()`, in a third of the time."""
    centred = x - x.mean()
    return float(centred @ centred) / len(x)


class Latest:
    """The latest `size` numbers, oldest first, as one array; amortised O(1) insertion."""

    def __init__(self, size: int):
        self._size, self._end = size, 0
        self._buffer = np.zeros(2 * size)

    @property
    def values(self) -> np.ndarray:
        """Shape (n,); a view, to be read at once."""
        return self._buffer[max(0, self._end - self._size) : self._end]

    def extend(self, numbers: np.ndarray) -> None:
        """Append, oldest first."""
        for start in range(0, len(numbers), self._size):
            part = numbers[start : start + self._size]
            if self._end + len(part) > len(self._buffer):
                kept = self.values.copy()
                self._buffer[: len(kept)], self._end = kept, len(kept)
            self._buffer[self._end : self._end + len(part)] = part
            self._end += len(part)


class PairWindow:
    """The latest `size` pairs (residual, true score, group) in a ring, O(1) insertion.

    Means over a group's members, then over groups of two or more (divisor n). Without such groups the window counts as
    one group.
    """

    def __init__(self, size: int):
        self.size, self.n_seen = size, 0
        self._residual, self._true = np.zeros(size), np.zeros(size)
        self._group = np.zeros(size, dtype=np.int64)
        self._codes: dict[Any, int] = {}  # group label -> running number
        self._n_groups = 0
        self._counts: dict[int, int] = {}  # running number -> pairs in the window
        self._shared = 0  # groups with two pairs or more in the window

    def add(self, residuals: np.ndarray, true: np.ndarray, groups: Sequence[Any]) -> None:
        """Append pairs, each with its group label."""
        for e, t, label in zip(residuals.tolist(), true.tolist(), groups, strict=True):
            code = self._codes.get(label)
            if code is None:
                code = self._codes[label] = self._n_groups
                self._n_groups += 1
            at = self.n_seen % self.size
            if self.n_seen >= self.size:
                self._count(int(self._group[at]), -1)
            self._residual[at], self._true[at], self._group[at] = e, t, code
            self._count(code, 1)
            self.n_seen += 1
        if len(self._codes) > 4 * self.size:  # forget groups that left the window
            oldest = int(self._group.min())
            self._codes = {label: code for label, code in self._codes.items() if code >= oldest}

    def _count(self, code: int, change: int) -> None:
        before = self._counts.get(code, 0)
        after = self._counts[code] = before + change
        self._shared += (after >= 2) - (before >= 2)
        if not after:
            del self._counts[code]

    def _rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(residual, true, group, size of each group), groups numbered from the oldest in the window."""
        n = min(self.n_seen, self.size)
        if self.grouped:
            group = self._group[:n] - self._group[:n].min()
            size = np.bincount(group)
        else:
            group, size = np.zeros(n, dtype=np.int64), np.array([n])
        return self._residual[:n], self._true[:n], group, size

    @property
    def grouped(self) -> bool:
        """Whether any group has two members or more in the window."""
        return self._shared > 0

    def mean_squared_residual(self) -> float:
        e = self._residual[: min(self.n_seen, self.size)]
        return float(e @ e) / len(e)

    def residual_variance(self) -> float:
        """Mean within-group variance of the residuals: what of them reaches an advantage."""
        if len(self._counts) == 1 or not self.grouped:
            return variance(self._residual[: min(self.n_seen, self.size)])
        e, _, group, size = self._rows()
        return self._covariance(e, e, group, size)

    def eta2(self) -> float | None:
        """Mean squared residual over the within-group variance of the true scores; None without spread."""
        if self.n_seen == 0:
            return None
        yardstick = self.true_variance()
        return self.mean_squared_residual() / yardstick if yardstick >= NO_SPREAD else None

    def true_variance(self) -> float:
        """Mean within-group variance of the true scores."""
        if len(self._counts) == 1 or not self.grouped:
            return variance(self._true[: min(self.n_seen, self.size)])
        _, t, group, size = self._rows()
        return self._covariance(t, t, group, size)

    def calibrated_moments(self) -> tuple[float, float]:
        """Mean within-group (variance of the calibrated scores, covariance of calibrated and true)."""
        e, t, group, size = self._rows()
        return self._covariance(t + e, t + e, group, size), self._covariance(t + e, t, group, size)

    def systematic_residual2(self, bins: int = 10, least: int = 50) -> float:
        """Mean square of the part of the within-group residual that does not average out.

        That is its mean by decile of the true score, squared, less what noise alone would put there; 0 with fewer than
        `least` pairs. (By decile of the prediction, noise would pass for bias: high predictions are lucky ones.)
        """
        e, t, group, size = self._rows()
        if len(e) < least:
            return 0.0
        centred = e - (np.bincount(group, e) / np.maximum(size, 1))[group]
        by_score = centred[np.argsort(t, kind="stable")]
        parts = np.array_split(by_score, bins)
        return max(0.0, float(sum(len(x) / len(e) * (x.mean() ** 2 - x.var(ddof=1) / len(x)) for x in parts)))

    @staticmethod
    def _covariance(x: np.ndarray, y: np.ndarray, group: np.ndarray, size: np.ndarray) -> float:
        count = np.maximum(size, 1)
        dx, dy = x - (np.bincount(group, x) / count)[group], y - (np.bincount(group, y) / count)[group]
        return float((np.bincount(group, dx * dy) / count)[size > 1].mean()) if size.max() > 1 else 0.0

    def state_dict(self) -> dict[str, Any]:
        n = min(self.n_seen, self.size)
        columns = {"residual": self._residual[:n].tolist(), "true": self._true[:n].tolist(), "group": self._group[:n].tolist()}
        return {
            "n_seen": self.n_seen,
            "n_groups": self._n_groups,
            "codes": [list(item) for item in self._codes.items()],
            **columns,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n_seen, self._n_groups = state["n_seen"], state["n_groups"]
        self._codes = dict(state["codes"])
        n = min(self.n_seen, self.size)
        if n < 0 or {len(state[name]) for name in ("residual", "true", "group")} != {n}:
            raise InvalidInput(f"A window of {self.n_seen} pairs with other numbers of residuals, scores or groups.")
        self._residual[:n], self._true[:n], self._group[:n] = state["residual"], state["true"], state["group"]
        self._counts, self._shared = {}, 0
        for code in self._group[:n].tolist():
            self._count(code, 1)
