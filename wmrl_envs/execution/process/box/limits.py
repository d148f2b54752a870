"""Applying the limits of a run, and measuring a tree of processes."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable

_PAGE_MB = mmap.PAGESIZE / 2**20
_INTERPRETER_BYTES = 64 << 20


def apply(limits: dict, *, processes_in_use: int | None, limit_data: bool = True) -> None:
    """Set the resource limits of this process and of all it starts.

    `processes_in_use` count for its user already; None: something else limits the number of processes.
    """
    import resource  # of Unix alone, where a box is; elsewhere this module must only be importable

    mib = 2**20
    wanted = {
        resource.RLIMIT_FSIZE: int(limits["file_mb"] * mib),
        resource.RLIMIT_NOFILE: 4096,
        resource.RLIMIT_CORE: 0,
    }
    if processes_in_use is not None:
        wanted[resource.RLIMIT_NPROC] = int(limits["processes"]) + processes_in_use
    if limit_data:
        # Not the address space: thread stacks, arenas and CUDA reserve far more of that than they use.
        # The interpreter itself always starts; that it is above a tiny limit is then noticed by measuring.
        wanted[resource.RLIMIT_DATA] = max(int(limits["memory_mb"] * mib), _INTERPRETER_BYTES)
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, without itself."""
    children = _children if os.path.exists("/proc/thread-self/children") else _children_by_parent()
    found, pending = [], [pid]
    while pending:
        below = children(pending.pop())
        found += below
        pending += below
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as f:
                found += map(int, f.read().split())
    except OSError:  # gone meanwhile
        pass
    return found


def _children_by_parent() -> Callable[[int], list[int]]:
    """`_children` for kernels that do not list them, from one look at all processes."""
    by_parent: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as f:
                    parent = int(f.read().rsplit(b")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            by_parent.setdefault(parent, []).append(int(name))
    return lambda pid: by_parent.get(pid, [])


def tasks(pids: list[int]) -> int:
    """Processes and threads of these processes."""
    count = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # gone meanwhile
            count += len(os.listdir(f"/proc/{pid}/task"))
    return count


def memory_mb(pids: list[int], enough_mb: float) -> float:
    """MiB in use by these processes; pages they share count once where the plain sum would exceed `enough_mb`."""
    total = sum(_resident_mb(pid) for pid in pids)
    if len(pids) > 1 and total > enough_mb:
        total = sum(_proportional_mb(pid) for pid in pids)
    return total


def _resident_mb(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/statm") as f:
            return int(f.read().split()[1]) * _PAGE_MB
    except (OSError, IndexError):
        return 0.0


def _proportional_mb(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            return sum(int(line.split()[1]) for line in f if line.startswith("Pss:")) / 1024
    except (OSError, IndexError):
        return _resident_mb(pid)


class CpuClock:
    """CPU seconds of a tree of processes, from looks at it every now and then.

    A process that ended counts as its parent's, if that waited for it; one nobody waited for counts as it was when last seen.
    """

    def __init__(self) -> None:
        self._own: dict[int, float] = {}
        self.used_s = 0.0

    def look(self, pids: list[int]) -> float:
        """What the tree has used by now; `pids` are its living processes, the first one's ended children included."""
        own_and_waited_for = 0.0
        for pid in pids:
            own, waited_for = _cpu_s(pid)
            self._own[pid] = max(own, self._own.get(pid, 0.0))
            own_and_waited_for += own + waited_for
        self.used_s = max(self.used_s, own_and_waited_for, sum(self._own.values()))
        return self.used_s


def _cpu_s(pid: int) -> tuple[float, float]:
    """CPU seconds of a process, and of the children it has waited for."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            ticks = [int(t) for t in f.read().rsplit(b")", 1)[1].split()[11:15]]
    except (OSError, IndexError):  # gone meanwhile
        return 0.0, 0.0
    a_second = os.sysconf("SC_CLK_TCK")
    return sum(ticks[:2]) / a_second, sum(ticks[2:]) / a_second


def private_mb(pid: int) -> float:
    """MiB that end with this process: what it shares with no other."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            return sum(int(line.split()[1]) for line in f if line.startswith("Private_")) / 1024
    except (OSError, IndexError):
        return _resident_mb(pid)


def disk_mb(folders: tuple[str, ...]) -> float:
    """MiB of disk below these folders; a file counts its blocks and 16 KiB, so that empty ones are limited, too.

    Infinite if there is a folder that cannot be looked at (nested deeper than a path can be long, unreadable): else
    anything could be hidden in it.
    """
    used, pending = 0, list(folders)
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                used += 16384
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        used += entry.stat(follow_symlinks=False).st_blocks * 512 + 16384
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):  # gone meanwhile
            continue
        except OSError:
            return float("inf")
    return used / 2**20


def owned_mb(folder: str, user: int) -> float:
    """MiB of the files of `user` directly in `folder`."""
    used = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            used += info.st_blocks * 512 if info.st_uid == user else 0
    return used / 2**20
