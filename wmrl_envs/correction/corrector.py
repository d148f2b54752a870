"""`Corrector`: both corrections as one object with one state, used by the vector environment and by the trainer alike."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Literal, get_args

import numpy as np

from wmrl_envs.correction.audit import Action, AnchorAudit
from wmrl_envs.correction.fuse import FusionWeight, fusion_weights
from wmrl_envs.correction.moments import PairWindow
from wmrl_envs.correction.pool import AnchorPool
from wmrl_envs.correction.recalibrate import FITTED, Direction, Recalibrator
from wmrl_envs.correction.rules import Batch, control_variate, doubly_robust, frozen, inverse_variance
from wmrl_envs.correction.scores import ScoreRange, check_number, check_scores, per_pair
from wmrl_envs.errors import InvalidInput

Fusion = Literal["ivw", "cv", "dr", "auto", "none"]


class Corrector:
    """Online Debiasing and Inverse-Variance Denoising over one pool of anchor pairs.

    Args:
        min_pairs: pairs before the first fit of the map, and before rho leaves 1.
        refit_every: new pairs between fits.
        direction: "inverse", "regression" or "auto": how the map is fitted, see `Recalibrator`.
        levels: true-score levels of the inverse map.
        window: latest pairs that rho is computed from, see `FusionWeight`.
        w_max: largest rho, at least 1.
        debias: calibrate predictions.
        denoise: weight anchors by rho (False: rho is 1).
        fusion: "ivw" (Equation 5), "cv" (control variate: unbiased over the draw however wrong the world model, if anchors'
            episodes come from the same distribution as the others), "dr" (doubly robust, its correction shrunk), "auto" (ivw or
            cv, whichever has the lower estimated mean squared error) or "none" (plain mean over groups).
        score_range: where scores lie, (low, high); None for rewards without a range.
        per_task: mix the common map with the task's own.
        two_stage: P(score > 0) times the map fitted to the pairs with a score above 0.
        noise: standard deviation of what two predictions of one solution differ by, for "auto"; 0 for deterministic world
            models.
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
        noise: float = 0.0,
    ):
        if fusion not in get_args(Fusion):
            raise InvalidInput(f"fusion={fusion!r}: expected one of {', '.join(get_args(Fusion))}.")
        self.debias, self.denoise, self.fusion, self.prequential = debias, denoise, fusion, prequential
        self.recalibrator = Recalibrator(
            min_pairs, refit_every, direction, levels, score_range, per_task=per_task, two_stage=two_stage
        )
        self.fusion_weight = FusionWeight(min_pairs, window, w_max, centred=True)
        self.by_solution = PairWindow(window)  # residuals of single solutions, for the log
        self.noise = check_number("noise", noise, 0.0)
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

    def observe(
        self, predicted: Any, true: Any, *, group: Any, task: Any = None, episodes: tuple[Any, Any] | None = None
    ) -> None:
        """Take in the pairs of anchor groups: residual by the map as of before them, then pool, then refit if due.

        The map is fitted to the pairs it is applied to. The noise (eta2), the rule "auto" and the audit look at what the
        gradient sees, episodes: where an episode has several pairs, its score is not one of them (the best of four noisy
        predictions is biased even if each is not).

        Args:
            predicted: raw predicted scores of solutions, shape (n,) or (groups, n). Pairs whose execution failed for reasons of
                ours must be left out by the caller.
            true: true scores, same shape.
            group: one for all, one a group or one a pair; ids are unique to one group of trajectories.
            task: likewise.
            episodes: (calibrated, true) scores of the episodes, each of shape (k,) for one group; default: the pairs are
                episodes.

        Raises:
            InvalidInput: scores out of range, or unequal numbers of them; nothing is taken in.
        """
        was_ready = self.ready
        if episodes is not None:
            calibrated, worth = (check_scores(x, "episode", self.score_range) for x in episodes)
            if calibrated.shape != worth.shape or (np.ndim(group) != 0 and group is not None):
                raise InvalidInput(
                    f"episodes of {calibrated.size} calibrated and {worth.size} true scores with group={group!r:.60}: "
                    f"expected one of "
                    "each an episode, of one group at a time."
                )
        residuals = self.recalibrator.update(predicted, true, group, task)
        real = np.asarray(true, dtype=float)
        if not self.debias:
            residuals = np.asarray(predicted, dtype=float) - real
        elif not self.prequential:
            residuals = self.recalibrator.transform(predicted, task) - real
        self.by_solution.add(residuals.ravel(), real.ravel(), per_pair(group, real.shape))
        if episodes is not None:
            residuals, real = calibrated - worth, worth
        self.fusion_weight.update(residuals, real, group)
        if self.audit is not None:
            self.audit.update(real + residuals, real, group=group, task=task, watch=was_ready)

    def require_weights(self, who: str) -> None:
        """Refuse a fusion rule that is not one weight a group, on behalf of somebody who has nothing but weights.

        Raises:
            InvalidInput: fusion is "cv", "dr" or "auto", which need both scores of every anchor in one place (`advantages`).
        """
        if self.fusion not in ("ivw", "none"):
            raise InvalidInput(
                f"Corrector(fusion={self.fusion!r}) with {who}, which weighs whole groups: expected fusion='ivw' or 'none'; "
                "the other rules work where a trainer calls Corrector.advantages."
            )

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
        calibrated: Any = None,
        known: Any = None,
        executed: Any = None,
        lost: Any = (),
    ) -> np.ndarray:
        """Weighted advantages C, so that the fused gradient is (1/n) sum over groups k and members i of C_ki grad log
        pi(tau_ki).

        Args:
            predicted: raw predicted scores, shape (m, n): m groups of n trajectories.
            true: true scores, shape (m, n); read where they are known (NaN elsewhere).
            is_anchor: groups that were really executed as a whole, shape (m,).
            tasks: shape (m,), for the per-task map.
            propensity: probability with which each group (m,), or member (m, n), was to be executed, as drawn; needed by the
                control variate and the doubly robust rule to stay unbiased. Leave it out where anchors land in other batches
                than they were drawn for (deferred anchors): then the rules normalise by what landed.
            freeze: only what was executed counts (what the audit's action "freeze" means).
            calibrated: shape (m, n), where the caller has mapped the scores already (the mean over turns of mapped scores is
                not the map of the mean); default: the map applied to `predicted`.
            known: members whose true score is known although their group is no anchor, shape (m, n): remembered from earlier
                executions, or executed inside their group.
            executed: of the `known`, those that this batch's draw executed, shape (m, n); default: none.
            lost: propensities of the groups that were drawn as anchors and lost.

        Returns:
            Shape (m, n); each row sums to 0.
        """
        batch = self._batch(predicted, true, is_anchor, tasks, propensity, calibrated, known, executed, lost)
        if freeze:
            return frozen(batch)
        rule = self._rule(batch.anchored, batch.calibrated.shape[1])
        if rule == "cv":
            return control_variate(batch, self.fusion_weight.control_coefficient)
        if rule == "dr":
            return doubly_robust(batch, self._shrinkage(batch))
        return inverse_variance(batch, self.rho)

    def _batch(
        self,
        predicted: Any,
        true: Any,
        is_anchor: Any,
        tasks: Any,
        propensity: Any,
        calibrated: Any,
        known: Any,
        executed: Any,
        lost: Any,
    ) -> Batch:
        mask = _mask(is_anchor)
        if calibrated is None:
            calibrated = self.calibrate(predicted, tasks)
        cal = np.atleast_2d(check_scores(calibrated, "calibrated", self.score_range))
        try:
            real = np.atleast_2d(np.asarray(true, dtype=float))
        except (TypeError, ValueError):
            raise InvalidInput(
                f"true={true!r:.100}: expected numbers of the shape of predicted {cal.shape}, NaN where not known."
            ) from None
        if cal.ndim != 2 or cal.shape != real.shape or mask.shape != cal.shape[:1]:
            raise InvalidInput(
                f"predicted {cal.shape}, true {real.shape}, is_anchor {mask.shape}: expected (m, n), (m, n) and (m,)."
            )
        check_scores(real[mask], "true score on anchor groups", self.score_range)
        inside = np.zeros(cal.shape, bool) if known is None else _members(known, cal.shape, "known")
        drawn = np.zeros(cal.shape, bool) if executed is None else _members(executed, cal.shape, "executed")
        check_scores(real[inside], "true score of known members", self.score_range)
        all_known = inside | drawn | mask[:, None]
        check_scores(real[all_known], "true score of executed members", self.score_range)
        share = None if propensity is None else _propensities(propensity, mask, drawn)
        gone = check_scores(lost, "lost", (0.0, 1.0))
        return Batch(
            cal, np.where(all_known, real, 0.0), mask, all_known, inside & ~drawn & ~mask[:, None], share,
            tuple(gone[gone > 0].tolist()),
        )  # fmt: skip

    def _shrinkage(self, batch: Batch) -> float:
        """Lam of the doubly robust rule: the weight of the correction with the lowest estimated squared error.

        With weight lam the systematic part of the error (mean square b2) stays by (1 - lam)^2, and the draw adds
        lam^2 (1/p - 1) s2 / a for a executed members, each drawn with probability p, of residual variance s2 within groups.
        """
        executed = batch.known & ~batch.remembered
        a = int(executed.sum())
        if a == 0:
            return 0.0
        p = float(executed.mean()) if batch.propensity is None else float(batch.propensity[executed].mean())
        pairs = self.fusion_weight.pairs
        if not self.ready or (s2 := pairs.residual_variance()) <= 0:
            return p
        b2 = pairs.systematic_residual2()
        variance = max(1 / p - 1, 0.0) * s2 / a
        return float(np.clip(b2 / (b2 + variance) if b2 + variance > 0 else p, p, 1.0))

    def _rule(self, mask: np.ndarray, n: int) -> str:
        """The rule in force: for "auto" the one with the lower estimated squared error of this batch's gradient.

        In units of the gradient variance one unit of score variance causes: noise averages over the n members and the groups,
        the systematic part of the residual does not. A world model that gives the same solution the same score every time has
        no noise: the whole of its residual within groups is systematic, be it a bend of the scores or a wrong order. `noise` is
        what is taken off.
        """
        if self.fusion != "auto":
            return self.fusion
        a, m, pairs = int(mask.sum()), len(mask), self.fusion_weight.pairs
        if not self.ready or a in (0, m):
            return "ivw"
        true, (calibrated, covariance) = pairs.true_variance(), pairs.calibrated_moments()
        weights = self.weights(mask)
        mse_ivw = ((weights[mask] ** 2).sum() * true + (weights[~mask] ** 2).sum() * calibrated) / n
        systematic = max(pairs.systematic_residual2(), pairs.residual_variance() - self.noise**2)
        mse_ivw += weights[~mask].sum() ** 2 * systematic
        lam = self.fusion_weight.control_coefficient
        mse_cv = (true / a - (1 / a - 1 / m) * (2 * lam * covariance - lam**2 * calibrated)) / n
        return "cv" if mse_cv < mse_ivw else "ivw"

    # -- bookkeeping -------------------------------------------------------------------------------------------------
    def metrics(self) -> dict[str, float]:
        """The scalars to log; a quantity not known yet is absent."""
        out = {"rho": self.rho, "n_pairs": float(self.n_pairs), "ready": float(self.ready),
            "fits": float(self.recalibrator.n_fits),
               "fell_back": float(self.recalibrator.fell_back),
               "control_coefficient": self.fusion_weight.control_coefficient}  # fmt: skip
        known = {"eta2": self.eta2, "eta2_cal": self.eta2_cal, "eta2_solutions": self.by_solution.eta2()}
        out |= {key: value for key, value in known.items() if value is not None}
        out |= {f"map_{name}": float(self.debias and self.recalibrator.in_use == name) for name in FITTED}
        if self.recalibrator.choice is not None:
            out |= {f"map_{key}": value for key, value in self.recalibrator.choice.metrics().items()}
        if self.audit is not None:
            out |= {f"audit_{key}": value for key, value in self.audit.metrics().items()}
        return out

    def state_dict(self) -> dict[str, Any]:
        """Everything learned, JSON-able; `load_state_dict` of a corrector built with the same arguments restores it exactly."""
        return {"recalibrator": self.recalibrator.state_dict(), "fusion_weight": self.fusion_weight.state_dict(),
                "by_solution": self.by_solution.state_dict(),
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
            if "by_solution" in state:  # not in version 0.1
                loaded.by_solution.load_state_dict(state["by_solution"])
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


def _members(values: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    found = np.asarray(values)
    if found.shape != shape or found.dtype != bool:
        raise InvalidInput(f"{name} of shape {found.shape} and type {found.dtype}: expected True or False, shape {shape}.")
    return found


def _propensities(propensity: Any, mask: np.ndarray, executed: np.ndarray) -> np.ndarray:
    """The probability with which each member was to be executed, shape (m, n)."""
    share = check_scores(propensity, "propensity", (0.0, 1.0))
    if share.shape == mask.shape:
        share = np.repeat(share[:, None], executed.shape[1], axis=1)
    if share.shape != executed.shape:
        raise InvalidInput(
            f"propensity of shape {share.shape}: expected {mask.shape}, one a group, or {executed.shape}, one a member."
        )
    if (share[mask[:, None] | executed] == 0).any():
        raise InvalidInput(f"propensity={share.tolist()!r:.200}: what was executed cannot have had probability 0.")
    return np.where(share > 0, share, 1.0)
