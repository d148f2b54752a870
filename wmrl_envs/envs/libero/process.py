"""`SimulatorProcess`: a `Simulator` in a process of its own, so that simulators run in parallel, and a crash or a hang of
one is an infrastructure failure of one episode instead of the end of the program.

The child is a plain interpreter (`python -m wmrl_envs.envs.libero.process`), not a fork: OpenGL contexts do not survive
forks, and environments may themselves live in daemonic worker processes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

from wmrl_envs.envs.libero.simulator import Scene
from wmrl_envs.errors import InfrastructureError, InvalidInput, WmrlError

BUILD_TIMEOUT_S = 600.0  # a cold disk and a busy machine: 35 s measured, never minutes
CALL_TIMEOUT_S = 300.0


class SimulatorProcess:
    """The methods of `Simulator`, answered by a child process that starts with the first call. After a failure the next call
    starts a new one.
    """

    def __init__(self, scene: Scene, *, build_timeout_s: float = BUILD_TIMEOUT_S, call_timeout_s: float = CALL_TIMEOUT_S):
        self.scene = scene
        self._build_timeout_s, self._call_timeout_s = build_timeout_s, call_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._log: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self.call(name, *args, **kwargs)

    @property
    def pid(self) -> int | None:
        """Process id of the child, None while there is none."""
        return self._process.pid if self._process else None

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the simulator; raises `InfrastructureError` if it crashed, hung or failed."""
        if self._process is None:
            self._start()
        return self._exchange((name, args, kwargs), self._call_timeout_s)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "wmrl_envs.envs.libero.process", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        theirs.close()
        self._pipe = Connection(ours.detach())
        try:
            self._exchange(asdict(self.scene), self._build_timeout_s)
        except WmrlError:
            self.close()
            raise

    def _exchange(self, message: Any, timeout_s: float) -> Any:
        assert self._pipe is not None
        try:
            self._pipe.send(message)
            if not self._pipe.poll(timeout_s):
                raise self._failure(f"did not answer within {timeout_s:g} s")
            answer, problem, users_own = self._pipe.recv()
        except (EOFError, OSError):
            raise self._failure("ended unexpectedly") from None
        if problem is None:
            return answer
        if users_own:
            raise InvalidInput(problem)
        raise self._failure(f"failed: {problem}")

    def _failure(self, what: str) -> InfrastructureError:
        with contextlib.suppress(subprocess.TimeoutExpired, AttributeError):
            self._process.wait(timeout=1)  # type: ignore[union-attr]
        status = self._process.poll() if self._process else None
        said = b""
        if self._log is not None:
            self._log.seek(0)
            said = self._log.read()[-2000:]
        self.close()
        lines = [line for line in said.decode(errors="replace").strip().splitlines() if line.strip()]
        tail = f"; its last words: {lines[-1]}" if lines else ""
        return InfrastructureError(f"The LIBERO simulator {what} (exit status {status}){tail}")

    def close(self) -> None:
        """End the child. Idempotent."""
        pipe, process, log = self._pipe, self._process, self._log
        self._pipe = self._process = self._log = None
        if pipe is not None:
            pipe.close()
        if process is not None:
            process.kill()
            process.wait()
        if log is not None:
            log.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


def serve(descriptor: int) -> None:
    """The child: build the scene of the first message, then answer calls until the parent closes its end."""
    from wmrl_envs.envs.libero.simulator import Simulator

    pipe = Connection(descriptor)
    simulator: Simulator | None = None
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            message = pipe.recv()
            try:
                if simulator is None:
                    simulator, answer = Simulator(Scene(**message)), None
                else:
                    name, args, kwargs = message
                    answer = getattr(simulator, name)(*args, **kwargs)
                pipe.send((answer, None, False))
            except InvalidInput as error:
                pipe.send((None, str(error), True))
            except WmrlError as error:
                pipe.send((None, str(error), False))
            except Exception as error:
                pipe.send((None, f"{type(error).__name__}: {error}", False))
    os._exit(0)  # skip the teardown of OpenGL, which is noisy and has nothing to save


if __name__ == "__main__":
    serve(int(sys.argv[1]))
