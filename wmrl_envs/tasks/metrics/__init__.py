"""Every metric of the catalogue: what its answers and predictions look like, and the function that compares them.

`METRICS[name].score(case, **params)` refuses predictions the metric cannot take (`InvalidSubmission`) and returns a float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from wmrl_envs.tasks.metrics import tabular, text, values, vision
from wmrl_envs.tasks.metrics.case import Case
from wmrl_envs.tasks.refusals import InvalidSubmission


@dataclass(frozen=True)
class Metric:
    """A metric: its direction, its function, what it is called in a task overview, and whether its predictions are texts."""

    higher_is_better: bool
    score: Callable[..., float]
    title: str
    on_text: bool = False


def _on_numbers(function: Callable[..., float], case: Case, **params: Any) -> float:
    return function(case.true_numbers(), case.numbers(), **params)


def _on_logs(function: Callable[..., float], case: Case) -> float:
    return function(case.true_numbers(), case.numbers(low=-1.0, include_low=False))


def _wmae(case: Case, weight_column: str = "IsHoliday", holiday_weight: float = 5.0) -> float:
    if weight_column in case.truth.columns:
        holiday = values.true_numbers(case.truth, [weight_column])[:, 0] > 0.5
    else:  # the id is store_department_date, and the holidays of the competition are known
        holiday = np.array([str(i).rsplit("_", 1)[-1] in WALMART_HOLIDAYS for i in case.ids])
    return tabular.wmae(case.true_numbers(), case.numbers(), np.where(holiday, holiday_weight, 1.0))


WALMART_HOLIDAYS = frozenset(  # weeks of the Super Bowl, Labor Day, Thanksgiving and Christmas
    [
        "2010-02-12",
        "2011-02-11",
        "2012-02-10",
        "2013-02-08",
        "2010-09-10",
        "2011-09-09",
        "2012-09-07",
        "2013-09-06",
        "2010-11-26",
        "2011-11-25",
        "2012-11-23",
        "2013-11-29",
        "2010-12-31",
        "2011-12-30",
        "2012-12-28",
        "2013-12-27",
    ]
)


def _binary_log_loss(case: Case, sklearn_eps: bool = False) -> float:
    eps = tabular.SKLEARN_EPS if sklearn_eps else tabular.EPS
    return tabular.binary_log_loss(case.true_numbers(), case.numbers(low=0.0, high=1.0), eps)


def _log_loss(case: Case, sklearn_eps: bool = False, clip_first: bool = False) -> float:
    eps = tabular.SKLEARN_EPS if sklearn_eps else tabular.EPS
    return tabular.log_loss(case.one_hot(), case.numbers(low=0.0), eps, clip_first)


def _balanced_log_loss(case: Case) -> float:
    return tabular.balanced_log_loss(case.one_hot(), case.numbers(low=0.0))


def _on_labels(function: Callable[..., float], case: Case) -> float:
    return function(case.true_labels(), case.labels(refuse_words=True))


def _accuracy(case: Case, refuse_words: bool = False) -> float:
    return tabular.accuracy(case.true_labels(), case.labels(refuse_words))


def _f1(case: Case) -> float:
    return tabular.f1(case.true_labels() == "1", case.labels(refuse_words=True) == "1")


def _qwk(case: Case) -> float:
    labels = case.labels(refuse_words=True)
    ratings = values.numbers(pd.DataFrame(labels, columns=list(case.predictions)), case.predictions, case.ids)
    return tabular.qwk(case.true_numbers(), ratings)


def _exact_match(case: Case, scale: int = 1) -> float:
    """Exact text; whole numbers are compared as numbers of any length, so 0113 and 113, or 7.0 and 7, are equal."""
    truth = values.label_column(case.truth[case.targets[0]])
    guess = values.label_column(case.submission[case.predictions[0]])
    return scale * float((truth == guess).mean())


def _exact_text(case: Case) -> float:
    return float((case.true_texts() == case.texts()).mean())


def _weighted_recall(case: Case) -> float:
    """Macro recall of each component of a grapheme, weighted 2 (root) to 1 (vowel) to 1 (consonant)."""
    truth, guess = case.true_labels()[:, 0], case.labels(refuse_words=True)[:, 0]
    total = 0.0
    for component, weight in (("grapheme_root", 2), ("vowel_diacritic", 1), ("consonant_diacritic", 1)):
        rows = np.array([str(i).endswith(component) for i in case.ids])
        if rows.any():
            total += weight * tabular.macro_recall(truth[rows], guess[rows])
    return total / 4


def _bias_auc(case: Case, all_identities: bool = False) -> float:
    known = [c for c in tabular.IDENTITIES if c in case.truth.columns]
    if all_identities:
        known = [c for c in ALL_IDENTITIES if c in case.truth.columns]
    mentions = values.true_numbers(case.truth, known) >= 0.5
    return tabular.bias_auc(case.true_numbers(), case.numbers(), mentions)


ALL_IDENTITIES = [
    "male",
    "female",
    "transgender",
    "other_gender",
    "heterosexual",
    "homosexual_gay_or_lesbian",
    "bisexual",
    "other_sexual_orientation",
    "christian",
    "jewish",
    "muslim",
    "hindu",
    "buddhist",
    "atheist",
    "other_religion",
    "black",
    "white",
    "asian",
    "latino",
    "other_race_or_ethnicity",
    "physical_disability",
    "intellectual_or_learning_disability",
    "psychiatric_or_mental_illness",
    "other_disability",
]


def _map_at_k(case: Case, k: int = 3, blank_is_wrong: bool = False) -> float:
    if not blank_is_wrong:
        values.refuse_missing(case.submission[case.predictions[0]], case.ids)
    return text.map_at_k([t.split() for t in case.true_texts()], [t.split() for t in case.texts()], k)


def _word_jaccard(case: Case, blank_is_wrong: bool = False) -> float:
    truth, guess = case.true_texts(), case.texts()
    if not blank_is_wrong:
        values.refuse_blank(guess, truth, case.ids, case.predictions[0])
    return text.word_jaccard(truth, guess)


def _span_f1(case: Case) -> float:
    fix = "Write spans as 'start end;start end', end exclusive, or nothing."
    return text.span_f1([text.parse_spans(t) for t in case.true_texts()], case.parsed(text.parse_spans, fix))


def _set_f1(case: Case) -> float:
    values.refuse_missing(case.submission[case.predictions[0]], case.ids)
    return text.set_f1([t.split() for t in case.true_texts()], [t.split() for t in case.texts()])


def _kendall_tau(case: Case) -> float:
    truth = [t.split() for t in case.true_texts()]
    guess = [t.split() for t in case.texts()]
    wrong = [i for i, (t, g) in enumerate(zip(truth, guess, strict=True)) if sorted(t) != sorted(g)]
    if wrong:
        raise InvalidSubmission(
            f"{len(wrong)} orders in column {case.predictions[0]} do not hold each cell of their notebook exactly once, "
            f"first id {case.ids[wrong[0]]}. Write all cell ids of a notebook, separated by blanks."
        )
    return text.kendall_tau(truth, guess)


def _rle_iou_precision(case: Case, height: int = 101, width: int = 101, at_threshold: bool = False) -> float:
    return vision.rle_iou_precision(*_masks(case, height * width), at_threshold)


def _dice_hausdorff(case: Case, size: int = 512) -> float:
    return vision.dice_hausdorff(*_masks(case, size * size), size)


def _masks(case: Case, size: int) -> tuple[Iterator[np.ndarray], Iterator[np.ndarray]]:
    """True and predicted masks of `size` cells, one at a time: ten thousand of them do not fit in memory."""
    fix = f"Write runs as 'start length' with starts from 1 to {size}, or nothing for an empty mask."
    parse = partial(vision.parse_runs, size=size)
    guesses = case.parsed(parse, fix)
    return (vision.mask_of(parse(t), size) for t in case.true_texts()), (vision.mask_of(runs, size) for runs in guesses)


def _box_precision(case: Case, at_threshold: bool = False) -> float:
    fix = "Write 'confidence x y width height' for each box, or nothing."
    return vision.box_precision([_true_boxes(t) for t in case.true_texts()], case.parsed(vision.parse_boxes, fix), at_threshold)


def _true_boxes(cell: str) -> np.ndarray:
    """Answers come with or without a confidence of 1 before each box."""
    tokens = cell.split()
    if len(tokens) % 5 == 0 and all(float(t) == 1.0 for t in tokens[::5]):
        return vision.parse_boxes(cell)
    boxes = np.array(tokens, float).reshape(-1, 4)
    return np.column_stack([np.ones(len(boxes)), boxes])


def _point_f1(case: Case) -> float:
    truth = [vision.parse_points(t, numbers=4, at_most=10**9) for t in case.true_texts()]
    return vision.point_f1(truth, case.parsed(vision.parse_points, "Write 'label X Y' for each point, or nothing."))


def _numbers_metric(function: Callable[..., float]) -> Callable[..., float]:
    return partial(_on_numbers, function)


METRICS: Mapping[str, Metric] = {
    "rmse": Metric(False, _numbers_metric(tabular.rmse), "root mean squared error"),
    "mcrmse": Metric(False, _numbers_metric(tabular.mcrmse), "mean column-wise root mean squared error"),
    "rmsle": Metric(False, partial(_on_logs, tabular.rmsle), "root mean squared logarithmic error"),
    "mcrmsle": Metric(False, partial(_on_logs, tabular.mcrmsle), "mean column-wise root mean squared logarithmic error"),
    "mae": Metric(False, _numbers_metric(tabular.mae), "mean absolute error"),
    "wmae": Metric(False, _wmae, "weighted mean absolute error (holiday weeks count five times)"),
    "median_ae": Metric(False, _numbers_metric(tabular.median_ae), "median absolute error"),
    "smape": Metric(False, _numbers_metric(tabular.smape), "symmetric mean absolute percentage error (0 to 200)"),
    "r2": Metric(True, _numbers_metric(tabular.r2), "coefficient of determination (R2)"),
    "roc_auc": Metric(True, _numbers_metric(tabular.roc_auc), "area under the ROC curve"),
    "mean_column_auc": Metric(True, _numbers_metric(tabular.mean_column_auc), "mean column-wise area under the ROC curve"),
    "gini": Metric(True, _numbers_metric(tabular.gini), "normalised Gini coefficient"),
    "spearman": Metric(True, _numbers_metric(tabular.spearman), "Spearman rank correlation"),
    "mean_column_spearman": Metric(
        True, _numbers_metric(tabular.mean_column_spearman), "mean column-wise Spearman rank correlation"
    ),
    "pearson": Metric(True, _numbers_metric(tabular.pearson), "Pearson correlation"),
    "binary_log_loss": Metric(False, _binary_log_loss, "log loss of the probability of class 1"),
    "log_loss": Metric(False, _log_loss, "multi-class log loss"),
    "balanced_log_loss": Metric(False, _balanced_log_loss, "log loss averaged over the two classes"),
    "accuracy": Metric(True, _accuracy, "accuracy"),
    "f1": Metric(True, _f1, "F1 score of class 1"),
    "macro_f1": Metric(True, partial(_on_labels, tabular.macro_f1), "macro-averaged F1 score"),
    "mcc": Metric(True, partial(_on_labels, tabular.mcc), "Matthews correlation coefficient"),
    "qwk": Metric(True, _qwk, "quadratic weighted kappa"),
    "bias_auc": Metric(True, _bias_auc, "mean of overall and per-identity bias AUCs"),
    "weighted_recall": Metric(True, _weighted_recall, "macro recall of the three components, weighted 2:1:1"),
    "exact_match": Metric(True, _exact_match, "share of exactly equal values", on_text=True),
    "exact_text": Metric(True, _exact_text, "share of exactly equal texts", on_text=True),
    "map_at_k": Metric(True, _map_at_k, "mean average precision at k", on_text=True),
    "word_jaccard": Metric(True, _word_jaccard, "mean word-level Jaccard similarity", on_text=True),
    "span_f1": Metric(True, _span_f1, "F1 over characters of the spans", on_text=True),
    "set_f1": Metric(True, _set_f1, "mean F1 between predicted and true sets", on_text=True),
    "kendall_tau": Metric(True, _kendall_tau, "Kendall tau of the predicted order", on_text=True),
    "rle_iou_precision": Metric(True, _rle_iou_precision, "mean precision over IoU thresholds .50 to .95", on_text=True),
    "dice_hausdorff": Metric(True, _dice_hausdorff, "0.4 Dice + 0.6 (1 - Hausdorff distance)", on_text=True),
    "box_precision": Metric(True, _box_precision, "mean precision of boxes over IoU thresholds .50 to .75", on_text=True),
    "point_f1": Metric(True, _point_f1, "F1 of labelled points inside true boxes", on_text=True),
}

__all__ = ["METRICS", "Case", "Metric"]
