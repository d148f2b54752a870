"""What counts as the same program, and what is remembered of it."""

import json
import sys

import pytest

from wmrl_envs.anchoring.memory import Memory, program_key
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution

OK = Outcome(ExecutionStatus.OK, score=0.4, raw_score=12.0, feedback="Submission successful.")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x=1  # a comment"),
        ("f(a, b)", "f(\n    a,\n    b,\n)"),
        ("s = 'a'", 's = "a"'),
        ("x = (1 + 2)", "x = 1 + 2"),
        ("if a:\n  b()", "if a:\n        b()\n\n\n"),
        ("n = 1_000", "n = 1000"),
    ],
)
def test_comments_layout_and_quotes_do_not_make_another_program(one, other):
    assert program_key(one) == program_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x = 2"),
        ("x = 1", "x = 1.0"),
        ("x = 1", "y = 1"),
        ("read('train.csv')", "read('test.csv')"),
        ("a; b", "b; a"),
        ("f(x=1, y=2)", "f(y=2, x=1)"),
        ("if a:\n  b()\nc()", "if a:\n  b()\n  c()"),
        ("'doc'\nx = 1", "x = 1"),
        ("s = 'a '", "s = 'a'"),
    ],
)
def test_names_texts_numbers_and_order_do(one, other):
    assert program_key(one) != program_key(other)


@pytest.mark.parametrize("code", ["def (", "\0", "x = " + "9" * 5000, "(" * 3000, "\ud800", "x = '\\d'"])
def test_what_does_not_parse_is_compared_as_text(code):
    assert program_key(code) == program_key(code)
    assert program_key(code) != program_key(code + "\ny = 1")


def test_a_deep_program_does_not_end_the_run():
    deep = "x = " + "+".join(["1"] * (5 * sys.getrecursionlimit()))
    assert program_key(deep) == program_key(deep)


def test_an_executed_program_is_recalled_for_its_task_alone():
    memory = Memory()
    memory.remember(Solution("x = 1", task="a"), OK)
    assert memory.recall(Solution("x=1 # same", task="a")) == OK
    assert memory.recall(Solution("x = 1", task="b")) is None
    assert memory.recall(Solution("x = 2", task="a")) is None


@pytest.mark.parametrize(
    ("solution", "outcome"),
    [
        (Solution("x = 1", task="a"), Outcome(ExecutionStatus.INFRA_ERROR)),
        (Solution("x = 1", task="a"), Outcome(ExecutionStatus.TIMEOUT)),
        (Solution("x = 1", task="a"), Outcome(ExecutionStatus.OK, score=0.9, source="predicted")),
        (Solution("x = 1", task="a", problem="no program"), OK),
        (Solution("", task="a", action=[0.1]), OK),
    ],
)
def test_what_another_run_might_not_have_is_not_remembered(solution, outcome):
    memory = Memory()
    memory.remember(solution, outcome)
    assert len(memory) == 0


def test_the_first_execution_counts():
    memory = Memory()
    memory.remember(Solution("x = 1", task="a"), OK)
    memory.remember(Solution("x = 1", task="a"), OK.with_score(0.9))
    assert memory.recall(Solution("x = 1", task="a")).score == 0.4


def test_the_oldest_are_forgotten():
    memory = Memory(max_entries=2)
    for i in range(3):
        memory.remember(Solution(f"x = {i}", task="a"), OK)
    assert [memory.recall(Solution(f"x = {i}", task="a")) is not None for i in range(3)] == [False, True, True]


def test_state_survives_json():
    memory, other = Memory(), Memory()
    memory.remember(Solution("x = 1", task="a"), OK)
    other.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    assert other.recall(Solution("x = 1", task="a")) == OK


def test_distinct_counts_programs_not_texts():
    solutions = [Solution("x = 1", task="a"), Solution("x=1", task="a"), Solution("x = 1", task="b"), Solution("", task="a")]
    assert Memory().distinct(solutions) == 2
