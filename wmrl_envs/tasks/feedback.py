"""The text an agent reads after its program ran: MLE-Dojo's feedback, line by line, without its indentation.

One writer for every source: executed outcomes are rendered here, world models imitate this text, and
the environment rewrites the lines about the best attempt so far, which only it knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wmrl_envs.execution.base import ExecutionLimits
from wmrl_envs.execution.classify import describe
from wmrl_envs.outcome import Execution, ExecutionStatus

EXECUTION_HEADER = "=== Code Execution Results ==="
SUBMISSION_HEADER = "=== Submission Evaluation ==="
HIDDEN_LINE = "Score: hidden (this environment does not show the test score)"
_BEST_LINES = ("Best Raw Score:", "Best Position Score:")
_AVERAGE = "Average Position Score:"
_SCORE_LINES = ("Private Leaderboard:", "Public Leaderboard:", "Raw Score:", _AVERAGE, *_BEST_LINES)


@dataclass(frozen=True)
class SubmissionProblem:
    """Why a submission got no score, in MLE-Dojo's terms.

    Attributes:
        kind: class shown in brackets: "SubmissionNotFoundError", "InvalidSubmissionError", "EvaluationError", ...
        message: one line. details: what is wrong and where; written for the agent that has to fix it.
    """

    kind: str
    message: str
    details: str = ""


NOT_FOUND = SubmissionProblem(
    "SubmissionNotFoundError",
    "Submission file not found",
    "The program wrote no file at SUBMISSION_PATH.",
)


def render(
    execution: Execution,
    *,
    position: Any = None,
    raw_score: float | None = None,
    error: SubmissionProblem | None = None,
    best_raw: float | None = None,
    best_position: float | None = None,
    limits: ExecutionLimits | None = None,
    hide_score: bool = False,
) -> str:
    """The feedback of one execution.

    Args:
        execution: what the sandbox saw.
        position: board positions (`.private` and `.public` with `.rank` and `.total`, either may be None; `.score`).
        raw_score: value of the task's metric.
        error: why the submission was refused; None with a submission present means that it was accepted.
        best_raw, best_position: best of the attempts so far, this one included; default: this is the first attempt.
        limits: the limits the program ran under, named in the text when one of them was hit.
        hide_score: leave out every score and position.
    """
    if execution.status not in (ExecutionStatus.OK, ExecutionStatus.INVALID_SUBMISSION):
        return "\n".join([EXECUTION_HEADER, *_failure(execution, limits or ExecutionLimits())])
    lines = [EXECUTION_HEADER, "Execution successful", f"Code execution time: {execution.wall_s:.2f}s"]
    if execution.stdout:
        lines.append(f"Code output: {execution.stdout.rstrip()}")
    lines += ["", SUBMISSION_HEADER]
    if error is None and raw_score is None and position is None:
        error = _missing(execution)
    if error is not None:
        lines.append(f"Submission error ({error.kind}): {error.message}")
        if error.details:
            lines.append(f"Error details: {error.details}")
        return "\n".join(lines)
    lines.append("Submission successful")
    for board in ("private", "public"):
        place = getattr(position, board, None)
        if place is not None:
            lines.append(f"{board.capitalize()} Leaderboard: Position {place.rank} / {place.total}")
    score = None if position is None else float(position.score)
    if raw_score is not None:
        lines.append(f"Raw Score: {float(raw_score)}")
    if score is not None:
        lines.append(f"{_AVERAGE} {score:.4f}")
    text = with_best("\n".join(lines), _first(best_raw, raw_score), _first(best_position, score))
    return hide_scores(text) if hide_score else text


def render_problem(problem: str) -> str:
    """The feedback for an answer in which no program could be read (nothing was executed)."""
    return f"{EXECUTION_HEADER}\nExecution failed: {problem}"


def with_best(feedback: str, best_raw: float | None, best_position: float | None, average: float | None = None) -> str:
    """`feedback` with its two lines about the best attempt so far rewritten; unchanged unless a submission was accepted.

    `average`: rewrites the average position score too (of a prediction that was calibrated after its text was written).
    """
    head, tail = _split(feedback)
    if "Submission successful" not in tail:
        return feedback
    tail = [line for line in tail if not line.startswith(_BEST_LINES)]
    if average is not None:
        tail = [f"{_AVERAGE} {average:.4f}" if line.startswith(_AVERAGE) else line for line in tail]
    for name, value in zip(_BEST_LINES, (best_raw, best_position), strict=True):
        if value is not None:
            tail.append(f"{name} {float(value)}")
    return "\n".join(head + tail)


def hide_scores(feedback: str) -> str:
    r"""`feedback` without the lines that tell a score or a position.

    >>> print(hide_scores("=== Submission Evaluation ===\nSubmission successful\nRaw Score: 0.5"))
    === Submission Evaluation ===
    Submission successful
    Score: hidden (this environment does not show the test score)
    """
    head, tail = _split(feedback)
    kept = [line for line in tail if not line.startswith(_SCORE_LINES)]
    return "\n".join(head + kept + [HIDDEN_LINE]) if len(kept) < len(tail) else feedback


def clip(text: str, max_characters: int) -> str:
    r"""`text` cut to `max_characters` in its middle: a traceback ends, and a grading follows, at the end.

    >>> clip("x" * 100, 50)
    'xxx\n[... middle of 100 characters cut ...]\nxxxxxxx'
    """
    if len(text) <= max_characters:
        return text
    marker = f"\n[... middle of {len(text)} characters cut ...]\n"
    room = max_characters - len(marker)
    if room <= 0:
        return text[len(text) - max_characters :]
    head = room // 3
    return text[:head] + marker + text[len(text) - (room - head) :]


def _split(feedback: str) -> tuple[list[str], list[str]]:
    """Lines before and from the last submission header: what a program prints before it is never taken for ours."""
    lines = feedback.split("\n")
    starts = [i for i, line in enumerate(lines) if line.strip() == SUBMISSION_HEADER]
    start = starts[-1] if starts else len(lines)
    return lines[:start], lines[start:]


def _first(value: float | None, default: float | None) -> float | None:
    return default if value is None else value


def _missing(execution: Execution) -> SubmissionProblem:
    if execution.submission_problem:
        return SubmissionProblem(
            "InvalidSubmissionError",
            "Failed to read submission file",
            f"The file at SUBMISSION_PATH {execution.submission_problem}.",
        )
    return NOT_FOUND


def _failure(execution: Execution, limits: ExecutionLimits) -> list[str]:
    """Lines for a program that did not come to its end: what happened, the limit it hit, what to change."""
    if execution.status is ExecutionStatus.INFRA_ERROR:
        return ["Execution not completed: the sandbox failed, not your program. This attempt is not scored."]
    lines = [describe(execution, limits)]
    if execution.status is not ExecutionStatus.AGENT_ERROR and execution.stdout.strip():
        lines.append(f"Code output: {execution.stdout.rstrip()}")  # a traceback tells where a program was, a limit does not
    return lines
