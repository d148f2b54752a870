"""Feedback of a predicted outcome: the records an execution would leave, rendered by the sandbox's own writer."""

from __future__ import annotations

from types import SimpleNamespace

from wmrl_envs.context import TaskContext
from wmrl_envs.execution.base import ExecutionLimits
from wmrl_envs.outcome import Execution, ExecutionStatus, Solution
from wmrl_envs.tasks.feedback import NOT_FOUND, SubmissionProblem, render, render_problem
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


def failure_text(solution: Solution, finding: Finding, seconds: float) -> str:
    """What the agent would read after this failure."""
    if finding.error_type == "NoCode":
        return render_problem(finding.message)
    if finding.error_type == "SubmissionNotFoundError":
        return render(Execution(ExecutionStatus.OK, 0, wall_s=seconds), error=NOT_FOUND)
    if finding.error_type == "InvalidSubmissionError":
        problem = SubmissionProblem("InvalidSubmissionError", "Submission validation failed", finding.message)
        return render(Execution(ExecutionStatus.OK, 0, wall_s=seconds), error=problem)
    stderr = traceback_text(solution.code, finding.line, finding.error_type, finding.message)
    return render(Execution(ExecutionStatus.AGENT_ERROR, 1, stderr=stderr, wall_s=seconds))


def timeout_text(context: TaskContext) -> str:
    """What the agent would read after running out of time."""
    limits = ExecutionLimits(timeout_s=context.timeout_s)
    return render(Execution(ExecutionStatus.TIMEOUT, wall_s=context.timeout_s), limits=limits)


def success_text(score: float, seconds: float) -> str:
    """What the agent would read after a valid submission; the score is the expected position, boards and metric are not predicted."""
    position = SimpleNamespace(private=None, public=None, score=score)
    return render(Execution(ExecutionStatus.OK, 0, wall_s=seconds), position=position)
