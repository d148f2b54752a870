"""The keys of `info["wmrl"]`, in every environment and wrapper; a vector environment has a column and a mask (`_key`)
for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

KEYS = (
    "status",
    "score",
    "raw_score",
    "best_score",
    "anchored",
    "predicted",
    "calibrated",
    "true",
    "group",
    "weight",
    "wall_s",
)


def wmrl_info(known: Mapping[str, Any]) -> dict[str, Any]:
    """`known` with None for every other key.

    >>> wmrl_info({"status": "ok", "score": 1.0})["predicted"] is None
    True
    """
    return dict.fromkeys(KEYS) | dict(known)


class Measured(np.float64):
    """A measured duration in seconds. It equals every other: two runs of one episode agree, whatever the clock says.

    (Gymnasium's `check_env` compares the infos of two runs bit by bit.)
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Measured) or bool(super().__eq__(other))

    __hash__ = None  # type: ignore[assignment]
