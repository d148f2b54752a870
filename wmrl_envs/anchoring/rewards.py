"""`RewardOracle`: finished episodes, scored in one batch; anchored ones bring their true score along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wmrl_envs.anchoring.graded import Graded, pairs_of
from wmrl_envs.anchoring.kinds import checked_rewards
from wmrl_envs.anchoring.oracle import Oracle
from wmrl_envs.context import Episode
from wmrl_envs.errors import InfrastructureError, InvalidInput


@dataclass(slots=True)
class Finished:
    """An episode to be graded. `true`: its score by the environment if it is an anchor, else None (it stays unread)."""

    episode: Episode
    true: float | None = None
    group: int | None = None


class RewardOracle(Oracle):
    """For `RewardModel`s; `world_model` None: everything is anchored."""

    def grade(self, finished: Sequence[Finished]) -> list[Graded]:
        """Every episode graded. Without an answer of the world model, anchors keep their own score and the others are lost."""
        out = [
            Graded(anchored=f.true is not None, group=f.group, task=f.episode.task, question=f, execution=f.true)
            for f in finished
        ]
        for graded, f in zip(out, finished, strict=True):
            if f.true is not None:
                self._check(f.true)
                graded.take_truth(float(f.true))
        if self.world_model is None or not finished:
            return out
        try:
            answer = self.ask(self.world_model.score, [f.episode for f in finished])
        except InfrastructureError as error:
            return [_unpredicted(graded, str(error)) for graded in out]
        scores = checked_rewards(answer, len(finished), self.score_range)
        calibrated = self.calibrate(scores, [f.episode.task for f in finished])
        for graded, raw, fair in zip(out, scores.tolist(), calibrated.tolist(), strict=True):
            graded.prediction = raw
            graded.take_prediction(raw, fair)
        return out

    def _check(self, true: float) -> None:
        """Refuse a score that the corrector could not take in, with what to do about it."""
        low, high = self.score_range or (-np.inf, np.inf)
        if not low <= true <= high:
            raise InvalidInput(
                f"the true score of an episode is {true!r}, outside [{low:g}, {high:g}]: pass "
                "corrector=Corrector(score_range=None) for an environment whose returns have no range, or score_range=(low, "
                "high) with its own."
            )

    def learn(self, graded: Sequence[Graded]) -> None:
        """Pool the pairs of what was graded, and teach a world model that learns its anchors:
        `update(episodes, true scores)`.
        """
        self.observe(pairs_of(graded))
        anchors = [g for g in graded if g.true is not None]
        self.teach([g.question.episode for g in anchors], [g.true for g in anchors])


def _unpredicted(graded: Graded, why: str) -> Graded:
    if graded.true is None:
        return Graded.lost(why, group=graded.group, task=graded.task)
    graded.unpredicted = why
    return graded
