"""Online Debiasing (Equation 4): a monotone map from predicted to true scores, fitted to the anchor pairs."""

from __future__ import annotations

import logging
from typing import Any, Literal, get_args

import numpy as np

from wmrl_envs.correction.choice import NONE, MapChoice
from wmrl_envs.correction.maps import ScoreMap, inverse_map, regression_map
from wmrl_envs.correction.pool import AnchorPool
from wmrl_envs.correction.scores import ScoreRange, check_positive, check_range, check_scores, per_pair
from wmrl_envs.errors import InvalidInput

log = logging.getLogger(__name__)

Direction = Literal["inverse", "regression", "auto"]
FITTED = ("inverse", "regression")  # what "auto" chooses from, beside no map


class Recalibrator:
    """The calibration map f, the identity until `min_pairs` pairs, refitted after every `refit_every` new ones.

    Args:
        min_pairs: pairs before the first fit.
        refit_every: new pairs between fits.
        direction: "inverse" (Lemma 11: unbiased given the true score), "regression" (E[r | r_hat]), or "auto": whichever of the
            two, or no map, had the lower error of advantages on pairs it had not seen (`MapChoice`); in doubt no map.
        levels: true-score levels of the inverse map.
        score_range: where scores lie; None for rewards without a range (then two_stage has no meaning).
        per_task: mix the common map with the task's own, weighted n / (n + min_pairs) by the n pairs of the task.
        two_stage: P(score > 0) times the map fitted to the pairs with a score above 0 (scores have a point mass at 0).
        max_pairs: the latest pairs that are kept.

    Attributes:
        ready: a first fit has been made.
        n_pairs: pairs received.
        n_fits: fits made.
        fell_back: the last fit had no usable slope, so the last good map (or the identity) is still in use.

    >>> f = Recalibrator(min_pairs=4, refit_every=4)
    >>> _ = f.update([0.4, 0.5, 0.6, 0.7], [0.0, 0.3, 0.6, 0.9], group=0)
    >>> f.ready, f.transform([0.45, 0.7, 1.0]).round(3).tolist()
    (True, [0.15, 0.9, 1.0])
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
            raise InvalidInput(f"direction={direction!r}: expected {', '.join(map(repr, get_args(Direction)))}.")
        self.score_range = check_range(score_range)
        if two_stage and (self.score_range is None or self.score_range[0] != 0):
            raise InvalidInput(f"two_stage=True with score_range={score_range!r}: expected a range that starts at 0.")
        self.min_pairs, self.refit_every, self.direction, self.levels = min_pairs, refit_every, direction, levels
        self.per_task, self.two_stage = per_task, two_stage
        self.pool = AnchorPool(max_pairs, self.score_range)
        self.n_fits, self.fell_back = 0, False
        self._fitted_at = 0  # n_pairs at the last fit
        self._directions = list(FITTED) if direction == "auto" else [direction]
        self.choice = MapChoice(list(FITTED)) if direction == "auto" else None
        self._maps: dict[str, ScoreMap] = {}  # direction -> its last good map
        self._task_maps: dict[str, dict[Any, tuple[ScoreMap, float]]] = {}  # direction -> task -> its map and that map's weight

    @property
    def n_pairs(self) -> int:
        return self.pool.n_seen

    @property
    def ready(self) -> bool:
        return self.n_fits > 0

    @property
    def in_use(self) -> str:
        """The map that `transform` applies now: "inverse", "regression" or "none"."""
        name = self.direction if self.choice is None else self.choice.best
        return name if name in self._maps else NONE

    def update(self, predicted: Any, true: Any, group: Any = None, task: Any = None) -> np.ndarray:
        """Take in pairs of anchor groups, and refit if due.

        Args:
            predicted: raw predicted scores, shape (n,) or (groups, n).
            true: true scores, same shape.
            group: label: one for all, one a group, or one a pair.
            task: label, likewise.

        Returns:
            The prequential residuals f(r_hat) - r, shape of `predicted`, by the map as it was before these pairs.

        Raises:
            InvalidInput: a score that is not finite or outside the range (nothing is taken in), or unequal numbers of them.
        """
        origin = "" if group is None or np.ndim(group) else f" of group {group!r}"
        p = check_scores(predicted, f"predicted{origin}", self.score_range)
        t = check_scores(true, f"true{origin}", self.score_range)
        if p.shape != t.shape:
            raise InvalidInput(f"{p.size} predicted and {t.size} true scores{origin}: expected one of each a pair.")
        residual = self.transform(p, task) - t
        self.pool.add(p, t, group=group, task=task, residual=residual)
        self._compare(p, t, group, task)
        if self.n_pairs >= self.min_pairs and (not self.ready or self.n_pairs - self._fitted_at >= self.refit_every):
            self.refit()
        return residual

    def _compare(self, p: np.ndarray, t: np.ndarray, group: Any, task: Any) -> None:
        """Tell `choice` what each map would have said, group by group."""
        if self.choice is None or not self._maps or p.size == 0:
            return
        by_map = {name: (self._apply(name, p, task) - t).ravel() for name in (NONE, *self._directions)}
        labels = per_pair(group, p.shape)
        members: dict[Any, list[int]] = {}
        for i, label in enumerate(labels):
            members.setdefault((i,) if label is None else label, []).append(i)
        for label, rows in members.items():
            self.choice.observe({name: residual[rows] for name, residual in by_map.items()}, label)

    def transform(self, scores: Any, tasks: Any = None) -> np.ndarray:
        """Calibrated scores, shape of `scores`: the identity before the first fit, monotone and inside the range always."""
        s = check_scores(scores, "predicted", self.score_range)
        return self._apply(self.in_use, s, tasks)

    def _apply(self, name: str, s: np.ndarray, tasks: Any) -> np.ndarray:
        if name not in self._maps:
            return s.copy()
        out = self._maps[name](s)
        own_maps = self._task_maps.get(name)
        if own_maps and tasks is not None:
            labels = per_pair(tasks, s.shape)
            for task, (own, weight) in own_maps.items():
                mask = np.array([label == task for label in labels], dtype=bool).reshape(s.shape)
                out = np.where(mask, (1 - weight) * out + weight * own(s), out)
        return out

    def refit(self) -> None:
        """Fit to the whole pool now. Keeps the last good map, and says so, when the pairs have no usable slope."""
        self.n_fits += 1
        self._fitted_at = self.n_pairs
        fitted = {name: self._fit(name, self.pool.predicted, self.pool.true) for name in self._directions}
        fell_back_before, self.fell_back = self.fell_back, all(found is None for found in fitted.values())
        if self.fell_back and not fell_back_before:
            kept = "the last good map" if self._maps else "the identity"
            if np.ptp(self.pool.true) == 0:  # as CartPole's rewards: nothing to calibrate, nothing to worry about
                log.info("The true scores of %d pairs are all %g: %s stays.", len(self.pool), self.pool.true[0], kept)
            else:
                log.warning("Recalibration with %d pairs has no usable slope (predictions do not rise with true "
                "scores): %s stays.",
                            len(self.pool), kept)  # fmt: skip
        for name, found in fitted.items():
            if found is not None:
                if self.choice is not None and name not in self._maps:
                    self.choice.reset(name)
                self._maps[name] = found
                self._task_maps[name] = self._fit_tasks(name) if self.per_task else {}

    def _fit(self, direction: str, predicted: np.ndarray, true: np.ndarray) -> ScoreMap | None:
        valid = None
        if self.two_stage:
            is_valid = true > 0
            if 2 <= is_valid.sum() < len(true):
                valid = regression_map(predicted, is_valid.astype(float))
                predicted, true = predicted[is_valid], true[is_valid]
        if direction == "regression":
            return ScoreMap(regression_map(predicted, true), valid, self.score_range)
        vertices = inverse_map(predicted, true, self.levels, self.score_range)
        return None if vertices is None else ScoreMap(vertices, valid, self.score_range)

    def _fit_tasks(self, direction: str) -> dict[Any, tuple[ScoreMap, float]]:
        maps = {}
        for task, predicted, true in self.pool.by_task():
            fitted = self._fit(direction, predicted, true) if len(true) >= 2 * self.levels else None
            if task is not None and fitted is not None:
                maps[task] = fitted, len(true) / (len(true) + self.min_pairs)
        return maps

    def state_dict(self) -> dict[str, Any]:
        return {
            "pool": self.pool.state_dict(),
            "n_fits": self.n_fits,
            "fell_back": self.fell_back,
            "fitted_at": self._fitted_at,
            "maps": {name: found.state_dict() for name, found in self._maps.items()},
            "task_maps": {
                name: [[task, own.state_dict(), weight] for task, (own, weight) in maps.items()]
                for name, maps in self._task_maps.items()
            },
            "choice": None if self.choice is None else self.choice.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`; also of the states of version 0.1, which had one map."""
        maps, task_maps = state.get("maps"), state.get("task_maps")
        if maps is None:
            maps = {} if state["map"] is None else {self._directions[0]: state["map"]}
            task_maps = {self._directions[0]: state["task_maps"]}
        self.pool.load_state_dict(state["pool"])
        self.n_fits, self.fell_back, self._fitted_at = state["n_fits"], state["fell_back"], state["fitted_at"]
        load = ScoreMap.from_state_dict
        self._maps = {name: load(found, self.score_range) for name, found in maps.items()}
        self._task_maps = {
            name: {task: (load(own, self.score_range), weight) for task, own, weight in rows}
            for name, rows in (task_maps or {}).items()
        }
        if self.choice is not None and state.get("choice") is not None:
            self.choice.load_state_dict(state["choice"])


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
