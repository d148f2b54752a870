"""What a sandbox is: `ExecutionLimits` and the protocol `Sandbox` that every implementation follows."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from wmrl_envs.errors import InvalidInput
from wmrl_envs.outcome import Execution

_MOST = 10**9  # of any limit: what fits the kernel's integers when it is in bytes, and its clocks in seconds


#: Ways a run is isolated, and where no program ran. With CGROUP appended the kernel limits all memory of the run.
TIERS = ("namespaces", "landlock", "docker", "unsafe", "replay")
CGROUP = "+cgroup"


def is_tier(name: object, *others: str) -> bool:
    """Whether `name` is the tier of an execution: one of WMRL's own or of `others` (a sandbox of the user's own).

    >>> is_tier("namespaces+cgroup"), is_tier("fortress")
    (True, False)
    """
    return isinstance(name, str) and (name.removesuffix(CGROUP) in TIERS or name in others)


@dataclass(frozen=True)
class ExecutionLimits:
    """Limits of one run; memory, processes and disk are those of the whole process tree.

    Attributes:
        timeout_s: wall clock, seconds.
        cpu_s: CPU seconds of the whole process tree, or None for no such limit. What a program uses does not depend on how busy
            the machine is, what it waits does: with `cpu_s` as the limit of a task, `timeout_s` is only there for programs that
            sleep.
        memory_mb: MiB of memory.
        processes: processes and threads.
        output_bytes: bytes of stdout and of stderr kept (head and tail).
        file_mb: MiB of the largest single file.
        disk_mb: MiB of the work directory in all.
        submission_mb: MiB of the largest submission that is read back.
    """

    timeout_s: float = 1200.0
    memory_mb: int = 4096
    processes: int = 64
    output_bytes: int = 65536
    file_mb: int = 1024
    disk_mb: int = 4096
    submission_mb: int = 512
    cpu_s: float | None = None

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if value is None and f.name == "cpu_s":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _MOST:
                raise InvalidInput(f"ExecutionLimits({f.name}={value!r}): expected a number above 0, at most {_MOST:g}.")
            if f.name in ("processes", "output_bytes") and value != int(value):
                raise InvalidInput(f"ExecutionLimits({f.name}={value!r}): expected a whole number of at least 1.")

    @property
    def effective_s(self) -> float:
        """Seconds a program that only computes may take: the shorter of `timeout_s` and `cpu_s`."""
        return self.timeout_s if self.cpu_s is None else min(self.timeout_s, self.cpu_s)


@dataclass(frozen=True)
class Job:
    """One program to run.

    Attributes:
        code: the agent's program; it runs as `__main__`, its traceback has the line numbers of this text.
        data_dir: folder the program sees read-only as DATA_DIR.
        prelude: trusted code executed before it in the same namespace (a scaffold), under its own file name.
        env: extra environment variables (allow-listed by the caller; never secrets).
        hold: the prelude depends on `data_dir` and `env` alone and seeds what is random, so a sandbox may execute it once and
            start many programs from there.
        nice: how far the program stands back behind others for the processor, 0 to 19.
    """

    code: str
    data_dir: Path
    limits: ExecutionLimits = field(default_factory=ExecutionLimits)
    prelude: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    hold: bool = False
    nice: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", self.code.removeprefix("\ufeff"))  # as Python reads a file that an editor marked


class Sandbox(ABC):
    """Runs programs nobody trusts. Safe to call from several threads; close it or use it as a context manager."""

    tier: str = "unsafe"

    @property
    def lock(self) -> str:
        """Identifies the environment programs run in (interpreter and packages); part of a cached execution's key."""
        return ""

    @property
    def packages(self) -> tuple[str, ...]:
        """The libraries a program may import, as "name==version"; () where that is not known."""
        return ()

    @property
    def slots(self) -> int:
        """Executions there is room for at a time: one a core of this machine, unless it is about others."""
        return os.cpu_count() or 1

    @abstractmethod
    def run_job(self, job: Job) -> Execution:
        """Run one job. The agent's failures are statuses; ours raise `InfrastructureError` after retries."""

    def run(
        self,
        code: str,
        data_dir: str | Path,
        limits: ExecutionLimits | None = None,
        *,
        prelude: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Execution:
        """Run `code` with `data_dir` as DATA_DIR under `limits`."""
        return self.run_job(Job(code, Path(data_dir), limits or ExecutionLimits(), prelude, dict(env or {})))

    def run_many(self, jobs: Sequence[Job], concurrency: int | None = None) -> list[Execution | Exception]:
        """Run jobs at most `concurrency` at a time (default: `slots`); an infrastructure failure is returned in place."""
        from concurrent.futures import ThreadPoolExecutor

        if concurrency is not None and concurrency < 1:
            raise InvalidInput(f"run_many(concurrency={concurrency}): expected at least 1.")

        def one(job: Job) -> Execution | Exception:
            try:
                return self.run_job(job)
            except Exception as error:
                return error

        with ThreadPoolExecutor(concurrency or self.slots) as pool:
            return list(pool.map(one, jobs))

    @abstractmethod
    def close(self) -> None:
        """End every process and remove every file of this sandbox. Idempotent."""

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
