"""`grade`: from what a sandbox saw to the outcome the agent is told and paid."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmrl_envs.errors import WmrlError
from wmrl_envs.outcome import Execution, ExecutionStatus, Outcome
from wmrl_envs.tasks import feedback
from wmrl_envs.tasks.competition import Competition
from wmrl_envs.tasks.leaderboard import BoardPosition, Position
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

TEXT_METRICS = frozenset(
    [
        "exact_match",
        "exact_text",
        "map_at_k",
        "word_jaccard",
        "span_f1",
        "set_f1",
        "kendall_tau",
        "rle_iou_precision",
        "dice_hausdorff",
        "box_precision",
        "point_f1",
    ]
)


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
        "source": "replayed" if run.tier == "replay" else "executed",
    }
    if run.status not in (ExecutionStatus.OK, ExecutionStatus.INVALID_SUBMISSION):
        return Outcome(run.status, feedback=feedback.render(run, limits=limits), **costs)
    data = run.submission if submission is None else submission
    if data is None and run.graded is not None:
        return _graded_before(competition, run, run.graded, limits, costs)
    if data is None:
        return Outcome(ExecutionStatus.INVALID_SUBMISSION, feedback=feedback.render(run, limits=limits), **costs)
    competition.require_ranking()
    try:
        raw, position = _score(competition, data)
    except SubmissionError as error:
        status = ExecutionStatus.INVALID_SUBMISSION if error.agents_own else ExecutionStatus.INFRA_ERROR
        problem = feedback.SubmissionProblem(error.kind, error.message, error.details)
        if not error.agents_own:
            log.error("%s: %s: %s", competition.slug, error.message, error.details)
        text = feedback.render(run, error=problem, limits=limits)
        return Outcome(status, feedback=text, details={"error": f"{error.kind}: {error.details}"}, **costs)
    return _scored(competition, run, raw, position, limits, costs)


def _scored(
    competition: Competition,
    run: Execution,
    raw: float,
    position: Position,
    limits: ExecutionLimits | None,
    costs: dict[str, Any],
) -> Outcome:
    text = feedback.render(run, position=None if competition.ranked_by_gap else position, raw_score=raw, limits=limits)
    return Outcome(
        ExecutionStatus.OK,
        score=position.score,
        raw_score=raw if math.isfinite(raw) else None,
        feedback=text,
        details=_details(competition, raw, position),
        **costs,
    )


def _graded_before(
    competition: Competition,
    run: Execution,
    graded: Mapping[str, Any],
    limits: ExecutionLimits | None,
    costs: dict[str, Any],
) -> Outcome:
    """The outcome of a recorded run of which only the metric's value was kept; it is ranked on the board of today."""
    if "raw_score" not in graded:
        details = {"error": graded["error"]}
        return Outcome(ExecutionStatus.INVALID_SUBMISSION, feedback=graded["feedback"], details=details, **costs)
    competition.require_ranking()
    raw = math.nan if graded["raw_score"] is None else float(graded["raw_score"])
    return _scored(competition, run, raw, _position(competition, raw), limits, costs)


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


def _details(competition: Competition, raw: float, position: Position) -> dict[str, Any]:
    def place(board: BoardPosition | None) -> dict[str, float] | None:
        return None if board is None else {"rank": board.rank, "total": board.total, "score": board.score}

    details: dict[str, Any] = {"private": place(position.private), "public": place(position.public)}
    if not math.isfinite(raw):
        details["undefined_metric"] = True
    gap = competition.relative_gap(raw) if competition.split == "dsbench" else None
    return details if gap is None else details | {"relative_gap": gap}


def text_columns(spec: TaskSpec) -> tuple[str, ...] | None:
    """Columns to read as text: the ids, or (None) all of them where the predictions are text."""
    return None if spec.metric_name in TEXT_METRICS else spec.facts.id_columns


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
