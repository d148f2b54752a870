"""Where a score lands on the leaderboards of a competition.

The rank of a score is the place of the first entry it equals or beats (so a tie takes the best rank of the tied entries, and a
score worse than all is one place below the last); the position score is `(total - rank + 1) / total`, 1 for the best and 0
below the last entry. With two boards the score is the mean. A score that is NaN ranks below the last.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from wmrl_envs.errors import InvalidInput
from wmrl_envs.outcome import BoardPosition, Position

__all__ = ["BoardPosition", "Leaderboard", "Position"]


class Leaderboard:
    """One or two boards of a competition.

    Args:
        private: the scores on the private board, in any order; None if there is no such board.
        public: the scores on the public board, likewise.
        higher_is_better: direction of the metric.
        compat: "mledojo" also uses boards without information, as the original does.
        name: for messages.

    A board without information (all entries equal, as where Kaggle hid the scores) would rank nearly everything first; it is
    left out with a warning, unless there is no other. So is an entry that is NaN (a team without a score).

    >>> board = Leaderboard(private=[0.9, 0.8, 0.8, 0.5], higher_is_better=True)
    >>> board.position(0.8).private
    BoardPosition(rank=2, total=4, score=0.75, medal=None)
    >>> board.position(float("nan")).score
    0.0
    """

    def __init__(
        self,
        private: Iterable[float] | None = None,
        public: Iterable[float] | None = None,
        *,
        higher_is_better: bool,
        compat: str | None = None,
        name: str = "",
    ):
        if compat not in (None, "mledojo"):
            raise InvalidInput(f"compat={compat!r}: expected None or 'mledojo'.")
        self.higher_is_better = bool(higher_is_better)
        self.name = name
        self.left_out: tuple[str, ...] = ()
        boards = {}
        for side, scores in (("private", private), ("public", public)):
            if scores is not None:
                boards[side] = self._ordered(scores, side)
        if not boards:
            raise InvalidInput(f"Leaderboard {name!r} has neither a private nor a public board; give at least one.")
        if compat is None:
            flat = [side for side, entries in boards.items() if entries[0] == entries[-1]]
            for side in flat:
                what = f"The {side} leaderboard {name!r} tells nothing, all its {len(boards[side])} entries are equal"
                if len(flat) < len(boards):
                    del boards[side]
                    self.left_out += (side,)
                    warnings.warn(f"{what}; it is left out of the position score.", stacklevel=2)
                else:
                    warnings.warn(f"{what}, and there is no other; position scores on it mean little.", stacklevel=2)
        self._boards = boards

    def _ordered(self, scores: Iterable[float], side: str) -> np.ndarray:
        """Entries as losses in ascending order, so that the best comes first in either direction."""
        values = np.asarray(list(scores) if not isinstance(scores, np.ndarray) else scores, dtype=float)
        if values.ndim != 1 or not len(values):
            raise InvalidInput(f"The {side} leaderboard {self.name!r} is empty; expected at least one score.")
        blank = np.isnan(values)
        if blank.all():
            raise InvalidInput(f"The {side} leaderboard {self.name!r} has no number; expected at least one score.")
        if blank.any():
            warnings.warn(
                f"{int(blank.sum())} of {len(values)} entries of the {side} leaderboard {self.name!r} have no score; they "
                f"are left out.",
                stacklevel=3,
            )
            values = values[~blank]
        return np.sort(-values if self.higher_is_better else values)

    @classmethod
    def from_csv(
        cls,
        private: str | Path | None = None,
        public: str | Path | None = None,
        *,
        higher_is_better: bool,
        compat: str | None = None,
        name: str = "",
    ) -> Leaderboard:
        """Read boards: the column named score, in any case, holds the scores (`rank,score`, or Kaggle's own export).

        Raises:
            InvalidInput: a file is missing, empty, has no column of that name, or an entry that is neither a number nor blank.
        """
        sides = [None if path is None else _read_scores(Path(path)) for path in (private, public)]
        return cls(sides[0], sides[1], higher_is_better=higher_is_better, compat=compat, name=name)

    def position(self, score: float) -> Position:
        """Place of a raw score on each board; O(log n)."""
        try:
            value = float(score)
        except (TypeError, ValueError):
            raise InvalidInput(f"score={score!r}: expected a number to rank on the leaderboard.") from None
        value = -value if self.higher_is_better else value
        places = {}
        for side, entries in self._boards.items():
            total = len(entries)
            # With losses ascending, the first entry that is equalled or beaten is the first one >= value.
            rank = total + 1 if math.isnan(value) else int(np.searchsorted(entries, value, side="left")) + 1
            places[side] = BoardPosition(rank, total, (total - rank + 1) / total, _medal(rank, total))
        mean = sum(place.score for place in places.values()) / len(places)
        return Position(mean, places.get("private"), places.get("public"))

    @property
    def sizes(self) -> dict[str, int]:
        """Number of entries of each board in use."""
        return {side: len(entries) for side, entries in self._boards.items()}

    def medal_scores(self, side: str | None = None) -> dict[str, float]:
        """The raw score from which on each medal is earned, on one board (default: the private one if there is one)."""
        entries = self._boards[side or next(iter(self._boards))]
        sign = -1.0 if self.higher_is_better else 1.0
        return {name: float(sign * entries[last - 1]) for name, last in medal_places(len(entries)).items()}

    def quantile(self, position_score: float, side: str | None = None) -> float:
        """The raw score that earns at least `position_score` in [0, 1] on one board
        (default: the private one if there is one).
        """
        entries = self._boards[side or next(iter(self._boards))]
        index = min(max(math.floor((1 - position_score) * len(entries) + 1e-9), 0), len(entries) - 1)
        return float(-entries[index] if self.higher_is_better else entries[index])


MEDALS = ("gold", "silver", "bronze")


def medal_places(total: int) -> dict[str, int]:
    """Last place of each medal in a competition of `total` teams: Kaggle's thresholds, at least the first place.

    >>> medal_places(1000)
    {'gold': 12, 'silver': 50, 'bronze': 100}
    """
    gold = 10 + int(0.002 * total)
    if total < 100:
        places = (int(0.1 * total), int(0.2 * total), int(0.4 * total))
    elif total < 250:
        places = (10, int(0.2 * total), int(0.4 * total))
    elif total < 1000:
        places = (gold, 50, 100)
    else:
        places = (gold, int(0.05 * total), int(0.1 * total))
    return {name: max(place, 1) for name, place in zip(MEDALS, places, strict=True)}


def _medal(rank: int, total: int) -> str | None:
    return next((name for name, last in medal_places(total).items() if rank <= min(last, total)), None)


def _read_scores(path: Path) -> np.ndarray:
    import pandas as pd

    expected = "expected a CSV with the columns rank,score, or Kaggle's own export with a column Score"
    try:
        frame = pd.read_csv(path, encoding="utf-8-sig", index_col=False)
    except FileNotFoundError:
        raise InvalidInput(f"{path}: no such leaderboard file.") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror}); {expected}.") from None
    except ValueError as error:  # of the parser, and where the bytes are no UTF-8
        raise InvalidInput(f"{path} is not a leaderboard CSV ({error}); {expected}.") from None
    named = [name for name in frame.columns if str(name).strip().lower() == "score"]
    if len(named) != 1:
        found = ", ".join(map(repr, frame.columns[:10]))
        what = "no column named score" if not named else "more than one column named score"
        raise InvalidInput(f"{path} has {what} (its first line is {found}); {expected}.")
    column = frame[named[0]]
    scores = pd.to_numeric(column, errors="coerce").to_numpy(float)
    words = np.isnan(scores) & column.notna().to_numpy()
    if words.any():
        row = int(np.flatnonzero(words)[0])
        raise InvalidInput(
            f"{path}: the score {column.iloc[row]!r} in data row {row + 1} is no number; remove or correct the row."
        )
    return scores
