"""From the bytes of a CSV to a table. What it costs grows with the size of the file, whatever is in it, and most so when
refused.
"""

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
_UNREADABLE = "Failed to read submission file"
_WRITE = "write it with DataFrame.to_csv(path, index=False)."
_BLANK_LINES = re.compile(r"(?:[^\S\r\n]*+[\r\n]++)*+")
_RECORD = re.compile(r"(?:[^\"\r\n]++|\"[^\"]*+\"?+)*+")
_QUOTED = re.compile(r"\"[^\"]*+\"?+")
_SEPARATORS = {";": "';' (and decimal commas)", "\t": "tabs", "|": "'|'"}


def read_table(
    data: bytes, as_text: Sequence[str] | None = None, check_header: Callable[[list[str]], object] | None = None
) -> pd.DataFrame:
    """Parse the bytes of a submission (or answer) CSV. Words such as "NA" stay words, and ids stay as they are written.

    Args:
        data: bytes of the file, UTF-8.
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
        if "out of memory" in reason:
            raise MemoryError(reason) from None
        raise InvalidSubmission(
            f"The submission file is not a CSV with as many cells in each row as in its header ({listed(header)}): {reason}",
            _UNREADABLE,
        ) from None


def read_header(data: bytes) -> list[str]:
    """The names of the columns of a CSV, each of them once.

    Raises:
        InvalidSubmission: there are none, or the bytes are no CSV in UTF-8.
    """
    text = _decoded(data)
    header = _record(text, 0)
    names = _names(header.group())
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
    if (cells := _cells(_record(text, header.end()).group())) > len(names):  # a table would get a column for each
        raise InvalidSubmission(
            f"The first row has {cells} cells, but the header has {len(names)} ({listed(names)}).", _UNREADABLE
        )
    return names


def _decoded(data: bytes) -> str:
    """The file as text, once it is sure that it is one."""
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
    return text


def _record(text: str, start: int) -> re.Match[str]:
    """The next line that is not blank, or more lines where a cell in quotes goes on."""
    blank = _BLANK_LINES.match(text, start)
    assert blank is not None
    record = _RECORD.match(text, blank.end())
    assert record is not None  # both match the empty text
    return record


def _cells(record: str) -> int:
    return 1 + _QUOTED.sub("", record).count(",")


def _names(record: str) -> list[str]:
    if (cells := _cells(record)) > MAX_COLUMNS:
        raise InvalidSubmission(
            f"The first line has {cells} cells; expected a header of a few names, and a line for each id: {_WRITE}", _UNREADABLE
        )
    try:
        return next(csv.reader(io.StringIO(record, newline="")), [""])
    except csv.Error as error:
        raise InvalidSubmission(
            f"The header of the submission file is no line of a CSV ({error}): {_WRITE}", _UNREADABLE
        ) from None
