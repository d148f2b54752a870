"""Which rows a reduced copy keeps: like all of them in the target, and nothing rare in them is lost that a program could
stumble on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

FLOORS = (5, 2, 1)  # rows every class keeps, if it has them: the first that takes at most half of the sample
BINS = 50  # of a numeric target
CLASSES = 60  # more distinct values of a column are no classes
MARK_SHARE = 0.25  # of the sample that may be kept for the sake of rare values
RARE = 5.0  # expected rows in the sample below which a value is rare
KEPT_OF_RARE = 2


def choose(n: int, strata: np.ndarray, units: np.ndarray, marks: Iterable[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Positions of about `n` rows, ascending.

    Args:
        n: rows wanted; more are kept where every stratum needs one.
        strata: integer code of each row's stratum.
        units: integer code of what a row belongs to; a unit is kept whole or not at all.
        marks: boolean arrays, of rows with something rare; a few of each are kept.
        rng: of the draw.
    """
    _, first, unit, sizes = np.unique(units, return_index=True, return_inverse=True, return_counts=True)
    if n >= len(units):
        return np.arange(len(units))
    wanted = max(1, round(n / sizes.mean()))
    stratum = strata[first]
    kept = np.zeros(len(first), bool)
    for members in _by_code(stratum):
        kept[rng.permutation(members)[: _floor(stratum, wanted)]] = True
    budget = wanted * MARK_SHARE
    for mark in sorted(marks, key=lambda m: int(m.sum())):
        marked = np.unique(unit[np.flatnonzero(mark)])
        few = min(KEPT_OF_RARE, len(marked)) - int(kept[marked].sum())
        if 0 < few <= budget:
            kept[rng.permutation(marked[~kept[marked]])[:few]] = True
            budget -= few
    groups = _by_code(stratum)
    shares = _shares(np.array([len(members) for members in groups]), wanted)
    lacking = np.array([max(share - int(kept[members].sum()), 0) for members, share in zip(groups, shares, strict=True)])
    room = max(wanted - int(kept.sum()), 0)
    for members, more in zip(groups, lacking if lacking.sum() <= room else _shares(lacking, room), strict=True):
        kept[rng.permutation(members[~kept[members]])[:more]] = True
    return np.flatnonzero(kept[unit])


def _by_code(codes: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def _floor(stratum: np.ndarray, wanted: int) -> int:
    counts = np.unique(stratum, return_counts=True)[1]
    return next((f for f in FLOORS if np.minimum(counts, f).sum() <= wanted / 2), 1)


def _shares(counts: np.ndarray, wanted: int) -> np.ndarray:
    """`wanted` in all, in proportion to `counts` (by largest remainder)."""
    exact = wanted * counts / counts.sum()
    shares = np.floor(exact).astype(int)
    for i in np.argsort(-(exact - shares), kind="stable")[: wanted - int(shares.sum())]:
        shares[i] += 1
    return shares


def strata_of(target: pd.DataFrame | None, n: int) -> np.ndarray:
    """A stratum for each row: its class, the quantile of its number, or its combination of classes; rows without a value are
    one more.
    """
    if target is None or target.shape[1] == 0:
        return np.zeros(0 if target is None else len(target), int)
    codes = [_codes(target.iloc[:, i], n) for i in range(target.shape[1])]
    if len(codes) == 1:
        return codes[0]
    combined = pd.factorize(pd.Series(list(map(tuple, np.stack(codes, 1).tolist()))))[0]
    if combined.max(initial=0) >= n / 4:  # too many combinations: the first column alone, and `target_marks` for the others
        return codes[0]
    return np.asarray(combined)


def target_marks(target: pd.DataFrame | None) -> list[np.ndarray]:
    """Rows with each class of each target, where there are several targets."""
    if target is None or target.shape[1] < 2:
        return []
    return [
        (target[c] == value).to_numpy()
        for c in target
        if target[c].nunique() <= CLASSES
        for value in target[c].dropna().unique()
    ]


def _codes(column: pd.Series, n: int) -> np.ndarray:
    if column.dtype.kind in "iuf" and (
        column.nunique() > CLASSES or (column.dtype.kind == "f" and (column.dropna() % 1 != 0).any())
    ):
        ranks = column.rank(method="first", pct=True).to_numpy()
        bins = np.ceil(np.nan_to_num(ranks, nan=-1.0) * min(BINS, max(n // 4, 1)))
        return np.where(column.isna(), -1, bins).astype(int)
    codes = pd.factorize(column)[0]
    many = column.nunique() > n  # nearly a text: nothing to stratify by
    return np.zeros(len(column), int) if many else np.asarray(codes)


def marks_of(frame: pd.DataFrame, n: int, leave_out: Sequence[str] = ()) -> list[np.ndarray]:
    """Rows with something that `n` random rows may well lack: a missing value, a word among numbers, a rare class."""
    found = []
    for column in frame.columns.drop(list(leave_out), errors="ignore"):
        values = frame[column]
        found.append(values.isna().to_numpy())
        if values.dtype.kind == "O":
            numbers = pd.to_numeric(values, errors="coerce").isna() & values.notna()
            found.append(numbers.to_numpy() if not numbers.all() else np.zeros(len(values), bool))
        elif values.dtype.kind == "f":
            found.append((values % 1 > 0).to_numpy())
        if values.dtype.kind in "Oiub" and values.nunique() <= CLASSES:
            counts = values.value_counts()
            found += [(values == value).to_numpy() for value in counts.index[counts * n / len(values) < RARE]]
    return [mark for mark in found if 0 < mark.sum() * n / len(frame) < RARE]


def class_columns(train: pd.DataFrame, test: pd.DataFrame) -> list[str]:
    """Columns of both that hold classes: words that repeat, or few whole numbers."""

    def is_class(values: pd.Series) -> bool:
        if values.dtype.kind == "O":
            return values.nunique() <= 0.5 * len(values) and values[:1000].astype(str).str.len().mean() <= 40
        return values.dtype.kind in "iub" and values.nunique() <= CLASSES

    return [c for c in train.columns if c in test.columns and is_class(train[c])]


def covered(train: pd.DataFrame, kept: np.ndarray, test: pd.DataFrame, n: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Which rows of `test` may be kept, and marks of those that have a class no row of `train` has.

    An encoder that knows every class of the test rows must know those of the kept ones, and one that does not must not.
    """
    allowed, unseen = np.ones(len(test), bool), []
    columns = class_columns(train, test)
    for column in sorted(columns, key=lambda c: train[c].nunique()):
        known = test[column].isin(train[column].unique()).to_numpy()
        still = test[column].isin(train[column].iloc[kept].unique()).to_numpy()
        if not known.all():
            unseen.append(~known)
        narrower = allowed & (still | ~known)
        if narrower.sum() >= min(n, 0.5 * len(test)):
            allowed = narrower
    return allowed, unseen
