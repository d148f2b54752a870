"""Is a file a submission at all? Rows are matched by id as strings in any order, columns by name in any order.

Every refusal is an `InvalidSubmission` that names the first offenders and says how to fix them; it is the agent's to read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from wmrl_envs.tasks.reading import read_table
from wmrl_envs.tasks.refusals import (
    EvaluationError,
    GroundTruthError,
    InvalidSubmission,
    LeaderboardError,
    SubmissionError,
    cell_text,
    listed,
    quoted,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "EvaluationError",
    "GroundTruthError",
    "InvalidSubmission",
    "LeaderboardError",
    "SubmissionError",
    "align",
    "check_columns",
    "id_text",
    "listed",
    "read_table",
]

_NAMES = 10  # names of columns shown in a message


def check_columns(names: Sequence[str], required: Sequence[str], optional: Sequence[str] = ()) -> None:
    """The columns must be exactly `required`, in any order, with or without those in `optional`."""
    given, allowed = set(names), {*required, *optional}
    expected = listed(required, 20)
    if len(given) < len(names):
        repeated = [name for name, times in Counter(names).items() if times > 1]
        raise InvalidSubmission(f"Columns occur more than once: {listed(repeated)}. Expected each of {expected} once.")
    missing = [c for c in required if c not in given]
    found = ", ".join(quoted(c) for c in names[:_NAMES]) + (f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")
    if missing:
        stripped = {c.strip() for c in names}
        hint = " Write the names without blanks around them." if all(c in stripped for c in missing) else ""
        raise InvalidSubmission(
            f"Missing required columns in submission: {listed(missing)}. Expected the columns {expected}; found {found}.{hint}"
        )
    extra = [c for c in names if c not in allowed]
    if extra:
        unnamed = any(not c or c.startswith("Unnamed:") for c in extra)
        hint = " Write the file with index=False." if unnamed else ""
        raise InvalidSubmission(
            f"Extra unexpected columns found in submission: {listed([c or '(without a name)' for c in extra])}. Expected "
            f"{expected}.{hint}"
        )


def align(truth: pd.DataFrame, submission: pd.DataFrame, id_columns: Sequence[str], match: str = "text") -> np.ndarray:
    """Row numbers of `submission` in the order of `truth`, shape (len(truth),).

    Args:
        truth: the answers; not changed.
        submission: the table to align with them; not changed.
        id_columns: columns that together identify a row.
        match: "text" compares ids as strings; "integer" also takes 1.0 for 1; "in_order" demands the rows in file order;
            "by_place" matches rows with the same id in file order (MLE-Dojo's way, with `compat` only).
    """
    import pandas as pd

    if len(submission) == 0:
        raise InvalidSubmission(f"The submission has a header but no rows; expected one row for each of {len(truth)} ids.")
    name = " + ".join(id_columns)
    wanted, given = _keys(truth, submission, id_columns, match)
    if match == "in_order":
        return _in_order(wanted, given, name)
    if match == "by_place":
        wanted, given = (k + "|" + k.groupby(k).cumcount().astype(str).astype(object) for k in (wanted, given))
    index = pd.Index(given)
    if not index.is_unique:
        duplicated = given[given.duplicated()]
        raise InvalidSubmission(
            f"{len(duplicated)} duplicated ids in column {name}: {listed(list(duplicated.unique()))}. Give each id "
            f"exactly once."
        )
    order = index.get_indexer(pd.Index(wanted))
    missing = np.flatnonzero(order < 0)
    if len(missing) or len(given) != len(wanted):
        unknown = given[~given.isin(wanted)]
        parts = [
            f"Number of rows in submission ({len(given)}) does not match ground truth ({len(wanted)})."
            if len(given) != len(wanted)
            else f"The ids in column {name} do not match those of the test set."
        ]
        if len(missing):
            parts.append(f"{len(missing)} ids are missing, first {listed(list(wanted.iloc[missing]))}.")
        if len(unknown):
            parts.append(f"{len(unknown)} ids are unknown, first {listed(list(unknown))}.")
        parts.append("Predict every id of the sample submission exactly once and write the ids unchanged.")
        raise InvalidSubmission(" ".join(parts))
    return order


def _in_order(wanted: pd.Series, given: pd.Series, name: str) -> np.ndarray:
    if len(given) != len(wanted):
        raise InvalidSubmission(
            f"Number of rows in submission ({len(given)}) does not match ground truth ({len(wanted)}). Keep every row of "
            f"the test set."
        )
    wrong = np.flatnonzero(given.to_numpy() != wanted.to_numpy())
    if len(wrong):
        raise InvalidSubmission(
            f"Column {name} differs from the test set in {len(wrong)} rows, first in data row {wrong[0] + 1}: this task has no "
            "ids, so keep the rows of the test set in their order and their text unchanged."
        )
    return np.arange(len(wanted))


def _keys(truth: pd.DataFrame, submission: pd.DataFrame, columns: Sequence[str], match: str) -> tuple[pd.Series, pd.Series]:
    pairs = [_key_column(truth[c], submission[c], match) for c in columns]
    wanted, given = pairs[0]
    for more_wanted, more_given in pairs[1:]:
        wanted, given = wanted + "|" + more_wanted, given + "|" + more_given
    return wanted.reset_index(drop=True), given.reset_index(drop=True)


def _key_column(truth: pd.Series, submission: pd.Series, match: str) -> tuple[pd.Series, pd.Series]:
    """One id column of both as text. Decimal ids (times) are compared as numbers, for they have many spellings."""
    wanted, given = id_text(truth), id_text(submission)
    if match == "integer":
        return wanted.str.replace(r"\.0+$", "", regex=True), given.str.replace(r"\.0+$", "", regex=True)
    if (
        match == "text"
        and len(wanted)
        and re.fullmatch(r"-?\d+\.\d+", wanted.iloc[0])
        and (numbers := _decimals(wanted)) is not None
    ):
        others = _decimals(given)
        if others is not None and (numbers % 1 != 0).any():
            return numbers.map("{:.12g}".format), others.map("{:.12g}".format)
    return wanted, given


def _decimals(ids: pd.Series) -> pd.Series | None:
    """Ids as numbers, or None if one of them is none."""
    from wmrl_envs.tasks.metrics.values import as_floats

    numbers = as_floats(ids)
    return None if np.isnan(numbers).any() else ids.__class__(numbers, ids.index)


def id_text(ids: pd.Series) -> pd.Series:
    """Ids as strings: 7 -> "7", 1.0 -> "1.0" (which is not the id 1), a missing one -> ""."""
    import pandas as pd

    if ids.dtype.kind in "iub":
        return ids.astype(str).astype(object)
    cells = ids.to_numpy(object, copy=True)
    if pd.api.types.infer_dtype(cells) != "string":
        cells = np.array([cell_text(cell) for cell in cells], object)
    return pd.Series(cells, ids.index, dtype=object)
