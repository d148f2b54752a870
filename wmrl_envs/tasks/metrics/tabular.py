"""Metrics on numbers, probabilities and class labels.

Functions take the answers `y` and predictions `p` as arrays of shape (rows, columns) in the same order, and return a float.
scikit-learn and scipy do the work where they have the metric; a metric that is undefined on the data (one class only, no
variance) is NaN.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy import stats

EPS = 1e-15  # Kaggle's clip of probabilities
SKLEARN_EPS = float(np.finfo(np.float64).eps)  # scikit-learn's


def rmse(y: np.ndarray, p: np.ndarray) -> float:
    """Root of the mean squared error over all cells."""
    return float(np.sqrt(np.mean((y - p) ** 2)))


def mcrmse(y: np.ndarray, p: np.ndarray) -> float:
    """Mean over the columns of their RMSE."""
    return float(np.sqrt(((y - p) ** 2).mean(axis=0)).mean())


def rmsle(y: np.ndarray, p: np.ndarray) -> float:
    """RMSE of log(1 + value) over all cells; defined for values above -1."""
    return rmse(np.log1p(y), np.log1p(p))


def mcrmsle(y: np.ndarray, p: np.ndarray) -> float:
    """Mean over the columns of their RMSLE."""
    return mcrmse(np.log1p(y), np.log1p(p))


def mae(y: np.ndarray, p: np.ndarray) -> float:
    """Mean absolute error over all cells."""
    return float(np.abs(y - p).mean())


def wmae(y: np.ndarray, p: np.ndarray, weights: np.ndarray) -> float:
    """Mean absolute error with a weight for each row: sum(w |y - p|) / sum(w)."""
    return float((weights[:, None] * np.abs(y - p)).sum() / (weights.sum() * y.shape[1]))


def median_ae(y: np.ndarray, p: np.ndarray) -> float:
    """Median absolute error."""
    return float(np.median(np.abs(y - p)))


def smape(y: np.ndarray, p: np.ndarray) -> float:
    """Symmetric mean absolute percentage error, 0 to 200: 100 mean(2 |p - y| / (|y| + |p|)), where 0/0 counts as 0."""
    size = np.abs(y) + np.abs(p)
    return float(200 * np.divide(np.abs(y - p), size, out=np.zeros_like(size), where=size > 0).mean())


def r2(y: np.ndarray, p: np.ndarray) -> float:
    """Coefficient of determination, 1 for perfect, 0 for the mean, no lower bound."""
    from sklearn.metrics import r2_score

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(r2_score(y, p))


def _auc(y: np.ndarray, p: np.ndarray) -> float:
    """AUC of one column by ranks (Mann-Whitney), ties count half; NaN if there is one class only."""
    positive = y > 0.5
    n_pos, n_neg = int(positive.sum()), int((~positive).sum())
    if not n_pos or not n_neg:
        return float("nan")
    ranks = stats.rankdata(p)
    return float((ranks[positive].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg))


def roc_auc(y: np.ndarray, p: np.ndarray) -> float:
    """Area under the ROC curve.

    >>> roc_auc(np.array([[0], [0], [1], [1]]), np.array([[0.1], [0.4], [0.35], [0.8]]))
    0.75
    """
    return _auc(y[:, 0], p[:, 0])


def mean_column_auc(y: np.ndarray, p: np.ndarray, skip_negative_truth: bool = False) -> float:
    """Mean over the columns of their AUC. Rows whose answers are -1 (not scored) are left out on request."""
    if skip_negative_truth:
        keep = (y >= 0).all(axis=1)
        y, p = y[keep], p[keep]
    return float(np.mean([_auc(y[:, j], p[:, j]) for j in range(y.shape[1])]))


def gini(y: np.ndarray, p: np.ndarray) -> float:
    """Normalised Gini: area between the cumulative answers in order of prediction and chance, over that of the best order.

    Tied predictions share their answers evenly, which is the mean over all orders of the ties (for 0/1 answers: 2 AUC - 1).
    """

    def area(truth: np.ndarray, order_by: np.ndarray) -> float:
        _, group = np.unique(-order_by, return_inverse=True)
        totals, sizes = np.bincount(group, truth), np.bincount(group)
        before = np.concatenate([[0.0], np.cumsum(totals)[:-1]])
        # Within a tied group of size s with total t the expected cumulative sum after i rows is before + t i / s.
        cumulative = (sizes * before + totals * (sizes + 1) / 2).sum()
        return cumulative / truth.sum() - (len(truth) + 1) / 2

    truth, guess = y[:, 0], p[:, 0]
    if truth.sum() == 0:
        return float("nan")
    best = area(truth, truth)
    return float(area(truth, guess) / best) if best else float("nan")


def spearman(y: np.ndarray, p: np.ndarray, skip_missing_truth: bool = False) -> float:
    """Spearman's rank correlation; NaN for constant predictions."""
    truth, guess = y[:, 0], p[:, 0]
    if skip_missing_truth:
        keep = ~np.isnan(truth)
        truth, guess = truth[keep], guess[keep]
    return _quiet_correlation(stats.spearmanr, truth, guess)


def mean_column_spearman(y: np.ndarray, p: np.ndarray) -> float:
    """Mean over the columns of Spearman's rank correlation; a constant column counts 0."""
    columns = [_quiet_correlation(stats.spearmanr, y[:, j], p[:, j]) for j in range(y.shape[1])]
    return float(np.nan_to_num(columns).mean())


def pearson(y: np.ndarray, p: np.ndarray) -> float:
    """Pearson's correlation; NaN for constant predictions."""
    return _quiet_correlation(stats.pearsonr, y[:, 0], p[:, 0])


