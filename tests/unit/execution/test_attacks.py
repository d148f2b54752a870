"""The attack scripts of `tests/attacks` (see its README) in every tier of this machine.

The harness around each also checks that the host is untouched: processes, files, data, answers, itself.
"""

import functools
import os
import shutil
import socket
import tempfile
import threading
import tracemalloc
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.ordinary_user import USER, OrdinarySandbox
from tests.unit.execution.conftest import processes_of, wait_until
from wmrl_envs.execution import ExecutionLimits, ProcessSandbox
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
    "b10_memory_files": (ENDED | {Status.MEMORY}, 20, ""),
    "b11_shared_pages": (ENDED | {Status.MEMORY}, 20, ""),
    "b12_system_v": ({Status.OK}, 8, "denied shared memory"),
    "b13_host_shared_memory": ({Status.OK}, 20, "looked"),
    "b14_shared_memory_folders": (ENDED | {Status.DISK, Status.MEMORY}, 20, ""),
    "b15_nameless_files": (ENDED | {Status.DISK, Status.MEMORY}, 20, ""),
    "b16_signals": (ENDED, 20, "end"),
    "b17_other_processes": ({Status.OK}, 20, "looked"),
    "b18_sparse_submission": ({Status.OK}, 8, ""),
    "b19_first_thread_gone": ({Status.OK, Status.MEMORY}, 20, ""),
    "b20_socket_buffers": ({Status.OK, Status.MEMORY}, 20, ""),
    "b21_page_tables": (ENDED | {Status.MEMORY}, 30, ""),
    "b22_watching": ({Status.OK}, 8, "denied inotify"),
    "b23_cores": ({Status.OK}, 8, "cores"),
}
# (that is each tier, as whoever runs the tests and, where that is root, as somebody else too)
BOXES = ["warm_box", "landlock_box", "user_box", "user_landlock_box"]


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


def left_in_shared_folders(box):
    """What runs left in the folders all programs share: folders of dead supervisors, and the scripts' own files."""
    temporary = box.home / "home" if isinstance(box, OrdinarySandbox) else tempfile.gettempdir()
    names = os.listdir(temporary) + os.listdir("/dev/shm")
    owned = [(name, OWNED_FOLDER.match(name)) for name in names]
    dead = {name for name, match in owned if match and start_time(int(match[1])) != int(match[2])}
    return dead | {name for name in names if name.startswith("attack")}


def test_every_given_script_is_expected_to_do_something():
    assert {path.stem for path in ATTACKS.glob("*.py")} == set(EXPECTED)


@contextmanager
def shared_memory_of(user):
    """A private file of this user in /dev/shm, as a trainer has them."""
    file = Path(f"/dev/shm/host-{os.getpid()}")
    file.write_text("SECRET")
    file.chmod(0o600)
    os.chown(file, user, user)
    try:
        yield
    finally:
        file.unlink()


@pytest.fixture
def place(data_dir):
    """The folder with the data for a box: readable by its user, as `data_dir` need not be by somebody who is not root."""

    def of(box):
        if not isinstance(box, OrdinarySandbox):
            return data_dir
        folder = Path(tempfile.mkdtemp(dir=box.home / "data"))
        shutil.copytree(data_dir, folder / "data")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, USER, USER)
        return folder / "data"

    return of


@pytest.mark.parametrize("fixture", BOXES)
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_attack(name, fixture, request, place, monkeypatch):
    box = request.getfixturevalue(fixture)
    check_attack(name, box, place(box), monkeypatch)


