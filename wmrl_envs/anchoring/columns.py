"""`infos["wmrl"]` of a vector environment: one array a key, with a mask (`_key`) of the slots where it is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from wmrl_envs.anchoring.graded import Graded

NUMBERS = ("score", "raw_score", "best_score", "predicted", "calibrated", "true", "wall_s")
_OF_GRADED = ("score", "raw_score", "predicted", "calibrated", "true", "wall_s")


class Columns:
    """The columns of one step or reset under construction.

    Every key of the contract is always there: numbers are NaN and texts "" where they are not known. Further keys of an
    environment's own `info["wmrl"]` have a column in the steps in which one of the slots has it.

    Args:
        n: slots.
    """

    def __init__(self, n: int):
        self._n = n
        self._mask = np.zeros(n, dtype=bool)
        self._slots: list[int] = []
        self._graded: list[Graded] = []
        self._own: list[tuple[int, Mapping[str, Any]]] = []

    @property
    def empty(self) -> bool:
        return not self._mask.any()

    def begin(self, slot: int) -> None:
        """The slot was reset: it has a group, and nothing was graded."""
        self._mask[slot] = True

    def add(self, slot: int, graded: Graded, own: Mapping[str, Any] | None = None) -> None:
        """What was graded in the slot, and the entries its environment or its caller adds."""
        self._mask[slot] = True
        self._slots.append(slot)
        self._graded.append(graded)
        if own and graded.failed is None:
            self._own.append((slot, own))

    def into(self, infos: dict[str, Any], groups: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """`infos` with the columns, and with those of the slots' groups."""
        n, slots, graded = self._n, self._slots, self._graded
        status = np.full(n, "", dtype="<U18")
        table = np.full((len(NUMBERS), n), np.nan)
        if slots:
            status[slots] = [g.status for g in graded]
            table[:, slots] = np.array(
                [(g.score, g.raw_score, None, g.predicted, g.calibrated, g.true, g.wall_s) for g in graded], dtype=float
            ).T
        numbers = dict(zip(NUMBERS, table, strict=True))
        extra = self._take_own(numbers) if self._own else {}
        known = ~np.isnan(table)
        wmrl: dict[str, Any] = {"status": status, "_status": self._of(slots)}
        for key, column, mask in zip(NUMBERS, table, known, strict=True):
            wmrl[key], wmrl[f"_{key}"] = column, mask
        wmrl |= extra
        for key, column in groups.items():
            wmrl[key], wmrl[f"_{key}"] = column, self._mask
        infos["wmrl"], infos["_wmrl"] = wmrl, self._mask.copy()
        return infos

    def _of(self, slots: list[int]) -> np.ndarray:
        mask = np.zeros(self._n, dtype=bool)
        mask[slots] = True
        return mask

    def _take_own(self, numbers: dict[str, np.ndarray]) -> dict[str, Any]:
        """Put the environments' own entries where nothing better is known; the columns of further keys."""
        extra: dict[str, Any] = {}
        for slot, own in self._own:
            for key, value in own.items():
                if value is None or key == "status":
                    continue
                if key in numbers:
                    if key not in _OF_GRADED or (key == "raw_score" and np.isnan(numbers[key][slot])):
                        numbers[key][slot] = value
                    continue
                if key not in extra:
                    extra[key], extra[f"_{key}"] = _column(self._n, value), np.zeros(self._n, dtype=bool)
                if extra[key].dtype.kind == "U":  # texts of any length
                    extra[key] = extra[key].astype(f"<U{max(len(str(value)), extra[key].dtype.itemsize // 4, 1)}")
                extra[key][slot], extra[f"_{key}"][slot] = value, True
        return extra


def _column(n: int, value: Any) -> np.ndarray:
    if isinstance(value, str):
        return np.full(n, "", dtype=f"<U{max(len(value), 1)}")
    if isinstance(value, (bool, int, float, np.generic)):
        return np.zeros(n, dtype=np.asarray(value).dtype)
    return np.full(n, None, dtype=object)
