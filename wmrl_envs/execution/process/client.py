"""Our side of the server process that runs jobs (`box/server.py`): starting it, asking it, ending it."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.execution.base import Job
from wmrl_envs.execution.environment import SandboxEnvironment
from wmrl_envs.execution.process.box import wire

log = logging.getLogger(__name__)

#: One thread each: several solutions run at once. A job's `env` overrides it (and then starts a fresh interpreter).
SINGLE_THREADED = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
_READ_AT_IMPORT = ("OMP_", "OPENBLAS_", "MKL_", "NUMEXPR_", "CUDA_", "PYTHON", "LD_", "KMP_", "GOTO_")
_SERVER_START_S = 300.0
_BOOT = "import sys; sys.path[0] = sys.argv.pop(1); from box.server import main; del sys.path[0]; main()"


def encode(job: Job, venv: str, base_prefix: str, tier: str, warm: bool, **more: Any) -> bytes:
    """The message that asks a supervisor for `job`, in the environment `venv`.
    Raises `InvalidInput` if the job cannot be run anywhere.
    """
    env = checked_env(job.env)
    header = {
        "tier": tier,
        "warm": warm and not needs_fresh_interpreter(env),
        "data_dir": str(data_folder(job)),
        "venv": venv,
        "base_prefix": base_prefix,
        "env": {**SINGLE_THREADED, **env},
        "temporary": tempfile.gettempdir(),
        "limits": asdict(job.limits),
        "nice": job.nice,
        "cpu_count": granted_cores(os.cpu_count() or 1, job.limits.processes),
        **more,
    }
    return wire.pack(header, job.code.encode(), job.prelude.encode())


def granted_cores(available: int, processes: int) -> int:
    """Cores a program is told that it has. A worker is a process with up to three threads, so a quarter of the limit.

    >>> granted_cores(96, 64), granted_cores(2, 64), granted_cores(8, 2)
    (16, 2, 1)
    """
    return min(available, max(processes // 4, 1))


def data_folder(job: Job) -> Path:
    """The folder of the data of `job`, resolved; `InvalidInput` if there is none."""
    data_dir = job.data_dir.expanduser().resolve()
    if not data_dir.is_dir():
        raise InvalidInput(f"The data directory {data_dir} does not exist or is no folder.")
    return data_dir


def needs_fresh_interpreter(env: Mapping[str, str]) -> bool:
    """Whether a variable comes too late for a process that has imported the libraries: they read it when they are imported."""
    return any(name.startswith(_READ_AT_IMPORT) and SINGLE_THREADED.get(name) != value for name, value in env.items())


def checked_env(env: Mapping[str, str]) -> dict[str, str]:
    """`env` if every name and value can be an environment variable, else `InvalidInput`."""
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name or "=" in name or "\0" in name + value:
            raise InvalidInput(f"env[{name!r}]={value!r} cannot be an environment variable: expected strings without NUL.")
    return dict(env)


class Server:
    """The process that forks supervisors: started when first needed, and again if it dies."""

    def __init__(self, environment: SandboxEnvironment, preload: tuple[str, ...]):
        self._environment, self._preload = environment, preload
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._running: set[socket.socket] = set()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether what runs was ended on purpose."""
        return self._closed

    def ask(self, message: bytes, timeout_s: float, holder: socket.socket | None = None) -> tuple[dict[str, Any], list[bytes]]:
        """Have one job done, by a process that `hold` gave or by the server.
        Raises `InfrastructureError` if it or the supervisor fails us.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._hand_over(theirs, ours, holder)
            ours.settimeout(timeout_s)
            ours.sendall(message)
            return wire.unpack(ours.recv)
        except (OSError, EOFError) as error:
            raise InfrastructureError(f"The sandbox's supervisor went away: {error or type(error).__name__}") from error
        finally:
            with self._lock:
                self._running.discard(ours)
            ours.close()

    def hold(self, prelude: str, env: Mapping[str, str], data_dir: Path) -> tuple[socket.socket, dict[str, Any]]:
        """A process that has executed `prelude`: its control socket, which ends it when closed, and `cpu_s` and `memory_mb` of
        this.

        Raises:
            InfrastructureError: it could not be executed there; the message says why.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._hand_over(theirs, None, what=b"hold")
            ours.settimeout(_SERVER_START_S)
            ours.send(json.dumps({"prelude": prelude, "env": {**SINGLE_THREADED, **env}, "data_dir": str(data_dir)}).encode())
            answer = json.loads(ours.recv(1 << 16) or b'{"error": "it went away"}')
            if answer.get("threads") != 1:
                raise InfrastructureError(f"A prelude cannot be held: {answer.get('error', 'it started a thread')}")
            ours.settimeout(None)
            return ours, answer
        except OSError as error:
            ours.close()
            raise InfrastructureError(f"A prelude cannot be held: {error}") from error
        except BaseException:
            ours.close()
            raise

    def _hand_over(
        self, theirs: socket.socket, ours: socket.socket | None, holder: socket.socket | None = None, what: bytes = b"run"
    ) -> None:
        with self._lock:
            if self._closed:
                raise InvalidInput("This sandbox is closed.")
            if holder is None and (self._control is None or self._process is None or self._process.poll() is not None):
                self._start()
            try:
                control = holder or self._control
                assert control is not None
                socket.send_fds(control, [what], [theirs.fileno()])
                if ours is not None:
                    self._running.add(ours)
            except OSError:
                if holder is None:
                    self._stop(0)
                raise

    def _start(self) -> None:
        self._stop(0)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        box = str(Path(__file__).parent)
        argv = [str(self._environment.python), "-s", "-c", _BOOT, box, str(theirs.fileno()), json.dumps(self._preload)]
        env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent", **SINGLE_THREADED}
        with theirs, tempfile.TemporaryFile() as errors:
            self._process = subprocess.Popen(
                argv, env=env, cwd="/", pass_fds=[theirs.fileno()], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
            )  # fmt: skip
            self._control = ours
            theirs.close()
            ours.settimeout(_SERVER_START_S)
            hello = b""
            try:
                hello = ours.recv(4096)
            except OSError as error:
                log.debug("no greeting from the sandbox server: %s", error)
            if not hello:
                self._stop(0)
                errors.seek(0)
                reason = errors.read().decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
                raise InfrastructureError(f"The sandbox server did not start: {reason[0]}")
            ours.settimeout(None)
        if json.loads(hello)["threads"] != 1:
            # A fork copies one thread only; locks held by the others would never be released.
            log.warning("a preloaded module started a thread: the warm path may hang; use warm=False or another preload list")

    def _stop(self, patience_s: float) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            deadline = time.monotonic() + patience_s
            while self._process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for connection in self._running:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
            self._stop(15.0)
