"""`OutcomeOracle`: solutions, predicted in one batch, with the anchored ones executed beside."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from wmrl_envs.anchoring.graded import Graded, pairs_of
from wmrl_envs.anchoring.kinds import checked_outcomes
from wmrl_envs.anchoring.lanes import Done, Job, settle
from wmrl_envs.anchoring.memory import Memory, program_key
from wmrl_envs.anchoring.oracle import Oracle
from wmrl_envs.context import TaskContext
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution


@dataclass(slots=True)
class Asked:
    """A solution to be graded.

    `execute`: the environment's; called if it is anchored, or if there is no program to predict. `before`: the step that it
    belongs to, for an oracle with a memory, which then knows what was executed in earlier steps.
    """

    solution: Solution
    context: TaskContext
    execute: Callable[[Solution], Outcome]
    anchored: bool
    group: int | None = None
    before: int | None = None

    @property
    def executes(self) -> bool:
        return self.anchored or self.solution.problem is not None  # a problem is told, nothing runs


class Predicted(NamedTuple):
    """The world model's outcome and its score under the map in force; `outcome.is_infra_error`: there is no prediction."""

    outcome: Outcome
    calibrated: float


class OutcomeOracle(Oracle):
    """For `OutcomeModel`s; `world_model` None: everything is anchored.

    `grade` is `execute`, `predict` and `join`, for those who need to look in between. With a `memory`, a program that was
    executed in an earlier step is not executed again, and keeps its true outcome where it is only predicted; equal programs of
    a batch are executed once.
    """

    memory: Memory | None = None

    def grade(self, asked: Sequence[Asked]) -> list[Graded]:
        """Every solution graded; nothing is left running when the world model answers wrongly."""
        running = self.execute(asked)
        try:
            return self.join(asked, self.predict(asked), running)
        finally:
            settle(job for job in running if job is not None)

    def execute(self, asked: Sequence[Asked]) -> list[Job[Outcome] | None]:
        """Start the executions; None where nothing is to be executed."""
        if self.memory is None:
            started = iter(self.execution.start(self._execute, [a for a in asked if a.executes]))
            return [next(started) if a.executes else None for a in asked]
        jobs: list[Job[Outcome] | None] = [None] * len(asked)
        fresh: dict[tuple[str, str], list[int]] = {}
        for i, a in enumerate(asked):
            known = self.memory.recall(a.solution, a.before)
            if known is not None:
                jobs[i] = Done(replace(known, cached=True))
            elif a.executes:
                program = a.solution.code and a.solution.problem is None
                fresh.setdefault((a.context.task, program_key(a.solution.code) if program else f"#{i}"), []).append(i)
        for same, job in zip(
            fresh.values(), self.execution.start(self._execute, [asked[s[0]] for s in fresh.values()]), strict=True
        ):
            jobs[same[0]] = job
            for i in same[1:]:
                jobs[i] = Again(job)
        return jobs

    def predict(self, asked: Sequence[Asked]) -> list[Predicted | None]:
        """One prediction a solution, in one batch; None where there is no program to predict or no world model."""
        readable = [a for a in asked if a.solution.problem is None]
        if self.world_model is None:
            if not all(a.executes for a in asked if self.memory is None or self.memory.recall(a.solution, a.before) is None):
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
        self.teach_executed(
            [(g.question.solution, g.question.context, g.execution) for g in graded if g.anchored and g.true is not None]
        )

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
            if asked.solution.problem is None:
                out.true, out.remembered = out.score, True
    elif out.used is None:
        out.used = out.prediction  # a failure of ours
    used: Outcome = out.used
    out.status, out.raw_score, out.wall_s = used.status.value, used.raw_score, used.wall_s
    if used.is_infra_error:
        out.failed, out.true, out.score = used.error or used.feedback, None, None
    return out


class Again:
    """The job of an equal program: its outcome costs nothing more."""

    def __init__(self, job: Job[Outcome]):
        self._job = job

    def result(self) -> Outcome:
        return replace(self._job.result(), cached=True)

    def done(self) -> bool:
        return True  # whoever waits waits for the job itself

    def cancel(self) -> bool:
        return False
