"""`DSBench-v0`: DSBench's data-modeling tasks, with its relative performance gap beside the position score."""

from __future__ import annotations

from typing import Any

from wmrl_envs.envs.mle_dojo import MLEDojoEnv, _Attempts
from wmrl_envs.outcome import Outcome
from wmrl_envs.tasks.catalog import facts


class DSBenchEnv(MLEDojoEnv):
    """`MLEDojoEnv` for the tasks of DSBench; same arguments, same rewards (its boards are those of MLE-Dojo).

    `info["wmrl"]` has one key more, `relative_gap`: `max(0, (raw - baseline) / (ground truth - baseline))` of this turn,
    0 for a failed program, None where DSBench gives no baseline or the failure was ours.
    """

    def _info(self, outcome: Outcome, episode: _Attempts) -> dict[str, Any]:
        info = super()._info(outcome, episode)
        return info | {
            "relative_gap": None if outcome.is_infra_error else relative_gap(episode.competition.slug, info["raw_score"])
        }


def relative_gap(slug: str, raw_score: float | None) -> float | None:
    """DSBench's score of a metric value; 0 without one, None for a task without a baseline.

    >>> round(relative_gap("titanic", 0.8), 4)
    0.6022
    >>> relative_gap("titanic", 0.3), relative_gap("titanic", None)
    (0.0, 0.0)
    """
    row = facts(slug)
    if row.baseline is None or row.ground_truth is None:
        return None
    if raw_score is None:
        return 0.0
    return max(0.0, (raw_score - row.baseline) / (row.ground_truth - row.baseline))