def _quiet_correlation(function: Callable, a: np.ndarray, b: np.ndarray) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(function(a, b)[0])


def binary_log_loss(y: np.ndarray, p: np.ndarray, eps: float = EPS) -> float:
    """-mean(y log p + (1 - y) log(1 - p)), with p clipped to [eps, 1 - eps]."""
    q = np.clip(p, eps, 1 - eps)
    return float(-np.where(y > 0.5, np.log(q), np.log1p(-q)).mean())


def log_loss(y: np.ndarray, p: np.ndarray, eps: float = EPS, clip_first: bool = False) -> float:
    """-mean log of the probability of the true class. `y`: one-hot. Rows are divided by their sum, then clipped.

    A row of zeros gives no probability to any class and is charged -log(eps). `clip_first`: clipped, then divided, so that a
    row of zeros says that all classes are equally probable.
    """
    q = _rows_to_one(np.clip(p, eps, 1 - eps)) if clip_first else np.clip(_rows_to_one(p), eps, 1 - eps)
    return float(-(y * np.log(q)).sum(axis=1).mean())


def balanced_log_loss(y: np.ndarray, p: np.ndarray, eps: float = EPS) -> float:
    """Mean of the two per-class mean log losses. `y`: one-hot; a class that is absent counts 0."""
    q = np.clip(_rows_to_one(p), eps, 1 - eps)
    sizes = np.maximum(y.sum(axis=0), 1)
    return float((-(y * np.log(q)).sum(axis=0) / sizes).mean())


def _rows_to_one(p: np.ndarray) -> np.ndarray:
    total = p.sum(axis=1, keepdims=True)
    return np.divide(p, total, out=np.zeros_like(p), where=total > 0)


def accuracy(y: np.ndarray, p: np.ndarray) -> float:
    """Share of equal labels."""
    return float((y == p).mean())


def f1(y: np.ndarray, p: np.ndarray) -> float:
    """F1 of the class 1; 0 if there is no true positive."""
    hits = ((y == 1) & (p == 1)).sum()
    return float(2 * hits / ((y == 1).sum() + (p == 1).sum())) if hits else 0.0


def macro_f1(y: np.ndarray, p: np.ndarray) -> float:
    """Mean F1 over the classes that occur in the answers or the predictions."""
    hits, in_truth, in_guess = _counts(y[:, 0], p[:, 0])
    return float((2 * hits / (in_truth + in_guess)).mean())


def macro_recall(y: np.ndarray, p: np.ndarray) -> float:
    """Mean recall over the classes that occur in the answers or the predictions (0 for one that only is predicted)."""
    hits, in_truth, _ = _counts(y, p)
    return float((hits / np.maximum(in_truth, 1)).mean())


def _counts(y: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per class: true positives, rows in the answers, rows in the predictions."""
    import pandas as pd

    codes, _ = pd.factorize(np.concatenate([y, p]).astype(object))
    truth, guess = codes[: len(y)], codes[len(y) :]
    k = int(codes.max()) + 1
    hits = np.bincount(truth[truth == guess], minlength=k)
    return hits, np.bincount(truth, minlength=k), np.bincount(guess, minlength=k)


def mcc(y: np.ndarray, p: np.ndarray) -> float:
    """Matthews correlation coefficient, two or more classes; 0 for constant predictions."""
    hits, in_truth, in_guess = (counts.astype(float) for counts in _counts(y[:, 0], p[:, 0]))
    n = len(y)
    covariance = hits.sum() * n - in_truth @ in_guess
    scale = (n * n - in_truth @ in_truth) * (n * n - in_guess @ in_guess)
    return float(covariance / np.sqrt(scale)) if scale else 0.0


def qwk(y: np.ndarray, p: np.ndarray) -> float:
    """Quadratic weighted kappa: 1 - mean((y - p)^2) / mean over all pairs (y_i - p_j)^2.

    The weights are the true distances, so ratings that occur nowhere do not matter; NaN when both are the same constant.
    """
    truth, guess = y[:, 0], p[:, 0]
    n = len(truth)
    # Both sides times n^2, so that whole ratings are compared without rounding and chance agreement is exactly 0.
    observed = n * ((truth - guess) ** 2).sum()
    expected = n * ((truth**2).sum() + (guess**2).sum()) - 2 * truth.sum() * guess.sum()
    return float(1 - observed / expected) if expected > 0 else float("nan")


IDENTITIES = (  # the nine of the official metric
    "male",
    "female",
    "homosexual_gay_or_lesbian",
    "christian",
    "jewish",
    "muslim",
    "black",
    "white",
    "psychiatric_or_mental_illness",
)


def bias_auc(y: np.ndarray, p: np.ndarray, identities: np.ndarray, power: float = -5.0) -> float:
    """0.25 overall AUC + 0.25 power mean over the identities of each of the subgroup, BPSN and BNSP AUC.

    `identities`: (rows, identities) bool, which comments mention which. Identities whose AUC is undefined are skipped.
    """
    toxic, guess = y[:, 0] >= 0.5, p[:, 0]
    total = 0.25 * _auc(toxic, guess)
    for mask in (  # rows used, given "mentions the identity" m and toxicity t
        lambda m, t: m,
        lambda m, t: (m & ~t) | (~m & t),  # background positive, subgroup negative
        lambda m, t: (m & t) | (~m & ~t),  # background negative, subgroup positive
    ):
        rows = [mask(identities[:, j], toxic) for j in range(identities.shape[1])]
        values = np.array([_auc(toxic[r], guess[r]) for r in rows])
        values = values[~np.isnan(values)]
        if len(values):
            with np.errstate(divide="ignore"):
                total += 0.25 * float(np.mean(values**power) ** (1 / power))
    return float(total)
