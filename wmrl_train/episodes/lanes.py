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
    """Since the last `take`. `busy_s`: seconds with at least one call running; `work_s`: their durations summed; `cpu_s`: CPU
    seconds.
    """

    busy_s: float = 0.0
    work_s: float = 0.0
    cpu_s: float = 0.0
    calls: int = 0


class Busy:
    """Seconds during which anything was running, for the union of several lanes."""

    def __init__(self) -> None:
        self._lock, self._running, self._since, self._total_s = threading.Lock(), 0, 0.0, 0.0

    def enter(self) -> None:
        with self._lock:
            if self._running == 0:
                self._since = time.perf_counter()
            self._running += 1

    def leave(self) -> None:
        with self._lock:
            self._running -= 1
            if self._running == 0:
                self._total_s += time.perf_counter() - self._since

    def take(self) -> float:
        """Seconds since the last `take`."""
        with self._lock:
            now = time.perf_counter()
            total = self._total_s + (now - self._since if self._running else 0.0)
            self._total_s, self._since = 0.0, now
        return total


class Lane:
    """At most `workers` calls at a time.

    Args:
        name: of its threads.
        workers: calls at a time.
        cpu: how CPU seconds are measured: "process" (all threads of this process, for torch), "thread" (the calling
            thread), "none" (the caller adds them with `charge`: work done by other processes).
        together: a clock shared with other lanes.
    """

    def __init__(
        self, name: str, workers: int, cpu: Literal["process", "thread", "none"] = "none", together: Busy | None = None
    ):
        self.name, self.workers = name, workers
        self._clock = {"process": time.process_time, "thread": time.thread_time, "none": lambda: 0.0}[cpu]
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._slots = threading.BoundedSemaphore(workers)
        self._lock = threading.Lock()
        self._own, self._together = Busy(), together
        self._time = LaneTime()

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

    def share(self, together: Busy) -> None:
        """Let the clock of several lanes run with this one."""
        self._together = together

    def charge(self, cpu_s: float) -> None:
        """Add CPU seconds that another process spent for this lane."""
        with self._lock:
            self._time.cpu_s += cpu_s

    def take(self) -> LaneTime:
        """The times since the last `take`, and start anew."""
        with self._lock:
            taken, self._time = self._time, LaneTime()
        taken.busy_s = self._own.take()
        return taken

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _timed(self, function: Callable[..., R], *args: Any) -> R:
        with self._slots:
            clocks = [self._own] + ([self._together] if self._together is not None else [])
            for clock in clocks:
                clock.enter()
            began, cpu = time.perf_counter(), self._clock()
            try:
                return function(*args)
            finally:
                with self._lock:
                    self._time.work_s += time.perf_counter() - began
                    self._time.cpu_s += self._clock() - cpu
                    self._time.calls += 1
                for clock in clocks:
                    clock.leave()
