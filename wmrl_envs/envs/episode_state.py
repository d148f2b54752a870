"""The state of one episode of a competition: attempts so far, the best of them, and what each is paid."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from wmrl_envs.context import TaskContext
from wmrl_envs.outcome import ExecutionStatus, Outcome

if TYPE_CHECKING:
    from wmrl_envs.tasks.competition import Competition

RewardMode = Literal["improvement", "score", "final"]


@dataclass
class EpisodeState:
    """What an environment remembers of the episode that runs.

    Attributes:
        turn: programs so far.
        over: no further program is taken.
        best_score: best position score so far, in [0, 1].
        best_raw: best value of the metric, None while there is none.
        history: (code, feedback) of the turns, oldest first.
        code: the program that was proposed last.
    """

    competition: Competition
    context: TaskContext
    turn: int = 0
    over: bool = False
    best_score: float = 0.0
    best_raw: float | None = None
    history: list[tuple[str, str]] = field(default_factory=list)
    code: str = ""

    def take(self, outcome: Outcome, max_turns: int, reward_mode: RewardMode) -> float:
        """Advance by an outcome; returns its reward. A failure of ours pays 0, changes no score and ends the episode."""
        self.turn += 1
        if outcome.is_infra_error:
            self.over = True
            return 0.0
        before = self.best_score
        # Whatever the status: calibrated, a predicted failure may be worth more than 0.
        self.best_score = max(before, float(outcome.score))
        if outcome.status is ExecutionStatus.OK:
            self.best_raw = _better(outcome.raw_score, self.best_raw, self.competition.spec.higher_is_better)
        self.over = self.turn >= max_turns
        if reward_mode == "improvement":
            return self.best_score - before
        if reward_mode == "score":
            return float(outcome.score)
        return self.best_score if self.over else 0.0


def _better(new: float | None, best: float | None, higher_is_better: bool) -> float | None:
    """The better of two metric values; None and NaN are never better."""
    if new is None or math.isnan(new):
        return best
    if best is None:
        return new
    return max(new, best) if higher_is_better else min(new, best)
