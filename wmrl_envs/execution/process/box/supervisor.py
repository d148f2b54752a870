"""One supervisor process a run: it starts the solution, enforces what the kernel does not, and reports what happened.

supervisor -> init (pid 1 of the run: waits, ends what is left over, reads the submission) -> the solution.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import random
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from . import cgroup, collect, kernel, measure, runner, wire
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
        run(job, connection, connection.fileno())


def run(job: dict, connection: socket.socket, answer_to: int, started: Callable[[], None] = lambda: None) -> None:
    """Run a job and write the answer's message to a descriptor; give up when the other end of `connection` is closed.

    `started` is called when the solution's first line is about to run. What fails from then on is told as its doing: it has
    done it, or asked for it, and a program must not be able to make its own failure ours.
    """
    attempt = _Run(job, connection, started)
    try:
        header, texts = attempt.execute()
    except Exception as error:
        header, texts = attempt.broken(error)
    file = attempt.submission
    size = os.fstat(file).st_size if file is not None else 0
    wire.write_all(answer_to, wire.pack({**header, "has_submission": file is not None}, *texts, more=size))
    if file is not None:
        wire.copy(file, answer_to, size)


class _Run:
    def __init__(self, job: dict, connection: socket.socket, started: Callable[[], None]):
        self.job, self.limits, self.connection, self.tell_started = job, job["limits"], connection, started
        self.tier = TIERS[job["tier"]](job)
        self.killed, self.killed_at = "", 0.0
        self.out, self.err = Kept(int(self.limits["output_bytes"])), Kept(int(self.limits["output_bytes"]))
        self.ready = bytearray()
        self.told: dict | None = None  # by init, at the end
        self.submission: int | None = None  # descriptor
        self.memory_files: list[int] = []  # descriptors of folders in the run's own file systems
        self.peak_mb, self.tasks = 0.0, 0
        self.cpu = measure.CpuClock()
        self.group: cgroup.RunGroup | None = None
        self.began = self.ready_at = self.measured = self.disk_measured = 0.0  # seconds of the monotonic clock

    @property
    def started(self) -> bool:
        return self.ready[:1] == b"r"

    def execute(self) -> tuple[dict, tuple[bytes, ...]]:
        pipes = {name: os.pipe() for name in ("out", "err", "ready")}
        talk, inits = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kernel.adopt_orphans()
        try:
            if self.job.get("group"):
                self.group = cgroup.RunGroup(self.job["group"], self.limits, len(self.job.get("cpus") or ()))
            self.tier.prepare()
            init = os.fork()
            if init == 0:
                talk.close()
                _init(self.job, self.tier, pipes, inits, self.connection, self.group)
            inits.close()
            for _, write in pipes.values():
                os.close(write)
            began, ended = self._watch(init, {name: read for name, (read, _) in pipes.items()}, talk)
            _, status, usage = os.wait4(init, 0)
            if self.group is not None and self.group.out_of_memory() and not self.killed:
                self.killed = "memory"
            return self._result(status, usage, ended - began)
        finally:
            end_children()
            self.tier.clean()
            if self.group is not None:
                self.group.remove()

    def _watch(self, init: int, sources: dict[str, int], talk: socket.socket) -> tuple[float, float]:
        """Until init is gone: read what it and the solution write, and end them at a limit. When the solution's time began,
        and ended.
        """
        sinks: dict[int, Callable] = {sources["out"]: self.out.add, sources["err"]: self.err.add}
        sinks[sources["ready"]] = self.ready.extend
        for descriptor in sinks:
            os.set_blocking(descriptor, False)
        talk.setblocking(False)
        process = os.pidfd_open(init)
        # Each says whether there may be more to come.
        readers: dict[int, Callable[[], bool]] = {fd: functools.partial(_drain, fd, sink) for fd, sink in sinks.items()}
        readers[talk.fileno()] = lambda: self._listen(talk)
        readers[self.connection.fileno()] = lambda: self._kill(init, "harness gone")
        poll = select.poll()
        for descriptor in (*readers, process):
            poll.register(descriptor, select.POLLRDHUP if descriptor == self.connection.fileno() else select.POLLIN)
        self.began = time.monotonic()
        gone = False
        while not gone:
            for descriptor, _ in poll.poll(int(_POLL_S * 1000)):
                if descriptor == process:
                    gone = True
                elif not readers[descriptor]():
                    poll.unregister(descriptor)
            self._note_start()
            if not gone:
                self._enforce(init)
        ended = time.monotonic()
        for descriptor, sink in sinks.items():
            _drain(descriptor, sink)
        while self._listen(talk):
            pass
        return self.began, ended

    def _note_start(self) -> None:
        if self.ready and not self.ready_at:
            self.began = self.ready_at = self.measured = time.monotonic()  # the first look a little later: most end before it
            if self.started:
                self.tell_started()

    def _enforce(self, init: int) -> None:
        now = time.monotonic()
        if self.started and now - self.disk_measured >= _DISK_POLL_S:
            self.disk_measured = now
            self._check_disk(init)
        if self.started and now - self.measured >= _POLL_S:
            self.measured = now
            self._check_tree(init)
        if self.ready and now - self.began > self.limits["timeout_s"]:
            self._kill(init, "timeout")
        elif not self.ready and now - self.began > _SETUP_S:
            self._kill(init, "setup")
        flood = max(_FLOOD_BYTES, 16 * self.out.limit)
        if self.out.total > flood or self.err.total > flood:
            self._kill(init, "output")
        if self.killed and now - self.killed_at > _INIT_GRACE_S:
            kill_descendants(init)
            os.kill(init, signal.SIGKILL)

    def _listen(self, talk: socket.socket) -> bool:
        """Take a message of init; False if there is none."""
        try:
            message, descriptors, _, _ = socket.recv_fds(talk, 1 << 16, 8)
        except BlockingIOError:
            return False
        if not message:
            return False
        told = json.loads(message)
        if "folders" in told:
            self.memory_files = descriptors
        else:
            self.told, self.submission = told, next(iter(descriptors), None)
        return True

    def _held_mb(self) -> float:
        """MiB in the run's own file systems in memory."""
        used = 0.0
        for folder in self.memory_files:
            info = os.fstatvfs(folder)
            used += (info.f_blocks - info.f_bfree) * info.f_frsize / 2**20
        return used

    def _check_tree(self, init: int) -> None:
        pids = measure.descendants(init)
        if self.limits["cpu_s"] is not None and self.cpu.look([init, *pids]) > self.limits["cpu_s"]:
            self._kill(init, "cpu")
        self.tasks = max(self.tasks, measure.tasks(pids))
        limit = self.limits["memory_mb"]
        if self.group is not None:
            used = self.group.held_mb()
        else:
            used = measure.memory_mb(pids, min(limit, self.peak_mb), self.tier.files_mb(self._held_mb()))
        if used > limit or (self.group is not None and self.group.out_of_memory()):
            self._kill(init, "memory")
        if used < float("inf"):
            self.peak_mb = max(self.peak_mb, used)

    def _check_disk(self, init: int) -> None:
        used = self.tier.disk_mb(measure.descendants(init), self._held_mb())
        if used > self.limits["disk_mb"]:
            self._kill(init, "disk")

    def _kill(self, init: int, why: str) -> bool:
        """End the run at a limit; False, as a reader that has nothing more to come."""
        if not self.killed:
            self.killed, self.killed_at = why, time.monotonic()
            kill_descendants(init)  # then init, which has nothing left to wait for, cleans up, accounts and reports
        return False

    def _result(self, status: int, usage, wall_s: float) -> tuple[dict, tuple[bytes, ...]]:
        header = self._header() | {
            "wall_s": wall_s, "cpu_s": usage.ru_utime + usage.ru_stime,
            "peak_memory_mb": max(self.peak_mb, usage.ru_maxrss / 1024),
        }  # fmt: skip
        told = self.told if self.told is not None else {"infra": f"the sandbox's init ended by itself (wait status {status})"}
        failed = told.get("infra")
        if not failed:
            header |= told
        if self.killed in ("setup", "harness gone"):
            header["infra"] = f"the solution did not start within {_SETUP_S:g} s"
        elif not self.started and not self.killed:
            reason = failed or self.ready[1:].decode(errors="replace") or self.err.bytes().decode(errors="replace")[-500:]
            header["infra"] = failed or f"the solution's process did not start: {reason}"
        elif failed:
            header |= {"exit": -signal.SIGKILL, "detail": f"while the program ran, {failed}"}
        return header, (self.out.bytes(), self.err.bytes())

    def broken(self, error: Exception) -> tuple[dict, tuple[bytes, ...]]:
        """The answer where this process itself failed."""
        reason = f"{type(error).__name__}: {error}"
        why = {"exit": -signal.SIGKILL, "detail": f"while the program ran, {reason}"} if self.started else {"infra": reason}
        return self._header() | why, (self.out.bytes(), self.err.bytes())

    def _header(self) -> dict:
        return {
            "killed": self.killed, "wall_s": 0.0, "cpu_s": 0.0, "peak_memory_mb": self.peak_mb, "problem": None, "exit": None,
            "output_bytes": self.out.total + self.err.total, "crowded": self.tasks >= int(self.limits["processes"]) - 1,
        }  # fmt: skip


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


