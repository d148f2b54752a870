"""`Case`: answers and predictions side by side, and the ways a metric can read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from wmrl_envs.errors import InvalidInput
from wmrl_envs.tasks.metrics import values
from wmrl_envs.tasks.refusals import InvalidSubmission, cell_text, listed, one_line, quoted


@dataclass(frozen=True)
class Case:
    """Answers and predictions in the same row order.

    Attributes:
        truth: the answers, all their columns.
        submission: the predictions; neither is ever changed.
        targets: columns of `truth`.
        predictions: columns of `submission`.
        ids: one string a row, for messages.
    """

    truth: pd.DataFrame
    submission: pd.DataFrame
    targets: tuple[str, ...]
    predictions: tuple[str, ...]
    ids: np.ndarray

    def true_numbers(self) -> np.ndarray:
        return values.true_numbers(self.truth, self.targets)

    def numbers(self, **bounds: Any) -> np.ndarray:
        return values.numbers(self.submission, self.predictions, self.ids, **bounds)

    def one_hot(self) -> np.ndarray:
        """(rows, classes) from a column of labels, or from one column a class, in the order of the prediction columns."""
        if len(self.targets) > 1 or len(self.predictions) == 1:
            return self.true_numbers()
        labels = values.label_column(self.truth[self.targets[0]])
        classes = np.array([values.label(c) for c in self.predictions], dtype=object)
        hot = labels[:, None] == classes[None, :]
        if not hot.any(axis=1).all():  # classes named class_0, class_1 ... for the labels 0, 1 ...
            suffixes = np.array([str(c).rsplit("_", 1)[-1] for c in self.predictions], dtype=object)
            hot = labels[:, None] == suffixes[None, :]
        if not hot.any(axis=1).all():
            raise InvalidInput(
                f"The answers hold a label that is none of the prediction columns {', '.join(self.predictions)}."
            )
        return hot.astype(float)

    def true_texts(self) -> np.ndarray:
        return values.text_column(self.truth[self.targets[0]])

    def texts(self) -> np.ndarray:
        return values.text_column(self.submission[self.predictions[0]])

    def parsed(self, parse: Callable[[str], Any], fix: str) -> list:
        return values.parse_cells(self.texts(), self.ids, self.predictions[0], parse, fix)

    def true_labels(self) -> np.ndarray:
        return np.column_stack([values.label_column(self.truth[c]) for c in self.targets])

    def labels(self, refuse_words: bool) -> np.ndarray:
        """Predicted labels; `refuse_words`: a word where the classes are numbers is no prediction rather than a wrong one."""
        truth = self.true_labels()
        columns = [self.submission[c] for c in self.predictions]
        return np.column_stack([_labels(column, truth[:, j], self.ids, refuse_words) for j, column in enumerate(columns)])


def _labels(column: pd.Series, truth: np.ndarray, ids: np.ndarray, refuse_words: bool) -> np.ndarray:
    known = set(truth)
    numeric = all(values.is_number(label) for label in known)
    if column.dtype.kind == "f" and all(values.is_integer(label) for label in known):
        cells = column.to_numpy(float, na_value=np.nan)
        _refuse_labels(column, np.flatnonzero(~(np.isfinite(cells) & (cells == np.trunc(cells)))), ids, numeric)
    labels = values.label_column(column)
    codes, uniques = pd.factorize(labels)
    bad = np.array(
        [label not in known and _no_label(label, numeric, refuse_words or len(known) <= 2) for label in uniques], bool
    )
    if not bad.any() and not any(map(values.is_number, known)) and all(map(values.is_number, uniques)):
        raise InvalidSubmission(
            f"Every prediction in column {column.name} is a number ({listed(list(uniques))}), but the classes are words: write "
            "the class labels as they stand in the training data, not the codes of an encoder."
        )
    _refuse_labels(column, np.flatnonzero(bad[codes]), ids, numeric)
    return labels


def _refuse_labels(column: pd.Series, rows: np.ndarray, ids: np.ndarray, numeric: bool) -> None:
    if not len(rows):
        return
    shown = [f"{quoted(values.label(column.iloc[r]) or 'nothing')} (id {one_line(cell_text(ids[r]))})" for r in rows[:5]]
    more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
    classes = "whole numbers" if numeric else "class labels"
    raise InvalidSubmission(
        f"{len(rows)} predictions in column {column.name} are missing or no class label (NaN, blank, fraction or word): "
        f"{', '.join(shown)}{more}. Write {classes} as in the training data, for every row."
    )


def _no_label(label: str, numeric: bool, refuse_words: bool) -> bool:
    """Whether a label that is none of the known ones is no label at all, rather than a wrong one."""
    if label == "" or label.lower() == "nan":
        return True
    if not numeric:
        return False
    return not float(label).is_integer() if values.is_number(label) else refuse_words
