"""`UnicodeText`: a text space for code and tracebacks (`gymnasium.spaces.Text` refuses most characters)."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
from gymnasium import Space

_PRINTABLE = np.array(list(string.ascii_letters + string.digits + " .,:;()[]{}=+-*/_'\"\n"))


class UnicodeText(Space[str]):
    """Any `str` of `min_length` to `max_length` characters (code points).

    >>> space = UnicodeText(8)
    >>> "λ → 1" in space, "x" * 9 in space, b"x" in space
    (True, False, False)
    """

    def __init__(self, max_length: int, *, min_length: int = 0, seed: int | np.random.Generator | None = None):
        if not 0 <= min_length <= max_length:
            raise ValueError(f"UnicodeText(max_length={max_length}, min_length={min_length}): expected 0 <= min_length <= max_length.")
        self.min_length, self.max_length = int(min_length), int(max_length)
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A printable string of random length (short of 256 characters, so that sampling a large space stays cheap)."""
        longest = min(self.max_length, max(self.min_length, 256))
        length = int(self.np_random.integers(self.min_length, longest + 1))
        return "".join(self.np_random.choice(_PRINTABLE, size=length))

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    def to_jsonable(self, sample_n: Any) -> list[str]:
        return list(sample_n)

    def from_jsonable(self, sample_n: list[Any]) -> list[str]:
        return [str(s) for s in sample_n]

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length}, min_length={self.min_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and (self.min_length, self.max_length) == (other.min_length, other.max_length)

    __hash__ = None  # type: ignore[assignment]
