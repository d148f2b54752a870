"""`compat="mledojo"`: the numbers MLE-Dojo's own graders give (commit 667a8fd), defects included, for those who must reproduce
them.

Another metric or parameter, missing predictions that are skipped or scored instead of refused, columns that are ignored, files
refused because the id is not their first column. Not imitated: messages, the mutation of frames, orders that depend on the
numpy build, and scores of infinite values or of words in place of numbers (refused here).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from wmrl_envs.tasks.catalog import TaskFacts
from wmrl_envs.tasks.metrics import METRICS, Case, tabular, text, values, vision
from wmrl_envs.tasks.refusals import InvalidSubmission


@dataclass(frozen=True)
class Override:
    """How MLE-Dojo's grader of one task differs.

    Attributes:
        metric: another metric.
        params: other parameters of the metric.
        score: a function of its own.
        missing: what a missing number does: "refused", "skipped" (the mean of its column is over the others) or "undefined"
            (the score is NaN, as it is for a logarithm of a number below -1).
        extra_columns: more columns are accepted.
        also_required: columns a submission must have as well.
        by_id_only: rows with the same id are matched in file order, the other id columns are ignored.
        in_order: rows are not matched at all: they must be in the order of the answers.
    """

    metric: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    score: Callable[[Case], float] | None = None
    missing: str = "refused"
    extra_columns: bool = False
    also_required: tuple[str, ...] = ()
    by_id_only: bool = False
    in_order: bool = False


def _loose(case: Case, **bounds: Any) -> np.ndarray:
    """Predictions with their missing values; anything else that is no number is refused as always."""
    filled = case.submission[list(case.predictions)].copy()
    out = np.full(filled.shape, np.nan)
    for j, column in enumerate(case.predictions):
        present = ~values.is_missing(filled[column])
        if present.any():
            part = filled.loc[present, [column]]
            out[present, j] = values.numbers(part, [column], case.ids[present], **bounds)[:, 0]
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


def _log_loss_undivided(case: Case, eps: float, **bounds: Any) -> float:
    """No row is divided by its sum."""
    p = np.clip(case.numbers(**bounds), eps, 1 - eps)
    return float(-(case.one_hot() * np.log(p)).sum(axis=1).mean())


def _log_loss_clipped_first(case: Case) -> float:
    """Anything is clipped to [0, 1], and a missing probability costs nothing."""
    p = np.clip(_loose(case), tabular.EPS, 1 - tabular.EPS)
    return float(-np.nansum(case.one_hot() * np.log(p / np.nansum(p, axis=1, keepdims=True)), axis=1).mean())


def _log_loss_of_true_class(case: Case) -> float:
    """A missing probability counts only where it is that of the true class (the score is NaN then)."""
    p = _loose(case, low=0.0, high=1.0)
    total = np.nansum(p, axis=1, keepdims=True)
    q = np.clip(p / np.where(total == 0, 1, total), tabular.EPS, 1 - tabular.EPS)
    return float(-np.log(q[case.one_hot() == 1]).sum() / len(p))


def _any_label(case: Case) -> float:
    """A missing label is a wrong one."""
    return tabular.accuracy(case.true_labels()[:, 0], values.label_column(case.submission[case.predictions[0]]))


def _column_spearman(case: Case) -> float:
    """A column with a missing prediction counts 0."""
    y, p = case.true_numbers(), _loose(case)
    p[:, np.isnan(p).any(axis=0)] = 0.0
    return tabular.mean_column_spearman(y, p)


def _gini_in_order(case: Case, missing_first: bool = False) -> float:
    """Ties are ordered by an unstable sort of the rows in the order of their ids as text; missing predictions come last or
    first.
    """
    order = np.argsort(case.ids.astype(str), kind="stable")
    truth, guess = case.true_numbers()[order, 0], _loose(case)[order, 0]

    def area(by: np.ndarray) -> float:
        ranked = truth[np.argsort(by)[::-1] if missing_first else np.argsort(-by)]
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
        return any(
            values.is_number(v) and "." not in v and (len(v) > 20 or abs(int(v)) >= 2**63)
            for v in labels
            if v.lstrip("+-").isdigit()
        )

    truth, guess = values.label_column(case.truth[case.targets[0]]), values.label_column(case.submission[case.predictions[0]])
    return 0.0 if is_text(truth) != is_text(guess) else float((truth == guess).mean())


_SKIPPED = Override(missing="skipped")
_UNDEFINED = Override(missing="undefined")
OVERRIDES: Mapping[str, Override] = {
    "afsis-soil-properties": _SKIPPED,
    "allstate-purchase-prediction-challenge": Override(params={"scale": 100}),
    "bike-sharing-demand": _UNDEFINED,
    "chaii-hindi-and-tamil-question-answering": Override(score=_jaccard),
    "commonlitreadabilityprize": _SKIPPED,
    "conways-reverse-game-of-life-2020": _UNDEFINED,
    "covid19-global-forecasting-week-1": Override(score=_mcrmsle),
    "covid19-global-forecasting-week-2": _UNDEFINED,
    "covid19-global-forecasting-week-3": _UNDEFINED,
    "covid19-global-forecasting-week-4": _UNDEFINED,
    "demand-forecasting-kernels-only": Override(score=_smape),
    "denoising-dirty-documents": _SKIPPED,
    "dog-breed-identification": Override(score=_log_loss_as_given),
    "dogs-vs-cats-redux-kernels-edition": Override(score=_clipped_log_loss),
    "facial-keypoints-detection": Override(also_required=("ImageId", "FeatureName")),
    "feedback-prize-english-language-learning": _SKIPPED,
    "global-wheat-detection": Override(score=_boxes, extra_columns=True),
    "google-quest-challenge": Override(score=_column_spearman),
    "home-data-for-ml-course": Override(metric="rmse", extra_columns=True),
    "icr-identify-age-related-conditions": Override(score=_balanced_log_loss),
    "integer-sequence-learning": Override(score=_integers),
    "jigsaw-toxic-comment-classification-challenge": Override(in_order=True),
    "jigsaw-unintended-bias-in-toxicity-classification": Override(params={"all_identities": True}),
    "kaggle-llm-science-exam": Override(extra_columns=True),
    "kuzushiji-recognition": Override(extra_columns=True),
    "leaf-classification": Override(score=_log_loss_clipped_first),
    "learning-agency-lab-automated-essay-scoring-2": Override(score=_qwk_by_index),
    "liberty-mutual-group-property-inspection-prediction": Override(score=partial(_gini_in_order, missing_first=True)),
    "llm-classification-finetuning": Override(score=partial(_log_loss_undivided, eps=tabular.EPS)),
    "lmsys-chatbot-arena": Override(score=partial(_log_loss_undivided, eps=tabular.SKLEARN_EPS, low=0.0, high=1.0)),
    "nbme-score-clinical-patient-notes": Override(score=_span_f1),
    "nomad2018-predict-transparent-conductors": Override(score=_mcrmsle),
    "novozymes-enzyme-stability-prediction": _UNDEFINED,
    "petfinder-pawpularity-score": _SKIPPED,
    "plant-pathology-2020-fgvc7": Override(score=_column_auc_or_half),
    "playground-series-s3e1": _SKIPPED,
    "playground-series-s3e10": Override(score=_clipped_log_loss),
    "playground-series-s3e18": Override(score=_column_auc_or_half),
    "playground-series-s3e19": _UNDEFINED,
    "playground-series-s3e5": Override(score=_qwk_by_index),
    "playground-series-s3e8": _SKIPPED,
    "playground-series-s3e9": _SKIPPED,
    "porto-seguro-safe-driver-prediction": Override(score=_gini_in_order),
    "prudential-life-insurance-assessment": Override(score=_qwk_by_index),
    "see-click-predict-fix": _UNDEFINED,
    "spooky-author-identification": Override(score=_log_loss_as_given),
    "statoil-iceberg-classifier-challenge": Override(extra_columns=True),
    "tabular-playground-series-jan-2021": _SKIPPED,
    "tabular-playground-series-jan-2022": _UNDEFINED,
    "tabular-playground-series-jul-2021": _UNDEFINED,
    "tabular-playground-series-mar-2022": _SKIPPED,
    "tabular-playground-series-sep-2022": _UNDEFINED,
    "text-normalization-challenge-english-language": Override(score=_text_accuracy),
    "text-normalization-challenge-russian-language": Override(score=_text_accuracy),
    "tgs-salt-identification-challenge": Override(params={"at_threshold": True}),
    "the-nature-conservancy-fisheries-monitoring": Override(score=_log_loss_of_true_class),
    "titanic": Override(score=_any_label),
    "us-patent-phrase-to-phrase-matching": _UNDEFINED,
    "uw-madison-gi-tract-image-segmentation": Override(by_id_only=True),
    "ventilator-pressure-prediction": _SKIPPED,
    "walmart-recruiting-store-sales-forecasting": Override(score=_wmae),
    "wsdm-cup-multilingual-chatbot-arena": Override(score=_any_label),
}
ANY_COLUMN_ORDER = frozenset(  # the other graders take the first column for the id, whatever it is
    [
        "afsis-soil-properties",
        "allstate-purchase-prediction-challenge",
        "bengaliai-cv19",
        "cat-in-the-dat",
        "covid19-global-forecasting-week-1",
        "covid19-global-forecasting-week-2",
        "covid19-global-forecasting-week-3",
        "covid19-global-forecasting-week-4",
        "facial-keypoints-detection",
        "global-wheat-detection",
        "kaggle-llm-science-exam",
        "kobe-bryant-shot-selection",
        "petfinder-pawpularity-score",
        "playground-series-s3e8",
        "playground-series-s4e3",
        "prudential-life-insurance-assessment",
        "quora-insincere-questions-classification",
        "quora-question-pairs",
        "santander-value-prediction-challenge",
        "shopee-product-matching",
        "spaceship-titanic",
        "tabular-playground-series-jan-2021",
        "tabular-playground-series-jan-2022",
        "tabular-playground-series-mar-2021",
        "tabular-playground-series-mar-2022",
        "titanic",
        "tweet-sentiment-extraction",
        "uw-madison-gi-tract-image-segmentation",
        "whale-categorization-playground",
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
        return _column_means({"rmse": tabular.rmse, "mcrmse": tabular.rmse, "mae": tabular.mae}[metric], case)
    if o.missing == "undefined":
        p = _loose(case)
        if np.isnan(p).any() or ("rmsle" in metric and (p < -1).any()):
            return float("nan")
    return METRICS[metric].score(case, **{**task.params, **o.params})


def _column_means(function: Callable[[np.ndarray, np.ndarray], float], case: Case) -> float:
    """Mean over the columns of their score on the rows that have a prediction; NaN if a column has none."""
    y, p = case.true_numbers(), _loose(case)
    scores = []
    for j in range(p.shape[1]):
        keep = ~np.isnan(p[:, j])
        scores.append(function(y[keep, j], p[keep, j]) if keep.any() else float("nan"))
    return float(np.mean(scores))
