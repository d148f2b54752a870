"""Ctrl-C: at once while work can be thrown away, at the end of the block while it cannot."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupts:
    """SIGINT and SIGTERM of a run.

    Inside `caught` either of them raises KeyboardInterrupt, except inside `held`: there the first one waits, and `asked` is
    set.

    >>> interrupts = Interrupts()
    >>> with interrupts.caught(), interrupts.held():
    ...     signal.raise_signal(signal.SIGINT)
    >>> interrupts.asked
    True
    """

    def __init__(self) -> None:
        self.asked = False
        self._holding = threading.Event()

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Handle both signals in the block; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(number: int, frame: Any) -> None:
            if self._holding.is_set() and not self.asked:
                self.asked = True
                return
            raise KeyboardInterrupt

        previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let the first signal wait until the block is done (a second one does not)."""
        self._holding.set()
        try:
            yield
        finally:
            self._holding.clear()
