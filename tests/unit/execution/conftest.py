"""One warm sandbox for all tests here: starting it costs seconds. One test at a time: they look at the whole machine."""

import os
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock

from tests.ordinary_user import OrdinarySandbox
from wmrl_envs.errors import DataNotBuilt
from wmrl_envs.execution import ExecutionLimits, ProcessSandbox
from wmrl_envs.execution.environment import load_environment

LIMITS = ExecutionLimits(
    timeout_s=40, memory_mb=1024, processes=64, output_bytes=65536, file_mb=64, disk_mb=256, submission_mb=8
)


@pytest.fixture(autouse=True)
def alone():
    """Waits for the tests of this folder in other workers, and in other runs of the suite on this machine."""
    with FileLock(Path(tempfile.gettempdir()) / "wmrl-execution-tests.lock", mode=0o666):
        yield


@pytest.fixture(scope="session")
def environment():
    try:
        return load_environment()
    except DataNotBuilt as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def warm_box(environment):
    with ProcessSandbox(environment.root) as box:
        yield box


@pytest.fixture(scope="session")
def cold_box(environment):
    with ProcessSandbox(environment.root, warm=False) as box:
        yield box


@pytest.fixture(scope="session")
def landlock_box(environment):
    with ProcessSandbox(environment.root, warm=False, tier="landlock") as box:
        yield box


def _as_user(environment, **options):
    """A sandbox of somebody who is not root (whoever runs the tests without root has no other)."""
    if os.geteuid() != 0:
        pytest.skip("the tests run without root: the other sandboxes are an ordinary user's")
    return OrdinarySandbox(environment.root, **options)


@pytest.fixture(scope="session")
def user_box(environment):
    with _as_user(environment) as box:
        yield box


@pytest.fixture(scope="session")
def user_landlock_box(environment):
    with _as_user(environment, warm=False, tier="landlock") as box:
        yield box


@pytest.fixture(params=["warm_box", "cold_box", "landlock_box"])
def box(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def data_dir(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.csv").write_text("x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(40)))
    return folder


def processes_of(pid):
    """Ids of all living processes below `pid`."""
    import psutil

    living = set()
    for child in psutil.Process(pid).children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE:
                living.add(child.pid)
        except psutil.NoSuchProcess:
            continue
    return living


def wait_until(condition, timeout_s=10.0):
    """Poll until `condition()` holds; returns whether it did."""
    import time

    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()
