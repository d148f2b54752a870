"""Grading in a process of its own: limits, whose fault a failure is, and that nothing stays behind."""

import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from wmrl_envs.outcome import Execution, ExecutionStatus
from wmrl_envs.tasks import grade, load_competition
from wmrl_envs.tasks.grader import GradingLimits, LocalGrader, ProcessGrader, shared
from wmrl_envs.tasks.refusals import EvaluationError, InvalidSubmission
from wmrl_envs.tasks.spec import TaskSpec

SLUG = "playground-series-s3e9"


@pytest.fixture
def competition(mledojo_dir):
    return load_competition(SLUG, mledojo_dir)


@pytest.fixture(scope="module")
def grader():
    made = ProcessGrader()
    made.hold()
    yield made
    made.release()


def good(competition):
    return competition.private.answers.read_bytes()


def big(competition, rows=200_000):
    """A file that is refused at the end, for its rows are too many."""
    header = good(competition).split(b"\n")[0]
    return header + b"\n" + b"".join(b"%d,1.5\n" % i for i in range(rows))


def processes():
    return {p.pid for p in psutil.Process().children()}


def test_it_gives_what_the_metric_gives_and_uses_its_process_again(competition, grader):
    assert grader.score(competition, good(competition)) == LocalGrader().score(competition, good(competition)) == 0.0
    made = processes()
    with pytest.raises(InvalidSubmission, match="Missing required columns"):
        grader.score(competition, b"a,b\n1,2\n")
    assert processes() == made


def test_the_last_holder_ends_the_processes(competition):
    grader, before = ProcessGrader(), processes()
    grader.hold()
    grader.hold()
    grader.score(competition, good(competition))
    grader.release()
    assert processes() != before
    grader.release()
    assert processes() == before


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (GradingLimits(cpu_s=0.02, cpu_s_per_mb=0.0), "s of CPU time"),
        (GradingLimits(memory_mb=1, memory_per_byte=1), "MiB of memory"),
    ],
)
def test_a_file_that_costs_too_much_is_the_agents(competition, limits, says):
    grader = ProcessGrader(limits)
    grader.hold()
    try:
        outcome = grade(competition, Execution(ExecutionStatus.OK, 0, submission=big(competition, 2_000_000)), grader=grader)
        assert (outcome.status, outcome.score) == (ExecutionStatus.INVALID_SUBMISSION, 0.0)
        assert says in outcome.feedback
        assert grader.score(competition, good(competition)) == 0.0  # the next one is graded as ever
    finally:
        grader.release()


def test_limits_that_the_sample_submission_breaks_too_are_ours(competition):
    grader = ProcessGrader(GradingLimits(cpu_s=0.0005, cpu_s_per_mb=0.0))
    competition.sample_submission.write_bytes(big(competition))
    with pytest.raises(EvaluationError, match="on the sample submission too"):
        grader.score(competition, big(competition) + b"7,1\n")
    grader.close()


def test_a_crash_on_one_file_is_the_agents_and_on_any_file_ours(competition, monkeypatch):
    real = TaskSpec.metric

    def crash(self, truth, table):
        if all_files or (table["Strength"] == 77).any():
            raise KeyError("boom")
        return real(self, truth, table)

    monkeypatch.setattr("wmrl_envs.tasks.spec.TaskSpec.metric", crash)
    all_files = False
    with pytest.raises(InvalidSubmission, match="KeyError"):
        LocalGrader().score(competition, b"id,Strength\n1,77\n")
    all_files = True
    with pytest.raises(EvaluationError, match="KeyError"):
        LocalGrader().score(competition, b"id,Strength\n1,77\n")


def test_a_process_that_is_killed_is_replaced(competition, grader):
    grader.score(competition, good(competition))
    pid = grader._idle[-1]._popen.pid
    os.kill(pid, signal.SIGKILL)
    assert grader.score(competition, good(competition)) == 0.0


def test_many_threads_grade_at_once_in_no_more_processes_than_allowed(competition):
    grader, before, scores = ProcessGrader(processes=2), processes(), []
    grader.hold()
    threads = [threading.Thread(target=lambda: scores.append(grader.score(competition, good(competition)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scores == [0.0] * 8
    assert len(processes() - before) <= 2
    grader.release()


def test_a_forked_child_leaves_its_parents_process_alone(competition):
    grade(competition, Execution(ExecutionStatus.OK, 0, submission=good(competition)))
    pid = os.fork()
    if pid == 0:
        outcome = grade(competition, Execution(ExecutionStatus.OK, 0, submission=good(competition)))
        shared().close()
        os._exit(0 if outcome.raw_score == 0.0 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert grade(competition, Execution(ExecutionStatus.OK, 0, submission=good(competition))).raw_score == 0.0


def test_the_answers_are_missing_is_ours(competition):
    Path(competition.private.answers).unlink()
    outcome = grade(competition, Execution(ExecutionStatus.OK, 0, submission=b"id,Strength\n1,2\n"))
    assert outcome.is_infra_error
    assert "GroundTruthError" in outcome.error


def test_a_process_that_cannot_be_started_is_ours(competition, monkeypatch):
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    outcome = grade(competition, Execution(ExecutionStatus.OK, 0, submission=good(competition)), grader=ProcessGrader())
    assert outcome.is_infra_error
    assert "cannot be started" in outcome.error
