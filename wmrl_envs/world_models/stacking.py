"""The arithmetic of `StackedWorldModel`: two regressions with a pull towards what is known without them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

Row = tuple[str, list[tuple[float, float]], bool, float]  # task, (P(valid), score if valid) of each member, valid, score
COMMON_PULL = 30.0  # executed programs that trusting the first member weighs
TASK_PULL = 100.0  # executed programs of a task that the weights common to all tasks weigh
_VARIANCE = 0.05  # of scores within a task: puts the pulls into programs
_NEWTON_STEPS = 25


@dataclass(frozen=True)
class Weights:
    """Weights of the members and an intercept (last), for all tasks and for each one seen."""

    valid: np.ndarray
    score: np.ndarray
    valid_of: Mapping[str, np.ndarray] = field(default_factory=dict)
    score_of: Mapping[str, np.ndarray] = field(default_factory=dict)
    residual_of: Mapping[str, float] = field(default_factory=dict)

    def predict(self, task: str, said: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """P(valid) and the score of a valid program, both in [0, 1]."""
        z = float(_logits(np.array([[p for p, _ in said]]))[0] @ self.valid_of.get(task, self.valid))
        s = float(np.append([s for _, s in said], 1.0) @ self.score_of.get(task, self.score))
        return float(1 / (1 + np.exp(-z))), min(max(s, 0.0), 1.0)

    def residual(self, task: str, unknown: float) -> float:
        """Standard deviation of the score of valid programs around the prediction; `unknown` for a task without any."""
        return self.residual_of.get(task, unknown)


def fitted(rows: Sequence[Row], members: int) -> Weights:
    """The weights that `rows` speak for; without rows the first member's word."""
    first = np.zeros(members + 1)
    first[0] = 1.0
    if not rows:
        return Weights(first, first)
    by_task: dict[str, list[int]] = defaultdict(list)
    for i, (task, *_) in enumerate(rows):
        by_task[task].append(i)
    z = _logits(np.array([[p for p, _ in said] for _, said, _, _ in rows]))
    s = np.column_stack([np.array([[s for _, s in said] for _, said, _, _ in rows]), np.ones(len(rows))])
    ok, y = np.array([valid for *_, valid, _ in rows]), np.array([score for *_, score in rows])
    valid, score = _logistic(z, ok, first, COMMON_PULL), _linear(s[ok], y[ok], first, COMMON_PULL)
    valid_of, score_of, residual_of = {}, {}, {}
    for task, indices in by_task.items():
        some = np.array(indices)
        good = some[ok[some]]
        valid_of[task] = _logistic(z[some], ok[some], valid, TASK_PULL)
        score_of[task] = _linear(s[good], y[good], score, TASK_PULL)
        off = y[good] - s[good] @ score_of[task]
        residual_of[task] = float(np.sqrt((float(off @ off) + 5 * 0.2**2) / (len(good) + 5)))
    return Weights(valid, score, valid_of, score_of, residual_of)


def _logits(p: np.ndarray) -> np.ndarray:
    """(n, members) probabilities -> (n, members + 1), with a column of ones."""
    return np.column_stack([np.log(p / (1 - p)), np.ones(len(p))])


def _linear(x: np.ndarray, y: np.ndarray, towards: np.ndarray, pull: float) -> np.ndarray:
    """Ridge regression towards given weights."""
    a = x.T @ x + pull * _VARIANCE * np.eye(x.shape[1])
    return np.asarray(towards + np.linalg.solve(a, x.T @ (y - x @ towards)))


def _logistic(z: np.ndarray, ok: np.ndarray, towards: np.ndarray, pull: float) -> np.ndarray:
    """Logistic regression towards given weights, by Newton's method."""
    w = towards.copy()
    for _ in range(_NEWTON_STEPS):
        p = 1 / (1 + np.exp(-(z @ w)))
        gradient = z.T @ (p - ok) + pull * (w - towards)
        step = np.linalg.solve((z * (p * (1 - p))[:, None]).T @ z + pull * np.eye(len(w)), gradient)
        w = w - step
        if np.abs(step).max() < 1e-9:
            break
    return w
