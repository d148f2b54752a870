"""`UnicodeText`: a text space for code and tracebacks (`gymnasium.spaces.Text` refuses most characters)."""

from __future__ import annotations

import multiprocessing
import string
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory

_PRINTABLE = np.array(list(string.ascii_letters + string.digits + " .,:;()[]{}=+-*/_'\"\n"))


class UnicodeText(Space[str]):
    """Any `str` of `min_length` to `max_length` characters (code points).

    >>> space = UnicodeText(8)
    >>> "λ → 1" in space, "x" * 9 in space, b"x" in space
    (True, False, False)
    """

    def __init__(self, max_length: int, *, min_length: int = 0, seed: int | np.random.Generator | None = None):
        if not 0 <= min_length <= max_length:
            raise ValueError(
                f"UnicodeText(max_length={max_length}, min_length={min_length}): expected 0 <= min_length <= max_length."
            )
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


# AsyncVectorEnv passes observations between processes by shared memory unless told otherwise: a text lies there as its
# length and its code points. The vector environment reads the batch once, before the first reset, and expects a view.


class _SharedTexts(Sequence[str]):
    """The texts that lie in shared memory now; a deep copy is an ordinary tuple."""

    def __init__(self, cells: np.ndarray):
        self._cells = cells

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self)[index]
        length, text = self._cells[index][0], self._cells[index][1:]
        return text[:length].tobytes().decode("utf-32-le", "surrogatepass")

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)


def _cells(space: UnicodeText, shared_memory: Any) -> np.ndarray:
    return np.frombuffer(shared_memory.get_obj(), np.int32).reshape(-1, space.max_length + 1)


@create_shared_memory.register(UnicodeText)
def _create(space: UnicodeText, n: int = 1, ctx: Any = multiprocessing) -> Any:
    return ctx.Array("i", n * (space.max_length + 1))


@write_to_shared_memory.register(UnicodeText)
def _write(space: UnicodeText, index: int, value: str, shared_memory: Any) -> None:
    cells = _cells(space, shared_memory)[index]
    cells[0] = len(value)
    cells[1 : len(value) + 1] = np.frombuffer(value.encode("utf-32-le", "surrogatepass"), np.int32)


@read_from_shared_memory.register(UnicodeText)
def _read(space: UnicodeText, shared_memory: Any, n: int = 1) -> Sequence[str]:
    return _SharedTexts(_cells(space, shared_memory))
