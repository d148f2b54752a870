"""The monotone maps of Online Debiasing (Equation 4): how they are fitted to pairs, and what they do to a score."""

from __future__ import annotations

from typing import Any

import numpy as np

from wmrl_envs.correction.scores import ScoreRange, check_scores
from wmrl_envs.errors import InvalidInput

_TINY = 1e-9  # scores closer than this are one
Vertices = tuple[np.ndarray, np.ndarray]  # predicted (strictly increasing), score (non-decreasing): a piecewise-linear map


def inverse_map(predicted: np.ndarray, true: np.ndarray, levels: int, score_range: ScoreRange) -> Vertices | None:
    """The map of Lemma 11: mean prediction a true-score level, isotonic projection, inverse by linear interpolation.

    Levels are `levels` equal bins of the score range, or the scores themselves when at most `levels + 1` distinct ones
    occur (success or failure, a small leaderboard); a level's score is the mean true score of its pairs. The projection
    weights a level by its pairs, so a level seen once cannot bend its neighbours; levels it pools share one vertex.

    Returns:
        The vertices, or None when the slope is unusable: fewer than two vertices left, or a prediction that rises
        with the true score by less than three standard errors (inverting it would blow up noise).
    """
    from sklearn.isotonic import isotonic_regression

    distinct = np.unique(true)
    if distinct[-1] - distinct[0] < 1e-9:
        return None
    if len(distinct) <= levels + 1:
        level = np.searchsorted(distinct, true)
    else:
        low, high = (distinct[0], distinct[-1]) if score_range is None else score_range
        level = np.clip(((true - low) / (high - low) * levels).astype(np.int64), 0, levels - 1)
    count = np.bincount(level).astype(float)
    held = count > 0  # levels without pairs are skipped
    mean_predicted = np.bincount(level, predicted)[held] / count[held]
    mean_true = np.bincount(level, true)[held] / count[held]
    fitted = isotonic_regression(mean_predicted, sample_weight=count[held])
    xs, pooled = np.unique(np.round(fitted, 12), return_inverse=True)
    size = np.bincount(pooled, count[held])
    ys = np.bincount(pooled, mean_true * count[held]) / size
    if len(xs) < 2 or not _rises(predicted, true):
        return None
    return xs, ys


def _rises(predicted: np.ndarray, true: np.ndarray) -> bool:
    """Whether the least-squares slope of predicted on true exceeds three of its standard errors."""
    x, y = true - true.mean(), predicted - predicted.mean()
    spread = float(x @ x)
    slope = float(x @ y) / spread
    residual = y - slope * x
    error = np.sqrt(float(residual @ residual) / max(len(x) - 2, 1) / spread)
    return slope > 3.0 * error


def regression_map(predicted: np.ndarray, true: np.ndarray) -> Vertices:
    """The least-squares monotone map, an estimate of E[r | r_hat]: noise in r_hat flattens it."""
    from sklearn.isotonic import isotonic_regression

    xs, tied = np.unique(predicted, return_inverse=True)  # equal predictions are one point at their mean true score
    count = np.bincount(tied).astype(float)
    ys = isotonic_regression(np.bincount(tied, true) / count, sample_weight=count)
    inner = np.zeros(len(xs), dtype=bool)  # inside a plateau: interpolation does not need them
    inner[1:-1] = (ys[1:-1] == ys[:-2]) & (ys[1:-1] == ys[2:])
    return xs[~inner], ys[~inner]


class ScoreMap:
    """A fitted calibration map.

    Args:
        vertices: of the piecewise-linear map.
        valid: vertices of P(true score above 0 | prediction), for the two-stage map.
        score_range: where scores lie. Beyond its outer vertices the map goes on with its last slope, so that it keeps the order
            of predictions, but never steeper than what reaches the end of the range at the end of the range.
    """

    def __init__(self, vertices: Vertices, valid: Vertices | None = None, score_range: ScoreRange = (0.0, 1.0)):
        self.vertices, self.valid, self.score_range = vertices, valid, score_range

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Calibrated scores, same shape."""
        out = extended(scores, self.vertices, self.score_range)
        return out if self.valid is None else out * np.interp(scores, *self.valid)

    def state_dict(self) -> dict[str, Any]:
        both = {"vertices": self.vertices, "valid": self.valid}
        return {key: None if v is None else [v[0].tolist(), v[1].tolist()] for key, v in both.items()}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any], score_range: ScoreRange) -> ScoreMap:
        """The map of `state_dict`."""
        arrays = {key: None if v is None else (np.array(v[0], float), np.array(v[1], float)) for key, v in state.items()}
        for name, value_range in (("vertices", score_range), ("valid", (0.0, 1.0))):
            if arrays[name] is not None:
                xs, ys = arrays[name]  # type: ignore[misc]
                check_scores(xs, f"{name} x", score_range), check_scores(ys, f"{name} y", value_range)
                if xs.shape != ys.shape or (np.diff(xs) <= 0).any() or (np.diff(ys) < 0).any():
                    raise InvalidInput(f"{name} of a map: expected rising x and y that do not fall.")
        return cls(arrays["vertices"], arrays["valid"], score_range)  # type: ignore[arg-type]


def extended(scores: np.ndarray, vertices: Vertices, score_range: ScoreRange) -> np.ndarray:
    """Linear interpolation between the vertices; beyond them their last slope, bent so that it stays inside the range.

    Clipping instead would give one value to a third of the predictions of a policy that has improved, and lose their order.

    >>> extended(np.array([0.5, 0.8, 1.0]), (np.array([0.4, 0.6]), np.array([0.2, 0.8])), (0.0, 1.0)).round(3).tolist()
    [0.5, 0.9, 1.0]
    """
    xs, ys = vertices
    out = np.interp(scores, xs, ys)
    if len(xs) < 2:
        return out
    for end, inner, beyond in ((-1, -2, scores > xs[-1]), (0, 1, scores < xs[0])):
        if beyond.any():
            slope = _slope_beyond(xs, ys, end, inner, score_range)
            out = np.where(beyond, ys[end] + slope * (scores - xs[end]), out)
    return out if score_range is None else np.clip(out, *score_range)  # rounding


def _slope_beyond(xs: np.ndarray, ys: np.ndarray, end: int, inner: int, score_range: ScoreRange) -> float:
    """Of the outer segment; of the whole map where that is flat, since a plateau would lose the order of what lies beyond
    it.
    """
    whole = float((ys[-1] - ys[0]) / max(xs[-1] - xs[0], _TINY))
    slope = float((ys[end] - ys[inner]) / (xs[end] - xs[inner])) if abs(xs[end] - xs[inner]) > _TINY else whole
    slope = slope or whole
    if score_range is None:
        return slope
    limit = score_range[1] if end == -1 else score_range[0]
    room = abs(limit - xs[end])
    return min(slope, float(abs(limit - ys[end]) / room)) if room > _TINY else 0.0