def _init(
    job: dict,
    tier,
    pipes: dict[str, tuple[int, int]],
    talk: socket.socket,
    connection: socket.socket,
    group: cgroup.RunGroup | None,
) -> None:
    """The run's first process. Never returns."""
    try:
        if group is not None:
            group.enter()
        # Without root it has the solution's user, and Python a handler for SIGINT: no signal may interrupt it.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        connection.close()
        for read, _ in pipes.values():
            os.close(read)
        os.setsid()
        os.nice(job.get("nice", 0))
        tier.enter()
        if not _alive(talk):
            os._exit(1)
        _place_files(job, tier)
        tier.seal()
        kernel.undumpable()
        folders = [os.open(folder, os.O_PATH | os.O_CLOEXEC) for folder in tier.memory_folders]
        _tell(talk, {"folders": len(folders)}, folders)
        solution = os.fork()
        if solution == 0:
            _solution(job, tier, pipes)
        for _, write in pipes.values():
            os.close(write)
        header: dict = {"exit": _wait(solution, talk)}
        file, header["problem"] = collect.open_submission(tier.work, int(job["limits"]["submission_mb"] * 2**20))
        _tell(talk, header, [] if file is None else [file])
        os._exit(0)
    except BaseException as error:
        with contextlib.suppress(OSError):
            _tell(talk, {"infra": f"{type(error).__name__}: {error}"[:4000]}, [])
        os._exit(1)


def _tell(talk: socket.socket, message: dict, descriptors: list[int]) -> None:
    socket.send_fds(talk, [json.dumps(message).encode()], descriptors)


def _alive(talk: socket.socket) -> bool:
    """Whether the supervisor is there, which never says anything."""
    return not select.select([talk.fileno()], [], [], 0)[0]


def _place_files(job: dict, tier) -> None:
    for path, text in ((f"{tier.box}/runner.py", _RUNNER_SOURCE), (f"{tier.box}/prelude.py", job["prelude"])):
        with open(path, "w", encoding="utf-8", newline="") as f:
            f.write(text)
    solution = os.path.join(tier.work, "solution.py")
    with open(solution, "w", encoding="utf-8", newline="") as f:
        f.write(job["code"])
    if tier.as_root:
        os.chown(solution, tier.owner, tier.owner)


def _wait(solution: int, talk: socket.socket) -> int:
    """Wait for the solution, then end and reap everything it left; its exit status, negative for a signal."""
    process = os.pidfd_open(solution)
    ready, _, _ = select.select([process, talk.fileno()], [], [])
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
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
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
