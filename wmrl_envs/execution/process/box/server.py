"""The server: imports the usual libraries once, then forks a supervisor for every job. Single-threaded on purpose.

Asked to hold a prelude, it forks a holder: a server of the same kind that has executed this prelude, so that the data is read
once.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from . import kernel, measure, runner
from .supervisor import supervise

_PACKET = 1 << 18  # largest message on a control socket


def main() -> None:
    """`python -c ... <control descriptor> <JSON list of modules>`: serve until the control socket is closed."""
    control = socket.socket(fileno=int(sys.argv[1]))
    kernel.adopt_orphans()
    _import_all(json.loads(sys.argv[2]))
    control.send(_greeting(modules=len(sys.modules)))
    _serve(control)


def _greeting(**more: Any) -> bytes:
    """What is said when this process is ready to fork; from then on its collector leaves alone what is there."""
    threads = len(os.listdir("/proc/self/task"))
    gc.collect()
    gc.freeze()  # a forked child's collector would otherwise copy every page it looks at
    return json.dumps({"threads": threads, **more}).encode()


def _serve(control: socket.socket, start: Any = None) -> None:
    """Fork a supervisor for each b"run" and a holder for each b"hold" that comes with a socket. `start`: of a holder."""
    children: set[int] = set()
    wake, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    sources: list[Any] = [control, wake]
    while True:
        ready = select.select(sources, [], [])[0]
        if wake in ready:
            os.read(wake, 4096)
            _reap(children)
        if control in ready:
            message, descriptors, _, _ = socket.recv_fds(control, 16, 1)
            if not message:
                break
            child = os.fork()
            if child == 0:
                _child(message, socket.socket(fileno=descriptors[0]), (control, wake, wake_write), start)
            children.add(child)
            os.close(descriptors[0])
    for child in children:  # each notices that its harness is gone, and ends its run
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


def _import_all(modules: list[str]) -> None:
    for name in modules:
        if importlib.util.find_spec(name.split(".")[0]):
            importlib.import_module(name)


def _reap(children: set[int]) -> None:
    while True:
        try:
            child, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if child == 0:
            return
        children.discard(child)


def _child(message: bytes, connection: socket.socket, inherited: tuple, start: Any) -> None:
    """Be the supervisor or the holder that was asked for. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control, *pipe = inherited
        control.close()
        for end in pipe:
            os.close(end)
        if message == b"hold":
            _hold(connection)
        else:
            supervise(connection, start)
    finally:
        os._exit(0)


def _hold(control: socket.socket) -> None:
    """Execute the prelude that comes first (trusted code, on public data), say what it took, then serve."""
    kernel.adopt_orphans()
    try:
        asked = json.loads(control.recv(_PACKET))
        os.environ.update(asked["env"], DATA_DIR=asked["data_dir"])
        start = runner.held(asked["prelude"], asked["data_dir"])
    except Exception as error:
        control.send(json.dumps({"error": f"{type(error).__name__}: {error}"[:4000]}).encode())
        return
    greeting = _greeting(cpu_s=time.process_time(), memory_mb=measure.private_mb(os.getpid()))
    control.send(greeting)
    _serve(control, start)
