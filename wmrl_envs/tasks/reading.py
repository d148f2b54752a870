"""From the bytes of a CSV to a table. What it costs grows with the size of the file, whatever is in it, and most so when refused."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from wmrl_envs.tasks.refusals import InvalidSubmission, listed, one_line

if TYPE_CHECKING:
    import pandas as pd

MAX_COLUMNS = 10_000  # no competition has a tenth of it
_LONGEST_HEADER = 1 << 20  # characters
_UNREADABLE = "Failed to read submission file"
_WRITE = "write it with DataFrame.to_csv(path, index=False)."
_SEPARATORS = {";": "';' (and decimal commas)", "\t": "tabs", "|": "'|'"}


def read_table(
    data: bytes, as_text: Sequence[str] | None = None, check_header: Callable[[list[str]], None] | None = None
) -> pd.DataFrame:
    """Parse the bytes of a submission (or answer) CSV. Words such as "NA" stay words, and ids stay as they are written.

    Args:
        as_text: columns to keep as text, by name in any case; None keeps all. The others become numbers where they are.
        check_header: is given the names of the columns, and may refuse them before any row is read.

    Raises:
        InvalidSubmission: not UTF-8, not a CSV with a header, or rows longer than the header.
    """
    import pandas as pd

    header = read_header(data)
    if check_header is not None:
        check_header(header)
    wanted = None if as_text is None else {c.lower() for c in as_text}
    dtype: Any = str if wanted is None else {c: str for c in header if c.lower() in wanted or c == header[0]}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            warnings.simplefilter("ignore", pd.errors.DtypeWarning)
            return pd.read_csv(
                io.BytesIO(data),
                names=header,
                header=0,
                dtype=dtype,
                keep_default_na=False,
                index_col=False,
                low_memory=False,
                encoding="utf-8-sig",
            )
    except (ValueError, OverflowError, pd.errors.ParserWarning) as error:
        reason = one_line(str(error).strip().split("\n")[0], 300)
        raise InvalidSubmission(
            f"The submission file is not a CSV with as many cells in each row as in its header ({listed(header)}): {reason}",
            _UNREADABLE,
        ) from None


def read_header(data: bytes) -> list[str]:
    """The names of the columns of a CSV, each of them once.

    Raises:
        InvalidSubmission: there are none, or the bytes are no CSV in UTF-8.
    """
    names = _names(_first_lines(data))
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InvalidSubmission(
            f"Columns occur more than once: {listed(repeated)}. Name each column once; the header is {listed(names)}."
        )
    for mark, words in _SEPARATORS.items():
        if len(names) == 1 and mark in names[0]:
            raise InvalidSubmission(
                f"The columns are separated by {words} (the header is {one_line(names[0])!r}); expected commas between the "
                f"columns and points in the numbers: {_WRITE}",
                _UNREADABLE,
            )
    return names


def _first_lines(data: bytes) -> str:
    """The beginning of the file, with its header, once it is sure that it is a text."""
    if not data.strip():
        raise InvalidSubmission("The submission file is empty; write a CSV with a header and one row for each id.", _UNREADABLE)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InvalidSubmission(f"The submission file is UTF-16 text, expected UTF-8: {_WRITE}", _UNREADABLE)
    if b"\0" in data:
        raise InvalidSubmission(f"The submission file holds binary data; expected a CSV: {_WRITE}", _UNREADABLE)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidSubmission(f"The submission file is not UTF-8 text ({error}): {_WRITE}", _UNREADABLE) from None
    start = re.search(r"\S", text)
    if start is not None and text[start.start()] in "[{":
        raise InvalidSubmission(f"The submission file looks like JSON; expected a CSV with a header: {_WRITE}", _UNREADABLE)
    return text[:_LONGEST_HEADER]


def _names(text: str) -> list[str]:
    line = re.search(r"[^\r\n]*\S[^\r\n]*", text)
    columns = 1 + (line.group().count(",") if line is not None else 0)
    if columns > MAX_COLUMNS:
        raise InvalidSubmission(
            f"The first line has {columns} cells or more; expected a header of a few names, and a line for each id: {_WRITE}",
            _UNREADABLE,
        )
    try:
        for record in csv.reader(io.StringIO(text, newline="")):
            if len(record) > 1 or (record and record[0].strip()):
                return record
    except csv.Error as error:
        raise InvalidSubmission(
            f"The header of the submission file is no line of a CSV ({error}): {_WRITE}", _UNREADABLE
        ) from None
    raise InvalidSubmission("The submission file has no header; its first line must name the columns.", _UNREADABLE)
