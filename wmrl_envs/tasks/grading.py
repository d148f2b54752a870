"""`grade`: from what a sandbox saw to the outcome the agent is told and paid."""

from __future__ import annotations

import logging
import math
from typing import Any, Literal

from wmrl_envs.errors import WmrlError
from wmrl_envs.execution.base import ExecutionLimits
from wmrl_envs.outcome import Execution, ExecutionStatus, Feedback, Outcome, Position, RecordedGrade, SubmissionProblem
from wmrl_envs.tasks import feedback
from wmrl_envs.tasks.competition import Competition
from wmrl_envs.tasks.grader import Grader, shared
from wmrl_envs.tasks.refusals import LeaderboardError, SubmissionError
from wmrl_envs.tasks.scoring import read_answers, text_columns

__all__ = ["grade", "read_answers", "text_columns"]

log = logging.getLogger(__name__)


def grade(
    competition: Competition,
    run: Execution,
    submission: bytes | None = None,
    *,
    limits: ExecutionLimits | None = None,
    grader: Grader | None = None,
    grade_late: bool = False,
) -> Outcome:
    """Grade one run, in a process of its own.

    Three things are never mixed up: no submission or an invalid one is the agent's (`invalid_submission`, score 0, feedback
    says why), and so is a file that costs more than the limits of grading; a failure of the grader is ours (`infra_error`, no
    score); anything else is scored.

    Args:
        competition: what was played.
        run: what the sandbox saw.
        submission: the submission, if it is not the one of `run`.
        limits: the limits of the run, named in the feedback when one was hit.
        grade_late: grade a submission that a program had written when it was stopped at the time limit. If it is valid the
            outcome is ok, else the program ran out of time.
        grader: who computes the metric (default: the processes of `grader.shared()`).

    A DSBench competition without leaderboards is paid its relative gap, clipped to 1.

    Raises:
        DataNotBuilt: the competition has no leaderboard to rank a score on.
    """
    costs: dict[str, Any] = {
        "wall_s": run.wall_s,
        "cpu_s": run.cpu_s,
        "peak_memory_mb": run.peak_memory_mb,
        "tier": run.tier,
        "cached": run.cached,
        "source": "replayed" if run.tier == "replay" else "executed",
    }
    late = grade_late and run.status is ExecutionStatus.TIMEOUT and run.submission is not None
    if not late and run.status not in (ExecutionStatus.OK, ExecutionStatus.INVALID_SUBMISSION):
        return _outcome(run.status, feedback.report(run, limits=limits), **costs)
    data = run.submission if submission is None else submission
    if data is None and run.graded is not None:
        return _graded_before(competition, run, run.graded, costs)
    if data is None:
        return _outcome(ExecutionStatus.INVALID_SUBMISSION, feedback.report(run), **costs)
    competition.require_ranking()
    try:
        raw = (grader or shared()).score(competition, data)
        position = _ranked(competition, raw)
    except SubmissionError as error:
        if late and error.agents_own:
            return _outcome(run.status, feedback.report(run, limits=limits), **costs)
        if not error.agents_own:
            log.error("%s: %s: %s", competition.slug, error.message, error.details)
        problem = SubmissionProblem(error.kind, error.message, error.details)
        status = ExecutionStatus.INVALID_SUBMISSION if error.agents_own else ExecutionStatus.INFRA_ERROR
        return _outcome(status, feedback.report(run, error=problem), error=f"{error.kind}: {error.details}", **costs)
    return _scored(competition, run, raw, position, costs, late and (limits or ExecutionLimits()))


def _outcome(status: ExecutionStatus, report: Feedback, **fields: Any) -> Outcome:
    return Outcome(status, feedback=feedback.render(report), report=report, **fields)


def _scored(
    competition: Competition,
    run: Execution,
    raw: float,
    position: Position,
    costs: dict[str, Any],
    late: ExecutionLimits | Literal[False] = False,
) -> Outcome:
    place = None if competition.ranked_by_gap else position
    told = feedback.report(run, position=place, raw_score=raw, limits=late or None, late=bool(late))
    return _outcome(
        ExecutionStatus.OK,
        told,
        score=position.score,
        raw_score=raw if math.isfinite(raw) else None,
        position=position,
        relative_gap=competition.relative_gap(raw) if competition.split == "dsbench" else None,
        **costs,
    )


def _graded_before(competition: Competition, run: Execution, graded: RecordedGrade, costs: dict[str, Any]) -> Outcome:
    """The outcome of a recorded run of which only the metric's value was kept; it is ranked on the board of today."""
    if graded.error is not None:
        told = feedback.of_text(graded.feedback)
        return _outcome(ExecutionStatus.INVALID_SUBMISSION, told, error=graded.error, **costs)
    competition.require_ranking()
    raw = math.nan if graded.raw_score is None else graded.raw_score
    return _scored(competition, run, raw, _position(competition, raw), costs)


def _ranked(competition: Competition, raw: float) -> Position:
    try:
        return _position(competition, raw)
    except (WmrlError, OSError, ValueError) as error:
        raise LeaderboardError(f"{type(error).__name__}: {error}") from error


def _position(competition: Competition, raw: float) -> Position:
    if competition.board is None:  # DSBench has no leaderboards, only its relative gap
        return Position(min(competition.relative_gap(raw) or 0.0, 1.0))
    return competition.board.position(raw)
