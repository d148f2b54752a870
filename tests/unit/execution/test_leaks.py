"""Nothing stays behind: after many runs, after parallel pools, after our own sudden death at any moment."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.unit.execution.conftest import LIMITS, processes_of, wait_until
from wmrl_envs.errors import InfrastructureError
from wmrl_envs.execution import ExecutionLimits, Job, ProcessSandbox
from wmrl_envs.execution.process.box.tiers import folder_name
from wmrl_envs.execution.process.reaper import reap
from wmrl_envs.outcome import ExecutionStatus

PROGRAMS = (
    "print('fine')", "open(SUBMISSION_PATH, 'w').write('id,y\\n')", "1/0", "import os; os.kill(os.getpid(), 11)",
    "import os\nif os.fork() == 0:\n    os.setsid()\n    import time; time.sleep(60)", "import os; os.mkfifo(SUBMISSION_PATH)",
)  # fmt: skip


def footprint(box):
    server = box._server._process
    return {
        "processes": len(processes_of(os.getpid())),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "the server's descriptors": len(os.listdir(f"/proc/{server.pid}/fd")),
        "threads": threading.active_count(),
        "files": len([n for n in os.listdir(tempfile.gettempdir()) + os.listdir("/dev/shm") if n.startswith("wmrl-run")]),
        "mounts": len(Path("/proc/self/mounts").read_text().splitlines()),
    }


def run_all(box, data_dir, count):
    for i in range(count):
        box.run(PROGRAMS[i % len(PROGRAMS)], data_dir, LIMITS)


@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fixture", ["warm_box", "landlock_box"])
def test_many_runs_leave_nothing(fixture, count, request, data_dir):
    box = request.getfixturevalue(fixture)
    run_all(box, data_dir, 2 * len(PROGRAMS))
    before = footprint(box)
    memory = [psutil.Process(pid).memory_info().rss for pid in (os.getpid(), box._server._process.pid)]
    run_all(box, data_dir, count)
    assert wait_until(lambda: all(now <= before[kind] for kind, now in footprint(box).items())), (before, footprint(box))
    after = [psutil.Process(pid).memory_info().rss for pid in (os.getpid(), box._server._process.pid)]
    for was, now in zip(memory, after, strict=True):
        assert now - was < 16 << 20


def test_two_parallel_pools_do_not_disturb_each_other(environment, warm_box, data_dir):
    code = ("import os\nopen('/tmp/mark', 'x').write('a')\nopen('/dev/shm/mark', 'x')\nprint(sorted(os.listdir('/work')), {0})\n"
            "open(SUBMISSION_PATH, 'w').write('{0}')")  # fmt: skip
    results = {}
    with ProcessSandbox(environment.root, warm=False) as other:
        threads = [
            threading.Thread(target=lambda b=box, n=name: results.__setitem__(
                n, b.run_many([Job(code.format(f"{n}{i}"), data_dir, LIMITS) for i in range(10)], concurrency=2)))
            for name, box in ((1, warm_box), (2, other))
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name in (1, 2):
        assert [run.submission for run in results[name]] == [f"{name}{i}".encode() for i in range(10)], results[name]


def test_a_killed_server_is_replaced_and_running_solutions_are_not_lost(environment, data_dir):
    with ProcessSandbox(environment.root, warm=False) as box:
        assert box.run("print(1)", data_dir, LIMITS).stdout == "1\n"
        thread_result = []
        thread = threading.Thread(
            target=lambda: thread_result.append(box.run("import time; time.sleep(1); print(2)", data_dir, LIMITS))
        )
        thread.start()
        time.sleep(0.5)
        box._server._process.kill()
        assert box.run("print(3)", data_dir, LIMITS).stdout == "3\n"
        thread.join()
        assert thread_result[0].stdout == "2\n"


def kill_children(pid, count, killed):
    """Kill the next `count` children of `pid`, each shortly after it appears."""
    while len(killed) < count:
        for child in psutil.Process(pid).children():
            if len(killed) < count and child.pid not in killed:
                time.sleep(0.15)
                killed.append(child.pid)
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        time.sleep(0.01)


def test_a_killed_supervisor_is_our_failure_and_retried(environment, data_dir):
    with ProcessSandbox(environment.root, warm=False, attempts=2) as box:
        box.run("pass", data_dir, LIMITS)
        killer = threading.Thread(target=kill_children, args=(box._server._process.pid, 1, []))
        killer.start()
        assert box.run("import time; time.sleep(.5); print('again')", data_dir, LIMITS).stdout == "again\n"
        killer.join()
        killed = []
        killer = threading.Thread(target=kill_children, args=(box._server._process.pid, 99, killed))
        killer.start()
        with pytest.raises(InfrastructureError, match="supervisor"):
            box.run("import time; time.sleep(5)", data_dir, LIMITS)
        killed.extend(range(-99, 0))
        killer.join()
        assert wait_until(lambda: len(processes_of(box._server._process.pid)) == 0)


def test_closing_ends_running_solutions(environment, data_dir, caplog):
    """And is no failure: nothing is tried again, nothing is complained about."""
    box = ProcessSandbox(environment.root, warm=False)
    errors = []

    def run():
        try:
            box.run("import time; time.sleep(60)", data_dir, LIMITS)
        except InfrastructureError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert wait_until(lambda: box._server._process and len(processes_of(box._server._process.pid)) >= 2)
    server = box._server._process.pid
    box.close()
    thread.join(10)
    assert errors
    assert not caplog.records
    assert not psutil.pid_exists(server)


HARNESS = """
import sys
from wmrl_envs.execution import ExecutionLimits, ProcessSandbox
box = ProcessSandbox(sys.argv[1], warm=False, tier=sys.argv[2])
print("ready", flush=True)
box.run("import os, time\\nfor _ in range(3):\\n    if os.fork() == 0:\\n        os.setsid()\\n        time.sleep(300)\\ntime.sleep(300)",
        sys.argv[3], ExecutionLimits(timeout_s=300))
