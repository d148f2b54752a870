"""A sandbox as somebody without root has it, where the tests run as root: a process of another user, asked over pipes.

It lives in a mount namespace of its own, in which that user can read the interpreter and the sandbox's environment, which may
lie below root's private home.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import site
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from wmrl_envs.execution import Job, Sandbox
from wmrl_envs.execution.process.box import kernel
from wmrl_envs.outcome import Execution

USER = 54321
_REPOSITORY = Path(__file__).parents[1]
_SERVE = "from tests.ordinary_user import serve; serve()"


class OrdinarySandbox(Sandbox):
    """A `ProcessSandbox` of user `USER`; only root can make one.

    Args:
        environment: folder of the sandbox's environment.
        options: of its `ProcessSandbox`.
    """

    def __init__(self, environment: Path, **options: Any):
        self.home = Path(tempfile.mkdtemp(prefix="ordinary-"))
        self.home.chmod(0o755)
        for name in ("home", "data"):
            (self.home / name).mkdir()
        os.chown(self.home / "home", USER, USER)
        environ = {
            "PATH": "/usr/bin:/bin", "HOME": str(self.home / "home"), "TMPDIR": str(self.home / "home"), "WMRL_HOME": str(self.home / "home"), "LANG": "C.UTF-8",
            "PYTHONPATH": os.pathsep.join([str(_REPOSITORY), *site.getsitepackages()]), "SECRET_KEY": "SECRET",
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        readable = [sys.base_prefix, sys.prefix, str(_REPOSITORY), *[p for p in sys.path if os.path.isdir(p)], str(environment)]
        readable.append(os.path.realpath(environment / "bin" / "python").rsplit("/bin/", 1)[0])
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE], env=environ, cwd=_REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            preexec_fn=lambda: _become_user([path for path in readable if os.path.isdir(path)]),
        )  # fmt: skip
        try:
            self._send((environment, options))
            answer = self._receive()
            if isinstance(answer, Exception):
                raise answer
            self.tier, self.user_pid, self._lock = answer
        except BaseException:
            self.close()
            raise

    @property
    def lock(self) -> str:
        return self._lock

    def run_job(self, job: Job) -> Execution:
        self._send(job)
        answer = self._receive()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def _send(self, thing: Any) -> None:
        write(self._process.stdin, thing)

    def _receive(self) -> Any:
        return read(self._process.stdout)


def serve() -> None:
    """The other side: make the sandbox, run what is asked, until nobody asks."""
    from wmrl_envs.execution import ProcessSandbox

    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    environment, options = read(requests)
    try:
        box = ProcessSandbox(environment, **options)
    except Exception as error:
        write(answers, error)
        return
    with box:
        write(answers, (box.tier, os.getpid(), box.lock))
        while True:
            try:
                job = read(requests)
            except EOFError:
                return
            try:
                write(answers, box.run_job(job))
            except Exception as error:
                write(answers, error)


def write(stream: Any, thing: Any) -> None:
    data = pickle.dumps(thing)
    stream.write(struct.pack("!Q", len(data)) + data)
    stream.flush()


def read(stream: Any) -> Any:
    size = stream.read(8)
    if len(size) < 8:
        raise EOFError("the other side is gone")
    return pickle.loads(stream.read(struct.unpack("!Q", size)[0]))


def _become_user(readable: list[str]) -> None:
    """In the child: show `readable` folders although a folder above them is private, and give up root."""
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    private = {top for path in readable for top in [_private_folder(path)] if top}
    for number, top in enumerate(sorted(private)):
        stage = f"/tmp/.ordinary-{os.getpid()}-{number}"
        os.mkdir(stage)
        kernel.mount(top, stage, flags=kernel.MS_BIND | kernel.MS_REC)
        kernel.mount("ordinary", top, "tmpfs", 0, "mode=0755,size=16m")
        inside = sorted({path for path in readable if path == top or path.startswith(top + "/")})
        for path in inside:
            if any(path.startswith(other + "/") for other in inside):
                continue
            os.makedirs(path, exist_ok=True)
            kernel.mount(stage + path[len(top) :], path, flags=kernel.MS_BIND | kernel.MS_REC)
        kernel.unmount(stage)
        os.rmdir(stage)
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)


def _private_folder(path: str) -> str | None:
    """The first folder above `path` that others cannot enter."""
    for folder in reversed(Path(path).parents):
        if not os.stat(folder).st_mode & 0o001:
            return str(folder)
    return None
