"""What a program sees, and what is told about it."""

import os
from dataclasses import replace

import numpy as np
import pytest

from tests.unit.execution.conftest import LIMITS
from wmrl_envs.execution import ExecutionLimits, Job, describe
from wmrl_envs.outcome import ExecutionStatus

FIT = """
import os
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
table = pd.read_csv(os.path.join(DATA_DIR, "train.csv"))
model = LogisticRegression().fit(table[["x"]], table["y"])
print("accuracy", round(model.score(table[["x"]], table["y"]), 3))
np.random.seed(3)
print(np.random.rand(2))
pd.DataFrame({"id": table["x"], "y": model.predict_proba(table[["x"]])[:, 1]}).to_csv(os.environ["SUBMISSION_PATH"], index=False)
"""


def test_a_program_that_fits_a_model_is_ok_and_its_submission_is_read(box, data_dir):
    run = box.run(FIT, data_dir, LIMITS)
    assert run.status is ExecutionStatus.OK, run
    assert run.submission is not None
    assert run.submission.startswith(b"id,y\n0,")
    assert run.stdout.startswith("accuracy 0.")
    assert run.exit_code == 0
    assert run.wall_s > 0
    assert run.cpu_s > 0
    assert 20 < run.peak_memory_mb < 1024
    assert run.tier.removesuffix("+cgroup") in ("namespaces", "landlock")


def test_warm_and_cold_runs_agree(warm_box, cold_box, data_dir):
    programs = [FIT, "print(__name__, __file__, type(DATA_DIR).__name__)", "import sys; print(sys.argv, sys.path[0])", "1/0",
                "def f(:\n  pass", "import sys; sys.exit(3)", "raise SystemExit('no')", "print('x', end='')", "import absent"]  # fmt: skip
    for code in programs:
        warm, cold = (box.run(code, data_dir, LIMITS) for box in (warm_box, cold_box))
        for name in ("status", "exit_code", "stdout", "stderr", "submission"):
            assert getattr(warm, name) == getattr(cold, name), (code, name)


def test_the_paths_are_variables_and_environment_variables(box, data_dir):
    run = box.run("import os\nprint(DATA_DIR == os.environ['DATA_DIR'], SUBMISSION_PATH == os.environ['SUBMISSION_PATH'])\n"
                  "print(sorted(os.listdir(DATA_DIR)), __name__)", data_dir, LIMITS)  # fmt: skip
    assert run.stdout == "True True\n['train.csv'] __main__\n", run


def test_a_traceback_has_the_programs_own_lines_and_no_frame_of_ours(box, data_dir):
    code = "import json\n\ndef load():\n    return json.loads('{')\n\nload()\n"
    run = box.run(code, data_dir, LIMITS, prelude="def helper():\n    pass\n" * 10)
    assert run.status is ExecutionStatus.AGENT_ERROR
    assert run.exit_code == 1
    lines = run.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1:3] == ['  File "/work/solution.py", line 6, in <module>', "    load()"]
    assert lines[3:5] == ['  File "/work/solution.py", line 4, in load', "    return json.loads('{')"]
    assert "runner.py" not in run.stderr
    assert "wmrl" not in run.stderr.replace("/wmrl/sandbox/", "")


def test_the_prelude_shares_the_namespace_and_keeps_its_own_name(box, data_dir):
    run = box.run("print(twice(4))\ntwice(None)", data_dir, LIMITS, prelude="def twice(x):\n    return x * 2\n")
    assert run.stdout == "8\n"
    assert 'File "/work/solution.py", line 2, in <module>' in run.stderr
    assert 'File "<scaffold>", line 2, in twice' in run.stderr


def test_an_unclosed_file_is_written_at_the_end(box, data_dir):
    run = box.run("f = open(SUBMISSION_PATH, 'w')\nf.write('id,y\\n')", data_dir, LIMITS)
    assert run.submission == b"id,y\n"


