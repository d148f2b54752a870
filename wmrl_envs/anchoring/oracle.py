"""The oracle: asks the world model, again after a failure of ours, calibrates once, and hands pairs and executions on.

What is asked differs by the kind of world model: `OutcomeOracle`, `RewardOracle`, `DynamicsOracle` (modules of their own).
Grading and learning are separate calls, so that a prediction is never corrected by its own pair: a vector environment learns
after every step, the trainer after the update of the policy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wmrl_envs.anchoring.graded import Pair
from wmrl_envs.anchoring.lanes import HERE, Lane
from wmrl_envs.correction.corrector import Corrector
from wmrl_envs.correction.scores import ScoreRange
from wmrl_envs.errors import InfrastructureError
from wmrl_envs.world_models.protocols import LearningModel

log = logging.getLogger(__name__)


class Oracle:
    """What the three kinds share.

    Args:
        world_model: of the kind the subclass is for.
        corrector: calibrates, and takes the pairs in; None: raw predictions, nothing is learned.
        score_range: of the world model's scores where there is no corrector to say it.
        retries: further attempts after an infrastructure failure.
        prediction: where predictions run; default: in the caller's thread.
        execution: where executions run; default: in the caller's thread.
    """

    def __init__(
        self,
        world_model: Any,
        corrector: Corrector | None,
        *,
        score_range: ScoreRange = (0.0, 1.0),
        retries: int = 2,
        prediction: Lane = HERE,
        execution: Lane = HERE,
    ):
        self.world_model, self.corrector, self.retries = world_model, corrector, retries
        self.score_range = score_range if corrector is None else corrector.score_range
        self.prediction, self.execution = prediction, execution
        self.closing = False  # no further attempts: what fails now fails because it was closed
        self._learns = isinstance(world_model, LearningModel)

    def ask(self, question: Callable[..., Any], *args: Any) -> Any:
        """What the world model answers.

        Raises:
            InfrastructureError: the last attempt failed too.
        """
        for attempt in range(self.retries + 1):
            try:
                return self.prediction.run(question, *args)
            except InfrastructureError as error:
                if attempt == self.retries or self.closing:
                    log.warning("The world model failed: %s", error)
                    raise
                log.warning("The world model failed (attempt %d of %d): %s", attempt + 1, self.retries + 1, error)
        raise AssertionError("unreachable")

    def calibrate(self, scores: np.ndarray, tasks: Any = None) -> np.ndarray:
        """Raw scores under the map in force."""
        return scores if self.corrector is None else self.corrector.calibrate(scores, tasks)

    def observe(self, pairs: Sequence[Pair]) -> None:
        """Pool pairs, in one call. Those without a group are measured against the variance of the whole window."""
        if not pairs or self.corrector is None:
            return
        predicted, true, groups, tasks = zip(*pairs, strict=True)
        self.corrector.observe(
            np.array(predicted),
            np.array(true),
            group=None if groups[0] is None else list(groups),
            task=None if tasks[0] is None else list(tasks),
        )

    def teach(self, *columns: Any) -> None:
        """Let a world model that learns take in executions: the arguments of its `update`, one row an execution."""
        if self._learns and len(columns[0]):
            self.world_model.update(*columns)

    def state_dict(self) -> dict[str, Any]:
        """What it has learned beside the corrector and the world model, JSON-able."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""
