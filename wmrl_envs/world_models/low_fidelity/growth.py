"""How a cost grows with the number of rows: a power law whose exponent is fitted to what was executed at both sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

PRIOR_PAIRS = 20.0  # pairs that the exponent known beforehand weighs


class Growth:
    """`large = floor + (small - floor) * factor ** exponent`, with a log-normal error.

    Args:
        exponent: the exponent as known beforehand.
        sd: standard deviation of the logarithm of the cost at full size, as known beforehand.
        floor: what no program goes below (an interpreter with its libraries).
    """

    def __init__(self, exponent: float, sd: float, floor: float):
        self._exponent, self._sd, self._floor = exponent, sd, floor
        self._pairs = 0.0
        self._sum_xy = self._sum_xx = self._sum_rr = 0.0

    @property
    def exponent(self) -> float:
        """As fitted so far: least squares of log growth on log factor, pulled towards the start."""
        weight = PRIOR_PAIRS * math.log(6.0) ** 2
        return (weight * self._exponent + self._sum_xy) / (weight + self._sum_xx)

    @property
    def sd(self) -> float:
        """Of the logarithm of a predicted cost."""
        return math.sqrt((PRIOR_PAIRS * self._sd**2 + self._sum_rr) / (PRIOR_PAIRS + self._pairs))

    def observe(self, small: float, large: float, factor: float) -> None:
        """One program's cost at both sizes; `factor` times as many rows, above 1."""
        if factor <= 1.05 or small <= 0 or large <= 0:
            return
        x, y = math.log(factor), math.log(self._above(large) / self._above(small))
        residual = y - self.exponent * x
        self._pairs += 1
        self._sum_xy += x * y
        self._sum_xx += x * x
        self._sum_rr += residual * residual

    def predict(self, small: float, factor: float) -> float:
        """The cost at full size."""
        return self._floor + self._above(small) * max(factor, 1.0) ** self.exponent

    def p_above(self, small: float, factor: float, limit: float) -> float:
        """P(the cost at full size is above a limit)."""
        if not (math.isfinite(limit) and limit > 0):
            return 0.0
        sd = self.sd if factor > 1.05 else 0.05
        return 0.5 * math.erfc(math.log(limit / self.predict(small, factor)) / (sd * math.sqrt(2)))

    def _above(self, cost: float) -> float:
        return max(cost - self._floor, 0.1 * self._floor)

    def state_dict(self) -> dict[str, float]:
        """JSON-able."""
        return {"pairs": self._pairs, "xy": self._sum_xy, "xx": self._sum_xx, "rr": self._sum_rr}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""
        self._pairs, self._sum_xy, self._sum_xx, self._sum_rr = (float(state[k]) for k in ("pairs", "xy", "xx", "rr"))
