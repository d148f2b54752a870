"""What a program's text or error has to do with the number of rows, and telling of a reduced run as if it had been a full
one.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Mapping

#: Errors that a program may have for want of rows alone: they are confirmed on a larger copy.
_WANT_OF_ROWS = re.compile(
    r"n_samples|n_components|n_neighbors|n_splits|n_clusters|n_features|n_quantiles|k_neighbors|min_df|max_df|no terms remain|"
    r"empty vocabulary|least populated|members in each class|number of classes|only one class|at least 2 classes|"
    r"more than one class|unknown categor|unseen label|larger than|samples? (?:in|per|is required)|"
    r"Input contains NaN|infs or nans",
    re.IGNORECASE,
)
_WHOLE = re.compile(r"(?<![\w.])\d+(?![\w.])")
_ROWS = re.compile(r"(?<![\w.])(?:(?<=\()\d+(?=, ?\d*\))|\d+(?= (?:rows|samples|entries|records)\b))")


def wants_rows(error: str) -> bool:
    """Whether an error (the last line of a traceback) may come of the number of rows.

    >>> wants_rows("ValueError: n_components=400 must be between 1 and min(n_samples, n_features)=300")
    True
    >>> wants_rows("ModuleNotFoundError: No module named 'lightgbm'")
    False
    """
    return bool(_WANT_OF_ROWS.search(error))


def with_sizes(code: str, sizes: Mapping[int, int]) -> str | None:
    """The program with whole numbers that are row counts of the full data replaced by those of the copy; None if it has none.

    >>> with_sizes("assert len(train) == 3118  # 3118", {3118: 500})
    'assert len(train) == 500  # 3118'
    """
    lines = code.splitlines(keepends=True)
    changed = False
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return None
    for token in reversed(tokens):
        if token.type == tokenize.NUMBER and (text := token.string.replace("_", "")).isdigit() and int(text) in sizes:
            (row, begin), end = token.start, token.end[1]
            line = lines[row - 1]
            lines[row - 1] = line[:begin] + str(sizes[int(text)]) + line[end:]
            changed = True
    return "".join(lines) if changed else None


def next_prime(n: int) -> int:
    """The smallest prime number that is at least `n`.

    >>> next_prime(500), next_prime(307)
    (503, 307)
    """
    while any(n % d == 0 for d in range(2, int(n**0.5) + 1)):
        n += 1
    return n


def restated(text: str, sizes: Mapping[int, int], *, everywhere: bool) -> str:
    """Row counts of the copy as those of the full data: in shapes and before "rows" only, or `everywhere` (in an error's
    message).

    >>> restated("train (500, 14), 300 trees", {500: 3118, 300: 1336}, everywhere=False)
    'train (3118, 14), 300 trees'
    """
    pattern = _WHOLE if everywhere else _ROWS
    return pattern.sub(lambda match: str(sizes.get(int(match[0]), match[0])), text)
