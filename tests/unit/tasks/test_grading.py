"""`grade`: agent's failures, our failures and scores are three different things."""

import math

import pandas as pd
import pytest

from wmrl_envs.errors import DataNotBuilt
from wmrl_envs.outcome import BoardPosition, Execution, ExecutionStatus
from wmrl_envs.tasks import grade, load_competition
from wmrl_envs.tasks.grader import LocalGrader

SLUG = "playground-series-s3e9"


def run(submission, status=ExecutionStatus.OK, **kwargs):
    return Execution(status, 0, submission=submission, wall_s=1.0, tier="namespaces", **kwargs)


def answers(competition):
    return pd.read_csv(competition.private.answers)


def csv(frame):
    return frame.to_csv(index=False).encode()


def test_the_answers_score_one_and_a_constant_less(mledojo_dir):
    competition = load_competition(SLUG, mledojo_dir)
    best = grade(competition, run(csv(answers(competition))))
    assert (best.status, best.score, best.raw_score) == (ExecutionStatus.OK, 1.0, 0.0)
    assert "Private Leaderboard: Position 1 / 10" in best.feedback
    assert best.position.private == BoardPosition(rank=1, total=10, score=1.0, medal="gold")
    constant = grade(competition, run(csv(answers(competition).assign(Strength=5.0))))
    assert 0 < constant.score < 1
    assert f"Raw Score: {constant.raw_score}" in constant.feedback
    assert (constant.source, constant.tier, constant.wall_s) == ("executed", "namespaces", 1.0)


def test_a_missing_submission_is_the_agents(mledojo_dir):
    outcome = grade(load_competition(SLUG, mledojo_dir), run(None))
    assert (outcome.status, outcome.score, outcome.raw_score) == (ExecutionStatus.INVALID_SUBMISSION, 0.0, None)
    assert "SubmissionNotFoundError" in outcome.feedback


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b"\x00\x01\x02", "binary"),
        (b"id,Strength\n30,1\n", "does not match"),
        (b"id\n30\n", "Missing required columns"),
    ],
)
def test_an_invalid_submission_is_the_agents(mledojo_dir, data, word):
    outcome = grade(load_competition(SLUG, mledojo_dir), run(data))
    assert (outcome.status, outcome.score) == (ExecutionStatus.INVALID_SUBMISSION, 0.0)
    assert "InvalidSubmissionError" in outcome.feedback
    assert word in outcome.feedback


def test_a_grader_crash_is_ours_and_never_a_score_of_zero(mledojo_dir, monkeypatch):
    competition = load_competition(SLUG, mledojo_dir)
    good = csv(answers(competition))

    def crash(*_):
        raise KeyError("boom")

    monkeypatch.setattr("wmrl_envs.tasks.spec.TaskSpec.metric", crash)
    outcome = grade(competition, run(good), grader=LocalGrader())
    assert outcome.is_infra_error
    assert outcome.raw_score is None
    assert "KeyError" in outcome.error


def test_unreadable_answers_are_ours(mledojo_dir):
    competition = load_competition(SLUG, mledojo_dir)
    good = csv(answers(competition))
    competition.private.answers.write_bytes(b"")
    assert grade(competition, run(good)).is_infra_error
    competition.private.answers.unlink()
    assert "GroundTruthError" in grade(competition, run(good)).error


@pytest.mark.parametrize("status", [s for s in ExecutionStatus if s not in ("ok", "invalid_submission")])
def test_a_run_that_failed_is_not_graded(mledojo_dir, status):
    competition = load_competition(SLUG, mledojo_dir)
    outcome = grade(competition, run(csv(answers(competition)), status, stderr="Traceback"))
    assert (outcome.status, outcome.score, outcome.raw_score) == (status, 0.0, None)


def test_changed_answers_are_read_again(mledojo_dir):
    competition = load_competition(SLUG, mledojo_dir)
    data = csv(answers(competition))
    assert grade(competition, run(data)).raw_score == 0.0
    answers(competition).assign(Strength=lambda d: d["Strength"] + 1.5).to_csv(competition.private.answers, index=False)
    assert grade(competition, run(data)).raw_score == pytest.approx(1.5)


def test_without_a_board_the_user_is_told_what_to_add(mledojo_dir):
    competition = load_competition(SLUG, mledojo_dir)
    data = csv(answers(competition))
    for path in (competition.private.private_board, competition.private.public_board):
        path.unlink()
    bare = load_competition(SLUG, mledojo_dir)
    assert bare.board is None
    assert grade(bare, run(data)).score == 1.0  # a task of DSBench: its relative gap stands in


def test_a_task_without_board_and_baseline_cannot_be_scored(tmp_path):
    data = tmp_path / "statoil-iceberg-classifier-challenge" / "data"
    (data / "public").mkdir(parents=True)
    (data / "private").mkdir()
    (data / "public" / "description.txt").write_text("x")
    (data / "public" / "sample_submission.csv").write_text("id,is_iceberg\na,0.5\n")
    (data / "private" / "test_answer.csv").write_text("id,is_iceberg\na,1\n")
    competition = load_competition("statoil-iceberg-classifier-challenge", tmp_path)
    with pytest.raises(DataNotBuilt, match=r"private_leaderboard\.csv"):
        grade(competition, run(b"id,is_iceberg\na,0.5\n"))


def test_an_undefined_metric_ranks_last_but_is_a_valid_run(tmp_path):
    data = tmp_path / "us-patent-phrase-to-phrase-matching" / "data"
    (data / "public").mkdir(parents=True)
    (data / "private").mkdir()
    (data / "public" / "description.txt").write_text("x")
    (data / "public" / "sample_submission.csv").write_text("id,score\na,0.5\n")
    (data / "private" / "test_answer.csv").write_text("id,score\na,0.1\nb,0.7\nc,0.3\n")
    (data / "private" / "private_leaderboard.csv").write_text("rank,score\n1,0.9\n2,0.1\n")
    competition = load_competition("us-patent-phrase-to-phrase-matching", tmp_path)
    outcome = grade(competition, run(b"id,score\na,0.5\nb,0.5\nc,0.5\n"))
    assert (outcome.status, outcome.score, outcome.raw_score) == (ExecutionStatus.OK, 0.0, None)
    assert outcome.position.private.rank == 3
    assert not math.isnan(outcome.score)


def test_a_submission_written_before_the_time_limit_counts_where_that_is_asked_for(mledojo_dir):
    competition = load_competition(SLUG, mledojo_dir)
    late = run(csv(answers(competition)), ExecutionStatus.TIMEOUT)
    assert (grade(competition, late).status, grade(competition, late).score) == (ExecutionStatus.TIMEOUT, 0.0)
    outcome = grade(competition, late, grade_late=True)
    assert (outcome.status, outcome.score) == (ExecutionStatus.OK, 1.0)
    assert "time limit" in outcome.feedback
    assert "Submission successful" in outcome.feedback
    half = grade(competition, run(b"id,Stre", ExecutionStatus.TIMEOUT), grade_late=True)
    assert half.status is ExecutionStatus.TIMEOUT
