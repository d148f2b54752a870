"""Inverse-Variance Denoising (Equation 5): how much an anchor group counts beside a world-model group."""

from __future__ import annotations

from typing import Any

import numpy as np

from wmrl_envs.correction.moments import NO_SPREAD, PairWindow
from wmrl_envs.correction.scores import check_number, check_positive, check_scores, per_pair
from wmrl_envs.errors import InvalidInput


def fuse(g_anchor_sum: Any, g_wm_sum: Any, n_anchor: int, n_wm: int, rho: float) -> Any:
    """G = (rho * g_E + g_WM) / (rho * |G_E| + |G_WM|), with g_E and g_WM *sums* of group gradients (numbers, arrays, tensors).

    >>> fuse(2.0, 6.0, n_anchor=1, n_wm=3, rho=2.0)
    2.0
    """
    if n_anchor < 0 or n_wm < 0 or n_anchor + n_wm == 0:
        raise InvalidInput(f"fuse(n_anchor={n_anchor}, n_wm={n_wm}): expected numbers of groups, at least one in all.")
    _check_rho(rho)
    return (rho * g_anchor_sum + g_wm_sum) / (rho * n_anchor + n_wm)


def fusion_weights(is_anchor: Any, rho: float) -> np.ndarray:
    """One weight a group, summing to 1: rho / (rho |G_E| + |G_WM|) for anchors, 1 / (...) for the others.

    >>> fusion_weights([True, False, False], rho=2.0).tolist()
    [0.5, 0.25, 0.25]
    """
    mask = np.asarray(is_anchor, dtype=bool)
    if mask.ndim != 1 or mask.size == 0:
        raise InvalidInput(f"is_anchor of shape {mask.shape}: expected one flag a group, at least one group.")
    _check_rho(rho)
    weights = np.where(mask, float(rho), 1.0)
    return weights / weights.sum()


def _check_rho(rho: float) -> None:
    if not (np.isfinite(rho) and rho > 0):
        raise InvalidInput(f"rho={rho!r}: expected a finite number above 0.")


class FusionWeight:
    """rho = 1 + eta2 / eta2_cal, clipped to [1, w_max]; 1 until `min_pairs` residuals have been seen.

    eta2 is the mean squared residual over the latest `window` pairs divided by the mean within-group variance of
    their true scores (groups of one: by the variance of the true scores in the window). A window whose true scores do
    not vary has no yardstick, so eta2 keeps its last value. eta2_cal is eta2 at the end of warm-up. `centred`: residuals less
    their group's mean, since an error that all members share cancels in every advantage (the `Corrector` does so).

    >>> weight = FusionWeight(min_pairs=4)
    >>> weight.update([0.1, -0.1], [0.0, 1.0], group="a"); weight.rho
    1.0
    >>> weight.update([0.1, -0.1], [0.2, 0.8], group="b"); weight.rho
    2.0
    """

    def __init__(self, min_pairs: int = 200, window: int = 512, w_max: float = 4.0, *, centred: bool = False):
        check_positive(min_pairs=min_pairs, window=window)
        self.centred = centred
        self.min_pairs, self.w_max = min_pairs, check_number("w_max", w_max, 1.0)
        self.eta2: float | None = None
        self.eta2_cal: float | None = None
        self.pairs = PairWindow(window)

    def update(self, residuals: Any, true: Any, group: Any = None) -> None:
        """Take in prequential residuals f(r_hat) - r with the true scores; `group`: one for all, one a group or one a pair."""
        e, t = check_scores(residuals, "residual", None), check_scores(true, "true", None)
        if e.shape != t.shape:
            raise InvalidInput(f"{e.size} residuals and {t.size} true scores: expected one of each a pair.")
        if e.size == 0:
            return
        self.pairs.add(e.ravel(), t.ravel(), per_pair(group, e.shape))
        yardstick = self.pairs.true_variance()
        if yardstick >= NO_SPREAD:
            error = (
                self.pairs.residual_variance() if self.centred and self.pairs.grouped else self.pairs.mean_squared_residual()
            )
            self.eta2 = error / yardstick
            if self.eta2_cal is None and self.n_pairs >= self.min_pairs:
                self.eta2_cal = self.eta2

    @property
    def n_pairs(self) -> int:
        return self.pairs.n_seen

    @property
    def rho(self) -> float:
        if self.eta2 is None or self.eta2_cal is None:
            return 1.0
        if self.eta2 == self.eta2_cal:  # also a perfect world model, 0 / 0
            return min(2.0, self.w_max)
        ratio = self.eta2 / self.eta2_cal if self.eta2_cal > 0 else np.inf
        return float(np.clip(1.0 + ratio, 1.0, self.w_max))

    @property
    def control_coefficient(self) -> float:
        """Lam of the control variate: Cov(true, calibrated) / Var(calibrated) within groups, clipped to [0, 1];
        1 in warm-up.
        """
        if self.eta2_cal is None:
            return 1.0
        variance, covariance = self.pairs.calibrated_moments()
        return float(np.clip(covariance / variance, 0.0, 1.0)) if variance >= NO_SPREAD else 1.0

    def state_dict(self) -> dict[str, Any]:
        return {"eta2": self.eta2, "eta2_cal": self.eta2_cal, "pairs": self.pairs.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.eta2, self.eta2_cal = state["eta2"], state["eta2_cal"]
        self.pairs.load_state_dict(state["pairs"])
