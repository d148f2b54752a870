"""`DSBench-v0`: DSBench's data-modeling tasks, with its relative performance gap beside the position score."""

from __future__ import annotations

from typing import Any

from wmrl_envs.envs.episode_state import EpisodeState
from wmrl_envs.envs.mle_dojo import MLEDojoEnv
from wmrl_envs.outcome import Outcome


class DSBenchEnv(MLEDojoEnv):
    """`MLEDojoEnv` for the tasks of DSBench; same arguments, same rewards (its boards are those of MLE-Dojo).

    `info["wmrl"]` has one key more, `relative_gap`: `max(0, (raw - baseline) / (ground truth - baseline))` of this turn,
    0 for a program without a score, None where DSBench gives no baseline or the failure was ours.
    """

    def _info(self, outcome: Outcome, episode: EpisodeState) -> dict[str, Any]:
        info = super()._info(outcome, episode)
        gap = None if outcome.is_infra_error else episode.competition.relative_gap(info["raw_score"])
        return info | {"relative_gap": gap}
