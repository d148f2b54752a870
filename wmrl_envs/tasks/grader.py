"""Grading in processes of their own, under limits of memory and CPU time, so that a hostile file costs one score and not a run.

A process is started once and used again; as many work at a time as there are cores. It ends with the last holder, or with us.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import pickle
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from wmrl_envs.tasks import refusals
from wmrl_envs.tasks.competition import Competition
from wmrl_envs.tasks.refusals import EvaluationError, InvalidSubmission
from wmrl_envs.tasks.spec import TaskSpec

log = logging.getLogger(__name__)
_PACKAGES = Path(__file__).resolve().parents[2]
_MIB = 1 << 20
_MOST_PROCESSES = 16
HEAD = struct.Struct("!QQ")  # of a request: bytes of the pickled description, bytes of the submission
REPLY = struct.Struct("!Q")  # of an answer: bytes


@dataclass(frozen=True)
class GradingLimits:
    """What grading one submission may cost.

    Attributes:
        cpu_s: seconds of CPU time, and `cpu_s_per_mb` more for each MiB of the submission and the answers together.
        memory_mb: MiB beside what the process has, and `memory_per_byte` bytes more for each of their bytes.
    """

    cpu_s: float = 60.0
    cpu_s_per_mb: float = 3.0
    memory_mb: int = 1024
    memory_per_byte: int = 80

    def of(self, size: int) -> tuple[float, int]:
        """(CPU seconds, bytes of memory) for a submission and answers of `size` bytes together."""
        return self.cpu_s + self.cpu_s_per_mb * size / _MIB, self.memory_mb * _MIB + self.memory_per_byte * size


class Grader(Protocol):
    """Scores submissions."""

    def score(self, competition: Competition, data: bytes) -> float:
        """The value of the competition's metric.

        Raises:
            SubmissionError: there is none; it knows whose fault that is.
        """


class LocalGrader:
    """Scores in this process, without limits."""

    def score(self, competition: Competition, data: bytes) -> float:
        from wmrl_envs.tasks.scoring import score

        try:
            return score(competition.spec, competition.private.answers, data)
        except refusals.SubmissionError:
            raise
        except Exception as error:
            return _whose(lambda sample: self.score(competition, sample), competition, data, f"{type(error).__name__}: {error}")


class ProcessGrader:
    """Scores in processes of its own. Safe to call from several threads.

    Args:
        limits: of one grading.
        processes: most at a time (default: one a core, at most 16).
    """

    def __init__(self, limits: GradingLimits | None = None, processes: int | None = None):
        self.limits = limits or GradingLimits()
        self.processes = processes or min(os.cpu_count() or 1, _MOST_PROCESSES)
        self._begin()

    def _begin(self) -> None:
        self._room = threading.BoundedSemaphore(self.processes)
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._holders = 0

    def score(self, competition: Competition, data: bytes) -> float:
        """See `Grader.score`. A file on which the grader fails or runs into its limits is the agent's, unless it fails on the
        sample too.
        """
        answer = self._ask(competition.spec, competition.private.answers, data)
        if "raw" in answer:
            return float(answer["raw"])
        if "refused" in answer:
            kind, details, message = answer["refused"]
            raise getattr(refusals, kind)(details, message)
        log.error("%s: the grader failed: %s\n%s", competition.slug, answer["failed"], answer.get("traceback", ""))
        return _whose(lambda sample: self.score(competition, sample), competition, data, answer["failed"])

    def hold(self) -> None:
        """Keep processes between gradings until `release` was called as often."""
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        """The inverse of `hold`; the last one ends the processes."""
        with self._lock:
            self._holders = max(self._holders - 1, 0)  # a forked child may close what its parent held
            ended = self._idle if self._holders == 0 else []
            self._idle = [] if self._holders == 0 else self._idle
        for process in ended:
            process.end()

    def close(self) -> None:
        """End every process that is idle."""
        with self._lock:
            ended, self._idle = self._idle, []
        for process in ended:
            process.end()

    def forget(self) -> None:
        """In a forked child: let go of the parent's processes without ending them."""
        for process in self._idle:
            process.let_go()
        self._begin()

    def _ask(self, spec: TaskSpec, answers: Path, data: bytes) -> dict[str, Any]:
        """The answer of a process; a process that was killed from outside is replaced once."""
        try:
            size = len(data) + answers.stat().st_size
        except OSError as error:
            raise refusals.GroundTruthError(f"{type(error).__name__}: {error}") from error
        cpu_s, memory = self.limits.of(size)
        request = pickle.dumps({"spec": spec, "answers": answers, "cpu_s": cpu_s, "memory_bytes": memory})
        with self._room:
            for attempt in range(3):
                process = self._take()
                try:
                    answer = process.ask(request, data, wait_s=20 * cpu_s + 60)
                except _Lost as lost:
                    ended = process.end()
                    if ended == -signal.SIGPROF:
                        return {"failed": f"it took more than {cpu_s:.0f} s of CPU time"}
                    if ended in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE):
                        return {"failed": f"it crashed the grader ({signal.Signals(-ended).name})"}
                    log.warning("A grading process was lost (%s, exit status %s), attempt %d.", lost, ended, attempt + 1)
                    continue
                except BaseException:
                    process.end()  # its answer would be taken for that of the next request
                    raise
                with self._lock:
                    self._idle.append(process)
                if answer.get("failed") == "memory":
                    return {"failed": f"it took more than {memory // _MIB} MiB of memory"}
                return answer
        raise EvaluationError("The process that grades submissions was lost three times: is the machine out of memory?")

    def _take(self) -> _Process:
        while True:
            with self._lock:
                process = self._idle.pop() if self._idle else None
            if process is None:
                try:
                    return _Process()
                except OSError as error:
                    raise EvaluationError(f"The process that grades submissions cannot be started ({error}).") from error
            if process.alive:
                return process
            process.end()


