"""Where the kernel is not Linux's, the packages can be imported, and execution says that it takes Docker."""

import subprocess
import sys

import pytest

from wmrl_envs.errors import IsolationError
from wmrl_envs.execution.local import make_local

ELSEWHERE = """
import asyncio, importlib, multiprocessing, sys
import docker, filelock, gymnasium, numpy, pandas, psutil, scipy, sklearn, typer  # as they are on those systems
unix = ("fcntl", "resource", "pwd", "grp", "termios")
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in unix:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
for name in unix:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Absent())
for name in ("wmrl_envs", "wmrl_envs.execution", "wmrl_envs.execution.docker", "wmrl_envs.tasks", "wmrl_train.cli"):
    importlib.import_module(name)
print("imported")
"""


def test_the_packages_can_be_imported_without_unix_modules():
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True)
    assert done.stdout == "imported\n", done.stderr


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_the_embedded_sandbox_is_refused_with_the_way_out(monkeypatch, platform):
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(IsolationError, match=f"this is {platform}: install Docker"):
        make_local("process", {})
