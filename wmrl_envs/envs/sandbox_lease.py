"""One sandbox a process for all environments with the same setting, so that 64 environments do not start 64 servers."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from wmrl_envs.execution.base import Sandbox


@dataclass
class _Shared:
    sandbox: Sandbox
    users: int = 0


_lock = threading.Lock()
_open: dict[tuple[int, str], _Shared] = {}  # a forked child never uses its parent's sandbox: the process id is in the key


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


class SandboxLease:
    """The right to use the shared sandbox of one kind; made on first use, closed when the last lease is released."""

    def __init__(self, kind: str):
        self.kind = kind
        self._key = (os.getpid(), kind)
        self._held = False

    @property
    def sandbox(self) -> Sandbox:
        with _lock:
            if self._key not in _open:
                from wmrl_envs.execution import make_sandbox

                _open[self._key] = _Shared(make_sandbox(self._key[1]))
            shared = _open[self._key]
            if not self._held:
                shared.users += 1
                self._held = True
            return shared.sandbox

    def release(self) -> None:
        """Give it back; releasing twice does nothing."""
        with _lock:
            if not self._held or self._key[0] != os.getpid():
                return
            self._held = False
            shared = _open[self._key]
            shared.users -= 1
            if shared.users == 0:
                del _open[self._key]
                shared.sandbox.close()
