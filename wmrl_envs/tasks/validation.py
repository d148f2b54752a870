"""Is a file a submission at all? Rows are matched by id as strings in any order, columns by name in any order.

Every refusal is an `InvalidSubmission` that names the first offenders and says how to fix them; it is the agent's to read.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 5


class SubmissionError(ValueError):
    """Why a submission got no score.

    Attributes:
        kind: the name of the error in the feedback.
        message: what went wrong, in one line. details: more, for the agent.
        agents_own: False if it is our failure, which must never count against the agent.
    """

    kind = "SubmissionError"
    message = "Submission failed"
    agents_own = True

    def __init__(self, details: str, message: str | None = None):
        super().__init__(details)
        self.details = details
        if message is not None:
            self.message = message


class InvalidSubmission(SubmissionError):
    """The file is not a valid submission: unreadable, wrong columns or ids, or predictions the metric cannot take."""

    kind = "InvalidSubmissionError"
    message = "Submission validation failed"


class EvaluationError(SubmissionError):
    """The grader itself failed: ours, never the agent's."""

    kind = "EvaluationError"
    message = "Failed to evaluate submission"
    agents_own = False


class GroundTruthError(SubmissionError):
    """The answers are missing or unreadable: ours."""

    kind = "GroundTruthError"
    message = "Failed to read ground truth file"
    agents_own = False


class LeaderboardError(SubmissionError):
    """No place on the leaderboard could be worked out: ours."""

    kind = "LeaderboardError"
    message = "Failed to calculate leaderboard position"
    agents_own = False


def read_table(data: bytes, as_text: Sequence[str] | None = None) -> pd.DataFrame:
    """Parse the bytes of a submission (or answer) CSV. Words such as "NA" stay words, and ids stay as they are written.

    Args:
        as_text: columns to keep as text, by name in any case; None keeps all. The others become numbers where they are.

    Raises:
        InvalidSubmission: not UTF-8, not a CSV with a header, or rows longer than the header.
    """
    import pandas as pd

    message = "Failed to read submission file"
    if not data.strip():
        raise InvalidSubmission("The submission file is empty; write a CSV with a header and one row for each id.", message)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidSubmission(
            f"The submission file is not UTF-8 text ({error}); write it with DataFrame.to_csv.", message
        ) from None
    if "\0" in text:
        raise InvalidSubmission(
            "The submission file holds binary data; write a CSV with DataFrame.to_csv(..., index=False).", message
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            warnings.simplefilter("ignore", pd.errors.DtypeWarning)
            header = pd.read_csv(io.StringIO(text), nrows=0, index_col=False).columns
            wanted = None if as_text is None else {c.lower() for c in as_text}
            dtype: Any = str if wanted is None else {c: str for c in header if c.lower() in wanted or c == header[0]}
            return pd.read_csv(io.StringIO(text), dtype=dtype, keep_default_na=False, index_col=False, low_memory=False)
    except (ValueError, OverflowError, pd.errors.ParserWarning) as error:
        reason = str(error).strip().split("\n")[0]
        raise InvalidSubmission(
            f"The submission file is not a CSV with as many cells in each row as in its header: {reason}", message
        ) from None


def listed(values: Sequence[Any], shown: int = _SHOWN) -> str:
    """The first few values, and how many more there are.

    >>> listed([1, 2, 3], shown=2)
    '1, 2 and 1 more'
    """
    texts = [str(v) if len(str(v)) <= 60 else str(v)[:57] + "..." for v in values[:shown]]
    more = len(values) - shown
    return ", ".join(texts) + (f" and {more} more" if more > 0 else "")


def check_columns(submission: pd.DataFrame, required: Sequence[str], optional: Sequence[str] = ()) -> None:
    """The columns must be exactly `required`, in any order, with or without those in `optional`."""
    names = [str(c) for c in submission.columns]
    expected = ", ".join(required)
    repeated = sorted({n for n in names if names.count(n) > 1})
    if repeated:
        raise InvalidSubmission(f"Columns occur more than once: {listed(repeated)}. Expected each of {expected} once.")
    missing = [c for c in required if c not in names]
    if missing:
        raise InvalidSubmission(f"Missing required columns in submission: {listed(missing)}. Expected the columns {expected}.")
    extra = [c for c in names if c not in required and c not in optional]
    if extra:
        hint = " Write the file with index=False." if any(c.startswith("Unnamed:") for c in extra) else ""
        raise InvalidSubmission(f"Extra unexpected columns found in submission: {listed(extra)}. Expected {expected}.{hint}")


def align(truth: pd.DataFrame, submission: pd.DataFrame, id_columns: Sequence[str], match: str = "text") -> np.ndarray:
    """Row numbers of `submission` in the order of `truth`, shape (len(truth),).

    Args:
        truth, submission: not changed.
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
            f"{len(duplicated)} duplicated ids in column {name}: {listed(list(duplicated.unique()))}. Give each id exactly once."
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
            f"Number of rows in submission ({len(given)}) does not match ground truth ({len(wanted)}). Keep every row of the test set."
        )
    wrong = np.flatnonzero(given.to_numpy() != wanted.to_numpy())
    if len(wrong):
        raise InvalidSubmission(
            f"Column {name} differs from the test set in {len(wrong)} rows, first in data row {wrong[0] + 1}: this task has no ids, "
            "so keep the rows of the test set in their order and their text unchanged."
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
    import pandas as pd

    numbers = pd.to_numeric(ids, errors="coerce")
    return None if numbers.isna().any() else numbers.astype(float)


def id_text(ids: pd.Series) -> pd.Series:
    """Ids as strings: 7 -> "7", 1.0 -> "1.0" (which is not the id 1), a missing one -> ""."""
    import pandas as pd

    if ids.dtype.kind in "iub":
        return ids.astype(str).astype(object)
    cells = ids.to_numpy(object, copy=True)
    cells[pd.isna(cells)] = ""
    if pd.api.types.infer_dtype(cells) != "string":
        cells = np.array([str(cell) for cell in cells], object)
    return pd.Series(cells, ids.index, dtype=object)
