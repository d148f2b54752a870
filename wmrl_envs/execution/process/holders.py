"""Preludes that are kept executed: one process each, from which programs start with the data read already.

A holder executes only the prelude, which is ours, on public data. Programs are forked from it as they are from the server, into
the same isolation, and see nothing there but what they would have read themselves.
"""

from __future__ import annotations

import hashlib
import json
import logging
import socket
import threading
from collections import OrderedDict
from pathlib import Path

from wmrl_envs.errors import InfrastructureError
from wmrl_envs.execution.base import Job
from wmrl_envs.execution.process.client import Server, data_folder, needs_fresh_interpreter

log = logging.getLogger(__name__)


class Held:
    """One holder: where to ask it, and what it costs.

    Attributes:
        control: its socket.
        memory_mb: MiB that it alone takes.
    """

    def __init__(self, control: socket.socket, cpu_s: float, memory_mb: float):
        self.control, self.memory_mb, self._cpu_s = control, memory_mb, cpu_s

    def take_cpu_s(self) -> float:
        """CPU seconds of its making, the first time; then 0."""
        cpu_s, self._cpu_s = self._cpu_s, 0.0
        return cpu_s


class Holders:
    """The holders of one sandbox.

    Args:
        server: who forks them.
        at_most: how many; 0 holds nothing.
        memory_mb: MiB of all together, but for the one used last.
    """

    def __init__(self, server: Server, at_most: int, memory_mb: float):
        self._server, self._at_most, self._memory_mb = server, at_most, memory_mb
        self._lock = threading.Lock()
        self._held: OrderedDict[str, Held | None] = OrderedDict()  # None: this one cannot be held

    def lend(self, job: Job) -> Held | None:
        """The holder for `job`, made if need be; None where it has to execute its prelude itself."""
        if not (job.prelude and self._at_most) or needs_fresh_interpreter(job.env):
            return None
        folder = data_folder(job)
        key = _key(job, folder)
        with self._lock:
            if key not in self._held:
                self._held[key] = self._made(job, folder)
                self._shed()
            self._held.move_to_end(key)
            return self._held[key]

    def forget(self, job: Job) -> None:
        """End the holder of `job`, if there is one."""
        with self._lock:
            if job.prelude and (held := self._held.pop(_key(job, data_folder(job)), None)) is not None:
                held.control.close()

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            self._at_most = 0
            self._shed()

    def _made(self, job: Job, folder: Path) -> Held | None:
        try:
            control, cost = self._server.hold(job.prelude, job.env, folder)
        except InfrastructureError as error:
            log.warning("%s; every program executes it by itself.", error)
            return None
        return Held(control, cost["cpu_s"], cost["memory_mb"])

    def _shed(self) -> None:
        def used_mb() -> float:
            return sum(held.memory_mb for held in self._held.values() if held is not None)

        while len(self._held) > self._at_most or (len(self._held) > 1 and used_mb() > self._memory_mb):
            _, held = self._held.popitem(last=False)
            if held is not None:
                held.control.close()  # what runs there comes to its end first


def _key(job: Job, folder: Path) -> str:
    """Equal for jobs that find the same names and values: same prelude, variables and files."""
    files = sorted((p.name, s.st_size, s.st_mtime_ns) for p in folder.iterdir() for s in [p.stat()])
    text = json.dumps([job.prelude, sorted(job.env.items()), str(folder), files])
    return hashlib.sha256(text.encode()).hexdigest()
