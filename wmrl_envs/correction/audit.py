"""`AnchorAudit`: is the world model still right where the policy is going? Read off the anchors, for free."""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

import numpy as np

from wmrl_envs.correction.scores import check_positive, check_scores, per_pair

Action = Literal["none", "raise", "freeze", "stop"]


class AnchorAudit:
    """Statistics of the latest `window` anchor pairs and an alarm for over-scored solutions (reward hacking).

    The alarm is a one-sided CUSUM of the residual (calibrated minus true) of the solution each group's predictions
    like best: that is the one the update reinforces, so a policy that finds an over-scored class shows there first.
    It is standardised by the first `baseline` groups after warm-up, and drifts back by `slack` a group when quiet.

    Attributes:
        cusum: its value in standard deviations. action: "none"; "raise" anchors above `threshold`; "freeze" the
            world-model groups above twice that or while the mean within-group rank correlation is below 0; "stop"
            above four times the threshold.
    """

    def __init__(self, window: int = 512, baseline: int = 32, slack: float = 0.75, threshold: float = 8.0):
        check_positive(window=window, baseline=baseline)
        self.window, self.baseline, self.slack, self.threshold = window, baseline, slack, threshold
        self.cusum = 0.0
        self._rows: deque[tuple[float, float, Any, Any]] = deque(maxlen=window)  # calibrated, true, group, task
        self._first: list[float] = []  # statistics of the baseline groups
        self._baseline: tuple[float, float] | None = None  # their mean and standard deviation, once there are enough

    def update(self, calibrated: Any, true: Any, *, group: Any = None, task: Any = None, watch: bool = True) -> None:
        """Take in pairs by the map as it was before them. `watch=False` during warm-up: statistics, but no alarm."""
        c, t = check_scores(calibrated, "calibrated", None), check_scores(true, "true", None)
        groups, tasks = per_pair(group, c.shape), per_pair(task, c.shape)
        rows = list(zip(c.ravel().tolist(), t.ravel().tolist(), groups, tasks, strict=True))
        self._rows.extend(rows)
        if not watch:
            return
        best: dict[Any, tuple[float, float]] = {}
        for score, real, g, _ in rows:
            if g not in best or score > best[g][0]:
                best[g] = (score, score - real)
        for _, residual in best.values():
            self._step(residual)

    def _step(self, residual: float) -> None:
        if len(self._first) < self.baseline:
            self._first.append(residual)
            return
        if self._baseline is None:
            scale = float(np.std(self._first, ddof=1)) if self.baseline > 1 else 0.0
            self._baseline = float(np.mean(self._first)), max(scale, 0.01)
        mean, scale = self._baseline
        self.cusum = max(0.0, self.cusum + (residual - mean) / scale - self.slack)

    @property
    def alarm(self) -> bool:
        return self.cusum > self.threshold

    @property
    def action(self) -> Action:
        if self.cusum > 4 * self.threshold:
            return "stop"
        rank = self.rank_correlation(least=32) if len(self._first) >= self.baseline else None
        if self.cusum > 2 * self.threshold or (rank is not None and rank < 0):
            return "freeze"
        return "raise" if self.alarm else "none"

    def rank_correlation(self, least: int = 1) -> float | None:
        """Mean Spearman correlation of calibrated and true scores within groups; None with fewer than `least` such groups."""
        from scipy.stats import rankdata

        members: dict[Any, list[tuple[float, float]]] = {}
        for c, t, g, _ in self._rows:
            members.setdefault(g, []).append((c, t))
        values = []
        for pairs in members.values():
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
        out: dict[str, float] = {"cusum": self.cusum, "alarm": float(self.alarm)}
        if self._rows:
            c, t = self._columns()
            out |= {"bias": float((c - t).mean()), "mean_calibrated": float(c.mean()), "mean_true": float(t.mean())}
            named = {"rank_correlation": self.rank_correlation(), "top_decile_residual": self.top_decile_residual()}
            out |= {key: value for key, value in named.items() if value is not None}
        return out

    def state_dict(self) -> dict[str, Any]:
        return {"cusum": self.cusum, "first": list(self._first), "rows": [list(row) for row in self._rows]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.cusum, self._first, self._baseline = state["cusum"], list(state["first"]), None
        self._rows = deque((tuple(row) for row in state["rows"]), maxlen=self.window)
