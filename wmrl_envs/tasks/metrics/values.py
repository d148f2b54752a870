"""From the cells of a column to the values a metric takes; what cannot be taken is an `InvalidSubmission`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from wmrl_envs.tasks.validation import InvalidSubmission, listed

_WORDS = {"true": "1", "false": "0"}
_INTEGER = re.compile(r"[+-]?\d+(\.0*)?")
_MISSING = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>", "#n/a"})


def is_missing(cells: pd.Series) -> np.ndarray:
    """Missing cells: NaN, None, blank, or a word that pandas reads as NaN."""
    missing = cells.isna().to_numpy(bool, copy=True)
    if cells.dtype.kind not in "iufb":
        missing |= cells.map(lambda v: isinstance(v, str) and v.strip().lower() in _MISSING).to_numpy(bool)
    return missing


def _refuse(
    column: str, rows: np.ndarray, cells: pd.Series | None, ids: Sequence[str] | np.ndarray, what: str, fix: str
) -> None:
    if len(rows):
        shown = [f"id {ids[r]}" if cells is None else f"{str(cells.iloc[r])[:40]!r} (id {ids[r]})" for r in rows[:5]]
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        raise InvalidSubmission(f"{len(rows)} {what} in column {column}: {', '.join(shown)}{more}. {fix}")


def refuse_missing(cells: pd.Series, ids: Sequence[str] | np.ndarray) -> None:
    """No cell may be missing."""
    rows = np.flatnonzero(is_missing(cells))
    _refuse(str(cells.name), rows, None, ids, "missing predictions (NaN or blank)", "Give a value for every row.")


def refuse_blank(cells: np.ndarray, truth: np.ndarray, ids: Sequence[str] | np.ndarray, column: str) -> None:
    """No text may be blank where the answer is not; words such as "none" are text."""
    rows = np.flatnonzero([not cell.strip() and bool(answer.strip()) for cell, answer in zip(cells, truth, strict=True)])
    _refuse(column, rows, None, ids, "missing predictions (NaN or blank)", "Give a text for every row.")


def _as_floats(cells: pd.Series) -> np.ndarray:
    """Cells as floats, NaN where there is no number; true and false count as 1 and 0."""
    if cells.dtype.kind in "iufb":
        return cells.to_numpy(float)
    values = pd.to_numeric(cells, errors="coerce").to_numpy(float, na_value=np.nan).copy()
    unclear = np.flatnonzero(np.isnan(values))
    if len(unclear):
        words = cells.iloc[unclear].map(lambda v: _WORDS.get(str(v).strip().lower()))
        values[unclear] = pd.to_numeric(words, errors="coerce").to_numpy(float, na_value=np.nan)
    return values


def numbers(
    frame: pd.DataFrame,
    columns: Sequence[str],
    ids: Sequence[str] | np.ndarray,
    low: float = -np.inf,
    high: float = np.inf,
    include_low: bool = True,
) -> np.ndarray:
    """Predictions as floats, shape (rows, columns): all finite and between `low` and `high`."""
    out = np.empty((len(frame), len(columns)))
    for j, name in enumerate(columns):
        cells = frame[name]
        values = _as_floats(cells)
        bad = ~np.isfinite(values)
        if bad.any():
            refuse_missing(cells, ids)
            rows = np.flatnonzero(np.isnan(values))
            _refuse(name, rows, cells, ids, "predictions that are not numbers", "Write plain numbers.")
            _refuse(name, np.flatnonzero(bad), cells, ids, "infinite predictions", "Write finite numbers.")
        outside = (values < low if include_low else values <= low) | (values > high)
        if outside.any():
            bounds = f"in [{low:g}, {high:g}]" if high < np.inf else (f">= {low:g}" if include_low else f"above {low:g}")
            _refuse(name, np.flatnonzero(outside), cells, ids, "predictions out of range", f"Values must be {bounds}.")
        out[:, j] = values
    return out


def true_numbers(frame: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Answers as floats, shape (rows, columns); NaN where an answer is missing."""
    return np.column_stack([_as_floats(frame[c]) for c in columns]) if len(columns) else np.empty((len(frame), 0))


def label(cell: object) -> str:
    """One spelling for each class label: 1, 1.0, "1", "01" and (as a class) True are all "1".

    >>> [label(v) for v in (1, 1.0, "1.0", True, "cat ", "1.5")]
    ['1', '1', '1', '1', 'cat', '1.5']
    """
    text = str(cell).strip()
    if _INTEGER.fullmatch(text):
        return str(int(text.split(".")[0]))
    return _WORDS.get(text.lower(), text)


def label_column(cells: pd.Series) -> np.ndarray:
    """Labels of a column in their one spelling, as an object array; missing ones are ""."""
    if cells.dtype.kind in "iub":
        return cells.to_numpy().astype(np.int64).astype(str).astype(object)
    codes, uniques = pd.factorize(cells, use_na_sentinel=True)
    spelled = np.array([label(u) for u in uniques] + [""], dtype=object)  # the sentinel -1 takes the last
    return spelled[codes]


def is_number(text: str) -> bool:
    """Whether a label in its one spelling is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def text_column(cells: pd.Series) -> np.ndarray:
    """Cells as strings, a missing cell as "", as an object array."""
    return cells.map(lambda v: "" if v is None or v != v else str(v)).to_numpy(object)


def parse_cells(
    cells: np.ndarray, ids: Sequence[str] | np.ndarray, column: str, parse: Callable[[str], object], fix: str
) -> list:
    """Apply `parse` to each cell; a ValueError refuses the submission and names the first offenders."""
    out, bad = [], []
    for i, cell in enumerate(cells):
        try:
            out.append(parse(cell))
        except ValueError as error:
            bad.append(f"{error} (id {ids[i]})")
    if bad:
        raise InvalidSubmission(f"{len(bad)} malformed predictions in column {column}: {listed(bad, 3)}. {fix}")
    return out
