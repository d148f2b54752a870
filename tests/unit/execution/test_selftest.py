"""The isolation is tested before it is trusted, and refused where the test fails."""

import json
import os
import socket
import subprocess
import sys
import threading

import pytest
from typer.testing import CliRunner

from wmrl_envs import paths
from wmrl_envs.errors import IsolationError, WmrlError
from wmrl_envs.execution import ProcessSandbox, make_sandbox, selftest
from wmrl_envs.execution.process import client
from wmrl_envs.execution.process.box import landlock, seccomp
from wmrl_envs.execution.process.gpus import GpuLeases
from wmrl_train.cli import app


@pytest.fixture
def own_home(monkeypatch, tmp_path):
    monkeypatch.setenv("WMRL_HOME", str(tmp_path / "home"))


def test_the_self_test_finds_what_is_open_without_isolation(environment):
    failures = selftest.probe_tier(environment, "unsafe")
    assert {"read a file of the host", "connect to the host by TCP", "connect to an abstract socket of the host"} <= set(
        failures
    )
    assert set(failures) < set(selftest.PROBES)
    assert len(selftest.PROBES) == 22


def test_the_isolating_tiers_pass_it_here(environment):
    report = selftest.tier_report(environment, fresh=True)
    assert report["namespaces"] == [] or report["landlock"] == [], report


def test_a_machine_without_isolation_is_refused_with_probe_and_advice(environment, own_home, monkeypatch):
    monkeypatch.setattr(selftest, "probe_tier", lambda environment, tier: [f"do evil in {tier}"])
    with pytest.raises(
        IsolationError, match=r"do evil in namespaces.*do evil in landlock.*user namespaces.*Docker.*allow_unsafe"
    ):
        ProcessSandbox(environment.root)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/socket")
    with pytest.raises(IsolationError, match="Docker is no way out either"):
        make_sandbox("auto", environment=environment.root)
    with ProcessSandbox(environment.root, allow_unsafe=True, warm=False) as box:
        assert box.tier == "unsafe"
        assert box.run("print(1)", paths.home()).tier == "unsafe"


def test_the_better_tier_that_works_is_taken(environment, own_home, monkeypatch):
    monkeypatch.setattr(selftest, "probe_tier", lambda environment, tier: ["do evil"] if tier == "namespaces" else [])
    assert selftest.choose_tier(environment) == "landlock"
    with pytest.raises(IsolationError, match="in namespaces a solution can do evil"):
        selftest.choose_tier(environment, "namespaces")
    with pytest.raises(IsolationError, match="allow_unsafe"):
        selftest.choose_tier(environment, "unsafe")
    with pytest.raises(WmrlError, match="no tier 'chroot'"):
        selftest.choose_tier(environment, "chroot")


def test_the_result_is_remembered_for_this_machine_only(environment, own_home, monkeypatch):
    calls = []
    monkeypatch.setattr(selftest, "probe_tier", lambda environment, tier: calls.append(tier) or [])
    selftest.tier_report(environment)
    selftest.tier_report(environment)
    assert calls == ["namespaces", "landlock"]
    file = paths.sandbox_dir() / "selftest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "key": "another boot"}))
    selftest.tier_report(environment)
    assert len(calls) == 4
    file.write_text("not JSON")
    selftest.tier_report(environment)
    assert len(calls) == 6


def test_seccomp_refuses_namespaces_and_network_but_not_threads():
    code = """
import ctypes, socket, sys, threading
sys.path.insert(0, sys.argv[1])
from box import kernel, seccomp
kernel.no_new_privileges()
seccomp.install()
libc = ctypes.CDLL(None, use_errno=True)
for name, call in {"unshare": lambda: libc.unshare(0x10000000), "ptrace": lambda: libc.ptrace(0, 0, 0, 0)}.items():
    assert call() == -1 and ctypes.get_errno() == 1, name
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_VSOCK):
    try: socket.socket(family, socket.SOCK_DGRAM); raise SystemExit(family)
    except OSError as e: assert e.errno == 97, e
socket.socketpair()
thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
"""
    folder = os.path.dirname(client.__file__)
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True)
    assert done.stdout == "thread\n", done.stderr


