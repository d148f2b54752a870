"""The fusion rules: from rewards of two graders to one coefficient a trajectory.

Every rule returns C of shape (m, n), such that the fused gradient is (1/n) sum over groups k and members i of
C_ki grad log pi(tau_ki). None needs a second backward pass. What holds for all: a row of C sums to 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wmrl_envs.correction.fuse import fusion_weights


@dataclass(frozen=True)
class Batch:
    """A batch of m groups of n trajectories, checked.

    Attributes:
        calibrated: scores under the world model and the map, shape (m, n).
        true: true scores where `known`, shape (m, n); 0 elsewhere.
        anchored: groups that were really executed as a whole, shape (m,).
        known: members whose true score is known, shape (m, n); all of an anchored group.
        remembered: members known from earlier executions and not by this batch's draw, shape (m, n).
        propensity: probability with which each member was to be executed, shape (m, n); None: equal, normalised by what was
            drawn.
        lost: propensities of the groups that were drawn as anchors and lost; they are not among the m.
    """

    calibrated: np.ndarray
    true: np.ndarray
    anchored: np.ndarray
    known: np.ndarray
    remembered: np.ndarray
    propensity: np.ndarray | None = None
    lost: tuple[float, ...] = ()

    @property
    def m(self) -> int:
        return len(self.anchored)

    @property
    def predicted(self) -> np.ndarray:
        """What is believed of a member without this batch's executions: the truth where it is remembered,
        else the prediction.
        """
        return np.where(self.remembered, self.true, self.calibrated)

    @property
    def rewards(self) -> np.ndarray:
        """The best that is known of each member."""
        return np.where(self.known, self.true, self.calibrated)


def centred(scores: np.ndarray) -> np.ndarray:
    """Scores less their group's mean: Equation 1's advantages."""
    return scores - scores.mean(axis=1, keepdims=True)


def inverse_variance(batch: Batch, rho: float) -> np.ndarray:
    """Equation 5: anchor groups weigh rho, the others 1."""
    return fusion_weights(batch.anchored, rho)[:, None] * centred(batch.rewards)


def frozen(batch: Batch) -> np.ndarray:
    """Only what was executed counts: each group by its known members alone."""
    count = batch.known.sum(axis=1, keepdims=True)
    mean = np.where(batch.known, batch.true, 0.0).sum(axis=1, keepdims=True) / np.maximum(count, 1)
    advantages = np.where(batch.known & (count > 1), batch.true - mean, 0.0)
    return advantages / max(int((count > 1).sum()), 1)


def control_variate(batch: Batch, lam: float) -> np.ndarray:
    """G = mean_E(g_E - lam g_WM) + lam mean_all(g_WM), `lam` from past pairs only.

    Unbiased over the draw of the anchors for any fixed `lam`, however wrong the world model is, if the anchors' episodes come
    from the same distribution as the others: a batch that drew no anchor still counts its predictions by `lam`, no more. Anchor
    groups that were drawn and lost give their share to those that landed.
    """
    m, mask = batch.m, batch.anchored
    a_wm = centred(batch.predicted)
    coefficients = lam * a_wm / m
    if not mask.any():
        return coefficients
    inverse = np.ones(m) if batch.propensity is None else 1.0 / batch.propensity[:, 0]
    drawn = float(inverse[mask].sum())
    if batch.propensity is None:
        share = inverse / drawn  # self-normalised
    else:
        share = inverse / (m + len(batch.lost)) * (drawn + sum(1 / p for p in batch.lost)) / drawn
    correction = share[:, None] * (centred(batch.true) - lam * a_wm)
    return coefficients + np.where(mask[:, None], correction, 0.0)


def doubly_robust(batch: Batch, lam: float) -> np.ndarray:
    """r_hat + lam (r - r_hat) / propensity for each executed member, r_hat for the others, then Equation 1.

    lam = 1 is unbiased over the draw and varies most; lam = the propensity puts the truth in place of the prediction where it
    is known, and no more. Remembered truths are exact and need no correction.
    """
    executed = batch.known & ~batch.remembered
    if batch.propensity is None:
        share = np.full(executed.shape, max(float(executed.mean()), 1e-12))
    else:
        share = batch.propensity
    corrected = batch.predicted + np.where(executed, lam / share * (batch.true - batch.predicted), 0.0)
    return centred(corrected) / batch.m
