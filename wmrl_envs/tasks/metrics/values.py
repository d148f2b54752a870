"""From the cells of a column to the values a metric takes; what cannot be taken is an `InvalidSubmission`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from wmrl_envs.tasks.refusals import InvalidSubmission, cell_text, one_line, quoted

_WORDS = {"true": "1", "false": "0"}
_INTEGER = re.compile(r"([+-]?)0*([0-9]+)(\.0*)?")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?inf(inity)?", re.IGNORECASE)
_TOLD = 3  # malformed cells that are shown
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
        names = [one_line(cell_text(ids[r])) for r in rows[:5]]
        shown = [
            f"id {name}" if cells is None else f"{quoted(cells.iloc[r])} (id {name})"
            for r, name in zip(rows[:5], names, strict=True)
        ]
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


def as_floats(cells: pd.Series) -> np.ndarray:
    """Cells as floats, NaN where there is no number; true and false count as 1 and 0. Never raises, whatever a cell holds."""
    if cells.dtype.kind in "iufb":
        return cells.to_numpy(float, na_value=np.nan)
    if cells.dtype.kind in "mMc":  # times and complex numbers
        return np.full(len(cells), np.nan)
    plain = cells.astype(object) if isinstance(cells.dtype, pd.CategoricalDtype) else cells
    try:
        values = pd.to_numeric(plain, errors="coerce").to_numpy(float, na_value=np.nan).copy()
    except (OverflowError, ValueError, TypeError):  # integers that no float can hold, and cells that are no values at all
        values = np.full(len(cells), np.nan)
    unclear = np.flatnonzero(np.isnan(values))
    if len(unclear):
        codes, uniques = pd.factorize(np.array([cell_text(c) for c in plain.to_numpy(object)[unclear]], object))
        values[unclear] = np.array([_as_float(text) for text in uniques])[codes]
    return values


def _as_float(text: str) -> float:
    word = text.strip().lower()
    if word in _WORDS:
        return float(_WORDS[word])
    return float(word) if _NUMBER.fullmatch(word) else np.nan


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
        values = as_floats(cells)
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
    return np.column_stack([as_floats(frame[c]) for c in columns]) if len(columns) else np.empty((len(frame), 0))


def label(cell: object) -> str:
    """One spelling for each class label: 1, 1.0, "1", "01" and (as a class) True are all "1".

    >>> [label(v) for v in (1, 1.0, "1.0", True, "cat ", "1.5")]
    ['1', '1', '1', '1', 'cat', '1.5']
    """
    text = cell_text(cell).strip()
    if integer := _INTEGER.fullmatch(text):
        sign, digits = integer[1], integer[2]
        return f"-{digits}" if sign == "-" and digits != "0" else digits
    return _WORDS.get(text.lower(), text)


def label_column(cells: pd.Series) -> np.ndarray:
    """Labels of a column in their one spelling, as an object array; missing ones are ""."""
    if cells.dtype.kind in "iu" and not cells.hasnans:
        return cells.to_numpy().astype(str).astype(object)
    if cells.dtype == float:
        numbers = cells.to_numpy(float)
        if (np.isfinite(numbers) & (np.abs(numbers) < 2**53) & (numbers == np.trunc(numbers))).all():
            return numbers.astype(np.int64).astype(str).astype(object)
    given = cells.to_numpy(object)
    if pd.api.types.infer_dtype(given) not in ("string", "floating", "boolean"):  # each of these can be hashed
        given = np.array([cell_text(c) for c in given], object)
    codes, uniques = pd.factorize(given, use_na_sentinel=True)
    spelled = np.array([label(u) for u in uniques] + [""], dtype=object)  # the sentinel -1 takes the last
    return spelled[codes]


def is_integer(text: str) -> bool:
    """Whether a label in its one spelling is a whole number."""
    return _INTEGER.fullmatch(text) is not None


def is_number(text: str) -> bool:
    """Whether a label in its one spelling is a number."""
    return _NUMBER.fullmatch(text) is not None


def text_column(cells: pd.Series) -> np.ndarray:
    """Cells as strings, a missing cell as "", as an object array."""
    return np.array([cell_text(v) for v in cells.to_numpy(object)], object)


def parse_cells(
    cells: np.ndarray, ids: Sequence[str] | np.ndarray, column: str, parse: Callable[[str], object], fix: str
) -> list:
    """Apply `parse` to each cell; a ValueError refuses the submission and names the first offenders."""
    out: list[object] = []
    bad: list[str] = []
    wrong = 0
    for i, cell in enumerate(cells):
        try:
            out.append(parse(cell))
        except ValueError as error:
            if len(bad) < _TOLD:
                bad.append(f"{one_line(str(error), 120)} (id {one_line(cell_text(ids[i]))})")
            wrong += 1
    if wrong:
        more = f" and {wrong - len(bad)} more" if wrong > len(bad) else ""
        raise InvalidSubmission(f"{wrong} malformed predictions in column {column}: {', '.join(bad)}{more}. {fix}")
    return out
