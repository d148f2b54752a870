"""The server: imports the usual libraries once, then forks a supervisor for every job. Single-threaded on purpose."""

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
from typing import Any

from . import kernel
from .supervisor import supervise


def main() -> None:
    """`python -c ... <control descriptor> <JSON list of modules>`: serve until the control socket is closed."""
    control = socket.socket(fileno=int(sys.argv[1]))
    kernel.adopt_orphans()
    _import_all(json.loads(sys.argv[2]))
    threads = len(os.listdir("/proc/self/task"))
    gc.collect()
    gc.freeze()  # a forked child's collector would otherwise copy every page it looks at
    control.send(json.dumps({"threads": threads, "modules": len(sys.modules)}).encode())
    supervisors: set[int] = set()
    wake, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    sources: list[Any] = [control, wake]
    while True:
        ready = select.select(sources, [], [])[0]
        if wake in ready:
            os.read(wake, 4096)
            _reap(supervisors)
        if control in ready:
            message, descriptors, _, _ = socket.recv_fds(control, 16, 1)
            if not message:
                break
            child = os.fork()
            if child == 0:
                _serve(descriptors[0], (control, wake, wake_write))
            supervisors.add(child)
            os.close(descriptors[0])
    for child in supervisors:  # each notices that its harness is gone, and ends its run
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


def _import_all(modules: list[str]) -> None:
    for name in modules:
        if importlib.util.find_spec(name.split(".")[0]):
            importlib.import_module(name)


def _reap(supervisors: set[int]) -> None:
    while True:
        try:
            child, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if child == 0:
            return
        supervisors.discard(child)


def _serve(descriptor: int, inherited: tuple) -> None:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control, *pipe = inherited
        control.close()
        for end in pipe:
            os.close(end)
        supervise(socket.socket(fileno=descriptor))
    finally:
        os._exit(0)
