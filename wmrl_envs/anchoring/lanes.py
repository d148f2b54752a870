"""Where predictions and executions run: `Lane` is what an oracle asks for, `HERE` and `Threads` are two of them.

The trainer brings its own, with clocks (`wmrl_train.episodes.lanes`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")
Result = TypeVar("Result", covariant=True)

_SHORT_S = 0.001  # a job this short costs less than handing it to a thread
_SLOW_S = 0.01  # of the jobs of one step in the caller's thread: back to the threads
_KEPT = 16  # durations


class Job(Protocol[Result]):
    """A call under way, as `concurrent.futures.Future` is one."""

    def result(self) -> Result:
        """Waits for it; raises what it raised."""

    def done(self) -> bool: ...

    def cancel(self) -> bool: ...


class Lane(Protocol):
    """Runs calls."""

    def run(self, function: Callable[..., R], *args: Any) -> R:
        """One call; waits for its result."""

    def start(self, function: Callable[[T], R], items: Iterable[T]) -> Sequence[Job[R]]:
        """One call an item, in order of the items, without waiting."""


class Here:
    """The caller's thread: everything is done at once."""

    def run(self, function: Callable[..., R], *args: Any) -> R:
        return function(*args)

    def start(self, function: Callable[[T], R], items: Iterable[T]) -> Sequence[Job[R]]:
        return [Done(function(item)) for item in items]


HERE = Here()


class Threads(Here):
    """A pool of threads. Jobs that have lately been so short that handing them over costs more than it saves stay with the
    caller.

    Args:
        workers: threads; 0: everything stays with the caller, for environments that cannot leave their thread.
    """

    def __init__(self, workers: int):
        self._pool = ThreadPoolExecutor(workers, "wmrl-execute") if workers else None
        self._took: deque[float] = deque(maxlen=_KEPT)  # seconds of the latest jobs in the pool

    def start(self, function: Callable[[T], R], items: Iterable[T]) -> Sequence[Job[R]]:
        items = list(items)
        if self._pool is None or not items:
            return super().start(function, items)
        if self._short():
            began = time.perf_counter()
            jobs = super().start(function, items)
            if time.perf_counter() - began > _SLOW_S:
                self._took.clear()
            return jobs
        return [self._pool.submit(self._timed, function, item) for item in items]

    def close(self, wait: bool = True) -> None:
        """Cancel what is pending, and wait for what runs unless somebody else ends that."""
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=True)

    def _short(self) -> bool:
        """Whether most of the latest jobs were short (a wait for the processor now and then is not theirs)."""
        return len(self._took) == _KEPT and sorted(self._took)[_KEPT // 2] < _SHORT_S

    def _timed(self, function: Callable[[T], R], item: T) -> R:
        began = time.perf_counter()
        try:
            return function(item)
        finally:
            self._took.append(time.perf_counter() - began)


def settle(jobs: Iterable[Job[Any]]) -> None:
    """Leave none of the jobs running: cancel those that have not begun, wait for the others."""
    unfinished: list[Any] = [job for job in jobs if not job.done()]
    for job in unfinished:
        job.cancel()
    if unfinished:
        wait(unfinished)


class Done(Generic[R]):
    """A job that is done."""

    __slots__ = ("_result",)

    def __init__(self, result: R):
        self._result = result

    def result(self) -> R:
        return self._result

    def done(self) -> bool:
        return True

    def cancel(self) -> bool:
        return False
