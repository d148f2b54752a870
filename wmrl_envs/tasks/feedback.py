"""The text an agent reads after its program ran: MLE-Dojo's feedback, line by line, without its indentation.

`report` makes the record of an execution, the world models fill the same record, and `render` is the one place where it
becomes text.
"""

from __future__ import annotations

from dataclasses import replace

from wmrl_envs.execution.base import ExecutionLimits
from wmrl_envs.execution.classify import describe
from wmrl_envs.outcome import Execution, ExecutionStatus, Feedback, Outcome, Position, SubmissionProblem
from wmrl_envs.text import cut_middle

__all__ = ["NOT_FOUND", "Feedback", "SubmissionProblem", "for_agent", "of_text", "render", "report", "unreadable"]

EXECUTION_HEADER = "=== Code Execution Results ==="
SUBMISSION_HEADER = "=== Submission Evaluation ==="
HIDDEN_LINE = "Score: hidden (this environment does not show the test score)"

_ERRORS_SHOWN = 2000  # characters of stderr after a limit was hit
NOT_FOUND = SubmissionProblem(
    "SubmissionNotFoundError",
    "Submission file not found",
    "The program wrote no file at SUBMISSION_PATH.",
)


def report(
    execution: Execution,
    *,
    position: Position | None = None,
    raw_score: float | None = None,
    error: SubmissionProblem | None = None,
    limits: ExecutionLimits | None = None,
    late: bool = False,
) -> Feedback:
    """What there is to tell of one execution.

    Args:
        execution: what the sandbox saw.
        position: places on the boards, if the score was ranked.
        raw_score: value of the task's metric; None, and no `position` either: nothing was graded.
        error: why the submission was refused; None with a submission present means that it was accepted.
        limits: the limits the program ran under, named in the text when one of them was hit.
        late: a program that was stopped at the time limit, whose submission counts all the same.
    """
    status = execution.status
    notice = None
    if late:
        notice = f"{describe(execution, limits or ExecutionLimits())} The submission it had written by then is graded."
    elif status not in (ExecutionStatus.OK, ExecutionStatus.INVALID_SUBMISSION):
        failed = _failure(execution, limits or ExecutionLimits())
        # A traceback tells where a program was, a limit does not.
        silent = status in (ExecutionStatus.AGENT_ERROR, ExecutionStatus.INFRA_ERROR)
        output, errors = ("", "") if silent else (execution.stdout, execution.stderr.strip()[-_ERRORS_SHOWN:])
        return Feedback(failed, output, execution.wall_s, errors=errors)
    if error is None and raw_score is None and position is None:
        error = _missing(execution)
    return Feedback(
        output=execution.stdout,
        seconds=execution.wall_s,
        problem=error,
        position=position,
        score=None if position is None else float(position.score),
        raw_score=raw_score,
        notice=notice,
    )


def unreadable(problem: str) -> Feedback:
    """What there is to tell of an answer in which no program could be read (nothing was executed)."""
    return Feedback(f"Execution failed: {problem}")


def of_text(text: str) -> Feedback:
    """The record of a failure whose text was written elsewhere; it is rendered as it is, under our header."""
    return Feedback(text.removeprefix(EXECUTION_HEADER).removeprefix("\n"))


def for_agent(outcome: Outcome) -> Feedback:
    """The record of an outcome; of one without (text only), see `Outcome.report`. A calibrated score takes the place of the
    predicted.
    """
    known = outcome.report
    if known is None:
        if outcome.status is not ExecutionStatus.OK:
            return of_text(outcome.feedback)
        return Feedback(seconds=outcome.wall_s, score=float(outcome.score), raw_score=outcome.raw_score)
    if outcome.source != "predicted" or known.score is None:
        return known
    return replace(known, score=float(outcome.score))


def render(
    feedback: Feedback,
    *,
    best_raw: float | None = None,
    best_score: float | None = None,
    hide_score: bool = False,
    max_characters: int | None = None,
) -> str:
    """The text of a record.

    Args:
        feedback: the record.
        best_raw: best raw score of the attempts so far, this one included; default: this is the first attempt.
        best_score: best position score, in [0, 1], of the same attempts; default: this is the first attempt.
        hide_score: leave out every score and position.
        max_characters: longest text; the middle of a longer one is cut out.
    """
    lines = [EXECUTION_HEADER]
    if feedback.failure is not None:
        lines.append(feedback.failure)
        if feedback.output.strip():
            lines.append(f"Code output: {feedback.output.rstrip()}")
        if feedback.errors:
            lines.append(f"Error output (its end): {feedback.errors}")
    else:
        lines += [feedback.notice or "Execution successful", f"Code execution time: {feedback.seconds:.2f}s"]
        if feedback.output:
            lines.append(f"Code output: {feedback.output.rstrip()}")
        lines += ["", SUBMISSION_HEADER, *_submission(feedback, best_raw, best_score, hide_score)]
    text = "\n".join(lines)
    return text if max_characters is None else cut_middle(text, max_characters)


def _submission(feedback: Feedback, best_raw: float | None, best_score: float | None, hide_score: bool) -> list[str]:
    if feedback.problem is not None:
        problem = feedback.problem
        details = [f"Error details: {problem.details}"] if problem.details else []
        return [f"Submission error ({problem.kind}): {problem.message}", *details]
    if hide_score:
        return ["Submission successful", HIDDEN_LINE]
    lines = ["Submission successful"]
    if feedback.position is not None:
        for board, place in (("Private", feedback.position.private), ("Public", feedback.position.public)):
            if place is not None:
                lines.append(f"{board} Leaderboard: Position {place.rank} / {place.total}")
    raw, score = feedback.raw_score, feedback.score
    best_raw, best_score = raw if best_raw is None else best_raw, score if best_score is None else best_score
    if raw is not None:
        lines.append(f"Raw Score: {float(raw)}")
    if score is not None:
        lines.append(f"Average Position Score: {score:.4f}")
    if best_raw is not None:
        lines.append(f"Best Raw Score: {float(best_raw)}")
    if best_score is not None:
        lines.append(f"Best Position Score: {float(best_score)}")
    return lines


def _missing(execution: Execution) -> SubmissionProblem:
    if execution.submission_problem:
        return SubmissionProblem(
            "InvalidSubmissionError",
            "Failed to read submission file",
            f"The file at SUBMISSION_PATH {execution.submission_problem}.",
        )
    return NOT_FOUND


def _failure(execution: Execution, limits: ExecutionLimits) -> str:
    """Why a program did not come to its end: what happened, the limit it hit, what to change."""
    if execution.status is ExecutionStatus.INFRA_ERROR:
        return "Execution not completed: the sandbox failed, not your program. This attempt is not scored."
    return describe(execution, limits)
