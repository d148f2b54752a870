"""Would the grader accept what a program hands in? Rules for the scaffold's `save` and for a CSV written by the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wmrl_envs.world_models.static.values import Column, Const, Data, Seq

if TYPE_CHECKING:
    from wmrl_envs.world_models.static.interpreter import Interpreter

INVALID = "InvalidSubmissionError"


def metric_family(metric: str) -> str:
    """What kind of prediction a metric wants.

    >>> [metric_family(m) for m in ("roc_auc", "log_loss", "map_at_k", "qwk", "rmsle", "mean_col_auc", "mae")]
    ['ranking', 'probabilities', 'top-k', 'labels', 'non-negative', 'ranking', 'number']
    """
    name = metric.lower().replace("-", "_").replace(" ", "_")
    if "log_loss" in name or "logloss" in name or "cross_entropy" in name:
        return "probabilities"
    if name.startswith("map"):
        return "top-k"
    if "auc" in name or "gini" in name:
        return "ranking"
    if any(word in name for word in ("mcc", "matthews", "qwk", "kappa", "f1", "accuracy", "recall", "precision")):
        return "labels"
    if "rmsle" in name or "logarithmic" in name or "msle" in name:
        return "non-negative"
    return "number"


def check_saved(run: Interpreter, value: Any) -> None:
    """The scaffold's `save(p)`: one value, label or row of probabilities for each test row."""
    if isinstance(value, Seq) and value.sure:
        wanted = run.sklearn.count("test")
        if wanted is not None and len(value.items) != wanted:
            text = f"save: expected {wanted} predictions, one for each test row, got {len(value.items)}"
            run.report("submission.rows", "submission", "ValueError", text, 0.93)
    if not isinstance(value, Data):
        return
    if value.nan is True:
        text = "predictions contain missing values"
        run.report("submission.nan", "submission", INVALID, text, 0.9)
    n, rows = run.sklearn.count("test"), run.sklearn.count(value.rows)
    if value.rows and value.rows != "test" and (n is None or rows is None or n != rows):
        text = f"save: expected {n or '?'} predictions, one for each test row, got {rows or '?'}"
        run.report("submission.rows", "submission", "ValueError", text, 0.95)
    family = metric_family(run.context.metric)
    several = len(run.context.target_columns) > 1 or (run.targets is not None and run.targets.ndim == 2)
    if family == "probabilities" and value.ndim == 1 and value.meaning in ("label", "real", "whole"):
        text = f"Shape of passed values is ({n or '?'}, 1), indices imply ({n or '?'}, k): log loss wants predict_proba"
        run.report("submission.not-probabilities", "submission", "ValueError", text, 0.93)
    if several or family in ("probabilities", "top-k", "ranking"):
        return
    if value.ndim == 2 and value.meaning == "proba":
        text = f"cannot reshape array of probabilities into shape ({n or '?'},)"
        run.report("submission.probabilities", "submission", "ValueError", text, 0.95)
    if family == "labels" and value.meaning == "real":
        text = "predictions contain values that are not labels of the training data"
        run.report("submission.labels", "submission", INVALID, text, 0.9)
    if family == "non-negative" and value.meaning == "real" and (value.low is None or value.low < 0):
        text = "negative predictions are not allowed for this metric"
        run.report(
            "submission.negative" if value.low is None else "submission.negative-log",
            "submission",
            INVALID,
            text,
            0.3 if value.low is None else 0.03,
        )


def no_header(run: Interpreter) -> None:
    """A table without names of columns."""
    text = f"Submission lacks the column(s) {', '.join(run.context.submission_columns)}"
    run.report("submission.columns", "submission", INVALID, text, 0.93)


def check_frame(run: Interpreter, frame: Data, options: Mapping[str, Any]) -> None:
    """A DataFrame written to SUBMISSION_PATH by the program itself, with the options of `to_csv`."""
    header, index = options.get("header"), options.get("index")
    if frame.unnamed or (isinstance(header, Const) and header.value is False):
        no_header(run)
    if frame.kind != "frame" or frame.columns is None or frame.open or not run.context.submission_columns:
        return
    wanted, expected = run.context.submission_columns, f"Expected {', '.join(run.context.submission_columns)}."
    lost = [c for c in wanted if c not in frame.columns]
    if lost:
        run.report(
            "submission.columns", "submission", INVALID, f"Missing required columns in submission: {', '.join(lost)}.", 0.93
        )
    extra = [str(c) for c in frame.columns if c not in wanted]
    extra += ["Unnamed: 0"] if index is None and "index_label" not in options else []
    if extra:
        text = f"Extra unexpected columns found in submission: {', '.join(extra)}. {expected}"
        run.report("submission.extra", "submission", INVALID, text, 0.93)
    n, rows = run.sklearn.count("test"), run.sklearn.count(frame.rows)
    if n is not None and rows is not None and n != rows:
        text = f"Number of rows in submission ({rows}) does not match ground truth ({n})."
        run.report("submission.rows", "submission", INVALID, text, 0.93)
    for name, column in frame.columns.items():
        if name in run.context.target_columns and column.nan is True:
            run.report("submission.nan", "submission", INVALID, f"Column {name} holds missing values", 0.9)
        if name in run.context.id_columns:
            _check_ids(run, name, column)


def _check_ids(run: Interpreter, name: str, column: Column) -> None:
    """Ids of the training rows, or numbers where ids are texts."""
    texts = any(f.name == "test.csv" and f.columns.get(name) == "str" for f in run.context.files)
    if column.origin == f"train:{name}" or (column.origin == "numbers" and texts):
        text = f"The ids in column {name} do not match those of the test set."
        run.report("submission.ids", "submission", INVALID, text, 0.93)