def test_random_numbers_differ_between_runs_and_repeat_with_a_seed(warm_box, data_dir):
    code = "import numpy as np, random\nprint(np.random.rand(), random.random())"
    first, second = (warm_box.run(code, data_dir, LIMITS).stdout for _ in range(2))
    assert first != second
    seeded = warm_box.run("import numpy as np\nnp.random.seed(0)\nprint(repr(float(np.random.rand())))", data_dir, LIMITS)
    assert float(seeded.stdout) == np.random.RandomState(0).rand()


def test_variables_given_for_a_run_are_seen_and_nothing_else_of_ours(box, data_dir, monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "s3cret")
    code = "import os\nprint(os.environ.get('EXTRA'), os.environ.get('SECRET_KEY'), os.environ['OMP_NUM_THREADS'])"
    assert box.run(code, data_dir, LIMITS, env={"EXTRA": "7"}).stdout == "7 None 1\n"
    assert box.run(code, data_dir, LIMITS, env={"OMP_NUM_THREADS": "2"}).stdout == "None None 2\n"


def test_multiprocessing_and_pickling_of_the_programs_own_functions_work(box, data_dir):
    if box.tier.startswith("landlock") and os.geteuid() != 0:
        pytest.skip("behind Landlock without root there is no shared memory, so no pool")
    code = ("import multiprocessing as mp\ndef square(x):\n    return x * x\n"
            "if __name__ == '__main__':\n    with mp.Pool(2) as pool:\n        print(pool.map(square, range(4)))\n"
            "    with mp.get_context('spawn').Pool(1) as pool:\n        print(pool.map(square, [5]))")  # fmt: skip
    run = box.run(code, data_dir, LIMITS)
    assert run.stdout == "[0, 1, 4, 9]\n[25]\n", run


def test_data_only_its_owner_can_read_is_readable_and_not_writable(box, tmp_path):
    tmp_path.chmod(0o700)
    (tmp_path / "private.csv").write_text("1")
    (tmp_path / "private.csv").chmod(0o600)
    code = "print(open(DATA_DIR + '/private.csv').read())\nopen(DATA_DIR + '/private.csv', 'w')"
    run = box.run(code, tmp_path, LIMITS)
    assert run.stdout == "1\n", run
    assert "Error" in run.stderr
    assert (tmp_path / "private.csv").read_text() == "1"


BURN = "import os, time\ndef burn(s):\n    end = time.process_time() + s\n    while time.process_time() < end: pass\n"


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import threading\nfor _ in range(3): threading.Thread(target=burn, args=(60,)).start()",
        "for _ in range(3):\n    if os.fork() == 0: burn(60)\nos.wait()",
        "while True:\n    if os.fork() == 0:\n        burn(0.1)\n        os._exit(0)\n    os.wait()",
        "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True:\n    if os.fork() == 0:\n        burn(0.2)\n        os._exit(0)\n    time.sleep(0.05)",
    ],
    ids=["loop", "threads", "children", "children one after the other", "children nobody waits for"],
)  # fmt: skip
def test_cpu_time_is_that_of_all_processes_and_the_status_says_which_limit_it_was(box, data_dir, code):
    limits = replace(LIMITS, cpu_s=0.6)
    run = box.run(BURN + code, data_dir, limits)
    assert (run.status.value, run.detail) == ("timeout", "ended at the limit: cpu"), run
    assert "the CPU-time limit of 0.6 s was exceeded" in describe(run, limits)


def test_a_program_that_waits_uses_no_cpu_time(box, data_dir):
    run = box.run("import time; time.sleep(1); print('done')", data_dir, replace(LIMITS, cpu_s=0.9))
    assert run.stdout == "done\n", run
    waited = box.run("import time; time.sleep(60)", data_dir, replace(LIMITS, cpu_s=30, timeout_s=0.5))
    assert (waited.status.value, waited.detail) == ("timeout", "ended at the limit: timeout")


