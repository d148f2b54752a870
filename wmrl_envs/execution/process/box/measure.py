"""What a tree of processes holds: memory and disk, of which each process shows a part and open descriptors the rest."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator

_FIGURES = re.compile(rb"^(RssAnon|RssFile|RssShmem|VmSwap|VmPTE):\s+(\d+) kB", re.MULTILINE)
_SHARES = re.compile(rb"^(?:Pss_Anon|Pss_File):\s+(\d+) kB", re.MULTILINE)
_PIPE_MB = 1 / 16


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


def memory_mb(pids: list[int], enough_mb: float, files_mb: float | None = None) -> float:
    """MiB held by these processes: pages, swapped ones, page tables, buffers of sockets and pipes, files in memory.

    What costs time to find out is found out only where the plain sum would exceed `enough_mb`: that pages are shared, and
    which descriptors are sockets. Infinite if a process cannot be looked at.

    Args:
        pids: ids of the processes.
        enough_mb: MiB up to which the plain sum is good enough.
        files_mb: MiB in the run's files in memory, mapped or not; None: they are what processes have mapped.
    """
    kinds = ("RssAnon", "RssFile", "VmSwap", "VmPTE", *(("RssShmem",) if files_mb is None else ()))
    held, pids = files_mb or 0.0, living(pids)
    figures = [_figures(pid) for pid in pids]
    total = held + sum(of_one.get(kind, 0.0) for of_one in figures for kind in kinds)
    total += _socket_mb() * sum(_descriptor_count(pid) for pid in pids)
    if total <= enough_mb:
        return total
    mapped = sum(_shared(pid, of_one) if len(pids) > 1 else of_one.get("RssAnon", 0) + of_one.get("RssFile", 0)
                 for pid, of_one in zip(pids, figures, strict=True))  # fmt: skip
    rest = sum(of_one.get(kind, 0.0) for of_one in figures for kind in kinds if kind not in ("RssAnon", "RssFile"))
    return held + mapped + rest + _buffers_mb(pids)


def _figures(pid: int) -> dict[str, float]:
    """MiB of each kind; {} for a process that has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as f:
            return {name.decode(): int(kib) / 1024 for name, kib in _FIGURES.findall(f.read())}
    except OSError:
        return {}


def _shared(pid: int, figures: dict[str, float]) -> float:
    """MiB of a process's own and mapped pages; one that several have counts a part for each."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as f:
            shares = _SHARES.findall(f.read())
    except PermissionError:
        shares = []
    except OSError:  # gone meanwhile
        return 0.0
    if not shares and _has_memory(pid):
        return figures.get("RssAnon", 0.0) + figures.get("RssFile", 0.0)
    return sum(map(int, shares)) / 1024


def private_mb(pid: int) -> float:
    """MiB that end with this process: what it shares with no other."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            return sum(int(line.split()[1]) for line in f if line.startswith("Private_")) / 1024
    except (OSError, IndexError):
        return _figures(pid).get("RssAnon", 0.0)


def _socket_mb() -> float:
    """What may lie unread in one socket: its sender's buffer, which can be set to twice the largest size."""
    try:
        with open("/proc/sys/net/core/wmem_max") as f:
            return 2 * int(f.read()) / 2**20
    except (OSError, ValueError):
        return 0.4


def _descriptor_count(pid: int) -> int:
    try:
        return max(0, len(os.listdir(f"/proc/{pid}/fd")) - 3)
    except PermissionError:
        return 1 << 20 if _has_memory(pid) else 0
    except OSError:  # gone meanwhile
        return 0


def living(pids: list[int]) -> list[int]:
    """For each process that still has memory: a thread that shows it, since one whose first thread has ended does not."""
    shown = []
    for pid in pids:
        if _has_memory(pid):
            shown.append(pid)
            continue
        with contextlib.suppress(OSError):
            shown += [thread for thread in map(int, os.listdir(f"/proc/{pid}/task")) if _has_memory(thread)][:1]
    return shown


