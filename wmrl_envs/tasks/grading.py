"""`grade`: from what a sandbox saw to the outcome the agent is told and paid."""

from __future__ import annotations

import logging
import math
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmrl_envs.errors import WmrlError
from wmrl_envs.outcome import Execution, ExecutionStatus, Feedback, Outcome, Position, RecordedGrade, SubmissionProblem
from wmrl_envs.tasks import feedback
from wmrl_envs.tasks.competition import Competition
from wmrl_envs.tasks.spec import TaskSpec
from wmrl_envs.tasks.validation import (
    EvaluationError,
    GroundTruthError,
    InvalidSubmission,
    LeaderboardError,
    SubmissionError,
    read_table,
)

if TYPE_CHECKING:
    import pandas as pd

    from wmrl_envs.execution.base import ExecutionLimits

log = logging.getLogger(__name__)


def grade(
    competition: Competition,
    run: Execution,
    submission: bytes | None = None,
    *,
    limits: ExecutionLimits | None = None,
) -> Outcome:
    """Grade one run.

    Three things are never mixed up: no submission or an invalid one is the agent's (`invalid_submission`, score 0, feedback
    says why); a failure of the grader is ours (`infra_error`, no score); anything else is scored.

    Args:
        competition: what was played. run: what the sandbox saw.
        submission: the submission, if it is not the one of `run`.
        limits: the limits of the run, named in the feedback when one was hit.

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
    if run.status not in (ExecutionStatus.OK, ExecutionStatus.INVALID_SUBMISSION):
        return _outcome(run.status, feedback.report(run, limits=limits), **costs)
    data = run.submission if submission is None else submission
    if data is None and run.graded is not None:
        return _graded_before(competition, run, run.graded, costs)
    if data is None:
        return _outcome(ExecutionStatus.INVALID_SUBMISSION, feedback.report(run), **costs)
    competition.require_ranking()
    try:
        raw, position = _score(competition, data)
    except SubmissionError as error:
        if not error.agents_own:
            log.error("%s: %s: %s", competition.slug, error.message, error.details)
        problem = SubmissionProblem(error.kind, error.message, error.details)
        status = ExecutionStatus.INVALID_SUBMISSION if error.agents_own else ExecutionStatus.INFRA_ERROR
        return _outcome(status, feedback.report(run, error=problem), error=f"{error.kind}: {error.details}", **costs)
    return _scored(competition, run, raw, position, costs)


def _outcome(status: ExecutionStatus, report: Feedback, **fields: Any) -> Outcome:
    return Outcome(status, feedback=feedback.render(report), report=report, **fields)


def _scored(competition: Competition, run: Execution, raw: float, position: Position, costs: dict[str, Any]) -> Outcome:
    told = feedback.report(run, position=None if competition.ranked_by_gap else position, raw_score=raw)
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


def _score(competition: Competition, data: bytes) -> tuple[float, Position]:
    """(raw score, position); every failure is a `SubmissionError` that knows whose it is."""
    spec = competition.spec
    try:
        truth = read_answers(competition.private.answers, spec)
    except Exception as error:
        raise GroundTruthError(f"{type(error).__name__}: {error}") from error
    try:
        raw = spec.metric(truth, read_table(data, text_columns(spec)))
    except InvalidSubmission:
        raise
    except Exception as error:  # whatever it is, it is the grader's and must not be charged to the agent
        raise EvaluationError(f"Error during metric calculation: {type(error).__name__}: {error}") from error
    try:
        return raw, _position(competition, raw)
    except Exception as error:
        raise LeaderboardError(f"{type(error).__name__}: {error}") from error


def _position(competition: Competition, raw: float) -> Position:
    if competition.board is None:  # DSBench has no leaderboards, only its relative gap
        return Position(min(competition.relative_gap(raw) or 0.0, 1.0))
    return competition.board.position(raw)


def text_columns(spec: TaskSpec) -> tuple[str, ...] | None:
    """Columns to read as text: the ids, or (None) all of them where the predictions are text."""
    from wmrl_envs.tasks.metrics import METRICS

    return None if METRICS[spec.metric_name].on_text else spec.facts.id_columns


def read_answers(path: Path, spec: TaskSpec) -> pd.DataFrame:
    """The answers as a table, kept in memory for the next grading. Do not change it.

    Raises:
        WmrlError: unreadable or empty.
    """
    stat = path.stat()
    return _cached_answers(str(path), stat.st_mtime_ns, stat.st_size, text_columns(spec))


@lru_cache(maxsize=32)
def _cached_answers(path: str, _mtime: int, _size: int, as_text: tuple[str, ...] | None) -> pd.DataFrame:
    try:
        frame = read_table(Path(path).read_bytes(), as_text)
    except InvalidSubmission as error:
        raise WmrlError(f"the answers could not be read: {error}") from error
    if not len(frame):
        raise WmrlError("the answers have no rows")
    return frame
