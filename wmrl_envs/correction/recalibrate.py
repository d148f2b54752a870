"""Online Debiasing (Equation 4): a monotone map from predicted to true scores, fitted to the anchor pairs."""

from __future__ import annotations

import logging
from typing import Any, Literal, get_args

import numpy as np

from wmrl_envs.correction.pool import AnchorPool
from wmrl_envs.correction.scores import ScoreRange, check_positive, check_range, check_scores, per_pair
from wmrl_envs.errors import InvalidInput

log = logging.getLogger(__name__)

Direction = Literal["inverse", "regression"]
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
    """A fitted calibration map. `valid`: vertices of P(true score above 0 | prediction), for the two-stage map."""

    def __init__(self, vertices: Vertices, valid: Vertices | None = None):
        self.vertices, self.valid = vertices, valid

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Calibrated scores; predictions beyond the outer vertices are clipped to them."""
        out = np.interp(scores, *self.vertices)
        return out if self.valid is None else out * np.interp(scores, *self.valid)

    def state_dict(self) -> dict[str, Any]:
        both = {"vertices": self.vertices, "valid": self.valid}
        return {key: None if v is None else [v[0].tolist(), v[1].tolist()] for key, v in both.items()}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> ScoreMap:
        arrays = {key: None if v is None else (np.array(v[0]), np.array(v[1])) for key, v in state.items()}
        return cls(arrays["vertices"], arrays["valid"])  # type: ignore[arg-type]


class Recalibrator:
    """The calibration map f, the identity until `min_pairs` pairs, refitted after every `refit_every` new ones.

    Args:
        min_pairs: pairs before the first fit. refit_every: new pairs between fits.
        direction: "inverse" (Lemma 11: unbiased given the true score) or "regression" (E[r | r_hat]).
        levels: true-score levels of the inverse map.
        score_range: where scores lie; None for rewards without a range (then two_stage has no meaning).
        per_task: mix the common map with the task's own, weighted n / (n + min_pairs) by the n pairs of the task.
        two_stage: P(score > 0) times the map fitted to the pairs with a score above 0 (scores have a point mass at 0).

    Attributes:
        ready: a first fit has been made. n_pairs: pairs received. n_fits: fits made.
        fell_back: the last fit had no usable slope, so the last good map (or the identity) is still in use.

    >>> f = Recalibrator(min_pairs=4, refit_every=4)
    >>> _ = f.update([0.4, 0.5, 0.6, 0.7], [0.0, 0.3, 0.6, 0.9], group=0)
    >>> f.ready, f.transform([0.45, 0.7, 1.0]).round(3).tolist()
    (True, [0.15, 0.9, 0.9])
    """

    def __init__(
        self,
        min_pairs: int = 200,
        refit_every: int = 64,
        direction: Direction = "inverse",
        levels: int = 10,
        score_range: ScoreRange = (0.0, 1.0),
        *,
        per_task: bool = False,
        two_stage: bool = False,
        max_pairs: int = 100_000,
    ):
        check_positive(min_pairs=min_pairs, refit_every=refit_every, levels=levels, max_pairs=max_pairs)
        if direction not in get_args(Direction):
            raise InvalidInput(f"direction={direction!r}: expected 'inverse' or 'regression'.")
        self.score_range = check_range(score_range)
        if two_stage and (self.score_range is None or self.score_range[0] != 0):
            raise InvalidInput(f"two_stage=True with score_range={score_range!r}: expected a range that starts at 0.")
        self.min_pairs, self.refit_every, self.direction, self.levels = min_pairs, refit_every, direction, levels
        self.per_task, self.two_stage = per_task, two_stage
        self.pool = AnchorPool(max_pairs, self.score_range)
        self.n_fits, self.fell_back = 0, False
        self._fitted_at = 0  # n_pairs at the last fit
        self._map: ScoreMap | None = None
        self._task_maps: dict[Any, tuple[ScoreMap, float]] = {}  # task -> its map and the weight of that map

    @property
    def n_pairs(self) -> int:
        return self.pool.n_seen

    @property
    def ready(self) -> bool:
        return self.n_fits > 0

    def update(self, predicted: Any, true: Any, group: Any = None, task: Any = None) -> np.ndarray:
        """Take in pairs of anchor groups, and refit if due.

        Args:
            predicted: raw predicted scores, shape (n,) or (groups, n). true: true scores, same shape.
            group, task: labels: one for all, one a group, or one a pair.

        Returns:
            The prequential residuals f(r_hat) - r, shape of `predicted`, by the map as it was before these pairs.
        """
        origin = "" if group is None or np.ndim(group) else f" of group {group!r}"
        p = check_scores(predicted, f"predicted{origin}", self.score_range)
        t = check_scores(true, f"true{origin}", self.score_range)
        if p.shape != t.shape:
            raise InvalidInput(f"{p.size} predicted and {t.size} true scores{origin}: expected one of each a pair.")
        residual = self.transform(p, task) - t
        self.pool.add(p, t, group=group, task=task, residual=residual)
        if self.n_pairs >= self.min_pairs and (not self.ready or self.n_pairs - self._fitted_at >= self.refit_every):
            self.refit()
        return residual

    def transform(self, scores: Any, tasks: Any = None) -> np.ndarray:
        """Calibrated scores, shape of `scores`: the identity before the first fit, monotone and inside the range always."""
        s = check_scores(scores, "predicted", self.score_range)
        if self._map is None:
            return s.copy()
        out = self._map(s)
        if self._task_maps and tasks is not None:
            labels = per_pair(tasks, s.shape)
            for task, (own, weight) in self._task_maps.items():
                mask = np.array([label == task for label in labels], dtype=bool).reshape(s.shape)
                out = np.where(mask, (1 - weight) * out + weight * own(s), out)
        return out

    def refit(self) -> None:
        """Fit to the whole pool now. Keeps the last good map, and says so, when the pairs have no usable slope."""
        self.n_fits += 1
        self._fitted_at = self.n_pairs
        fitted = self._fit(self.pool.predicted, self.pool.true)
        fell_back_before, self.fell_back = self.fell_back, fitted is None
        if fitted is None:
            if fell_back_before:
                return
            kept = "the identity" if self._map is None else "the last good map"
            log.warning("Recalibration with %d pairs has no usable slope (predictions do not rise with true scores, or true scores do not vary): %s stays.",
                        len(self.pool), kept)  # fmt: skip
            return
        self._map = fitted
        self._task_maps = self._fit_tasks() if self.per_task else {}

    def _fit(self, predicted: np.ndarray, true: np.ndarray) -> ScoreMap | None:
        valid = None
        if self.two_stage:
            is_valid = true > 0
            if 2 <= is_valid.sum() < len(true):
                valid = regression_map(predicted, is_valid.astype(float))
                predicted, true = predicted[is_valid], true[is_valid]
        if self.direction == "regression":
            return ScoreMap(regression_map(predicted, true), valid)
        vertices = inverse_map(predicted, true, self.levels, self.score_range)
        return None if vertices is None else ScoreMap(vertices, valid)

    def _fit_tasks(self) -> dict[Any, tuple[ScoreMap, float]]:
        maps = {}
        for task, predicted, true in self.pool.by_task():
            fitted = self._fit(predicted, true) if len(true) >= 2 * self.levels else None
            if task is not None and fitted is not None:
                maps[task] = fitted, len(true) / (len(true) + self.min_pairs)
        return maps

    def state_dict(self) -> dict[str, Any]:
        return {
            "pool": self.pool.state_dict(),
            "n_fits": self.n_fits,
            "fell_back": self.fell_back,
            "fitted_at": self._fitted_at,
            "map": None if self._map is None else self._map.state_dict(),
            "task_maps": [[task, own.state_dict(), weight] for task, (own, weight) in self._task_maps.items()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.pool.load_state_dict(state["pool"])
        self.n_fits, self.fell_back, self._fitted_at = state["n_fits"], state["fell_back"], state["fitted_at"]
        self._map = None if state["map"] is None else ScoreMap.from_state_dict(state["map"])
        self._task_maps = {task: (ScoreMap.from_state_dict(own), weight) for task, own, weight in state["task_maps"]}


def recalibrate(
    predicted: Any,
    true: Any,
    scores: Any,
    direction: Direction = "inverse",
    *,
    levels: int = 10,
    score_range: ScoreRange = (0.0, 1.0),
) -> np.ndarray:
    """Online Debiasing as a plain function: `scores` mapped by the monotone map fitted to the pairs (predicted, true).

    >>> recalibrate([0.4, 0.5, 0.6], [0.0, 0.5, 1.0], [0.45, 0.55]).round(3).tolist()
    [0.25, 0.75]
    """
    f = Recalibrator(1, 1, direction, levels, score_range)
    f.update(predicted, true)
    return f.transform(scores)
