"""Second moments of a window of anchor pairs, within groups: what fusion rules are chosen by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Moments:
    """Of a window of pairs (variances with divisor n, averaged over groups; groups of one: over the window).

    Attributes:
        residual: mean squared residual, not centred.
        true, calibrated, covariance: mean within-group variance of the true scores, of the calibrated ones, and theirs together.
        bias2: mean square of the systematic part of the within-group residual: its mean by decile of the calibrated
            score, less what noise alone would put there.
    """

    residual: float
    true: float
    calibrated: float
    covariance: float
    bias2: float

    @classmethod
    def of(cls, rows: Iterable[tuple[float, float, Any]]) -> Moments:
        """Moments of rows (residual, true score, group)."""
        residuals, trues, groups = zip(*rows, strict=True)
        e, t = np.array(residuals), np.array(trues)
        codes: dict[Any, int] = {}
        group = np.array([codes.setdefault(g, len(codes)) for g in groups])
        size = np.bincount(group)
        if not (size > 1).any():  # no groups to speak of: the window is one group
            group, size = np.zeros(len(e), dtype=np.int64), np.array([len(e)])
        p = t + e
        dt, dp = t - (np.bincount(group, t) / size)[group], p - (np.bincount(group, p) / size)[group]
        grouped = size > 1

        def mean_of(product: np.ndarray) -> float:
            return float((np.bincount(group, product) / size)[grouped].mean()) if grouped.any() else 0.0

        members = grouped[group]
        return cls(
            residual=float(np.mean(e * e)),
            true=mean_of(dt * dt),
            calibrated=mean_of(dp * dp),
            covariance=mean_of(dt * dp),
            bias2=_systematic(p[members], (dp - dt)[members]),
        )


def _systematic(calibrated: np.ndarray, residual: np.ndarray, bins: int = 10, least: int = 50) -> float:
    """Mean over deciles of (mean residual)^2 less its expectation under noise alone; 0 with fewer than `least` pairs."""
    n = len(calibrated)
    if n < least:
        return 0.0
    by_score = residual[np.argsort(calibrated, kind="stable")]
    total = 0.0
    for part in np.array_split(by_score, bins):
        total += len(part) / n * (part.mean() ** 2 - part.var(ddof=1) / len(part))
    return max(0.0, float(total))
