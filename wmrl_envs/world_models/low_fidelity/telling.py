"""From a reduced run to a predicted outcome that reads like an executed one."""

from __future__ import annotations

from dataclasses import replace

from wmrl_envs.execution.base import ExecutionLimits
from wmrl_envs.execution.classify import describe
from wmrl_envs.outcome import Execution, ExecutionStatus, Feedback, Outcome
from wmrl_envs.tasks import feedback
from wmrl_envs.world_models.low_fidelity.runs import Seen
from wmrl_envs.world_models.low_fidelity.sizes import restated

FAILED_SCORE = 0.5  # what a program that failed on the copy earns if it does not fail at full size


def predicted(
    seen: Seen, limits: ExecutionLimits, p_valid: float, late: float, large: float, *, seconds: float, memory_mb: float
) -> Outcome:
    """The outcome to expect at full size.

    Args:
        seen: the reduced run.
        limits: limits of the execution at full size.
        p_valid: P(valid) in [0, 1], limits apart.
        late: P(the time limit is hit).
        large: P(the memory limit is hit).
        seconds: expected time of a full execution.
        memory_mb: expected memory of a full execution, in MiB.
    """
    within = (1.0 - late) * (1.0 - large)
    outcome, status, told = seen.outcome, seen.outcome.status, seen.outcome.report
    assert told is not None
    if seen.accepted:
        p_valid *= within
        if p_valid < 0.5:
            status = ExecutionStatus.TIMEOUT if late >= large else ExecutionStatus.MEMORY
            told = _at_limit(status, told, limits, seconds, memory_mb)
        else:
            told = _at_full_size(told, seen, seconds)
    elif status in (ExecutionStatus.TIMEOUT, ExecutionStatus.MEMORY):
        p_valid *= within
        told = _at_limit(status, told, limits, seconds, memory_mb)
    else:
        told = _at_full_size(told, seen, seconds)
    value = outcome.score if seen.accepted else FAILED_SCORE
    kept = status is ExecutionStatus.OK
    return replace(
        outcome, status=status, score=min(max(p_valid * value, 0.0), 1.0), raw_score=outcome.raw_score if kept else None,
        feedback=feedback.render(told), report=told, source="predicted", confidence=max(p_valid, 1.0 - p_valid),
        p_valid=p_valid, position=outcome.position if kept else None, relative_gap=outcome.relative_gap if kept else None,
        wall_s=seen.wall_s, cpu_s=seen.cpu_s, cached=seen.cached,
        details={
            "world_model": "low_fidelity", "rows": seen.reduced.rows, "test_rows": seen.reduced.test_rows,
            "score_if_valid": float(value), "full_cpu_s": seconds, "full_memory_mb": memory_mb,
        },
    )  # fmt: skip


def _at_limit(status: ExecutionStatus, told: Feedback, limits: ExecutionLimits, seconds: float, memory_mb: float) -> Feedback:
    peak = max(memory_mb, float(limits.memory_mb)) if status is ExecutionStatus.MEMORY else memory_mb
    execution = Execution(status, stdout=told.output, wall_s=min(seconds, limits.effective_s), peak_memory_mb=peak)
    return Feedback(describe(execution, limits), told.output, execution.wall_s)


def _at_full_size(told: Feedback, seen: Seen, seconds: float) -> Feedback:
    """The record with the counts and times of the full data where they can be told."""
    copy = seen.reduced
    if copy.whole:
        return told
    sizes = {copy.rows: seen.all_rows, copy.test_rows: copy.all_test_rows}
    problem, failure = told.problem, told.failure
    if problem is not None:
        problem = replace(problem, details=restated(problem.details, sizes, everywhere=True))
    if failure is not None:  # line numbers in a traceback are the program's own: only its last line is about data
        head, line_end, last = failure.rpartition("\n")
        failure = head + line_end + restated(last, sizes, everywhere=True)
    output = restated(told.output, sizes, everywhere=False)
    return replace(told, seconds=seconds, output=output, problem=problem, failure=failure)
