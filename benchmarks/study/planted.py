"""`PlantedErrorWorldModel`: a world model that is wrong about one class of programs, on purpose (a test double)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wmrl_envs.context import TaskContext
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution
from wmrl_envs.world_models.static.model import StaticWorldModel

CLASS = re.compile(r"\bDummy(Classifier|Regressor)\b")
SCORE = 0.9


class PlantedErrorWorldModel(StaticWorldModel):
    """The static world model, except that programs with a dummy estimator, in truth among the worst, are said to score 0.9."""

    def predict(self, solutions: Sequence[Solution], contexts: Sequence[TaskContext]) -> list[Outcome]:
        outcomes = super().predict(solutions, contexts)
        return [
            o.with_score(SCORE) if CLASS.search(s.code) and o.status is ExecutionStatus.OK else o
            for s, o in zip(solutions, outcomes, strict=True)
        ]
