"""One supervisor process a run: it starts the solution, enforces what the kernel does not, and reports what happened.

supervisor -> init (pid 1 of the run: waits, ends what is left over, reads the submission) -> the solution.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import random
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from . import collect, limits, runner, wire
from .output import Kept
from .tiers import TIERS, end_children, kill_descendants

_SETUP_S = 60.0  # longer than this to start a solution is our failure
_POLL_S = 0.05
_INIT_GRACE_S = 3.0  # for init to end after the solution was killed
_FLOOD_BYTES = 16 << 20  # output beyond this ends the run; below it the middle is left out
_DISK_POLL_S = 0.25
_RUNNER = os.path.splitext(os.path.abspath(runner.__file__))[0] + ".py"
with open(_RUNNER, encoding="utf-8") as _f:
    _RUNNER_SOURCE = _f.read()


def supervise(connection: socket.socket, start: Any = None) -> None:
    """Read a job from `connection`, run it, answer. The caller ends this process afterwards.

    `start`: what the program starts from in place of its prelude (`runner.held`).
    """
    try:
        job, (code, prelude) = wire.unpack(connection.recv)
        job["code"], job["prelude"], job["start"] = code.decode(), prelude.decode(), start
    except (EOFError, OSError):
        return  # the harness is gone before it asked
    with contextlib.suppress(OSError):  # gone meanwhile
        connection.sendall(run(job, connection))


def run(job: dict, connection: socket.socket) -> bytes:
    """Run a job and return the answer's message; give up when the other end of `connection` is closed."""
    try:
        header, parts = _Run(job, connection).execute()
    except Exception as error:
        header, parts = {"infra": f"{type(error).__name__}: {error}"}, ()
    return wire.pack(header, *parts)


