"""Checks on scores at the door of the correction: one bad number in the pool would bend every later prediction."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wmrl_envs.errors import InvalidInput

ScoreRange = tuple[float, float] | None


def check_scores(values: Any, name: str, score_range: ScoreRange = (0.0, 1.0)) -> np.ndarray:
    """`values` as floats of any shape; refuses the first that is not finite or outside `score_range` (None: any finite).

    >>> check_scores([0.2, 1.7], "predicted")
    Traceback (most recent call last):
    ...
    wmrl_envs.errors.InvalidInput: predicted[1] = 1.7: expected a finite score in [0.0, 1.0].
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} = {values!r}: expected numbers.") from None
    if array.size == 1 and _is_good(array.item(), score_range):
        return array  # as everything below says, without the price of numpy for one number
    good = (
        np.isfinite(array) if score_range is None else (array >= score_range[0]) & (array <= score_range[1])
    )  # NaN is not good
    if not good.all():
        index = tuple(int(i) for i in np.argwhere(~good)[0])
        where = f"{name}[{', '.join(map(str, index))}]" if index else name
        expected = "a finite score" + ("" if score_range is None else f" in [{score_range[0]}, {score_range[1]}]")
        raise InvalidInput(f"{where} = {float(array[index])!r}: expected {expected}.")
    return array


def _is_good(score: float, score_range: ScoreRange) -> bool:
    return math.isfinite(score) if score_range is None else score_range[0] <= score <= score_range[1]


def check_range(score_range: Any) -> ScoreRange:
    """A score range as a tuple of floats, low < high, or None."""
    if score_range is None:
        return None
    try:
        low, high = (float(x) for x in score_range)
    except (TypeError, ValueError):
        raise InvalidInput(f"score_range={score_range!r}: expected (low, high) or None.") from None
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InvalidInput(f"score_range={score_range!r}: expected finite numbers with low < high, or None.")
    return low, high


def check_positive(**values: Any) -> None:
    """Refuses any keyword that is not a whole number of at least 1."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise InvalidInput(f"{name}={value!r}: expected a whole number of at least 1.")


def check_number(name: str, value: Any, low: float, high: float = float("inf")) -> float:
    """`value` as a float in [low, high], both finite ends included."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float, np.integer, np.floating))
        or not low <= value <= high
        or value == float("inf")
    ):
        raise InvalidInput(
            f"{name}={value!r}: expected a finite number of at least {low:g}"
            + (f" and at most {high:g}." if high < float("inf") else ".")
        )
    return float(value)


def per_pair(labels: Any, shape: tuple[int, ...]) -> list[Any]:
    """Labels (a group id, a task) of pairs of the given shape, one a pair: a scalar for all, one a row, or one a pair."""
    size = math.prod(shape)
    if labels is None or isinstance(labels, (str, bytes)) or np.ndim(labels) == 0:
        return [_plain(labels)] * size
    flat = [_plain(x) for x in (labels.ravel() if isinstance(labels, np.ndarray) else labels)]
    if len(flat) == size:
        return flat
    if len(shape) == 2 and len(flat) == shape[0]:
        return [x for x in flat for _ in range(shape[1])]
    raise InvalidInput(f"{len(flat)} labels for pairs of shape {shape}: expected one for all, one a group, or one a pair.")


def _plain(label: Any) -> Any:
    label = label.item() if isinstance(label, np.generic) else label
    try:
        hash(label)
    except TypeError:
        raise InvalidInput(
            f"label {label!r:.100}: expected a number or a text, one for all, one a group, or one a pair."
        ) from None
    return label
