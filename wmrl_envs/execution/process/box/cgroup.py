"""A control group (version 2) for each run: the kernel counts and limits all memory it holds, pages of any kind, page tables,
files in memory and the buffers of sockets, and its processes and CPU time.

It needs a group above ours in which we may make others: as root, or where one was delegated to us (`systemd-run --user`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import time

from .tiers import folder_name, start_time

_NEEDED = {"memory", "pids"}
_GROUP = re.compile(r"wmrl-run-(\d+)-(\d+)")
_SLACK_MB = 16  # for the run's first process, which is ours
_HELD = ("anon", "shmem", "kernel", "sock")


def parent_group(root: str | None = None, own: str | None = None) -> str | None:
    """The nearest folder at or above our group where groups with limits can be made, as far as its files say; None if there is
    none.

    Args:
        root: where the hierarchy is mounted; default: as the kernel says.
        own: the group of this process in it; default: as the kernel says.
    """
    root = root if root is not None else _mounted()
    own = own if own is not None else _own_group()
    if root is None or own is None:
        return None
    folder = os.path.normpath(f"{root}/{own}")
    while folder.startswith(root):
        if set(_read(f"{folder}/cgroup.subtree_control").split()) >= _NEEDED and all(
            os.access(path, os.W_OK) for path in (folder, f"{folder}/cgroup.procs")
        ):
            return folder
        if folder == root:
            return None
        folder = os.path.dirname(folder)
    return None


@functools.cache
def usable_group() -> str | None:
    """`parent_group`, once a process has been put into a group with limits there."""
    parent = parent_group()
    if parent is None:
        return None
    import subprocess

    try:
        group = RunGroup(parent, {"memory_mb": 64, "processes": 4}, 0)
    except OSError:
        return None
    try:
        code = f"open({group.path + '/cgroup.procs'!r}, 'w').write('0')"
        return parent if subprocess.run([sys.executable, "-S", "-c", code], capture_output=True).returncode == 0 else None
    finally:
        group.remove()


class RunGroup:
    """The group of one run, made with its limits; the run's first process enters it (`enter`).

    Args:
        parent: of `usable_group`.
        limits: of the job.
        cores: how many it may use; 0 for all.
    """

    def __init__(self, parent: str, limits: dict, cores: int):
        self.path = f"{parent}/{folder_name('run', os.getpid())}"
        self._entrance = -1
        os.mkdir(self.path)
        try:
            self._write("memory.max", str(int((limits["memory_mb"] + _SLACK_MB) * 2**20)))
            self._write("pids.max", str(int(limits["processes"]) + 1))
            with contextlib.suppress(OSError):  # a kernel without swap, a group without the controller of CPU time
                self._write("memory.swap.max", "0")
            with contextlib.suppress(OSError):
                self._write("cpu.max", f"{cores * 100_000 if cores else 'max'} 100000")
            self._entrance = os.open(f"{self.path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            self.remove()
            raise

    def enter(self) -> None:
        """Put the calling process into the group; by a descriptor, since it may see no file of the host."""
        os.write(self._entrance, b"0")

    def held_mb(self) -> float:
        """MiB held now, without what the kernel would give back (the cache of files on disk)."""
        figures = dict(line.split() for line in _read(f"{self.path}/memory.stat").splitlines())
        return sum(int(figures.get(name, 0)) for name in _HELD) / 2**20

    def out_of_memory(self) -> bool:
        """Whether the kernel has ended a process of the group at its memory limit."""
        return any(
            line.startswith("oom_kill ") and line != "oom_kill 0" for line in _read(f"{self.path}/memory.events").splitlines()
        )

    def remove(self) -> None:
        """End what is left in the group, and the group."""
        if self._entrance >= 0:
            os.close(self._entrance)
            self._entrance = -1
        _remove(self.path)

    def _write(self, name: str, value: str) -> None:
        _write(f"{self.path}/{name}", value)


def remove_dead(parent: str) -> None:
    """Remove the groups of supervisors that were killed before they could."""
    for name in os.listdir(parent):
        match = _GROUP.fullmatch(name)
        if match and start_time(int(match[1])) != int(match[2]):
            _remove(f"{parent}/{name}")


def _remove(group: str) -> None:
    with contextlib.suppress(OSError):
        _write(f"{group}/cgroup.kill", "1")
    for _ in range(200):
        try:
            os.rmdir(group)
            return
        except FileNotFoundError:
            return
        except OSError:  # its processes are being taken apart
            time.sleep(0.005)


def _write(path: str, value: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)


def _mounted() -> str | None:
    for line in _read("/proc/self/mountinfo").splitlines():
        place, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            return place.split()[4]
    return None


def _own_group() -> str | None:
    return next((line[3:] for line in _read("/proc/self/cgroup").splitlines() if line.startswith("0::")), None)


def _read(path: str) -> str:
    try:
        with open(path) as f:
            return f.read()
    except OSError:
        return ""
