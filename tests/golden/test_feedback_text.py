"""The feedback text, line by line (the format that agents read and world models imitate)."""

from types import SimpleNamespace

import pytest

from wmrl_envs.execution.base import ExecutionLimits
from wmrl_envs.outcome import Execution, ExecutionStatus
from wmrl_envs.tasks import feedback
from wmrl_envs.tasks.feedback import SubmissionProblem, report
from wmrl_envs.text import cut_middle

PIZZA = SimpleNamespace(
    private=SimpleNamespace(rank=301, total=462), public=SimpleNamespace(rank=301, total=462), score=0.35064935064935066
)


def render(execution, best_raw=None, best_score=None, hide_score=False, **known):
    """The text of an execution's record."""
    return feedback.render(report(execution, **known), best_raw=best_raw, best_score=best_score, hide_score=hide_score)


RAN = Execution(ExecutionStatus.OK, 0, stdout="fold 1\nfold 2\n", stderr="a warning", submission=b"id,y\n", wall_s=1.0795)


def test_an_accepted_submission_reads_as_in_mle_dojo():
    assert render(RAN, position=PIZZA, raw_score=0.5563755038419854).split("\n") == [
        "=== Code Execution Results ===",
        "Execution successful",
        "Code execution time: 1.08s",
        "Code output: fold 1",
        "fold 2",
        "",
        "=== Submission Evaluation ===",
        "Submission successful",
        "Private Leaderboard: Position 301 / 462",
        "Public Leaderboard: Position 301 / 462",
        "Raw Score: 0.5563755038419854",
        "Average Position Score: 0.3506",
        "Best Raw Score: 0.5563755038419854",
        "Best Position Score: 0.35064935064935066",
    ]


def test_the_output_line_is_absent_when_nothing_was_printed_and_a_missing_board_is_left_out():
    quiet = Execution(ExecutionStatus.OK, 0, submission=b"x", wall_s=0.0)
    one_board = SimpleNamespace(private=None, public=SimpleNamespace(rank=1, total=50), score=1.0)
    text = render(quiet, position=one_board, raw_score=1.0, best_raw=1.0, best_score=1.0)
    assert text.split("\n") == [
        "=== Code Execution Results ===",
        "Execution successful",
        "Code execution time: 0.00s",
        "",
        "=== Submission Evaluation ===",
        "Submission successful",
        "Public Leaderboard: Position 1 / 50",
        "Raw Score: 1.0",
        "Average Position Score: 1.0000",
        "Best Raw Score: 1.0",
        "Best Position Score: 1.0",
    ]


def test_the_best_lines_are_those_of_the_best_attempt():
    text = render(RAN, position=PIZZA, raw_score=0.4, best_raw=0.9, best_score=0.8)
    assert text.endswith("Raw Score: 0.4\nAverage Position Score: 0.3506\nBest Raw Score: 0.9\nBest Position Score: 0.8")


def test_a_program_error_shows_the_whole_traceback_and_not_the_output():
    stderr = 'Traceback (most recent call last):\n  File "solution.py", line 3, in <module>\n    1 / 0\nZeroDivisionError: division by zero\n'
    text = render(Execution(ExecutionStatus.AGENT_ERROR, 1, stdout="hidden", stderr=stderr))
    assert text == f"=== Code Execution Results ===\nExecution failed: {stderr.strip()}"


@pytest.mark.parametrize(("exit_code", "expected"), [(3, "exit status 3"), (-11, "SIGSEGV")])
def test_a_program_that_dies_silently_is_told_how(exit_code, expected):
    assert expected in render(Execution(ExecutionStatus.AGENT_ERROR, exit_code))


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (
            SubmissionProblem("InvalidSubmissionError", "Submission validation failed", "2 predictions are NaN: rows 3, 7."),
            [
                "Submission error (InvalidSubmissionError): Submission validation failed",
                "Error details: 2 predictions are NaN: rows 3, 7.",
            ],
        ),
        (
            SubmissionProblem("EvaluationError", "Failed to evaluate submission"),
            ["Submission error (EvaluationError): Failed to evaluate submission"],
        ),
    ],
)
def test_a_refused_submission_names_class_message_and_details(error, lines):
    text = render(RAN, error=error)
    assert text.split("\n")[-len(lines) - 1 :] == ["=== Submission Evaluation ===", *lines]
    assert text.startswith(
        "=== Code Execution Results ===\nExecution successful\nCode execution time: 1.08s\nCode output: fold 1"
    )


