"""`AnchorAudit`: is the world model still right where the policy is going? Read off the anchors, for free."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from wmrl_envs.correction.moments import Latest, variance
from wmrl_envs.correction.scores import check_number, check_positive, check_scores, per_pair
from wmrl_envs.errors import InvalidInput

Action = Literal["none", "raise", "freeze", "stop"]


class AnchorAudit:
    """Statistics of the latest `window` anchor pairs and an alarm for over-scored solutions (reward hacking).

    Both alarms watch each group's favourite, the solution its predictions like best: that is the one the update
    reinforces, so a policy that finds an over-scored class shows there first. Each is a one-sided CUSUM.

    * `drift`: the favourite's residual (calibrated minus true), standardised by the groups before it (the first
      `baseline` at most) with Student's t, so that it speaks from the fourth group on (the self-starting CUSUM, Hawkins
      1987); it drifts back by `slack` a group when quiet. It finds a change.
    * `broken`: the log-likelihood ratio of "what the favourite is predicted above the average is worth nothing" against
      "half of it is real". It needs no baseline, so it finds a class that was over-scored all along.

    Attributes:
        cusum: the larger of the two, `broken` on the scale on which `EVIDENCE` is one `threshold`.
        action: "none"; "raise" anchors above the threshold; "freeze" the world-model groups above twice that or while
            the mean within-group rank correlation is below 0; "stop" above four times the threshold, which `broken` does not
            reach: without the world-model groups a broken promise does no harm.
    """

    KEPT = 0.5  # share of the promised advantage that a trusted world model keeps at least
    EVIDENCE = 4.0  # `broken` of this much, odds of 55 to 1, counts as one threshold

    def __init__(self, window: int = 512, baseline: int = 32, slack: float = 0.75, threshold: float = 8.0):
        check_positive(window=window, baseline=baseline)
        self.window, self.baseline = window, baseline
        self.slack, self.threshold = check_number("slack", slack, 0.0), check_number("threshold", threshold, 1e-9)
        self.drift, self.broken = 0.0, 0.0
        self._rows: deque[tuple[float, float, Any, Any]] = deque(maxlen=window)  # calibrated, true, group, task
        self._true = Latest(window)  # their true scores, as an array
        self._first: list[float] = []  # the favourites' residuals in the baseline groups
        self._baseline = (0, 0.0, 1.0)  # how many they are, their mean and standard deviation

    @property
    def cusum(self) -> float:
        return max(self.drift, self.broken * self.threshold / self.EVIDENCE)

    def update(self, calibrated: Any, true: Any, *, group: Any = None, task: Any = None, watch: bool = True) -> None:
        """Take in pairs by the map as it was before them.

        `watch=False` while there is no map yet: a bias that a map will take away is no alarm, so there is no `drift`,
        and `broken` looks at differences within the group alone.
        """
        c, t = check_scores(calibrated, "calibrated", None), check_scores(true, "true", None)
        if c.shape != t.shape:
            raise InvalidInput(f"calibrated {c.shape}, true {t.shape}: expected the same shape.")
        groups, tasks = per_pair(group, c.shape), per_pair(task, c.shape)
        rows = list(zip(c.ravel().tolist(), t.ravel().tolist(), groups, tasks, strict=True))
        self._rows.extend(rows)
        self._true.extend(t.ravel())
        if len(rows) == 1:
            self._watch(c.ravel(), t.ravel(), mapped=watch)
            return
        for pairs in _by_group(rows).values():
            scores, truths = np.array(pairs).T
            self._watch(scores, truths, mapped=watch)

    def _watch(self, c: np.ndarray, t: np.ndarray, mapped: bool) -> None:
        favourite = float(c.max())
        worth = float(t[c == favourite].mean()) if c.size > 1 else float(t[0])
        if mapped:
            self.drift = max(0.0, self.drift + self._standardised(favourite - worth) - self.slack)
        known = self._true.values
        average = float(known.mean()) if mapped else 0.0
        promised = favourite - (average if mapped else float(c.mean()))
        real = worth - (average if mapped else float(t.mean()))
        if promised > 0:
            evidence = self.KEPT * promised / max(variance(known), 0.01) * (self.KEPT / 2 * promised - real)
            self.broken = float(np.clip(self.broken + evidence, 0.0, 3 * self.EVIDENCE))

    def _standardised(self, residual: float) -> float:
        """Standard normal if the residual is like those of the baseline groups before it, which it joins."""
        from scipy.special import ndtri, stdtr  # the distributions of scipy.stats take a hundred times as long

        n, score = len(self._first), self.slack  # too few to judge by: the CUSUM stays where it is
        if n >= 3:
            if self._baseline[0] != n:
                self._baseline = n, float(np.mean(self._first)), max(float(np.std(self._first, ddof=1)), 0.01)
            _, mean, scale = self._baseline
            distance = (residual - mean) / scale / math.sqrt(1 + 1 / n)
            score = min(8.0, max(-8.0, -float(ndtri(stdtr(n - 1, -distance)))))
        if n < self.baseline:
            self._first.append(residual)
        return score

    @property
    def alarm(self) -> bool:
        return self.cusum > self.threshold

    @property
    def action(self) -> Action:
        if self.cusum > 4 * self.threshold:
            return "stop"
        rank = self.rank_correlation(least=32)
        if self.cusum > 2 * self.threshold or (rank is not None and rank < 0):
            return "freeze"
        return "raise" if self.alarm else "none"

    def rank_correlation(self, least: int = 1) -> float | None:
        """Mean Spearman correlation of calibrated and true scores within groups; None with fewer than `least` such groups."""
        from scipy.stats import rankdata

        values = []
        for pairs in _by_group(self._rows).values():
            c, t = np.array(pairs).T
            if len(pairs) > 1 and np.ptp(t) > 0:  # a group that ties in truth has no order to get right
                a, b = rankdata(c) - (len(c) + 1) / 2, rankdata(t) - (len(t) + 1) / 2
                values.append(float(a @ b / np.sqrt((a @ a) * (b @ b))) if np.ptp(c) > 0 else 0.0)
        return float(np.mean(values)) if len(values) >= max(least, 1) else None

    def bias_by_decile(self) -> list[tuple[float, float, int]]:
        """(mean calibrated score, mean residual, pairs) of each decile of the calibrated scores, lowest first."""
        if not self._rows:
            return []
        c, t = self._columns()
        parts = np.array_split(np.argsort(c, kind="stable"), min(10, len(c)))
        return [(float(c[i].mean()), float((c - t)[i].mean()), len(i)) for i in parts]

    def bias_by_task(self) -> dict[Any, tuple[float, int]]:
        """Task -> (mean residual, pairs)."""
        by_task: dict[Any, list[float]] = {}
        for c, t, _, task in self._rows:
            by_task.setdefault(task, []).append(c - t)
        return {task: (float(np.mean(r)), len(r)) for task, r in by_task.items()}

    def top_decile_residual(self) -> float | None:
        """Mean residual of the highest tenth of the calibrated scores."""
        deciles = self.bias_by_decile()
        return deciles[-1][1] if deciles else None

    def _columns(self) -> tuple[np.ndarray, np.ndarray]:
        c, t, _, _ = zip(*self._rows, strict=True)
        return np.array(c), np.array(t)

    def metrics(self) -> dict[str, float]:
        """The scalars to log."""
        out = {"cusum": self.cusum, "drift": self.drift, "broken": self.broken, "alarm": float(self.alarm)}
        if self._rows:
            c, t = self._columns()
            out |= {"bias": float((c - t).mean()), "mean_calibrated": float(c.mean()), "mean_true": float(t.mean())}
            named = {"rank_correlation": self.rank_correlation(), "top_decile_residual": self.top_decile_residual()}
            out |= {key: value for key, value in named.items() if value is not None}
        return out

    def state_dict(self) -> dict[str, Any]:
        return {
            "drift": self.drift,
            "broken": self.broken,
            "first": list(self._first),
            "rows": [list(row) for row in self._rows],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.drift, self.broken = (check_number(name, state[name], 0.0) for name in ("drift", "broken"))
        self._first = check_scores(state["first"], "first", None).tolist()
        self._baseline = (0, 0.0, 1.0)
        check_scores([row[:2] for row in state["rows"]], "rows", None)
        self._rows = deque((tuple(row) for row in state["rows"]), maxlen=self.window)
        self._true = Latest(self.window)
        self._true.extend(np.array([row[1] for row in self._rows]))


def _by_group(rows: Iterable[tuple[float, float, Any, Any]]) -> dict[Any, list[tuple[float, float]]]:
    """Group -> its (calibrated, true) pairs."""
    members: dict[Any, list[tuple[float, float]]] = {}
    for c, t, group, _ in rows:
        members.setdefault(group, []).append((c, t))
    return members
