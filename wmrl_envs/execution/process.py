"""`ProcessSandbox`: runs solutions on this machine without a daemon, in namespaces or behind Landlock.

A server process, started once in the sandbox's own interpreter, has the usual libraries imported and forks a supervisor for
every job (`box/`). It has a clean environment, none of our memory, and ends with us.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.execution.base import Job, Sandbox
from wmrl_envs.execution.box import wire
from wmrl_envs.execution.classify import classify
from wmrl_envs.execution.environment import SandboxEnvironment, load_environment
from wmrl_envs.outcome import Execution, ExecutionStatus

log = logging.getLogger(__name__)

#: Imported by the warm server; names the environment does not have are left out.
PRELOAD = (
    "numpy", "pandas", "scipy.sparse", "scipy.stats", "sklearn.linear_model", "sklearn.ensemble", "sklearn.model_selection",
    "sklearn.preprocessing", "sklearn.pipeline", "sklearn.compose", "sklearn.impute", "sklearn.metrics", "sklearn.tree",
    "sklearn.feature_extraction.text", "sklearn.neighbors", "sklearn.svm", "sklearn.naive_bayes", "sklearn.decomposition",
    "sklearn.cluster", "sklearn.dummy", "sklearn.feature_selection", "sklearn.calibration",
)  # fmt: skip
#: One thread each: several solutions run at once. A job's `env` overrides it (and then starts a fresh interpreter).
SINGLE_THREADED = {
    name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
}
_READ_AT_IMPORT = ("OMP_", "OPENBLAS_", "MKL_", "NUMEXPR_", "CUDA_", "PYTHON", "LD_", "KMP_", "GOTO_")
_MAX_CODE_BYTES = 1 << 20
_SERVER_START_S = 300.0
_ANSWER_GRACE_S = 90.0
_BOOT = "import sys; sys.path[0] = sys.argv.pop(1); from box.server import main; del sys.path[0]; main()"


class ProcessSandbox(Sandbox):
    """The embedded sandbox.

    Args:
        environment: name or folder of a sandbox environment (`wmrl sandbox build`).
        warm: fork solutions from a process that has the usual libraries imported; False starts a fresh interpreter each.
        tier: "auto", or the isolation to use: "namespaces", "landlock", "unsafe".
        preload: modules the warm process imports.
        attempts: how often a run is tried when the sandbox itself fails, before `InfrastructureError` is raised.
    """

    def __init__(
        self,
        environment: str | Path = "default",
        *,
        warm: bool = True,
        tier: str = "auto",
        allow_unsafe: bool = False,
        preload: Sequence[str] = PRELOAD,
        attempts: int = 3,
    ):
        self.environment = load_environment(environment)
        self.warm = warm
        self.tier = "namespaces" if tier == "auto" else tier
        self._server = _Server(self.environment, tuple(preload) if warm else ())
        self._attempts = attempts
        self._finalizer = weakref.finalize(self, self._server.close)

    def run_job(self, job: Job) -> Execution:
        problem = _unusable_code(job.code)
        if problem:
            return Execution(ExecutionStatus.AGENT_ERROR, exit_code=1, stderr=problem, tier=self.tier)
        message = self._message(job)
        retrying = Retrying(
            retry=retry_if_exception_type(InfrastructureError),
            stop=stop_after_attempt(self._attempts),
            wait=wait_exponential_jitter(0.1, 2.0),
            before_sleep=lambda state: log.warning("execution failed, trying again: %s", state.outcome.exception()),  # type: ignore[union-attr]
            reraise=True,
        )
        return retrying(self._once, job, message)

    def close(self) -> None:
        self._finalizer()

    def _message(self, job: Job) -> bytes:
        data_dir = job.data_dir.expanduser().resolve()
        if not data_dir.is_dir():
            raise InvalidInput(f"The data directory {data_dir} does not exist or is no folder.")
        env = checked_env(job.env)
        fresh = any(name.startswith(_READ_AT_IMPORT) and SINGLE_THREADED.get(name) != value for name, value in env.items())
        limits = job.limits
        header = {
            "tier": self.tier,
            "warm": self.warm and not fresh,
            "data_dir": str(data_dir),
            "venv": str(self.environment.root),
            "base_prefix": str(self.environment.base_prefix),
            "env": {**SINGLE_THREADED, **env},
            "temporary": tempfile.gettempdir(),
            "limits": {name: getattr(limits, name) for name in limits.__dataclass_fields__},
        }
        return wire.pack(header, job.code.encode(), job.prelude.encode())

    def _once(self, job: Job, message: bytes) -> Execution:
        answer, (out, err, submission) = self._server.ask(message, job.limits.timeout_s + _ANSWER_GRACE_S)
        if "infra" in answer:
            raise InfrastructureError(f"The sandbox ({self.tier}) failed: {answer['infra']}")
        stderr = err.decode("utf-8", "replace")
        status = classify(answer["killed"], answer["exit"], stderr, answer["problem"])
        succeeded = status is ExecutionStatus.OK and answer["has_submission"]
        return Execution(
            status=status,
            exit_code=answer["exit"],
            stdout=out.decode("utf-8", "replace"),
            stderr=stderr,
            submission=submission if succeeded else None,
            submission_problem=answer["problem"],
            wall_s=answer["wall_s"],
            cpu_s=answer["cpu_s"],
            peak_memory_mb=answer["peak_memory_mb"],
            tier=self.tier,
            detail=f"ended at the limit: {answer['killed']}" if answer["killed"] else "",
        )


class _Server:
    """The process that forks supervisors: started when first needed, and again if it dies."""

    def __init__(self, environment: SandboxEnvironment, preload: tuple[str, ...]):
        self._environment, self._preload = environment, preload
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._running: set[socket.socket] = set()
        self._closed = False

    def ask(self, message: bytes, timeout_s: float) -> tuple[dict[str, Any], list[bytes]]:
        """Have one job done. Raises `InfrastructureError` if the server or the supervisor fails us."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._hand_over(theirs)
            with self._lock:
                self._running.add(ours)
            ours.settimeout(timeout_s)
            ours.sendall(message)
            return wire.unpack(ours.recv)
        except (OSError, EOFError) as error:
            raise InfrastructureError(f"The sandbox's supervisor went away: {error or type(error).__name__}") from error
        finally:
            with self._lock:
                self._running.discard(ours)
            ours.close()

    def _hand_over(self, connection: socket.socket) -> None:
        with self._lock:
            if self._closed:
                raise InvalidInput("This sandbox is closed.")
            if self._control is None or self._process is None or self._process.poll() is not None:
                self._start()
            assert self._control is not None
            try:
                socket.send_fds(self._control, [b"run"], [connection.fileno()])
            except OSError:
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


def checked_env(env: Mapping[str, str]) -> dict[str, str]:
    """`env` if every name and value can be an environment variable, else `InvalidInput`."""
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name or "=" in name or "\0" in name + value:
            raise InvalidInput(f"env[{name!r}]={value!r} cannot be an environment variable: expected strings without NUL.")
    return dict(env)


def _unusable_code(code: str) -> str | None:
    """Why `code` is not even tried, in one sentence for the agent; None if it is."""
    if not code.strip():
        return "The program is empty: there is nothing to execute."
    if "\0" in code:
        return "SyntaxError: the program contains null bytes; source code must be plain text."
    if len(code) > _MAX_CODE_BYTES:
        return f"The program has {len(code) / 2**20:.1f} MiB of source code; at most {_MAX_CODE_BYTES >> 20} MiB is accepted."
    try:
        code.encode()
    except UnicodeEncodeError as error:
        return f"SyntaxError: the program contains characters that are not valid Unicode text (position {error.start})."
    return None
