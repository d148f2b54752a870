import subprocess
import sys

import pytest

from tests.unit.training.test_trainer import config, trainer
from wmrl_envs.errors import InvalidInput
from wmrl_train.config import load_config
from wmrl_train.training.estimate import estimate, measured
from wmrl_train.training.simulation import Durations, sandboxes_needed, simulate

TWENTY = Durations(generate_s=0.5, predict_s=0.05, execute_s=20.0, learn_s=1.0)  # a step of 5 s, executions of 20 s
BASE = ["execution.workers=32", "tasks.max_turns=1"]


def at(lag, fraction=0.125, *more):
    return load_config("paper-4b", [*BASE, f"anchors.lag={lag}", f"anchors.fraction={fraction}", *more])


def test_four_steps_of_slack_keep_the_generation_lane_busy():
    busy = [simulate(at(lag), TWENTY)["generation_busy"] for lag in range(6)]
    assert busy[0] < 0.3
    assert busy[4] >= 0.9
    assert busy == sorted(busy)


def test_a_step_without_slack_by_hand():
    """One anchor group is generated first; its eight programs have a sandbox each; then the step learns."""
    step = simulate(at(0), TWENTY)
    assert step["step_s"] == pytest.approx(0.5 + 20 + 1)
    assert step["generation_busy"] == pytest.approx((8 * 0.5 + 1) / 21.5)
    few = simulate(at(0), TWENTY, workers=4)
    assert few["step_s"] == pytest.approx(0.5 + 2 * 20 + 1)


def test_turns_wait_for_one_another():
    """The second turn of an anchor group is generated when the first is executed."""
    one, two = (simulate(at(0, 0.125, f"tasks.max_turns={turns}"), TWENTY)["step_s"] for turns in (1, 2))
    assert two == pytest.approx(one + 20)


def test_slack_does_not_make_sandboxes_out_of_nothing():
    """All eight groups executed: 64 programs of 20 s a step on 32 sandboxes are 40 s, whatever the lag."""
    assert [simulate(at(lag, 1.0), TWENTY)["step_s"] for lag in (1, 4, 8)] == [pytest.approx(40.0)] * 3


def test_as_many_sandboxes_as_are_of_use():
    assert sandboxes_needed(at(0), TWENTY) == 8
    needed = sandboxes_needed(at(4), TWENTY)
    least = simulate(at(4), TWENTY, workers=1000)["step_s"]
    assert (
        simulate(at(4), TWENTY, workers=needed)["step_s"]
        <= 1.05 * least
        < simulate(at(4), TWENTY, workers=needed - 1)["step_s"]
    )


def test_the_dry_run_says_wall_clock_sandboxes_devices_and_what_it_does_not_know():
    page = "\n".join(estimate(load_config("paper-4b", ["execution.workers=64"])))
    for part in ("4000.0 M weights (by its name)", "GPUs of 80 GB", "of the section estimate", "generation lane busy", "would do",
                 "lag 8", "is prepared"):  # fmt: skip
        assert part in page, part
    page = "\n".join(estimate(load_config("laptop", ["estimate.execute_s=null"])))
    assert "unknown without estimate.execute_s" in page


def test_the_dry_run_takes_the_times_of_an_earlier_run(tmp_path, tiny):
    cfg = config(tmp_path, train__steps=3, tasks__max_turns=1)
    work = trainer(cfg, tiny)
    work.run()
    work.close()
    work.run_dir.release()
    seconds = measured(cfg.run_dir)
    steps = [r for r in work.run_dir.read("metrics.jsonl") if r["step"] > 1]
    assert seconds.learn_s == pytest.approx(sum(r["time/learn_s"] for r in steps) / 2 / 16)
    assert seconds.execute_s == steps[-1]["ledger/execution_s"] / steps[-1]["ledger/executions_paid"]
    assert any(str(cfg.run_dir) in line for line in estimate(load_config("laptop"), like=cfg.run_dir))
    with pytest.raises(InvalidInput, match="at least two steps"):
        measured(tmp_path)


def test_the_dry_run_looks_at_every_task_name():
    for tasks in ("[nowhere]", "[titanic, titanix]", "somewhere"):
        with pytest.raises(InvalidInput, match="Unknown competition"):
            estimate(load_config("laptop", [f"tasks.train={tasks}"]))


def test_the_dry_run_needs_no_torch():
    code = (
        "import sys; from wmrl_train.cli import app; from typer.testing import CliRunner\n"
        "result = CliRunner().invoke(app, ['train', 'paper-4b', '--dry-run'])\n"
        "assert result.exit_code == 0 and 'wall clock' in result.output, result.output\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "override",
    [
        "rollout.groups=100000000000000000",
        "rollout.group_size=10000000",
        "tasks.max_turns=1000000000",
        "anchors.lag=1000000000",
    ],
)
def test_what_nobody_would_wait_for_is_not_simulated(override):
    config = load_config("laptop", [override, "estimate={generate_s: 1, predict_s: 1, execute_s: 1, learn_s: 1}"])
    assert any(line.startswith("wall clock: unknown: ") and override in line for line in estimate(config))
    with pytest.raises(InvalidInput, match=override):
        simulate(config, TWENTY)


def test_any_number_of_workers_is_as_good_as_one_a_program():
    assert simulate(at(4), TWENTY, workers=10**15) == simulate(at(4), TWENTY, workers=1000)


def test_numbers_no_float_can_hold_are_refused():
    with pytest.raises(InvalidInput, match="too large to count with"):
        estimate(load_config("laptop", [f"rollout.groups={10**400}"]))


def test_a_run_that_times_no_lanes_has_no_times_to_take(tmp_path):
    (tmp_path / "config.yaml").write_text("{}")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n')
    with pytest.raises(InvalidInput, match="no times of lanes"):
        measured(tmp_path)
