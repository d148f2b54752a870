"""Programs that start from a prelude that was executed before."""

import dataclasses

import psutil
import pytest

from tests.unit.execution.conftest import LIMITS
from wmrl_envs.execution import Job, ProcessSandbox
from wmrl_envs.execution.process.holders import Holders
from wmrl_envs.outcome import ExecutionStatus

PRELUDE = """
import os
import numpy as np
import pandas as pd
np.random.seed(0)
folder = os.environ["DATA_DIR"]
table = pd.read_csv(folder + "/train.csv")
scale = float(os.environ.get("SCALE", 1))


def save(values):
    pd.DataFrame({"x": table["x"], "y": values}).to_csv(os.environ["SUBMISSION_PATH"], index=False)
"""
SAVE = "print(np.random.rand(2), folder, DATA_DIR, len(table), __name__)\nsave(table['y'] * scale)"


def job(code, data_dir, hold=True, **env):
    return Job(code, data_dir, LIMITS, PRELUDE, env, hold=hold)


def seen(run):
    return dataclasses.replace(run, wall_s=0.0, cpu_s=0.0, setup_cpu_s=0.0, peak_memory_mb=0.0)


def holder(box):
    """The first child of the server: a supervisor of a run that just ended may still be there."""
    return min(psutil.Process(box._server._process.pid).children(), key=lambda process: process.pid)


@pytest.fixture(params=["namespaces", "landlock"])
def fresh_box(environment, request):
    with ProcessSandbox(environment.root, tier=request.param, held=2) as box:
        yield box


@pytest.mark.parametrize(
    "code", [SAVE, "1/0", "table = None\nsave([1])", "raise SystemExit(3)", "f = open('submission.csv', 'w'); f.write('a')"]
)
def test_a_held_prelude_gives_what_an_executed_one_gives(fresh_box, data_dir, code):
    assert seen(fresh_box.run_job(job(code, data_dir))) == seen(fresh_box.run_job(job(code, data_dir, hold=False)))


def test_what_one_program_changes_no_other_sees(fresh_box, data_dir):
    spoil = "table.loc[:, 'y'] = 7\nsave = None\npd.read_csv = None\nopen('left', 'w').write('x')\nos.environ['SCALE'] = '3'"
    before = fresh_box.run_job(job(SAVE, data_dir))
    assert fresh_box.run_job(job(spoil, data_dir)).status is ExecutionStatus.OK
    after = fresh_box.run_job(job(SAVE + "\nassert not os.path.exists('left')", data_dir))
    assert after.submission == before.submission is not None


def test_the_prelude_is_executed_once_and_its_cost_is_told_once(fresh_box, data_dir):
    runs = [fresh_box.run_job(job(SAVE, data_dir)) for _ in range(3)]
    assert runs[0].setup_cpu_s > 0
    assert [run.setup_cpu_s for run in runs[1:]] == [0, 0]


def test_data_that_changed_and_other_variables_are_read_anew(fresh_box, data_dir):
    fresh_box.run_job(job(SAVE, data_dir))
    (data_dir / "train.csv").write_text("x,y\n5,1\n")
    assert fresh_box.run_job(job(SAVE, data_dir)).submission == b"x,y\n5,1.0\n"
    assert fresh_box.run_job(job(SAVE, data_dir, SCALE="2")).submission == b"x,y\n5,2.0\n"


def test_the_least_recently_used_ends_when_there_are_too_many(fresh_box, data_dir):
    for scale in "1231":
        fresh_box.run_job(job(SAVE, data_dir, SCALE=scale))
    assert fresh_box.run_job(job(SAVE, data_dir, SCALE="3")).setup_cpu_s == 0
    assert fresh_box.run_job(job(SAVE, data_dir, SCALE="2")).setup_cpu_s > 0


def test_the_memory_of_all_together_is_bounded(environment, data_dir):
    with ProcessSandbox(environment.root, held_mb=1) as box:
        for scale in "121":
            assert box.run_job(job(SAVE, data_dir, SCALE=scale)).setup_cpu_s > 0


def test_a_prelude_that_fails_or_starts_a_thread_is_left_to_each_program(fresh_box, data_dir):
    for prelude in ("1/0", "import threading, time\nthreading.Thread(target=time.sleep, args=(5,), daemon=True).start()"):
        runs = [fresh_box.run_job(Job("print(1)", data_dir, LIMITS, prelude, hold=hold)) for hold in (True, False)]
        assert seen(runs[0]) == seen(runs[1])


def test_a_holder_that_died_is_made_again(fresh_box, data_dir):
    fresh_box.run_job(job(SAVE, data_dir))
    holder(fresh_box).kill()
    run = fresh_box.run_job(job(SAVE, data_dir))
    assert run.status is ExecutionStatus.OK
    assert run.setup_cpu_s > 0


def test_nothing_is_left_of_a_closed_sandbox(environment, data_dir):
    with ProcessSandbox(environment.root) as box:
        box.run_job(job(SAVE, data_dir))
        processes = [psutil.Process(box._server._process.pid), holder(box)]
    assert not psutil.wait_procs(processes, timeout=20)[1]


def test_a_nicer_program_says_so(warm_box, data_dir):
    run = warm_box.run_job(Job("import os; print(os.nice(0))", data_dir, LIMITS, nice=7))
    assert run.stdout == "7\n"


def test_holders_that_may_hold_nothing_lend_nothing(data_dir):
    class NeverAsked:
        def hold(self, *args):
            raise AssertionError

    assert Holders(NeverAsked(), 0, 100).lend(job(SAVE, data_dir)) is None