def _whose(score: Any, competition: Competition, data: bytes, failure: str) -> float:
    """A grader that failed on a file: the file's fault, unless the sample submission of the task fails as well."""
    try:
        sample = competition.sample_submission.read_bytes()
    except OSError:
        sample = data
    if sample != data:
        try:
            score(sample)
        except InvalidSubmission:
            pass  # an honest refusal: the grader works
        except refusals.SubmissionError as error:
            raise EvaluationError(
                f"Error during metric calculation: {failure}; on the sample submission too: {error.details}"
            ) from error
        raise InvalidSubmission(
            f"The file could not be graded: {failure}. The sample submission can be: write the same columns, one plain value "
            "in each cell and one row for each id."
        )
    raise EvaluationError(f"Error during metric calculation: {failure}")


class _Lost(Exception):
    """A grading process that is gone, or does not answer."""


class _Process:
    """One grading process."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(_PACKAGES), *(p for p in sys.path if p)])
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-c", "from wmrl_envs.tasks.grader_main import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | threads | {"PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the caller, who ends it
        )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._in, self._out = self._popen.stdin, self._popen.stdout

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def ask(self, request: bytes, data: bytes, wait_s: float) -> dict[str, Any]:
        """Its answer.

        Raises:
            _Lost: it ended, or gave no answer in `wait_s` seconds.
        """
        try:
            self._in.write(HEAD.pack(len(request), len(data)) + request)
            self._in.write(data)
            self._in.flush()
        except OSError as error:
            raise _Lost(f"its input is closed: {error}") from error
        deadline = time.monotonic() + wait_s
        (length,) = REPLY.unpack(self._read(REPLY.size, deadline))
        return json.loads(self._read(length, deadline))

    def _read(self, size: int, deadline: float) -> bytes:
        data = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._out, selectors.EVENT_READ)
            while len(data) < size:
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    raise _Lost("no answer")
                part = os.read(self._out.fileno(), size - len(data))
                if not part:
                    raise _Lost("it ended")
                data += part
        return data

    def end(self) -> int:
        """End it and give its exit status; idempotent."""
        self.let_go()
        try:
            return self._popen.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()

    def let_go(self) -> None:
        """Close our ends of its pipes."""
        for pipe in (self._in, self._out):
            with contextlib.suppress(OSError):  # what was left to write goes nowhere
                pipe.close()


_shared = ProcessGrader()
os.register_at_fork(after_in_child=_shared.forget)
atexit.register(_shared.close)


def shared() -> ProcessGrader:
    """The grader of this process, for everyone who grades in it."""
    return _shared
