"""Input that cannot be run: one sentence each, nothing of ours shown."""

import pytest

from tests.unit.execution.conftest import LIMITS
from wmrl_envs.errors import InvalidInput
from wmrl_envs.execution import ExecutionLimits, describe, make_sandbox
from wmrl_envs.outcome import ExecutionStatus


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("", "empty"),
        (" \n\t\n", "empty"),
        ("print(1)\0", "null bytes"),
        ("#" + "x" * 10_000_000, "9.5 MiB"),
        ("print('\ud800')", "Unicode"),
        ("this is no Python", "SyntaxError"),
        ("if True:\nprint(1)", "IndentationError"),
        ("(" * 500, "SyntaxError"),
        ("x = " + "-" * 20000 + "1", "Error"),
    ],
    ids=["empty", "blank", "NUL", "10 MB", "surrogate", "syntax", "indentation", "parentheses", "deep"],
)
def test_code_that_cannot_run_is_the_agents_error_in_one_message(warm_box, data_dir, code, words):
    run = warm_box.run(code, data_dir, LIMITS)
    assert run.status in (ExecutionStatus.AGENT_ERROR, ExecutionStatus.MEMORY)
    assert words in run.stderr
    assert "runner" not in run.stderr
    assert words in describe(run, LIMITS) or run.status is ExecutionStatus.MEMORY


def test_a_data_folder_that_does_not_exist_is_refused(warm_box, tmp_path):
    with pytest.raises(InvalidInput, match="does not exist"):
        warm_box.run("print(1)", tmp_path / "absent", LIMITS)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="no folder"):
        warm_box.run("print(1)", tmp_path / "file", LIMITS)


@pytest.mark.parametrize("name", ["timeout_s", "memory_mb", "processes", "output_bytes", "file_mb", "disk_mb", "submission_mb"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), None, "many", True])
def test_limits_that_are_no_positive_numbers_are_refused_by_name(name, value):
    with pytest.raises(InvalidInput, match=name):
        ExecutionLimits(**{name: value})


@pytest.mark.parametrize(
    "limit", [{"processes": 0.5}, {"processes": 2.5}, {"output_bytes": 0.1}, {"memory_mb": 1e30}, {"timeout_s": 1e12}]
)
def test_limits_that_no_machine_can_hold_are_refused_by_name(limit):
    with pytest.raises(InvalidInput, match=next(iter(limit))):
        ExecutionLimits(**limit)


@pytest.mark.parametrize("cpu_s", [0, -1, float("nan"), "many", True])
def test_a_cpu_limit_is_a_positive_number_or_none(cpu_s):
    assert ExecutionLimits(cpu_s=None).effective_s == ExecutionLimits().timeout_s
    assert ExecutionLimits(timeout_s=60, cpu_s=6).effective_s == 6
    with pytest.raises(InvalidInput, match="cpu_s"):
        ExecutionLimits(cpu_s=cpu_s)


@pytest.mark.parametrize("env", [{"A=B": "1"}, {"": "1"}, {"A": "x\0y"}, {"A": 3}])
def test_impossible_environment_variables_are_refused(warm_box, data_dir, env):
    with pytest.raises(InvalidInput, match="environment variable"):
        warm_box.run("print(1)", data_dir, LIMITS, env=env)


def test_unknown_kinds_tiers_and_modes_are_refused():
    with pytest.raises(InvalidInput, match="no sandbox 'firecracker'"):
        make_sandbox("firecracker")
    with pytest.raises(InvalidInput, match="cache='always'"):
        make_sandbox("process", cache="always")


def test_a_closed_sandbox_says_so_and_closing_twice_is_fine(environment, data_dir):
    box = make_sandbox("process", warm=False)
    box.close()
    box.close()
    with pytest.raises(InvalidInput, match="closed"):
        box.run("print(1)", data_dir, LIMITS)


@pytest.mark.parametrize(
    "limits",
    [{"memory_mb": 1}, {"memory_mb": 20}, {"processes": 1}, {"file_mb": 0.001}, {"disk_mb": 0.01}, {"timeout_s": 0.001}],
)
def test_limits_too_small_for_anything_are_still_the_agents_failure(box, data_dir, limits):
    run = box.run(
        "x = list(range(10**7))\nopen('f', 'wb').write(bytes(10**6))\nprint(len(x))", data_dir, ExecutionLimits(**limits)
    )
    assert run.status is not ExecutionStatus.INFRA_ERROR