def _has_memory(thread: int) -> bool:
    try:
        with open(f"/proc/{thread}/statm", "rb") as f:
            return not f.read().startswith(b"0 ")
    except OSError:
        return False


def _buffers_mb(pids: list[int]) -> float:
    """At most this much lies in the sockets and pipes that these processes have open."""
    names: set[str] = set()
    for pid, descriptor in _descriptors(pids):
        if descriptor is None:
            return float("inf")
        with contextlib.suppress(OSError):
            names.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    sockets = sum(name.startswith("socket:") for name in names)
    return sockets * _socket_mb() + sum(name.startswith("pipe:") for name in names) * _PIPE_MB


def _descriptors(pids: Iterable[int]) -> Iterator[tuple[int, str | None]]:
    """Each process with each of its descriptors; None for one that hides them."""
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except PermissionError:
            if _has_memory(pid):
                yield pid, None
            continue
        except OSError:  # gone meanwhile
            continue
        yield from ((pid, name) for name in names)


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


def nameless_mb(pids: list[int], seen: dict[tuple[int, int], float]) -> float:
    """MiB of the files that these processes hold but no folder lists: open ones, and mapped ones.

    Without root the size of a file that is mapped only is not shown; it counts as it was last seen.

    Args:
        pids: ids of the processes.
        seen: MiB of files by device and inode, kept from look to look.
    """
    found: dict[tuple[int, int], float] = {}
    pids = living(pids)
    for pid, descriptor in _descriptors(pids):
        if descriptor is None:
            return float("inf")
        with contextlib.suppress(OSError):
            info = os.stat(f"/proc/{pid}/fd/{descriptor}")
            if stat.S_ISREG(info.st_mode):
                seen[info.st_dev, info.st_ino] = info.st_blocks / 2048
                if info.st_nlink == 0:
                    found[info.st_dev, info.st_ino] = info.st_blocks / 2048
    for pid in pids:
        for device, inode, span, mib in _deleted_mappings(pid):
            try:
                found[device, inode] = os.stat(f"/proc/{pid}/map_files/{span}").st_blocks / 2048
            except OSError:
                found.setdefault((device, inode), max(mib, seen.get((device, inode), 0.0)))
    return sum(found.values())


def _deleted_mappings(pid: int) -> Iterator[tuple[int, int, str, float]]:
    """Device, inode, address range and MiB up to its end in the file, for each mapping of a file without a name."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as f:
            lines = [line.split(None, 5) for line in f if line.endswith(b" (deleted)\n")]
    except OSError:
        return
    for span, _, offset, device, inode, path in lines:
        if path.startswith((b"/dev/zero", b"/SYSV", b"/memfd:")) or inode == b"0":
            continue
        low, high = (int(end, 16) for end in span.split(b"-"))
        major, minor = (int(part, 16) for part in device.split(b":"))
        yield os.makedev(major, minor), int(inode), f"{low:x}-{high:x}", (int(offset, 16) + high - low) / 2**20


def disk_mb(folders: tuple[str, ...], seen: dict[tuple[int, int], float] | None = None) -> float:
    """MiB of disk below these folders; a file counts its blocks and 16 KiB, so that empty ones are limited, too.

    Infinite if there is a folder that cannot be looked at (nested deeper than a path can be long, unreadable): else
    anything could be hidden in it. `seen` remembers the sizes of larger files, see `nameless_mb`.
    """
    used, pending = 0, list(folders)
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                used += 16384
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        info = entry.stat(follow_symlinks=False)
                        used += info.st_blocks * 512 + 16384
                        if seen is not None and info.st_blocks > 128:
                            seen[info.st_dev, info.st_ino] = info.st_blocks / 2048
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):  # gone meanwhile
            continue
        except OSError:
            return float("inf")
    return used / 2**20