def test_seccomp_without_sockets_leaves_connected_pairs():
    code = """
import socket, sys
sys.path.insert(0, sys.argv[1])
from box import kernel, seccomp
kernel.no_new_privileges()
seccomp.install(sockets=False)
for make in (socket.socket, socket.socketpair):
    try: make(socket.AF_UNIX, socket.SOCK_DGRAM); raise SystemExit(make)
    except OSError as e: assert e.errno == 97, e
one, other = socket.socketpair()
one.send(b"pair"); print(other.recv(4).decode())
"""
    done = subprocess.run([sys.executable, "-c", code, os.path.dirname(client.__file__)], capture_output=True, text=True)
    assert done.stdout == "pair\n", done.stderr


def test_landlock_allows_what_it_is_told():
    if landlock.version() < 1:
        pytest.skip("this kernel has no Landlock")
    code = """
import os, sys
sys.path.insert(0, sys.argv[1])
from box import kernel, landlock
os.mkdir(sys.argv[2] + "/r"); os.mkdir(sys.argv[2] + "/w"); open(sys.argv[2] + "/r/f", "w").close(); open(sys.argv[2] + "/secret", "w").close()
kernel.no_new_privileges()
landlock.restrict([sys.argv[2] + "/r"], [sys.argv[2] + "/w"], [])
open(sys.argv[2] + "/r/f"); open(sys.argv[2] + "/w/f", "w").close()
for path, mode in (("/r/f", "w"), ("/secret", "r"), ("/new", "w")):
    try: open(sys.argv[2] + path, mode); print("allowed", path)
    except PermissionError: pass
"""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", code, os.path.dirname(client.__file__), folder], capture_output=True, text=True
        )
    assert (done.returncode, done.stdout) == (0, ""), done


def test_seccomp_knows_only_its_architectures(monkeypatch):
    monkeypatch.setattr("wmrl_envs.execution.process.box.kernel.MACHINE", "aarch64")
    assert len(seccomp.program()) % 8 == 0
    monkeypatch.setattr("wmrl_envs.execution.process.box.kernel.MACHINE", "riscv64")
    with pytest.raises(OSError, match="riscv64"):
        seccomp.program()


def test_a_gpu_is_lent_to_one_solution_at_a_time(own_home):
    leases, others = GpuLeases(["0", "1"]), GpuLeases([0, 1])
    with leases.lease() as first, others.lease() as second:
        assert {first, second} == {"0", "1"}
        waiting = threading.Thread(target=lambda: leases.lease().__enter__())
        waiting.daemon = True
        waiting.start()
        waiting.join(0.4)
        assert waiting.is_alive()
    waiting.join(5)
    assert not waiting.is_alive()
    with GpuLeases().lease() as none:
        assert none is None
    for devices, per_device in ((["0", "0"], 1), (["0"], 0), (["../x"], 1)):
        with pytest.raises(WmrlError, match="gpus="):
            GpuLeases(devices, per_device)


def test_doctor_and_check_say_what_works(environment):
    runner = CliRunner()
    report = runner.invoke(app, ["doctor"])
    assert report.exit_code == 0, report.output
    for words in (
        "Python 3",
        "sandbox environment",
        "isolation by namespaces",
        "isolation by landlock",
        "docker",
        "free",
        "extra train",
    ):
        assert words in report.output
    checked = runner.invoke(app, ["sandbox", "check"])
    assert checked.exit_code == 0, checked.output
    assert "hello from the sandbox" in checked.output


def test_a_socket_is_not_left_open_by_the_self_test(environment):
    before = len(os.listdir("/proc/self/fd"))
    selftest.probe_tier(environment, "namespaces")
    assert len(os.listdir("/proc/self/fd")) == before
    assert socket.getdefaulttimeout() is None
