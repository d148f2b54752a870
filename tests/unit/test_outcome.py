"""`Outcome` survives being written down, and what earlier versions wrote is still read."""

import json
from dataclasses import asdict

from wmrl_envs.outcome import (
    BoardPosition,
    ExecutionStatus,
    Feedback,
    Outcome,
    Position,
    SubmissionProblem,
)

PLACE = Position(0.75, BoardPosition(2, 4, 0.75), None)
WHOLE = Outcome(
    ExecutionStatus.INVALID_SUBMISSION,
    report=Feedback(output="x", seconds=1.5, problem=SubmissionProblem("Kind", "why", "where"), position=PLACE),
    position=PLACE,
    relative_gap=0.5,
    cached=True,
    error="Kind: where",
    spread=0.1,
    steps=8,
    details={"verdicts": {"imports": {"verdict": "pass"}}},
)


def test_an_outcome_that_went_through_json_is_the_same():
    assert Outcome.from_dict(json.loads(json.dumps(asdict(WHOLE)))) == WHOLE
    assert Outcome.from_dict(json.loads(json.dumps(asdict(Outcome(ExecutionStatus.OK))))) == Outcome(ExecutionStatus.OK)


def test_what_an_earlier_version_kept_in_details_becomes_fields():
    old = {"status": "ok", "score": 0.5, "feedback": "text", "source": "predicted", "details": {"p_valid": 0.9, "quality": 0.4}}
    assert Outcome.from_dict(old) == Outcome(
        ExecutionStatus.OK, 0.5, feedback="text", source="predicted", p_valid=0.9, details={"quality": 0.4}
    )
