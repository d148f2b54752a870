"""`MapChoice`: which map is worth applying, judged by predictions made before their pair was known (prequential)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from wmrl_envs.correction.moments import variance
from wmrl_envs.correction.scores import check_scores

NONE = "none"


class MapChoice:
    """Compares maps by the error of the advantages they would have given, and picks one only where it is clearly better than
    none.

    An advantage is a score less its group's mean, so the error of a map in a group is the variance of its residuals there (in a
    group of one: the squared residual). For each map the window holds, group by group, how much lower its error was than that
    of the raw prediction. A map is chosen when the mean of these gains exceeds `margin` of its standard errors; of several the
    one with the largest mean gain. In doubt there is no map.

    Args:
        names: of the maps; "none" is the raw prediction and always there.
        window: groups that are remembered.
        margin: standard errors that a gain must exceed.
        least: groups before any map is chosen.

    >>> choice = MapChoice(["inverse"], least=2)
    >>> for _ in range(3):
    ...     choice.observe({"none": np.array([0.3, -0.1]), "inverse": np.array([0.01, 0.0])}, group=None)
    >>> choice.best
    'inverse'
    """

    def __init__(self, names: list[str], window: int = 64, margin: float = 1.64, least: int = 8):
        self.names, self.margin, self.least = names, margin, least
        self._gains: dict[str, deque[float]] = {name: deque(maxlen=window) for name in names}
        self._error: deque[float] = deque(maxlen=window)  # of the raw prediction
        self._best: str | None = None  # once it is known, until something changes

    def observe(self, residuals: Mapping[str, np.ndarray], group: Any) -> None:
        """Residuals (prediction under each map, less the truth) of the pairs of one group, by the maps as they were before
        them.
        """
        self._best = None
        raw = _error(residuals[NONE])
        self._error.append(raw)
        for name in self.names:
            self._gains[name].append(raw - _error(residuals[name]))

    def reset(self, name: str) -> None:
        """Forget what is known of a map: it had not been fitted until now."""
        self._gains[name].clear()
        self._best = None

    @property
    def best(self) -> str:
        """The map to use now: one of `names`, or "none"."""
        if self._best is None:
            clear = {name: mean for name in self.names if (mean := self._clear_gain(name)) is not None}
            self._best = max(clear, key=clear.__getitem__) if clear else NONE
        return self._best

    def _clear_gain(self, name: str) -> float | None:
        gains = np.array(self._gains[name])
        if len(gains) < self.least:
            return None
        error = math.sqrt(variance(gains) / (len(gains) - 1))
        mean = float(gains.mean())
        return mean if mean > max(self.margin * error, 1e-12) else None

    def metrics(self) -> dict[str, float]:
        """Mean squared error of the advantages of the raw prediction, and the gain of each map over it."""
        out = {f"gain_{name}": float(np.mean(gains)) for name, gains in self._gains.items() if gains}
        return out | ({"advantage_error": float(np.mean(self._error))} if self._error else {})

    def state_dict(self) -> dict[str, Any]:
        return {"gains": {name: list(gains) for name, gains in self._gains.items()}, "error": list(self._error)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._best = None
        for name in self.names:
            check_scores(state["gains"][name], f"gain of {name}", None)
            self._gains[name] = deque(state["gains"][name], maxlen=self._gains[name].maxlen)
        check_scores(state["error"], "error", None)
        self._error = deque(state["error"], maxlen=self._error.maxlen)


def _error(residuals: np.ndarray) -> float:
    return float(residuals.var()) if residuals.size > 1 else float(residuals[0] ** 2)
