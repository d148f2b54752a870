"""Would the grader accept what a program hands in? Rules for the scaffold's `save` and for a CSV written by the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import Column, Const, Data, Seq


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


def check_saved(run: State, value: Any) -> None:
    """The scaffold's `save(p)`: one value, label or row of probabilities for each test row."""
    n = run.count("test")
    if isinstance(value, Seq) and value.sure and n is not None and len(value.items) != n:
        run.report("submission.rows", text=f"save: expected {n} predictions, one for each test row, got {len(value.items)}")
    if not isinstance(value, Data):
        return
    if value.nan is True:
        run.report("submission.nan", text="predictions contain missing values")
    rows = run.count(value.rows)
    if value.rows and value.rows != "test" and (n is None or rows is None or n != rows):
        text = f"save: expected {n or '?'} predictions, one for each test row, got {rows or '?'}"
        run.report("submission.rows", text=text)
    family = metric_family(run.context.metric)
    several = len(run.context.target_columns) > 1 or (run.targets is not None and run.targets.ndim == 2)
    if family == "probabilities" and value.ndim == 1 and value.meaning in ("label", "real", "whole"):
        text = f"Shape of passed values is ({n or '?'}, 1), indices imply ({n or '?'}, k): log loss wants predict_proba"
        run.report("submission.shape", text=text)
    if several or family in ("probabilities", "top-k", "ranking"):
        return
    if value.ndim == 2 and value.meaning == "proba":
        run.report("submission.shape", text=f"cannot reshape array of probabilities into shape ({n or '?'},)")
    if family == "labels" and value.meaning == "real":
        run.report("submission.labels")
    if family == "non-negative" and value.meaning == "real" and value.low is None:
        run.report("submission.negative")


def no_header(run: State) -> None:
    """A table without names of columns."""
    run.report("submission.columns", text=f"Submission lacks the column(s) {', '.join(run.context.submission_columns)}")


_PLAIN_OPTIONS = {"path_or_buf", "index", "index_label", "header", "float_format", "encoding", "na_rep", "mode"}


def check_frame(run: State, frame: Data, options: Mapping[str, Any]) -> None:
    """A DataFrame written to SUBMISSION_PATH by the program itself, with the options of `to_csv`."""
    if not set(options) <= _PLAIN_OPTIONS:
        return
    header, index = options.get("header"), options.get("index")
    if (frame.kind == "frame" and frame.unnamed) or (isinstance(header, Const) and header.value is False):
        no_header(run)
    if frame.kind != "frame" or frame.columns is None or frame.open or not run.context.submission_columns:
        return
    wanted = run.context.submission_columns
    indexed = not (isinstance(index, Const) and index.value is False)  # then the labels of the rows are a column
    lost = [c for c in wanted if c not in frame.columns]
    if lost and (not indexed or frame.default_index or len(lost) > 1):
        run.report("submission.columns", text=f"Missing required columns in submission: {', '.join(lost)}.")
    extra = [str(c) for c in frame.columns if c not in wanted]
    extra += ["Unnamed: 0"] if index is None and "index_label" not in options and frame.default_index else []
    if extra:
        run.report("submission.extra", names=", ".join(extra), wanted=", ".join(wanted))
    n, rows = run.count("test"), run.count(frame.rows)
    if n is not None and rows is not None and n != rows:
        text = f"Number of rows in submission ({rows}) does not match ground truth ({n})."
        run.report("submission.rows", "InvalidSubmissionError", text=text)
    for name, column in frame.columns.items():
        if name in run.context.target_columns:
            _check_predictions(run, name, column)
        if name in run.context.id_columns:
            _check_ids(run, name, column)


def _check_predictions(run: State, name: str, column: Column) -> None:
    if column.nan is True:
        run.report("submission.nan", text=f"Column {name} holds missing values")
    if metric_family(run.context.metric) != "labels":
        return
    if column.meaning in ("real", "proba"):
        run.report("submission.labels")


def _check_ids(run: State, name: str, column: Column) -> None:
    """Ids of the training rows, or numbers where ids are texts."""
    texts = any(f.name == "test.csv" and f.columns.get(name) == "str" for f in run.context.files)
    if column.origin == f"train:{name}" or (column.origin == "numbers" and texts):
        run.report("submission.ids", name=name)