class _Run:
    def __init__(self, job: dict, connection: socket.socket):
        self.job, self.limits, self.connection = job, job["limits"], connection
        self.tier = TIERS[job["tier"]](job)
        self.killed, self.killed_at = "", 0.0
        self.out, self.err = Kept(int(self.limits["output_bytes"])), Kept(int(self.limits["output_bytes"]))
        self.report, self.ready = bytearray(), bytearray()
        self.peak_mb, self.tasks = 0.0, 0
        self.cpu = limits.CpuClock()

    def execute(self) -> tuple[dict, tuple[bytes, ...]]:
        pipes = {name: os.pipe() for name in ("out", "err", "report", "ready", "life")}
        try:
            self.tier.prepare()
            init = os.fork()
            if init == 0:
                _init(self.job, self.tier, pipes, self.connection)
            for name, (read, write) in pipes.items():
                os.close(read if name == "life" else write)
            started, ended = self._watch(init, {name: pipe[0] for name, pipe in pipes.items() if name != "life"})
            _, status, usage = os.wait4(init, 0)
            return self._result(status, usage, ended - started)
        finally:
            self.tier.clean()

    def _watch(self, init: int, sources: dict[str, int]) -> tuple[float, float]:
        """Until init is gone: read what it and the solution write, and end them at a limit."""
        sinks: dict[int, Callable] = {sources["out"]: self.out.add, sources["err"]: self.err.add}
        sinks |= {sources["report"]: self.report.extend, sources["ready"]: self.ready.extend}
        poll = select.poll()
        for descriptor in sinks:
            os.set_blocking(descriptor, False)
            poll.register(descriptor, select.POLLIN)
        poll.register(self.connection, select.POLLRDHUP)
        process = os.pidfd_open(init)
        poll.register(process, select.POLLIN)
        began = started = time.monotonic()
        measured = disk_measured = 0.0
        gone = False
        while not gone:
            for descriptor, _ in poll.poll(int(_POLL_S * 1000)):
                if descriptor == process:
                    gone = True
                elif descriptor == self.connection.fileno():
                    poll.unregister(descriptor)
                    self._kill(init, "harness gone")
                elif not _drain(descriptor, sinks[descriptor]):
                    poll.unregister(descriptor)
            now = time.monotonic()
            if started == began and self.ready:
                started = now
            if now - measured >= _POLL_S and not gone:
                measured = now
                self._check_tree(init)
            if now - disk_measured >= _DISK_POLL_S and not gone:
                disk_measured = now
                self._check_disk(init)
            if self.ready and now - started > self.limits["timeout_s"]:
                self._kill(init, "timeout")
            elif not self.ready and now - began > _SETUP_S:
                self._kill(init, "setup")
            flood = max(_FLOOD_BYTES, 16 * self.out.limit)
            if self.out.total > flood or self.err.total > flood:
                self._kill(init, "output")
            if self.killed and now - self.killed_at > _INIT_GRACE_S:
                kill_descendants(init)
                os.kill(init, signal.SIGKILL)
        ended = time.monotonic()
        for descriptor, sink in sinks.items():
            _drain(descriptor, sink)
        return started, ended

    def _check_tree(self, init: int) -> None:
        pids = limits.descendants(init)
        if self.limits["cpu_s"] is not None and self.ready and self.cpu.look([init, *pids]) > self.limits["cpu_s"]:
            self._kill(init, "cpu")
        self.tasks = max(self.tasks, limits.tasks(pids))
        limit = self.limits["memory_mb"]
        used = limits.memory_mb(pids, min(limit, self.peak_mb))
        self.peak_mb = max(self.peak_mb, used)
        if used > limit:
            self._kill(init, "memory")

    def _check_disk(self, init: int) -> None:
        used = self.tier.disk_mb()
        if used > self.limits["disk_mb"]:
            self._kill(init, "disk")

    def _kill(self, init: int, why: str) -> None:
        if not self.killed:
            self.killed, self.killed_at = why, time.monotonic()
            kill_descendants(init)  # then init, which has nothing left to wait for, cleans up, accounts and reports

    def _result(self, status: int, usage, wall_s: float) -> tuple[dict, tuple[bytes, ...]]:
        header = {
            "killed": self.killed, "wall_s": wall_s, "cpu_s": usage.ru_utime + usage.ru_stime,
            "peak_memory_mb": max(self.peak_mb, usage.ru_maxrss / 1024), "problem": None, "exit": None,
            "output_bytes": self.out.total + self.err.total, "crowded": self.tasks >= int(self.limits["processes"]) - 1,
        }  # fmt: skip
        submission = None
        try:
            told, parts = wire.unpack(io.BytesIO(self.report).read)
            header |= told
            submission = parts[0] if parts else None
        except EOFError:  # init died before it could say anything
            if not self.killed:
                header |= {"infra": f"the sandbox's init ended by itself (wait status {status})", "init_ended": True}
        if self.ready[:1] != b"r" and not self.killed and "infra" not in header:
            reason = self.ready[1:].decode(errors="replace") or self.err.bytes().decode(errors="replace")[-500:]
            header["infra"] = f"the solution's process did not start: {reason}"
        if self.killed in ("setup", "harness gone"):
            header["infra"] = f"the solution did not start within {_SETUP_S:g} s"
        header["has_submission"] = submission is not None
        return header, (self.out.bytes(), self.err.bytes(), submission or b"")


def _drain(descriptor: int, sink) -> bool:
    """Read what is there (a bounded amount, so that a flood cannot keep us from the limits); False at the end."""
    for _ in range(64):
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return True
        if not data:
            return False
        sink(data)
    return True


def _init(job: dict, tier, pipes: dict[str, tuple[int, int]], connection: socket.socket) -> None:
    """The run's first process. Never returns."""
    report = pipes["report"][1]
    try:
        connection.close()
        for name, (read, write) in pipes.items():
            os.close(write if name == "life" else read)
        os.setsid()
        os.nice(job.get("nice", 0))
        tier.enter()
        if not _alive(pipes["life"][0]):
            os._exit(1)
        _place_files(job, tier)
        tier.seal()
        solution = os.fork()
        if solution == 0:
            _solution(job, tier, pipes)
        for name in ("out", "err", "ready"):
            os.close(pipes[name][1])
        header: dict = {"exit": _wait(solution, pipes["life"][0])}
        submission, header["problem"] = collect.collect_submission(tier.work, int(job["limits"]["submission_mb"] * 2**20))
        wire.write_all(report, wire.pack(header, *(() if submission is None else (submission,))))
        os._exit(0)
    except BaseException as error:
        wire.write_all(report, wire.pack({"infra": f"{type(error).__name__}: {error}"}))
        os._exit(1)


