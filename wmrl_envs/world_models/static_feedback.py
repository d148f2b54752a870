"""Feedback of a predicted outcome, in the format of the sandbox."""

from __future__ import annotations

from wmrl_envs.outcome import Solution
from wmrl_envs.world_models.base import TaskContext
from wmrl_envs.world_models.static_values import Finding

HEADER = "=== Code Execution Results ==="
EVALUATION = "=== Submission Evaluation ==="


def failure_text(solution: Solution, finding: Finding, seconds: float) -> str:
    """What the agent would read after this failure."""
    if finding.error_type == "NoCode":
        return f"{HEADER}\nExecution failed: {finding.message}"
    if finding.error_type in ("InvalidSubmissionError", "SubmissionNotFoundError"):
        head = [HEADER, "Execution successful", f"Code execution time: {seconds:.2f}s", "", EVALUATION]
        if finding.error_type == "SubmissionNotFoundError":
            return "\n".join([*head, f"Submission error ({finding.error_type}): {finding.message}"])
        error = f"Submission error ({finding.error_type}): Submission validation failed"
        return "\n".join([*head, error, f"Error details: {finding.message}"])
    lines = solution.code.splitlines()
    source = lines[finding.line - 1].strip() if 0 < finding.line <= len(lines) else ""
    if finding.error_type in ("SyntaxError", "IndentationError", "TabError"):
        trace = [f'  File "solution.py", line {finding.line}', f"    {source}"]
    else:
        trace = [
            "Traceback (most recent call last):",
            f'  File "solution.py", line {finding.line}, in <module>',
            f"    {source}",
        ]
    return "\n".join([f"{HEADER}\nExecution failed: {trace[0]}", *trace[1:], f"{finding.error_type}: {finding.message}"])


def timeout_text(context: TaskContext) -> str:
    """What the agent would read after running out of time."""
    return f"{HEADER}\nExecution failed: Process execution timed out after {context.timeout_s:g}s"


def success_text(context: TaskContext, score: float, seconds: float) -> str:
    """What the agent would read after a valid submission; the score is the expected position."""
    lines = [HEADER, "Execution successful", f"Code execution time: {seconds:.2f}s", "", EVALUATION]
    return "\n".join([*lines, "Submission successful", f"Average Position Score: {score:.4f}"])
