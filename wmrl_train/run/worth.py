"""What predictions were worth in a run, read off its anchors: raw beside calibrated, and whether the corrections helped."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Worth:
    """Errors of predictions against execution over n pairs, scores in [0, 1].

    Attributes:
        bias: mean of prediction minus truth. rmse: root of the mean squared difference.
        order: mean correlation with the truth within groups, in [-1, 1]; None where no group of two or more varies.
        advantage_rmse: root of the mean squared error of the advantages, that is of scores less their group's mean.
    """

    bias: float
    rmse: float
    order: float | None
    advantage_rmse: float


def worth(predicted: Sequence[float], true: Sequence[float], group: Sequence[Any]) -> Worth:
    """Of scores shape (n,), with the group of each; n of at least 1.

    >>> worth([0.2, 0.6], [0.1, 0.9], [0, 0]).order
    1.0
    """
    p, t = np.asarray(predicted, dtype=float), np.asarray(true, dtype=float)
    members = [np.array(list(rows)) for _, rows in itertools.groupby(range(len(p)), key=lambda i: group[i])]
    orders, errors = [], []
    for rows in members:
        dp, dt = p[rows] - p[rows].mean(), t[rows] - t[rows].mean()
        errors.append((dp - dt) ** 2)
        if np.ptp(t[rows]) > 0:
            scale = float(np.sqrt((dp @ dp) * (dt @ dt)))
            orders.append(float(dp @ dt) / scale if scale > 0 else 0.0)
    rmse = float(np.sqrt(np.mean((p - t) ** 2)))
    order = round(float(np.mean(orders)), 12) if orders else None
    return Worth(float((p - t).mean()), rmse, order, float(np.sqrt(np.concatenate(errors).mean())))


def compared(pairs: Sequence[Mapping[str, Any]]) -> tuple[Worth, Worth] | None:
    """(raw, calibrated) over a run's anchors (`anchors.jsonl`); None without pairs, or in logs that do not tell the two
    apart.
    """
    rows = [p for p in pairs if p.get("calibrated") is not None and p.get("picked") != "favourite"]
    if not rows:
        return None
    true, group = [p["true"] for p in rows], [p["group"] for p in rows]
    return worth([p["predicted"] for p in rows], true, group), worth([p["calibrated"] for p in rows], true, group)


def verdict(raw: Worth, calibrated: Worth, margin: float = 0.02) -> str:
    """One sentence for a reader: does the map help in this run? `margin`: relative differences below it are none."""
    change = (calibrated.advantage_rmse - raw.advantage_rmse) / max(raw.advantage_rmse, 1e-9)
    how = (
        f"The error of the advantages is {100 * raw.advantage_rmse:.1f} points raw and "
        f"{100 * calibrated.advantage_rmse:.1f} calibrated"
    )
    if abs(change) < margin:
        return f"{how}: in this run the map changes next to nothing."
    return f"{how}: in this run the map {'helps' if change < 0 else 'makes predictions worse'}."
