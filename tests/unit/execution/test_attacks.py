"""The attack scripts of `tests/attacks` (see its README) in every tier of this machine.

The harness around each also checks that the host is untouched: processes, files, data, answers, itself.
"""

import os
import socket
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.unit.execution.conftest import processes_of, wait_until
from wmrl_envs.execution import ExecutionLimits
from wmrl_envs.execution.process.box.tiers import FIRST_USER, start_time
from wmrl_envs.execution.process.reaper import OWNED_FOLDER
from wmrl_envs.outcome import ExecutionStatus as Status

ATTACKS = Path(__file__).parents[2] / "attacks"
ENDED = {Status.OK, Status.AGENT_ERROR}
# script: (allowed statuses, wall limit, what stdout must have)
EXPECTED = {
    "a01_fork_bomb": ({Status.OK, Status.PROCESSES}, 8, "fork refused after"),
    "a02_memory_hog": ({Status.MEMORY}, 20, ""),
    "a03_memory_hog_children": ({Status.MEMORY}, 20, ""),
    "a04_ignore_sigterm": ({Status.TIMEOUT}, 2, "looping"),
    "a06_fill_disk": ({Status.OK, Status.DISK}, 20, "stopped 0 27"),
    "a07_read_secrets": (ENDED, 8, "denied /etc/shadow"),
    "a08_network": (ENDED, 20, "denied udp echo"),
    "a10_fifo_submission": ({Status.INVALID_SUBMISSION}, 8, ""),
    "a11_dir_submission": ({Status.INVALID_SUBMISSION}, 8, ""),
    "a12_huge_submission": ({Status.INVALID_SUBMISSION}, 8, "truncate 27"),
    "a14_stdout_flood": ({Status.OUTPUT}, 8, "AAAA"),
    "a15_binary_output": ({Status.OK}, 8, "\ufffd"),
    "a17_kill_parent": (ENDED | {Status.TIMEOUT}, 3, "denied"),
    "a19_segfault": ({Status.AGENT_ERROR}, 8, "before"),
    "a21_background_thread": ({Status.TIMEOUT}, 2, "main done"),
    "a23_delete_cwd": (ENDED, 8, ""),
    "a26_setuid_escape": ({Status.OK, Status.TIMEOUT}, 20, "denied unshare userns"),
    "a27_recursion_cpu_threads": ({Status.OK}, 20, "cpu seconds used"),
    # ours: what the given ones leave out
    "b01_forged_protocol": (ENDED | {Status.PROCESSES}, 8, "tried"),
    "b02_orphans": ({Status.OK}, 8, "left behind"),
    "b03_hard_link_submission": ({Status.INVALID_SUBMISSION}, 8, ""),
    "b04_change_data": (ENDED, 8, "denied"),
    "b05_shared_memory": ({Status.OK, Status.DISK}, 8, ""),
    "b06_other_packages": (ENDED, 8, "looked"),
    "b07_many_files": ({Status.OK, Status.DISK}, 30, ""),
    "b08_locked_folders": (
        {*ENDED, Status.DISK},
        8,
        "locked",
    ),  # its deep tree is seen if it lives as long as a look at the disk takes
    "b09_deep_tree": ({Status.OK, Status.DISK}, 20, ""),
}


@contextmanager
def listeners():
    """Where the network attacks would get through: TCP 18765, UDP 18766 and an abstract socket; yields what was heard."""
    heard = []
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 18765)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 18766))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind("\0wmrl-abstract")
        abstract.listen()
        yield heard
        for server in (tcp, abstract):
            server.setblocking(False)
            with suppress(BlockingIOError):
                server.accept()[0].close()
                heard.append("connection")
        udp.setblocking(False)
        with suppress(BlockingIOError):
            heard.append(udp.recv(10))


def state_of(folder):
    """Everything about the files of a folder that a program could change."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in [folder, *folder.rglob("*")]
    }


def left_in_shared_folders():
    """What runs left in the folders all programs share: folders of dead supervisors, and the scripts' own files."""
    names = os.listdir(tempfile.gettempdir()) + os.listdir("/dev/shm")
    owned = [(name, OWNED_FOLDER.match(name)) for name in names]
    dead = {name for name, match in owned if match and start_time(int(match[1])) != int(match[2])}
    return dead | {name for name in names if name.startswith("attack")}


def test_every_given_script_is_expected_to_do_something():
    assert {path.stem for path in ATTACKS.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("fixture", ["warm_box", "landlock_box"])
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_attack(name, fixture, request, data_dir, monkeypatch):
    check_attack(name, request.getfixturevalue(fixture), data_dir, monkeypatch)


def check_attack(name, box, data_dir, monkeypatch):
    """Run one script in `box` and look at everything it could have touched."""
    monkeypatch.setenv("SECRET_KEY", "SECRET")
    answers = data_dir.parent / "answers"
    answers.mkdir()
    (answers / "test_labels.csv").write_text("SECRET")
    statuses, timeout_s, words = EXPECTED[name]
    limits = ExecutionLimits(
        timeout_s=timeout_s, memory_mb=1024, processes=64, output_bytes=65536, file_mb=64, disk_mb=256, submission_mb=8
    )
    box.run("pass", data_dir, limits)  # the warm server is there before we look
    before = processes_of(os.getpid())
    files = left_in_shared_folders()
    data = state_of(data_dir.parent)
    with listeners() as heard:
        run = box.run((ATTACKS / f"{name}.py").read_text(), data_dir, limits)
    assert run.status in statuses, run
    assert "ATTACK-OK" not in run.stdout + run.stderr, run
    assert words in run.stdout, run
    assert not heard
    assert run.status is Status.OK or run.submission is None
    assert len(run.stdout) <= limits.output_bytes
    assert state_of(data_dir.parent) == data
    assert wait_until(lambda: processes_of(os.getpid()) <= before)
    assert left_in_shared_folders() == files
    if os.geteuid() == 0:  # then solutions have users of their own
        users = [(p.info["uids"].real, p.ppid()) for p in psutil.process_iter(["uids"])]
        assert not [user for user, parent in users if user >= FIRST_USER and parent == 1]
    assert box.run("print('alive')", data_dir, limits).stdout == "alive\n"


def test_a_socket_file_of_the_host_is_out_of_reach(box, data_dir):
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(data_dir.parent, os.O_PATH)
        server.bind(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
        server.listen()
        (data_dir.parent / "socket").chmod(0o777)
        server.setblocking(False)
        code = f"""
import os, socket
try: os.chdir({str(data_dir.parent)!r}); socket.socket(socket.AF_UNIX).connect("socket"); print("ATTACK-OK")
except OSError as e: print("denied")
"""
        assert box.run(code, data_dir, ExecutionLimits(timeout_s=20)).stdout == "denied\n"


def test_the_landlock_tier_has_what_joblib_reads(landlock_box, data_dir):
    run = landlock_box.run(
        "from joblib import Parallel, delayed\nprint(Parallel(n_jobs=2)(delayed(abs)(-i) for i in range(3)))", data_dir
    )
    if os.geteuid() == 0:  # else there is no shared memory for its workers
        assert run.stdout == "[0, 1, 2]\n", run
