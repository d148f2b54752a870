"""Lanes: pools of threads with a concurrency of their own and a clock, one each for generation, prediction and execution."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class LaneTime:
    """Since the last `take`. `busy_s`: seconds with at least one call running; `work_s`: their durations summed; `cpu_s`: CPU seconds."""

    busy_s: float = 0.0
    work_s: float = 0.0
    cpu_s: float = 0.0
    calls: int = 0


class Lane:
    """At most `workers` calls at a time.

    Args:
        name: of its threads.
        workers: calls at a time.
        cpu: how CPU seconds are measured: "process" (all threads of this process, for torch), "thread" (the calling
            thread), "none" (the caller adds them with `charge`: work done by other processes).
    """

    def __init__(self, name: str, workers: int, cpu: Literal["process", "thread", "none"] = "none"):
        self.name, self.workers = name, workers
        self._clock = {"process": time.process_time, "thread": time.thread_time, "none": lambda: 0.0}[cpu]
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._slots = threading.BoundedSemaphore(workers)
        self._lock = threading.Lock()
        self._time, self._running, self._since = LaneTime(), 0, 0.0

    def run(self, function: Callable[..., R], *args: Any) -> R:
        """One call in this lane; waits for a slot and for the result."""
        return self._pool.submit(self._timed, function, *args).result()

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """One call an item, in order of the items; waits for all."""
        return [future.result() for future in self.start(function, items)]

    def start(self, function: Callable[[T], R], items: Iterable[T]) -> list[Future[R]]:
        """`map` without the waiting."""
        return [self._pool.submit(self._timed, function, item) for item in items]

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """No call of this lane runs inside the block (the learner changes the weights that generation reads)."""
        for _ in range(self.workers):
            self._slots.acquire()
        try:
            yield
        finally:
            for _ in range(self.workers):
                self._slots.release()

    def charge(self, cpu_s: float) -> None:
        """Add CPU seconds that another process spent for this lane."""
        with self._lock:
            self._time.cpu_s += cpu_s

    def take(self) -> LaneTime:
        """The times since the last `take`, and start anew."""
        with self._lock:
            now = time.perf_counter()
            if self._running:
                self._time.busy_s += now - self._since
                self._since = now
            taken, self._time = self._time, LaneTime()
        return taken

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _timed(self, function: Callable[..., R], *args: Any) -> R:
        with self._slots:
            began, cpu = self._enter(), self._clock()
            try:
                return function(*args)
            finally:
                self._leave(began, self._clock() - cpu)

    def _enter(self) -> float:
        with self._lock:
            now = time.perf_counter()
            if self._running == 0:
                self._since = now
            self._running += 1
            return now

    def _leave(self, began: float, cpu_s: float) -> None:
        with self._lock:
            now = time.perf_counter()
            self._running -= 1
            self._time.work_s += now - began
            self._time.cpu_s += cpu_s
            self._time.calls += 1
            if self._running == 0:
                self._time.busy_s += now - self._since