def _alive(life: int) -> bool:
    return not select.select([life], [], [], 0)[0]


def _place_files(job: dict, tier) -> None:
    for path, text in ((f"{tier.box}/runner.py", _RUNNER_SOURCE), (f"{tier.box}/prelude.py", job["prelude"])):
        with open(path, "w", encoding="utf-8", newline="") as f:
            f.write(text)
    solution = os.path.join(tier.work, "solution.py")
    with open(solution, "w", encoding="utf-8", newline="") as f:
        f.write(job["code"])
    if tier.as_root:
        os.chown(solution, tier.owner, tier.owner)


def _wait(solution: int, life: int) -> int:
    """Wait for the solution, then end and reap everything it left; its exit status, negative for a signal."""
    process = os.pidfd_open(solution)
    ready, _, _ = select.select([process, life], [], [])
    if process not in ready:  # the supervisor is gone
        os.kill(solution, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(solution, 0)[1])
    end_children()
    return status


def _solution(job: dict, tier, pipes: dict[str, tuple[int, int]]) -> None:
    """The solution's process, up to its first line. Never returns."""
    ready = pipes["ready"][1]
    try:
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(pipes["out"][1], 1)
        os.dup2(pipes["err"][1], 2)
        ready = fcntl.fcntl(ready, fcntl.F_DUPFD, 100)
        os.dup2(ready, 3)
        ready = 3
        os.closerange(4, 1 << 16)
        os.setsid()  # no signal to its own group reaches init
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if job.get("cpus"):
            os.sched_setaffinity(0, job["cpus"])
        os.chdir(tier.work)
        environment = _environment(job, tier)
        submission, file = environment["SUBMISSION_PATH"], os.path.join(tier.work, "solution.py")
        tier.confine()
        if job["warm"]:
            _run_here(job, file, tier.data, submission, environment, ready)
        argv = [
            "python",
            f"{tier.box}/runner.py",
            tier.box,
            file,
            tier.data,
            submission,
            str(ready),
            str(job.get("cpu_count") or 0),
        ]
        os.set_inheritable(ready, True)
        os.execve(os.path.join(job["venv"], "bin", "python"), argv, environment)
    except BaseException as error:
        os.write(ready, f"!{type(error).__name__}: {error}".encode()[:4000])
        os._exit(1)


def _run_here(job: dict, file: str, data: str, submission: str, environment: dict[str, str], ready: int) -> None:
    """In this process, forked from the warmed-up one. Never returns."""
    start = job.get("start")
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    if "numpy.random" in sys.modules and start is None:  # else all solutions would draw the same "random" numbers
        sys.modules["numpy.random"].seed()
    for name in [name for name in sys.modules if name.partition(".")[0] == __package__]:
        del sys.modules[name]  # to the solution, this package does not exist
    os.write(ready, b"r")
    os.close(ready)
    status, kept = 1, () if start is None else tuple(start.__dict__)
    try:
        runner.prepare(job.get("cpu_count"))
        status = runner.run_program(job["code"], job["prelude"], file, data, submission, start)
    finally:
        runner.finish(status, kept)


def _environment(job: dict, tier) -> dict[str, str]:
    fixed = {
        "PATH": f"{job['venv']}/bin:/usr/bin:/bin", "VIRTUAL_ENV": job["venv"], "LANG": "C.UTF-8", "HOME": tier.tmp,
        "TMPDIR": tier.tmp, "USER": "agent", "LOGNAME": "agent", "XDG_CACHE_HOME": f"{tier.tmp}/.cache",
        "MPLCONFIGDIR": f"{tier.tmp}/.matplotlib", "NUMBA_CACHE_DIR": f"{tier.tmp}/.numba",
        "TORCHINDUCTOR_CACHE_DIR": f"{tier.tmp}/.inductor",
    }  # fmt: skip
    paths = {"DATA_DIR": tier.data, "SUBMISSION_PATH": os.path.join(tier.work, collect.NAME)}
    granted = {"LOKY_MAX_CPU_COUNT": str(job["cpu_count"])} if job.get("cpu_count") else {}
    return {**fixed, **granted, **job["env"], **paths}
