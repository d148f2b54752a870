"""The keys of `info["wmrl"]`, in every environment and wrapper; a vector environment has a column and a mask (`_key`) for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