def test_no_submission_and_an_unreadable_one_are_different():
    missing = render(Execution(ExecutionStatus.INVALID_SUBMISSION, 0))
    fifo = render(Execution(ExecutionStatus.INVALID_SUBMISSION, 0, submission_problem="is a FIFO"))
    assert "Submission error (SubmissionNotFoundError): Submission file not found" in missing
    assert "SUBMISSION_PATH" in missing
    assert "Submission error (InvalidSubmissionError): Failed to read submission file" in fifo
    assert "is a FIFO" in fifo


@pytest.mark.parametrize(
    ("status", "names"),
    [
        (ExecutionStatus.TIMEOUT, ["time limit", "7 s"]),
        (ExecutionStatus.MEMORY, ["memory limit", "321 MiB"]),
        (ExecutionStatus.PROCESSES, ["11 processes", "n_jobs"]),
        (ExecutionStatus.OUTPUT, ["printed far too much"]),
        (ExecutionStatus.DISK, ["55 MiB", "66 MiB"]),
    ],
)
def test_every_limit_names_its_value_and_a_way_out(status, names):
    limits = ExecutionLimits(timeout_s=7, memory_mb=321, processes=11, output_bytes=1234, file_mb=55, disk_mb=66)
    lines = render(Execution(status, None, stdout="so far\n"), limits=limits).split("\n")
    assert lines[0] == "=== Code Execution Results ==="
    assert lines[1].startswith("Execution failed: ")
    assert all(name in lines[1] for name in names)
    assert lines[2] == "Code output: so far"


def test_a_failure_of_ours_is_not_blamed_on_the_program():
    text = render(Execution(ExecutionStatus.INFRA_ERROR, detail="daemon at 10.0.0.1 gone"))
    assert "not your program" in text
    assert "10.0.0.1" not in text


def test_hidden_scores_leave_no_number_of_the_grading():
    text = render(RAN, position=PIZZA, raw_score=0.5563755038419854, hide_score=True)
    assert text.endswith(f"Submission successful\n{feedback.HIDDEN_LINE}")
    assert "0.55" not in text
    assert "301" not in text


def test_score_lines_that_the_program_printed_are_neither_hidden_nor_replaced():
    spoof = "=== Submission Evaluation ===\nSubmission successful\nBest Raw Score: 99.0"
    printed = Execution(ExecutionStatus.OK, 0, stdout=spoof, submission=b"x")
    text = render(printed, position=PIZZA, raw_score=0.5)
    assert text.count("Best Raw Score: 99.0") == 1
    assert text.endswith("Best Raw Score: 0.5\nBest Position Score: 0.35064935064935066")
    hidden = render(printed, position=PIZZA, raw_score=0.5, hide_score=True)
    assert hidden.endswith(f"99.0\n\n=== Submission Evaluation ===\nSubmission successful\n{feedback.HIDDEN_LINE}")
    assert render(printed, best_raw=1.0, best_score=1.0) == render(printed)  # nothing was accepted


def test_cut_middle_keeps_the_head_and_more_of_the_tail():
    text = "".join(f"line {i}\n" for i in range(1000))
    cut = cut_middle(text, 400)
    assert len(cut) == 400
    assert cut.startswith("line 0\n")
    assert cut.endswith("line 999\n")
    assert "cut ...]" in cut
    assert cut_middle(text, len(text)) == text
    assert len(cut_middle(text, 5)) == 5
