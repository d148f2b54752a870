"""`compat="mledojo"`: the numbers MLE-Dojo's own graders give (commit 667a8fd), defects included, for those who must reproduce them.

Another metric or parameter, missing predictions that are skipped or scored instead of refused, columns that are ignored, files refused
because the id is not their first column. Not imitated: messages, the mutation of frames, and orders that depend on the numpy build.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wmrl_envs.tasks.catalog import TaskFacts
from wmrl_envs.tasks.metrics import METRICS, Case, tabular, text, values, vision
from wmrl_envs.tasks.validation import InvalidSubmission


@dataclass(frozen=True)
class Override:
    """How MLE-Dojo's grader of one task differs.

    Attributes:
        metric, params: another metric, or other parameters of it.
        score: a function of its own.
        missing: what a missing number does: "refused", "skipped" (the mean is over the others) or "undefined" (the score is NaN).
        extra_columns: more columns are accepted. also_required: columns a submission must have as well.
        by_id_only: rows with the same id are matched in file order, the other id columns are ignored.
    """

    metric: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    score: Callable[[Case], float] | None = None
    missing: str = "refused"
    extra_columns: bool = False
    also_required: tuple[str, ...] = ()
    by_id_only: bool = False


def _loose(case: Case) -> np.ndarray:
    """Predictions with their missing values; anything else that is no number is refused as always."""
    filled = case.submission[list(case.predictions)].copy()
    out = np.full(filled.shape, np.nan)
    for j, column in enumerate(case.predictions):
        present = ~values.is_missing(filled[column])
        if present.any():
            part = filled.loc[present, [column]]
            out[present, j] = values.numbers(part, [column], case.ids[present])[:, 0]
    return out


def _negative_log(y: np.ndarray, p: np.ndarray) -> np.ndarray:
    return -np.nansum(y * np.log(np.clip(p, tabular.EPS, 1 - tabular.EPS)), axis=1)


def _log_loss_as_given(case: Case) -> float:
    """No row is divided by its sum; a missing probability costs nothing."""
    return float(_negative_log(case.one_hot(), _loose(case)).mean())


def _balanced_log_loss(case: Case) -> float:
    y, p = case.one_hot(), _loose(case)
    total = p.sum(axis=1, keepdims=True)
    p = np.divide(p, total, out=np.where(np.isnan(total), np.nan, np.zeros_like(p)), where=total > 0)
    losses = _negative_log(y, p)
    return float(np.mean([losses[y[:, k] == 1].sum() / max(y[:, k].sum(), 1) for k in range(y.shape[1])]))


def _clipped_log_loss(case: Case) -> float:
    return tabular.binary_log_loss(case.true_numbers(), _loose(case))


def _wmae(case: Case) -> float:
    """Plain MAE where the answers have no IsHoliday; a missing prediction costs nothing."""
    weights = np.ones(len(case.truth))
    if "IsHoliday" in case.truth.columns:
        weights = np.where(values.true_numbers(case.truth, ["IsHoliday"])[:, 0] > 0.5, 5.0, 1.0)
    return float(np.nansum(weights[:, None] * np.abs(case.true_numbers() - _loose(case))) / weights.sum())


def _smape(case: Case) -> float:
    """A missing prediction costs nothing."""
    y, p = case.true_numbers(), _loose(case)
    size = np.abs(y) + np.abs(p)
    return float(200 * np.nansum(np.divide(np.abs(y - p), size, out=np.zeros_like(size), where=size != 0)) / len(y))


def _mcrmsle(case: Case) -> float:
    """Missing predictions and those below -1 are skipped."""
    with np.errstate(invalid="ignore", divide="ignore"):
        squares = (np.log1p(case.true_numbers()) - np.log1p(_loose(case))) ** 2
        used = (~np.isnan(squares)).sum(axis=0)
        return float(np.sqrt(np.nansum(squares, axis=0) / used).mean())


def _gini_in_order(case: Case) -> float:
    """Ties are ordered by an unstable sort of the rows in the order of their ids as text; missing predictions come last."""
    order = np.argsort(case.ids.astype(str), kind="stable")
    truth, guess = case.true_numbers()[order, 0], _loose(case)[order, 0]

    def area(by: np.ndarray) -> float:
        ranked = truth[np.argsort(-by)]
        return float((np.cumsum(ranked) / ranked.sum()).sum() - (len(ranked) + 1) / 2)

    return area(guess) / area(truth)


def _column_auc_or_half(case: Case) -> float:
    """A column with a missing prediction has AUC 0.5."""
    y, p = case.true_numbers(), _loose(case)
    columns = [0.5 if np.isnan(p[:, j]).any() else tabular.roc_auc(y[:, [j]], p[:, [j]]) for j in range(y.shape[1])]
    return float(np.mean(columns))


def _qwk_by_index(case: Case) -> float:
    """Distances between the places of the ratings that occur, not between the ratings."""
    truth, guess = case.true_numbers()[:, 0], case.labels(refuse_words=True)[:, 0].astype(float)
    ratings, places = np.unique(np.concatenate([truth, guess]), return_inverse=True)
    places = places.astype(float)
    return tabular.qwk(places[: len(truth), None], places[len(truth) :, None]) if len(ratings) else float("nan")


_NA_WORDS = frozenset(
    [
        "#N/A",
        "#N/A N/A",
        "#NA",
        "-1.#IND",
        "-1.#QNAN",
        "-NaN",
        "-nan",
        "1.#IND",
        "1.#QNAN",
        "<NA>",
        "N/A",
        "NA",
        "NULL",
        "NaN",
        "None",
        "n/a",
        "nan",
        "null",
        "",
    ]
)


def _na_is_nan(cells: np.ndarray) -> np.ndarray:
    """Words that pandas reads as NaN become the word "nan", and so equal each other."""
    return np.array(["nan" if cell in _NA_WORDS else cell for cell in cells], object)


def _text_accuracy(case: Case) -> float:
    truth, guess = _na_is_nan(case.true_texts()), _na_is_nan(case.texts())
    return float((truth == guess).mean())


def _jaccard(case: Case) -> float:
    return text.word_jaccard(_na_is_nan(case.true_texts()), _na_is_nan(case.texts()))


def _lenient_spans(cell: str) -> text.Spans:
    spans: list[tuple[int, int]] = []
    for part in cell.replace("[", "").replace("]", "").replace("'", "").replace('"', "").replace(",", ";").split(";"):
        try:
            spans += text.parse_spans(part)
        except ValueError:
            continue
    return tuple(spans)


def _span_f1(case: Case) -> float:
    """Malformed and reversed spans are skipped."""
    return text.span_f1([text.parse_spans(t) for t in case.true_texts()], [_lenient_spans(t) for t in case.texts()])


def _boxes(case: Case) -> float:
    """An incomplete last box is dropped, and reaching a threshold counts."""

    def parse(cell: str) -> np.ndarray:
        tokens = cell.split()
        [float(token) for token in tokens]  # also those that are dropped must be numbers
        return vision.parse_boxes(" ".join(tokens[: len(tokens) // 5 * 5]))

    guess = case.parsed(parse, "Write 'confidence x y width height' for each box, or nothing.")
    return vision.box_precision([parse(t) for t in case.true_texts()], guess, at_threshold=True)


def _integers(case: Case) -> float:
    """One integer beyond 64 bits on one side turns that side into text, which equals no number."""

    def is_text(labels: np.ndarray) -> bool:
        return any(values.is_number(v) and "." not in v and abs(int(v)) >= 2**63 for v in labels if v.lstrip("+-").isdigit())

    truth, guess = values.label_column(case.truth[case.targets[0]]), values.label_column(case.submission[case.predictions[0]])
    return 0.0 if is_text(truth) != is_text(guess) else float((truth == guess).mean())


_SKIPPED = Override(missing="skipped")
OVERRIDES: Mapping[str, Override] = {
    "allstate-purchase-prediction-challenge": Override(params={"scale": 100}),
    "chaii-hindi-and-tamil-question-answering": Override(score=_jaccard),
    "commonlitreadabilityprize": _SKIPPED,
    "demand-forecasting-kernels-only": Override(score=_smape),
    "denoising-dirty-documents": _SKIPPED,
    "dog-breed-identification": Override(score=_log_loss_as_given),
    "dogs-vs-cats-redux-kernels-edition": Override(score=_clipped_log_loss),
    "facial-keypoints-detection": Override(also_required=("ImageId", "FeatureName")),
    "global-wheat-detection": Override(score=_boxes, extra_columns=True),
    "home-data-for-ml-course": Override(metric="rmse", extra_columns=True),
    "icr-identify-age-related-conditions": Override(score=_balanced_log_loss),
    "integer-sequence-learning": Override(score=_integers),
    "jigsaw-unintended-bias-in-toxicity-classification": Override(params={"all_identities": True}),
    "kuzushiji-recognition": Override(extra_columns=True),
    "liberty-mutual-group-property-inspection-prediction": Override(score=_gini_in_order),
    "nbme-score-clinical-patient-notes": Override(score=_span_f1),
    "novozymes-enzyme-stability-prediction": Override(missing="undefined"),
    "nomad2018-predict-transparent-conductors": Override(score=_mcrmsle),
    "playground-series-s3e1": _SKIPPED,
    "playground-series-s3e10": Override(score=_clipped_log_loss),
    "playground-series-s3e18": Override(score=_column_auc_or_half),
    "playground-series-s3e19": Override(missing="undefined"),
    "playground-series-s3e8": _SKIPPED,
    "playground-series-s3e9": _SKIPPED,
    "porto-seguro-safe-driver-prediction": Override(score=_gini_in_order),
    "prudential-life-insurance-assessment": Override(score=_qwk_by_index),
    "spooky-author-identification": Override(score=_log_loss_as_given),
    "tabular-playground-series-mar-2022": _SKIPPED,
    "text-normalization-challenge-english-language": Override(score=_text_accuracy),
    "text-normalization-challenge-russian-language": Override(score=_text_accuracy),
    "tgs-salt-identification-challenge": Override(params={"at_threshold": True}),
    "uw-madison-gi-tract-image-segmentation": Override(by_id_only=True),
    "walmart-recruiting-store-sales-forecasting": Override(score=_wmae),
}
ANY_COLUMN_ORDER = frozenset(  # the other graders take the first column for the id, whatever it is
    [
        "allstate-purchase-prediction-challenge",
        "cat-in-the-dat",
        "facial-keypoints-detection",
        "global-wheat-detection",
        "playground-series-s3e8",
        "playground-series-s4e3",
        "prudential-life-insurance-assessment",
        "shopee-product-matching",
        "spaceship-titanic",
        "tabular-playground-series-mar-2022",
        "uw-madison-gi-tract-image-segmentation",
    ]
)
_PLAIN = Override()


def override(slug: str) -> Override:
    """How MLE-Dojo's grader of `slug` differs from ours (mostly: not at all)."""
    return OVERRIDES.get(slug, _PLAIN)


def check_order(task: TaskFacts, columns: Sequence[str], truth: Sequence[str]) -> None:
    """The columns must begin as the answers do.

    Raises:
        InvalidSubmission: they do not, and the grader of this task minds.
    """
    if task.slug not in ANY_COLUMN_ORDER and columns and columns[0] != truth[0]:
        raise InvalidSubmission(f"The first column is {columns[0]}; MLE-Dojo's grader takes it for {truth[0]}.")


def score(task: TaskFacts, case: Case) -> float:
    """The raw score as MLE-Dojo computes it."""
    o = override(task.slug)
    if o.score is not None:
        return o.score(case)
    metric = o.metric or task.metric
    if o.missing == "skipped":
        p = _loose(case)
        keep = ~np.isnan(p).any(axis=1)
        if not keep.any():
            return float("nan")
        function = {"rmse": tabular.rmse, "mae": tabular.mae}[metric]
        return function(case.true_numbers()[keep], p[keep])
    if o.missing == "undefined" and values.is_missing(case.submission[case.predictions[0]]).any():
        return float("nan")
    return METRICS[metric].score(case, **{**task.params, **o.params})
