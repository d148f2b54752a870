"""Programs as people and models hand them in: what the sandbox grants is what they find."""

import pytest

from wmrl_envs.execution import ExecutionLimits
from wmrl_envs.outcome import ExecutionStatus
from wmrl_envs.tasks import feedback

LIMITS = ExecutionLimits(timeout_s=60, processes=64)
MANY_CORES = "import os\nos.cpu_count = lambda: 96\nos.sched_getaffinity = lambda p: set(range(96))\n"  # as of a large machine


def test_a_program_is_told_the_cores_that_its_limit_of_processes_allows(box, data_dir):
    code = "import os\nprint(os.cpu_count(), len(os.sched_getaffinity(0)), os.environ['LOKY_MAX_CPU_COUNT'])"
    run = box.run(code, data_dir, ExecutionLimits(timeout_s=60, processes=7))
    assert run.stdout == "1 1 1\n", run.stderr


def test_n_jobs_minus_one_works_on_a_machine_of_many_cores(warm_box, data_dir):
    code = (
        f"{MANY_CORES}import numpy as np\nfrom sklearn.ensemble import RandomForestClassifier\n"
        "X = np.random.rand(50, 3)\ny = (X[:, 0] > 0.5).astype(int)\n"
        "RandomForestClassifier(120, n_jobs=-1).fit(X, y)\nprint('fit')"
    )
    run = warm_box.run(code, data_dir, LIMITS)
    assert (run.status, run.stdout) == (ExecutionStatus.OK, "fit\n"), run.stderr


def test_more_threads_than_allowed_is_the_limit_of_processes(box, data_dir):
    run = box.run("from multiprocessing.pool import ThreadPool\nThreadPool(100)", data_dir, LIMITS)
    assert run.status is ExecutionStatus.PROCESSES, run.stderr


def test_spawned_workers_know_where_the_files_are(box, data_dir):
    code = (
        "import multiprocessing as mp\nROWS = len(open(DATA_DIR + '/train.csv').readlines())\n"
        "def f(x):\n    return x + ROWS\n"
        "if __name__ == '__main__':\n    with mp.get_context('spawn').Pool(1) as pool:\n        print(pool.map(f, range(2)), bool(SUBMISSION_PATH))"
    )
    run = box.run(code, data_dir, LIMITS)
    assert run.stdout == "[41, 42] True\n", run.stderr


def test_the_mark_of_an_editor_is_no_error(box, data_dir):
    assert box.run("\ufeffprint(1)", data_dir, LIMITS).stdout == "1\n"


def test_what_a_stream_held_that_was_wrapped_again_comes_first(box, data_dir):
    code = "import io, sys\nprint('a', end='')\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, 'utf-8')\nprint('b', end='')"
    assert box.run(code, data_dir, LIMITS).stdout == "ab"


def test_after_the_time_limit_there_is_what_was_logged_and_the_submission_so_far(warm_box, data_dir):
    code = (
        "import logging, time\nlogging.basicConfig(level='INFO')\nlogging.info('epoch 7')\n"
        "open(SUBMISSION_PATH, 'w').write('id,y\\n1,2\\n')\ntime.sleep(60)"
    )
    limits = ExecutionLimits(timeout_s=2)
    run = warm_box.run(code, data_dir, limits)
    assert (run.status, run.submission) == (ExecutionStatus.TIMEOUT, b"id,y\n1,2\n")
    text = feedback.render(feedback.report(run, limits=limits))
    assert text.endswith("Error output (its end): INFO:root:epoch 7")


@pytest.mark.parametrize("line", ["raise ValueError('Cannot allocate memory')", "sys.exit('No space left on device')"])
def test_a_message_is_no_evidence_of_a_limit(warm_box, data_dir, line):
    run = warm_box.run(f"import sys\n{line}", data_dir, LIMITS)
    assert run.status is ExecutionStatus.AGENT_ERROR