@pytest.mark.parametrize(
    ("code", "status", "limits"),
    [
        ("while True: pass", "timeout", {"timeout_s": 1}),
        ("x = bytearray(600 << 20)", "memory", {"memory_mb": 512}),
        ("raise MemoryError", "memory", {}),
        ("import os\nfor _ in range(6):\n    if os.fork() == 0:\n        x = bytearray(200 << 20)\n        import time; time.sleep(5)\n"
         "os.wait()\nimport time; time.sleep(5)", "memory", {"memory_mb": 512}),
        ("import threading, time\nfor _ in range(99):\n    threading.Thread(target=time.sleep, args=(3,), daemon=True).start()",
         "processes", {"processes": 20}),
        ("import os\nwhile True:\n    if os.fork() == 0: os.read(os.pipe()[0], 1)", "processes", {"processes": 10}),
        ("while True: print('x' * 4096)", "output", {}),
        ("open('big', 'wb').write(bytes(9 << 20))", "disk", {"file_mb": 4}),
        ("for i in range(99): open(str(i), 'wb').write(bytes(1 << 20))\nimport time; time.sleep(1)", "disk", {"disk_mb": 16}),
        ("open(SUBMISSION_PATH, 'wb').write(bytes(3 << 20))", "invalid_submission", {"submission_mb": 2}),
        ("import os; os.symlink('/etc/passwd', SUBMISSION_PATH)", "invalid_submission", {}),
        ("import os; os.kill(os.getpid(), 9)", "agent_error", {}),
        ("import sys; sys.exit(7)", "agent_error", {}),
        ("print('no submission')", "ok", {}),
    ],
)  # fmt: skip
def test_every_limit_has_its_status_and_a_text_the_agent_can_act_on(box, data_dir, code, status, limits):
    limits = ExecutionLimits(**{"timeout_s": 6, "memory_mb": 1024, "processes": 64, "output_bytes": 4096, "file_mb": 64,
                                "disk_mb": 256, "submission_mb": 8, **limits})  # fmt: skip
    run = box.run(code, data_dir, limits)
    assert run.status.value == status, run
    assert run.submission is None
    assert len(run.stdout) <= limits.output_bytes
    text = describe(run, limits)
    assert len(text.splitlines()) == 1 or status == "agent_error"
    assert len(text) > 40
    if status == "invalid_submission":
        assert run.submission_problem
        assert run.submission_problem in text


def test_head_and_tail_of_a_long_output_are_kept(warm_box, data_dir):
    run = warm_box.run("print('first')\nprint('x' * 100_000)\nprint('last')", data_dir, ExecutionLimits(output_bytes=1000))
    assert run.stdout.startswith("first\n")
    assert run.stdout.endswith("last\n")
    assert len(run.stdout) <= 1000
    assert "100012 bytes in all" in run.stdout


def test_cpu_time_and_memory_of_children_are_counted(box, data_dir):
    code = ("import os, time\nfor _ in range(2):\n    if os.fork() == 0:\n        x = bytearray(150 << 20)\n        end = time.process_time() + .4\n"
            "        while time.process_time() < end: pass\n        os._exit(0)\nos.wait(); os.wait()")  # fmt: skip
    run = box.run(code, data_dir, LIMITS)
    assert 0.75 < run.cpu_s < 3, run
    assert 280 < run.peak_memory_mb < 700, run


def test_run_many_keeps_the_order_and_returns_a_users_error_in_place(warm_box, data_dir):
    jobs = [Job(f"print({i})", data_dir, LIMITS) for i in range(6)] + [Job("print(1)", data_dir / "absent", LIMITS)]
    *results, refused = warm_box.run_many(jobs, concurrency=2)
    assert [result.stdout for result in results] == [f"{i}\n" for i in range(6)]
    assert isinstance(refused, ValueError)