def check_attack(name, box, data_dir, monkeypatch):
    """Run one script in `box` and look at everything it could have touched."""
    monkeypatch.setenv("SECRET_KEY", "SECRET")
    user = USER if isinstance(box, OrdinarySandbox) else os.geteuid()
    answers = data_dir.parent / "answers"
    answers.mkdir()
    (answers / "test_labels.csv").write_text("SECRET")
    for path in (answers, answers / "test_labels.csv"):
        os.chown(path, user, user)
    statuses, timeout_s, words = EXPECTED[name]
    limits = ExecutionLimits(
        timeout_s=timeout_s, memory_mb=1024, processes=64, output_bytes=65536, file_mb=64, disk_mb=256, submission_mb=8
    )
    box.run("pass", data_dir, limits)  # the warm server is there before we look
    before = processes_of(os.getpid())
    files = left_in_shared_folders(box)
    data = state_of(data_dir.parent)
    with listeners() as heard, shared_memory_of(user):
        run = box.run((ATTACKS / f"{name}.py").read_text(), data_dir, limits)
    assert run.status in statuses, run
    assert "ATTACK-OK" not in run.stdout + run.stderr, run
    assert words in run.stdout, run
    assert not heard
    assert run.status is Status.OK or run.submission is None
    assert len(run.stdout) <= limits.output_bytes
    assert state_of(data_dir.parent) == data
    assert wait_until(lambda: processes_of(os.getpid()) <= before)
    assert left_in_shared_folders(box) == files
    if os.geteuid() == 0:  # then solutions have users of their own
        users = [(p.info["uids"].real, p.info["ppid"]) for p in psutil.process_iter(["uids", "ppid"]) if p.info["uids"]]
        assert not [user for user, parent in users if user >= FIRST_USER and parent == 1]
    assert box.run("print('alive')", data_dir, limits).stdout == "alive\n"


PROCESSES_THAT_DIE = {
    "init": "import os, signal\nfor number in range(1, 65):\n    try: os.kill(os.getppid(), number)\n    except OSError: pass\n",
    "a limit of init": "import resource\ntry: resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))\nexcept OSError: pass\n",
}


@pytest.mark.parametrize("fixture", BOXES)
@pytest.mark.parametrize("way", sorted(PROCESSES_THAT_DIE))
def test_a_program_cannot_void_its_own_run(fixture, way, request, place):
    box = request.getfixturevalue(fixture)
    code = f"import os, time\n{PROCESSES_THAT_DIE[way]}time.sleep(0.3)\nopen(SUBMISSION_PATH, 'w').write('id,y')"
    run = box.run(code, place(box), ExecutionLimits(timeout_s=20))
    assert (run.status, run.submission) == (Status.OK, b"id,y"), run


@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
def test_an_init_that_dies_while_the_program_runs_is_the_programs_failure(tier, environment, data_dir):
    """Whoever ends it: a program that finds a way must not gain a run that does not count."""
    with ProcessSandbox(environment.root, warm=False, tier=tier, attempts=1) as box:
        box.run("pass", data_dir)
        killer = threading.Thread(target=_kill_init, args=(box._server._process.pid,))
        killer.start()
        code = "import ctypes, time\nprint('begun', flush=True)\nctypes.CDLL(None).prctl(15, b'begun', 0, 0, 0)\ntime.sleep(20)"
        run = box.run(code, data_dir, ExecutionLimits(timeout_s=30))
        killer.join()
    assert (run.status, run.exit_code, run.stdout) == (Status.AGENT_ERROR, -9, "begun\n"), run
    assert "init ended by itself" in run.detail


def _kill_init(server):
    """SIGKILL for the first process of the run, once its program runs (the third generation below the server) and says so by its name."""

    def programs():
        with suppress(psutil.NoSuchProcess):
            init = [i for supervisor in psutil.Process(server).children() for i in supervisor.children()]
            return [program for i in init for program in i.children() if program.name() == "begun"]
        return []

    assert wait_until(programs, timeout_s=20)
    programs()[0].parent().kill()


@pytest.mark.parametrize("fixture", BOXES)
def test_the_cores_of_a_program_are_those_it_was_given(fixture, request, environment, place):
    given = request.getfixturevalue(fixture)
    code = (ATTACKS / "b23_cores.py").read_text()
    make = functools.partial(
        OrdinarySandbox if isinstance(given, OrdinarySandbox) else ProcessSandbox, environment.root, warm=False, cpus=1
    )
    with make(tier=given.tier.partition("+")[0]) as box:
        assert "cores 1\n" in box.run(code, place(box), ExecutionLimits(timeout_s=20)).stdout


def test_reading_a_sparse_submission_back_costs_its_size_once(warm_box, data_dir):
    """Of memory in this process; the others hold a piece of it at a time."""
    size = 256 << 20
    code = f"open(SUBMISSION_PATH, 'wb').truncate({size})"
    tracemalloc.start()
    try:
        run = warm_box.run(code, data_dir, ExecutionLimits(timeout_s=60, file_mb=512, submission_mb=512))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(run.submission) == size, run
    assert peak < 1.5 * size


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
