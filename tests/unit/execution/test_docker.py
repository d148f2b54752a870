"""The Docker sandbox, on a daemon that the tests start by hand where this machine can run one."""

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

import pytest

from tests.unit.execution.conftest import LIMITS, wait_until
from tests.unit.execution.test_attacks import EXPECTED, check_attack
from wmrl_envs.errors import DataNotBuilt, InfrastructureError
from wmrl_envs.execution import DockerSandbox, ExecutionLimits, make_sandbox
from wmrl_envs.execution.docker import LABEL, reap_containers
from wmrl_envs.outcome import ExecutionStatus

pytestmark = pytest.mark.docker
docker = pytest.importorskip("docker")


@pytest.fixture(scope="session")
def daemon():
    """Address of a Docker daemon: the machine's own, or one of ours with no network, ended afterwards."""
    with contextlib.suppress(docker.errors.DockerException):
        docker.from_env().ping()
        yield None
        return
    if shutil.which("dockerd") is None:
        pytest.skip("no Docker daemon answers and dockerd is not installed")
    if os.geteuid() != 0:
        pytest.skip("no Docker daemon answers and only root can start one")
    folder = Path(tempfile.mkdtemp(prefix="dockerd-"))
    argv = ["dockerd", "--data-root", folder / "data", "--exec-root", folder / "exec", "--pidfile", folder / "pid",
            "-H", f"unix://{folder}/socket", "--iptables=false", "--ip6tables=false", "--bridge=none"]  # fmt: skip
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:

        def answers():
            with contextlib.suppress(docker.errors.DockerException, OSError):
                return docker.DockerClient(base_url=f"unix://{folder}/socket").ping()
            return process.poll() is not None

        wait_until(answers, timeout_s=30)
        if process.poll() is not None:
            pytest.skip(f"dockerd cannot run here: {(folder / 'log').read_text().strip().splitlines()[-1][:300]}")
        yield f"unix://{folder}/socket"
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def docker_box(daemon, environment):
    with DockerSandbox("host", environment=environment.root, base_url=daemon, attempts=1) as box:
        yield box


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_attack_in_a_container(name, docker_box, data_dir, monkeypatch):
    check_attack(name, docker_box, data_dir, monkeypatch)
    ours = docker_box._client.containers.list(all=True, filters={"label": LABEL})
    assert not ours


def test_a_container_is_hardened(docker_box, data_dir):
    code = ("import os\nstatus = dict(l.split(':', 1) for l in open('/proc/self/status') if ':' in l)\n"
            "print(os.getuid(), status['CapEff'].strip(), status['CapBnd'].strip(), status['NoNewPrivs'].strip(), status['Seccomp'].strip())\n"
            "print(sorted(os.listdir('/sys/class/net')))\n"
            "for path in ('/x', '/usr/x', DATA_DIR + '/x', '/wmrl/x'):\n    try: open(path, 'w'); print('wrote', path)\n    except OSError: pass")  # fmt: skip
    run = docker_box.run(code, data_dir, LIMITS)
    assert run.stdout.splitlines() == ["65534 0000000000000000 0000000000000000 1 2", "['lo']"], run


@pytest.mark.parametrize(
    ("code", "status", "limits"),
    [
        ("open(SUBMISSION_PATH, 'w').write('id\\n')", "ok", {}),
        ("1/0", "agent_error", {}),
        ("while True: pass", "timeout", {"timeout_s": 1}),
        ("while True: pass", "timeout", {"cpu_s": 1}),
        ("x = bytearray(900 << 20)", "memory", {"memory_mb": 256}),
        ("import os, mmap\nm = mmap.mmap(-1, 900 << 20)\nfor i in range(900): m[i << 20:(i + 1) << 20] = bytes(1 << 20)", "memory", {"memory_mb": 128}),
        ("open('big', 'wb').write(bytes(9 << 20))", "disk", {"disk_mb": 4}),
        ("import os\nos.kill(os.getppid(), 9)\nimport time; time.sleep(9)", "agent_error", {}),
    ],
)  # fmt: skip
def test_limits_of_a_container(docker_box, data_dir, code, status, limits):
    run = docker_box.run(
        code, data_dir, ExecutionLimits(**{"timeout_s": 20, "memory_mb": 1024, "disk_mb": 64, "submission_mb": 1, **limits})
    )
    assert run.status.value == status, run
    assert run.tier == "docker"
    assert (run.submission == b"id\n") == (status == "ok")


def test_private_data_is_shown_to_the_container(docker_box, tmp_path):
    tmp_path.chmod(0o700)
    (tmp_path / "f").write_text("7")
    (tmp_path / "f").chmod(0o600)
    assert docker_box.run("print(open(DATA_DIR + '/f').read())", tmp_path, LIMITS).stdout == "7\n"


def test_a_removed_container_and_a_dead_daemon_are_our_failure(daemon, docker_box, data_dir):
    def remove():
        wait_until(lambda: docker_box._client.containers.list(filters={"label": LABEL}))
        for container in docker_box._client.containers.list(filters={"label": LABEL}):
            container.remove(force=True)

    thread = threading.Thread(target=remove)
    thread.start()
    with pytest.raises(InfrastructureError):
        docker_box.run("import time; time.sleep(20)", data_dir, LIMITS)
    thread.join()
    with pytest.raises(InfrastructureError, match="No Docker daemon"):
        make_sandbox("docker", base_url="unix:///nonexistent/socket")
    with pytest.raises(DataNotBuilt, match="docker build"):
        DockerSandbox("no-such-image:9", base_url=daemon)


HARNESS = """
import sys
from wmrl_envs.execution import DockerSandbox
box = DockerSandbox("host", environment=sys.argv[1], base_url=sys.argv[3] or None)
print("ready", flush=True)
box.run("import time; time.sleep(300)", sys.argv[2])
"""


def test_containers_of_a_killed_harness_are_removed_at_the_next_start(daemon, docker_box, environment, data_dir):
    argv = [sys.executable, "-c", HARNESS, str(environment.root), str(data_dir), daemon or ""]
    harness = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3])
    assert harness.stdout.readline() == b"ready\n"
    client = docker_box._client
    assert wait_until(lambda: client.containers.list(filters={"label": LABEL}), timeout_s=20)
    time.sleep(0.3)
    assert reap_containers(client) == 0
    harness.send_signal(signal.SIGKILL)
    harness.wait()
    harness.stdout.close()
    DockerSandbox("host", environment=environment.root, base_url=daemon).close()
    assert not client.containers.list(all=True, filters={"label": LABEL})
    assert not list(Path(tempfile.gettempdir()).glob("wmrl-docker-*"))


def test_infrastructure_failures_are_no_status():
    assert ExecutionStatus.INFRA_ERROR not in {run for statuses, _, _ in EXPECTED.values() for run in statuses}
