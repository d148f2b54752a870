"""Feedback of a predicted outcome: the record that an execution would leave."""

from __future__ import annotations

from wmrl_envs.context import TaskContext
from wmrl_envs.execution.base import ExecutionLimits
from wmrl_envs.outcome import Execution, ExecutionStatus, Feedback, Solution, SubmissionProblem
from wmrl_envs.tasks.feedback import NOT_FOUND, report, unreadable
from wmrl_envs.world_models.static.values import Finding

PROGRAM_NAME = "/work/solution.py"  # what tracebacks of the sandbox call the program


def traceback_text(code: str, line: int | None, error_type: str, message: str) -> str:
    """A traceback as the interpreter prints it, with the offending source line."""
    lines = code.splitlines()
    source = [f"    {lines[line - 1].strip()}"] if line and 0 < line <= len(lines) else []
    where = f'  File "{PROGRAM_NAME}", line {line or 1}'
    if error_type in ("SyntaxError", "IndentationError", "TabError"):
        head = [where, *source]
    else:
        head = ["Traceback (most recent call last):", f"{where}, in <module>", *source]
    return "\n".join([*head, f"{error_type}: {message}" if message else error_type])


def failure(solution: Solution, finding: Finding, seconds: float) -> Feedback:
    """What the agent would be told after this failure."""
    if finding.error_type == "NoCode":
        return unreadable(finding.message)
    if finding.error_type == "SubmissionNotFoundError":
        return Feedback(seconds=seconds, problem=NOT_FOUND)
    if finding.error_type == "InvalidSubmissionError":
        problem = SubmissionProblem("InvalidSubmissionError", "Submission validation failed", finding.message)
        return Feedback(seconds=seconds, problem=problem)
    stderr = traceback_text(solution.code, finding.line, finding.error_type, finding.message)
    return report(Execution(ExecutionStatus.AGENT_ERROR, 1, stderr=stderr, wall_s=seconds))


def timeout(context: TaskContext) -> Feedback:
    """What the agent would be told after running out of time."""
    limits = ExecutionLimits(timeout_s=context.timeout_s)
    return report(Execution(ExecutionStatus.TIMEOUT, wall_s=context.timeout_s), limits=limits)


def success(score: float, seconds: float) -> Feedback:
    """What the agent would be told after a valid submission; the score is the expected position, boards and metric are not
    predicted.
    """
    return Feedback(seconds=seconds, score=score)
