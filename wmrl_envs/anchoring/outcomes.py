"""`OutcomeOracle`: solutions, predicted in one batch, with the anchored ones executed beside."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wmrl_envs.anchoring.graded import Graded, pairs_of
from wmrl_envs.anchoring.kinds import checked_outcomes
from wmrl_envs.anchoring.lanes import Job, settle
from wmrl_envs.anchoring.oracle import Oracle
from wmrl_envs.context import TaskContext
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution


@dataclass(slots=True)
class Asked:
    """A solution to be graded. `execute`: the environment's; called if it is anchored, or if there is no program to predict."""

    solution: Solution
    context: TaskContext
    execute: Callable[[Solution], Outcome]
    anchored: bool
    group: int | None = None

    @property
    def executes(self) -> bool:
        return self.anchored or self.solution.problem is not None  # a problem is told, nothing runs


class Predicted(NamedTuple):
    """The world model's outcome and its score under the map in force; `outcome.is_infra_error`: there is no prediction."""

    outcome: Outcome
    calibrated: float


class OutcomeOracle(Oracle):
    """For `OutcomeModel`s; `world_model` None: everything is anchored.

    `grade` is `execute`, `predict` and `join`, for those who need to look in between.
    """

    def grade(self, asked: Sequence[Asked]) -> list[Graded]:
        """Every solution graded; nothing is left running when the world model answers wrongly."""
        running = self.execute(asked)
        try:
            return self.join(asked, self.predict(asked), running)
        finally:
            settle(job for job in running if job is not None)

    def execute(self, asked: Sequence[Asked]) -> list[Job[Outcome] | None]:
        """Start the executions; None where nothing is to be executed."""
        started = iter(self.execution.start(self._execute, [a for a in asked if a.executes]))
        return [next(started) if a.executes else None for a in asked]

    def predict(self, asked: Sequence[Asked]) -> list[Predicted | None]:
        """One prediction a solution, in one batch; None where there is no program to predict or no world model."""
        readable = [a for a in asked if a.solution.problem is None]
        if self.world_model is None:
            if not all(a.executes for a in asked):
                raise InvalidInput(
                    "A solution that is not anchored and no world model: anchor every group, or pass a world model."
                )
            return [None] * len(asked)
        if not readable:
            return [None] * len(asked)
        solutions, contexts = [a.solution for a in readable], [a.context for a in readable]
        try:
            answer = self.ask(self.world_model.predict, solutions, contexts)
        except InfrastructureError as error:
            answer = [Outcome(ExecutionStatus.INFRA_ERROR, feedback=str(error), source="predicted")] * len(readable)
        outcomes, scores = checked_outcomes(answer, len(readable))
        calibrated = self.calibrate(scores, [context.task for context in contexts]).tolist()
        made = iter(map(Predicted, outcomes, calibrated))
        return [next(made) if a.solution.problem is None else None for a in asked]

    def join(
        self, asked: Sequence[Asked], predicted: Sequence[Predicted | None], running: Sequence[Job[Outcome] | None]
    ) -> list[Graded]:
        """Wait for the executions and put both together."""
        executed = [None if job is None else job.result() for job in running]
        return [_graded(*row) for row in zip(asked, predicted, executed, strict=True)]

    def learn(self, graded: Sequence[Graded]) -> None:
        """Pool the pairs of what was graded, and teach a world model that learns."""
        self.observe(pairs_of(graded))
        self.teach_executed([(g.question.solution, g.question.context, g.execution) for g in graded if g.true is not None])

    def teach_executed(self, executed: Sequence[tuple[Solution, TaskContext, Outcome]]) -> None:
        """Teach a world model that learns these executions."""
        if executed:
            self.teach(*map(list, zip(*executed, strict=True)))

    def _execute(self, asked: Asked) -> Outcome:
        start = time.perf_counter()
        for attempt in range(self.retries + 1):
            try:
                outcome = asked.execute(asked.solution)
            except InfrastructureError as error:
                outcome = Outcome(ExecutionStatus.INFRA_ERROR, feedback=str(error), wall_s=time.perf_counter() - start)
            if not outcome.is_infra_error or attempt == self.retries or self.closing:
                return outcome
        raise AssertionError("unreachable")


def _graded(asked: Asked, predicted: Predicted | None, execution: Outcome | None) -> Graded:
    out = Graded(anchored=asked.anchored, group=asked.group, task=asked.context.task, question=asked, execution=execution)
    if predicted is not None:
        prediction, calibrated = out.prediction, _ = predicted
        if prediction.is_infra_error:
            out.unpredicted = prediction.feedback or "the world model failed"
        else:
            out.take_prediction(float(prediction.score), calibrated)
            if execution is None:  # told as it is paid
                out.used = prediction if prediction.score == calibrated else prediction.with_score(calibrated)
    if execution is not None:
        out.used, out.cpu_s, out.cached = execution, execution.cpu_s, execution.cached
        if asked.anchored and not execution.is_infra_error:
            out.take_truth(float(execution.score))
        elif not execution.is_infra_error:
            out.score = float(execution.score)
    elif out.used is None:
        out.used = out.prediction  # a failure of ours
    used: Outcome = out.used
    out.status, out.raw_score, out.wall_s = used.status.value, used.raw_score, used.wall_s
    if used.is_infra_error:
        out.failed, out.true, out.score = used.error or used.feedback, None, None
    return out
