"""`Corrector`: both corrections as one object with one state, used by the vector environment and by the trainer alike."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Literal, get_args

import numpy as np

from wmrl_envs.correction.audit import Action, AnchorAudit
from wmrl_envs.correction.fuse import FusionWeight, fusion_weights
from wmrl_envs.correction.pool import AnchorPool
from wmrl_envs.correction.recalibrate import Direction, Recalibrator
from wmrl_envs.correction.scores import ScoreRange, check_scores
from wmrl_envs.errors import InvalidInput

Fusion = Literal["ivw", "cv", "auto", "none"]


class Corrector:
    """Online Debiasing and Inverse-Variance Denoising over one pool of anchor pairs.

    Args:
        min_pairs, refit_every, direction, levels, score_range, per_task, two_stage: see `Recalibrator`.
        window, w_max: see `FusionWeight`.
        debias: calibrate predictions. denoise: weight anchors by rho (False: rho is 1).
        fusion: "ivw" (Equation 5), "cv" (control variate: unbiased however wrong the world model), "auto" (whichever has
            the lower estimated mean squared error) or "none" (plain mean over groups).
        prequential: residuals by the map as it was before their pair; False: by the map refitted with it, which flatters the
            residual noise and so rho (for comparison).
        audit: keep an `AnchorAudit`.

    A training step calls `advantages` for its batch, then `observe` with the pairs of its anchor groups.

    >>> corrector = Corrector(min_pairs=4)
    >>> corrector.observe([0.4, 0.5], [0.0, 0.3], group=0); corrector.observe([0.6, 0.7], [0.6, 0.9], group=1)
    >>> corrector.ready, corrector.rho, corrector.calibrate([0.55]).round(2).tolist()
    (True, 2.0, [0.45])
    """

    def __init__(
        self,
        *,
        min_pairs: int = 200,
        refit_every: int = 64,
        direction: Direction = "inverse",
        levels: int = 10,
        window: int = 512,
        w_max: float = 4.0,
        debias: bool = True,
        denoise: bool = True,
        fusion: Fusion = "ivw",
        score_range: ScoreRange = (0.0, 1.0),
        per_task: bool = False,
        two_stage: bool = False,
        prequential: bool = True,
        audit: bool = True,
    ):
        if fusion not in get_args(Fusion):
            raise InvalidInput(f"fusion={fusion!r}: expected one of {', '.join(get_args(Fusion))}.")
        self.debias, self.denoise, self.fusion, self.prequential = debias, denoise, fusion, prequential
        self.recalibrator = Recalibrator(
            min_pairs, refit_every, direction, levels, score_range, per_task=per_task, two_stage=two_stage
        )
        self.fusion_weight = FusionWeight(min_pairs, window, w_max)
        self.audit = AnchorAudit(window) if audit else None

    # -- reading -----------------------------------------------------------------------------------------------------
    @property
    def pool(self) -> AnchorPool:
        return self.recalibrator.pool

    @property
    def score_range(self) -> ScoreRange:
        return self.recalibrator.score_range

    @property
    def enabled(self) -> bool:
        """Whether either correction is on, so that anchors are needed."""
        return self.debias or (self.denoise and self.fusion != "none")

    @property
    def rho(self) -> float:
        return self.fusion_weight.rho if self.denoise and self.fusion != "none" else 1.0

    @property
    def eta2(self) -> float | None:
        return self.fusion_weight.eta2

    @property
    def eta2_cal(self) -> float | None:
        return self.fusion_weight.eta2_cal

    @property
    def ready(self) -> bool:
        """Whether warm-up is over: the first map has been fitted."""
        return self.recalibrator.ready

    @property
    def n_pairs(self) -> int:
        return self.recalibrator.n_pairs

    @property
    def action(self) -> Action:
        """What the audit asks for: "none", "raise" the anchors, "freeze" world-model groups, or "stop"."""
        return "none" if self.audit is None else self.audit.action

    # -- the four calls ----------------------------------------------------------------------------------------------
    def calibrate(self, predicted: Any, tasks: Any = None) -> np.ndarray:
        """The current map applied to raw predicted scores of any shape; `tasks`: one for all, one a group or one a score."""
        if not self.debias:
            return check_scores(predicted, "predicted", self.score_range).copy()
        return self.recalibrator.transform(predicted, tasks)

    def observe(self, predicted: Any, true: Any, *, group: Any, task: Any = None) -> None:
        """Take in the pairs of anchor groups: residual by the map as of before them, then pool, then refit if due.

        Args:
            predicted, true: raw predicted and true scores, shape (n,) or (groups, n). Pairs whose execution failed for
                reasons of ours must be left out by the caller.
            group, task: one for all, one a group or one a pair. Group ids are unique to one group of trajectories.
        """
        was_ready = self.ready
        residuals = self.recalibrator.update(predicted, true, group, task)
        real = np.asarray(true, dtype=float)
        if not self.debias:
            residuals = np.asarray(predicted, dtype=float) - real
        elif not self.prequential:
            residuals = self.recalibrator.transform(predicted, task) - real
        self.fusion_weight.update(residuals, real, group)
        if self.audit is not None:
            self.audit.update(real + residuals, real, group=group, task=task, watch=was_ready)

    def weights(self, is_anchor: Any) -> np.ndarray:
        """Equation 5 as one weight a group, summing to 1."""
        return fusion_weights(is_anchor, self.rho)

    def advantages(
        self,
        predicted: Any,
        true: Any,
        is_anchor: Any,
        *,
        tasks: Any = None,
        propensity: Any = None,
        freeze: bool = False,
    ) -> np.ndarray:
        """Weighted advantages C, so that the fused gradient is (1/n) sum over groups k and members i of C_ki grad log pi(tau_ki).

        Every fusion rule is a weighted sum of score terms, so none needs a second backward pass.

        Args:
            predicted: raw predicted scores, shape (m, n): m groups of n trajectories.
            true: true scores, shape (m, n); read on anchor groups only (NaN elsewhere).
            is_anchor: shape (m,). tasks: shape (m,), for the per-task map.
            propensity: shape (m,), the probabilities `AnchorSchedule.draw` returned; needed by the control variate to
                stay unbiased when they differ between groups.
            freeze: leave the world-model groups out (what the audit's action "freeze" means).

        Returns:
            Shape (m, n); each row sums to 0.
        """
        mask = _mask(is_anchor)
        cal = np.atleast_2d(self.calibrate(predicted, tasks))
        try:
            real = np.atleast_2d(np.asarray(true, dtype=float))
        except (TypeError, ValueError):
            raise InvalidInput(
                f"true={true!r:.100}: expected numbers of the shape of predicted {cal.shape}, NaN where not known."
            ) from None
        share = None if propensity is None else _propensities(propensity, mask)
        if cal.ndim != 2 or cal.shape != real.shape or mask.shape != cal.shape[:1]:
            raise InvalidInput(
                f"predicted {cal.shape}, true {real.shape}, is_anchor {mask.shape}: expected (m, n), (m, n) and (m,)."
            )
        check_scores(real[mask], "true score on anchor groups", self.score_range)
        a_wm = cal - cal.mean(axis=1, keepdims=True)
        a_real = np.zeros_like(a_wm)
        a_real[mask] = real[mask] - real[mask].mean(axis=1, keepdims=True)
        if freeze:
            return np.where(mask[:, None], a_real, 0.0) / max(int(mask.sum()), 1)
        if self._rule(mask, cal.shape[1]) == "cv":
            return self._control_variate(a_wm, a_real, mask, share)
        return self.weights(mask)[:, None] * np.where(mask[:, None], a_real, a_wm)

    def _control_variate(self, a_wm: np.ndarray, a_real: np.ndarray, mask: np.ndarray, propensity: Any) -> np.ndarray:
        """G = mean_E(g_E - lam g_WM) + lam mean_all(g_WM) as coefficients; `lam` comes from past pairs only."""
        m = len(mask)
        if not mask.any():
            return a_wm / m
        lam = self.fusion_weight.control_coefficient
        share = np.full(m, 1 / mask.sum()) if propensity is None else 1 / (m * np.where(mask, propensity, 1.0))
        return lam * a_wm / m + np.where(mask[:, None], share[:, None] * (a_real - lam * a_wm), 0.0)

    def _rule(self, mask: np.ndarray, n: int) -> str:
        """The rule in force: for "auto" the one with the lower estimated squared error of this batch's gradient.

        In units of the gradient variance one unit of score variance causes: noise averages over the n members and the
        groups, the systematic part of the residual does not.
        """
        if self.fusion != "auto":
            return self.fusion
        a, m, pairs = int(mask.sum()), len(mask), self.fusion_weight.pairs
        if not self.ready or a in (0, m):
            return "ivw"
        true, (calibrated, covariance) = pairs.true_variance(), pairs.calibrated_moments()
        weights = self.weights(mask)
        mse_ivw = ((weights[mask] ** 2).sum() * true + (weights[~mask] ** 2).sum() * calibrated) / n
        mse_ivw += weights[~mask].sum() ** 2 * pairs.systematic_residual2()
        lam = self.fusion_weight.control_coefficient
        mse_cv = (true / a - (1 / a - 1 / m) * (2 * lam * covariance - lam**2 * calibrated)) / n
        return "cv" if mse_cv < mse_ivw else "ivw"

    # -- bookkeeping -------------------------------------------------------------------------------------------------
    def metrics(self) -> dict[str, float]:
        """The scalars to log; a quantity not known yet is absent."""
        out = {"rho": self.rho, "n_pairs": float(self.n_pairs), "ready": float(self.ready), "fits": float(self.recalibrator.n_fits),
               "fell_back": float(self.recalibrator.fell_back), "control_coefficient": self.fusion_weight.control_coefficient}  # fmt: skip
        known = {"eta2": self.eta2, "eta2_cal": self.eta2_cal}
        out |= {key: value for key, value in known.items() if value is not None}
        if self.audit is not None:
            out |= {f"audit_{key}": value for key, value in self.audit.metrics().items()}
        return out

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, JSON-able; `load_state_dict` of a corrector built with the same arguments restores it exactly."""
        return {"recalibrator": self.recalibrator.state_dict(), "fusion_weight": self.fusion_weight.state_dict(),
                "audit": None if self.audit is None else self.audit.state_dict()}  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`.

        Raises:
            InvalidInput: it is not one; then nothing is changed.
        """
        loaded = deepcopy(self)
        try:
            loaded.recalibrator.load_state_dict(state["recalibrator"])
            loaded.fusion_weight.load_state_dict(state["fusion_weight"])
            if loaded.audit is not None and state["audit"] is not None:
                loaded.audit.load_state_dict(state["audit"])
            low, high = self.score_range or (-1e6, 1e6)
            mapped = check_scores(loaded.calibrate(np.linspace(low, high, 101)), "the map", self.score_range)
            if (np.diff(mapped) < 0).any() or not 1 <= loaded.rho <= self.fusion_weight.w_max:
                raise ValueError("a map that falls, or a weight out of its range")
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise InvalidInput(
                f"No state of a Corrector ({type(error).__name__}: {error}): expected what state_dict() gave."
            ) from None
        self.__dict__.update(loaded.__dict__)


def _mask(is_anchor: Any) -> np.ndarray:
    mask = np.asarray(is_anchor)
    if mask.dtype != bool and not (mask.dtype.kind in "iu" and np.isin(mask, (0, 1)).all()):
        raise InvalidInput(f"is_anchor={is_anchor!r:.100}: expected True or False, one a group.")
    return mask.astype(bool)


def _propensities(propensity: Any, mask: np.ndarray) -> np.ndarray:
    """The probability with which each group was to be an anchor."""
    share = check_scores(propensity, "propensity", (0.0, 1.0))
    if share.shape != mask.shape:
        raise InvalidInput(f"propensity of shape {share.shape}: expected {mask.shape}, one a group.")
    if (share[mask] == 0).any():
        raise InvalidInput(f"propensity={share.tolist()}: an anchor group cannot have had probability 0.")
    return share
