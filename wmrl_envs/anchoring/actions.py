"""Actions on their way to a dynamics model: what the environment would refuse is refused, what it would clip is clipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from wmrl_envs.errors import InvalidInput


class Admission:
    """Actions of single environments as one array of members of the space.

    A Box clips to its bounds and refuses what is not finite or of another shape; discrete spaces refuse everything outside.

    Args:
        space: a Box, Discrete, MultiDiscrete or MultiBinary.

    >>> Admission(spaces.Discrete(2))([0, 2])
    Traceback (most recent call last):
    ...
    wmrl_envs.errors.InvalidInput: action 2: expected a member of Discrete(2).
    """

    def __init__(self, space: spaces.Space):
        self._space, self._shape = space, tuple(space.shape or ())
        self._box = isinstance(space, spaces.Box)
        self._low: Any = 0
        self._high: Any = 1
        if isinstance(space, spaces.Box):
            self._low, self._high = space.low, space.high
        elif isinstance(space, spaces.Discrete):
            self._low, self._high = space.start, space.start + space.n - 1
        elif isinstance(space, spaces.MultiDiscrete):
            self._low, self._high = space.start, space.start + space.nvec - 1

    def __call__(self, actions: Sequence[Any]) -> np.ndarray:
        """Shape (n, *space.shape).

        Raises:
            InvalidInput: one is no member of the space; the message has it.
        """
        try:
            array = np.array(actions)
        except (TypeError, ValueError):
            array = np.zeros(0)
        if array.shape != (len(actions), *self._shape) or array.dtype.kind not in ("iuf" if self._box else "iu"):
            raise self._refusal(next((a for a in actions if not self._fits(a)), actions[0]))
        if self._box:
            if not np.isfinite(array).all():
                bad = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
                raise self._refusal(actions[int(bad.argmax())])
            return np.clip(array, self._low, self._high).astype(self._space.dtype, copy=False)
        outside = (array < self._low) | (array > self._high)
        if outside.any():
            raise self._refusal(actions[int(outside.reshape(len(array), -1).any(axis=1).argmax())])
        return array

    def _fits(self, action: Any) -> bool:
        one = np.asarray(action)
        return one.shape == self._shape and one.dtype.kind in ("iuf" if self._box else "iu")

    def _refusal(self, action: Any) -> InvalidInput:
        shown = action.tolist() if isinstance(action, (np.ndarray, np.generic)) else action
        return InvalidInput(f"action {shown!r:.100}: expected a member of {self._space}.")