"""


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
def test_a_harness_killed_at_any_moment_leaves_nothing(environment, data_dir, tier, delay_s):
    argv = [sys.executable, "-c", HARNESS, str(environment.root), tier, str(data_dir)]
    harness = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3])
    assert harness.stdout.readline() == b"ready\n"
    time.sleep(delay_s)
    tree = processes_of(harness.pid)
    harness.send_signal(signal.SIGKILL)
    harness.wait()
    harness.stdout.close()
    assert wait_until(lambda: not any(psutil.pid_exists(pid) for pid in tree))
    assert wait_until(lambda: not [n for n in os.listdir(tempfile.gettempdir()) if n.startswith("wmrl-run")])


def test_everything_killed_at_once_is_cleaned_up_at_the_next_start(environment, data_dir):
    folder = Path(tempfile.mkdtemp(prefix="killed-"))  # its own: sandboxes of other tests reap the common one
    folder.chmod(0o755)
    argv = [sys.executable, "-c", HARNESS, str(environment.root), "landlock", str(data_dir)]
    ours = {**os.environ, "TMPDIR": str(folder)}
    harness = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3], env=ours)
    harness.stdout.readline()
    assert wait_until(lambda: len(processes_of(harness.pid)) >= 6)
    server = psutil.Process(harness.pid).children()[0]
    supervisor = server.children()[0]
    for how in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that none of them can tidy up after another
        for pid in (harness.pid, server.pid, supervisor.pid):
            os.kill(pid, how)
    harness.wait()
    harness.stdout.close()
    assert wait_until(lambda: not psutil.pid_exists(supervisor.pid)), "a zombie until somebody waits for it"
    reap(str(folder))  # finds nothing if the solution's own init was quicker
    assert not list(folder.glob("wmrl-run-*"))
    assert wait_until(lambda: not [p for p in psutil.process_iter(["cwd"]) if (p.info["cwd"] or "").startswith(str(folder))])
    shutil.rmtree(folder)


def test_the_reaper_removes_the_folder_of_a_dead_supervisor(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = tmp_path / f"wmrl-run-{dead.pid}-1"
    (left / "work" / "deep").mkdir(parents=True)
    assert reap(str(tmp_path)) == 1
    assert not left.exists()


def test_the_reaper_leaves_living_runs_and_other_files_alone(landlock_box, data_dir, tmp_path):
    (tmp_path / "wmrl-run-notes").mkdir()
    assert reap(str(tmp_path)) == 0
    assert (tmp_path / "wmrl-run-notes").is_dir()
    thread = threading.Thread(
        target=landlock_box.run, args=("import time; time.sleep(1)", data_dir, ExecutionLimits(timeout_s=5))
    )
    thread.start()
    folder = Path(tempfile.gettempdir())
    assert wait_until(lambda: list(folder.glob("wmrl-run-*")))
    assert reap() == 0
    assert list(folder.glob("wmrl-run-*"))
    thread.join()


def test_a_full_host_disk_is_our_failure(environment, data_dir, tmp_path, monkeypatch):
    missing = tmp_path / "gone"
    with ProcessSandbox(environment.root, warm=False, tier="landlock", attempts=1) as box:
        monkeypatch.setattr(tempfile, "tempdir", str(missing))  # as unusable as a full one
        with pytest.raises(InfrastructureError, match="No such file"):
            box.run("print(1)", data_dir, LIMITS)
    assert ExecutionStatus.INFRA_ERROR.is_agents_own is False


def test_a_folder_whose_random_ending_is_digits_still_says_whose_it_is(tmp_path):
    """A harness that cleans up beside a living one must not take the ending for a part of the start time."""
    for ending in ("", "-4567abcd", "-12345678"):
        (tmp_path / (folder_name("docker", os.getpid()) + ending)).mkdir()
    dead = tmp_path / f"wmrl-docker-{os.getpid()}-1-1234"
    dead.mkdir()
    assert reap(str(tmp_path)) == 1
    assert not dead.exists()
    assert len(list(tmp_path.iterdir())) == 3
