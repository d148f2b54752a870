"""The ways a run is isolated. Each has the same steps, called by the supervisor, by its child `init` and by the solution's
process: `prepare` (supervisor), `enter` and `seal` (init), `confine` (the solution, last thing before its code), `disk_mb` and
`clean` (supervisor). `memory_folders` are those of the run's own file systems in memory, known after `enter`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import signal
import stat
import time
from collections.abc import Iterator

from . import kernel, landlock, limits, measure, namespaces, seccomp

#: Solutions started by root run as user FIRST_USER + the supervisor's pid: nobody else's, and never that of two runs.
FIRST_USER = 0x10000000


class NamespaceTier:
    """Own mounts, pids, network, IPC; files on a tmpfs of the allowed size."""

    name = "namespaces"
    work, data, tmp, box = namespaces.WORK, namespaces.DATA, "/tmp", "/box"
    memory_folders: tuple[str, ...] = (namespaces.WORK,)  # one file system with /tmp and /dev/shm

    def __init__(self, job: dict):
        self.job = job
        self.as_root = os.geteuid() == 0
        self.owner = FIRST_USER + os.getpid() if self.as_root else namespaces.INSIDE_USER

    def prepare(self) -> None:
        if self.as_root:
            self.job["data_namespace"] = namespaces.data_namespace(self.job["data_dir"], self.owner)
        namespaces.isolate(self.as_root)

    def enter(self) -> None:
        kernel.die_with_parent()
        namespaces.build_root(self.job, self.owner)

    def confine(self) -> None:
        limits.apply(self.job["limits"], processes_in_use=0 if self.as_root else 1, limit_data=not self.job.get("devices"))
        kernel.drop_privileges(self.owner if self.as_root else None)
        landlock.keep_signals_inside()
        seccomp.install(**_filter(self.job))

    def seal(self) -> None:
        namespaces.seal()

    def files_mb(self, held_mb: float) -> float | None:
        return held_mb

    def disk_mb(self, pids: list[int], held_mb: float) -> float:
        return 0.0  # the tmpfs enforces it

    def clean(self) -> None:
        """Nothing: the tmpfs went with the namespace."""


class LandlockTier:
    """Landlock and seccomp, on a work directory of the host; for machines without user namespaces.

    Weaker than namespaces: the disk limit is polled, so a fast writer can overshoot it; a solution can `stat` the host's
    files and see its processes; it has no sockets but connected pairs, hence no `multiprocessing.Manager`; without root
    there is no shared memory, hence no `multiprocessing.Pool`.
    """

    name = "landlock"
    memory_folders: tuple[str, ...] = ()

    def __init__(self, job: dict):
        self.job = job
        self.sizes: dict[tuple[int, int], float] = {}
        self.on_disk_mb, self.in_memory = 0.0, False
        self.as_root = os.geteuid() == 0
        self.owner = FIRST_USER + os.getpid() if self.as_root else os.geteuid()
        self.folder = os.path.join(job["temporary"], folder_name("run", os.getpid()))
        self.work, self.tmp, self.box = (os.path.join(self.folder, name) for name in ("work", "tmp", "box"))
        self.data = job["data_dir"]

    def prepare(self) -> None:
        os.mkdir(self.folder, 0o711)
        self.in_memory = kernel.in_memory(self.folder)
        for path in (self.work, self.tmp, self.box):
            os.mkdir(path, 0o755 if path == self.box else 0o700)
            if self.as_root and path != self.box:
                os.chown(path, self.owner, self.owner)

    def enter(self) -> None:
        kernel.adopt_orphans()
        if self.as_root:
            with contextlib.suppress(OSError):  # then it has no shared memory: never the host's
                namespaces.private_shared_memory(self.job["limits"]["disk_mb"], self.owner)
                self.memory_folders = ("/dev/shm",)

    def seal(self) -> None:
        """Nothing to seal: Landlock decides."""

    def confine(self) -> None:
        in_use = 0 if self.as_root else _tasks_of(os.geteuid())
        limits.apply(self.job["limits"], processes_in_use=in_use, limit_data=not self.job.get("devices"))
        # What Landlock lets it read must be readable although it is nobody's user: an interpreter below a private home.
        kernel.drop_privileges(self.owner if self.as_root else None, keep_read_search=self.as_root)
        self._restrict()
        # Landlock leaves modes and times of files to their owner, and lets anybody connect to a socket file.
        seccomp.install(**_filter(self.job), keep_metadata=not self.as_root, sockets=False)

    def _restrict(self) -> None:
        prefix, venv = self.job["base_prefix"], self.job["venv"]
        read = ["/usr/bin", "/bin", "/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives", "/usr/share/zoneinfo"]
        read += [path for path in ("/lib", "/lib32", "/lib64", "/usr/lib32", "/usr/lib64") if not os.path.islink(path)]
        read += _without_packages("/usr/lib")
        if prefix != "/usr":
            read += [*_without_packages(f"{prefix}/lib"), f"{prefix}/bin"]
        read += [venv, self.data, self.box, "/dev/full", "/dev/random", "/dev/urandom", "/proc/self"]
        read += ["/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm/overcommit_memory", "/proc/filesystems"]
        read += [
            "/sys/fs/cgroup/cpu.max",
            "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
            "/sys/fs/cgroup/cpu/cpu.cfs_period_us",
        ]  # joblib
        write = [self.work, self.tmp, "/dev/null", *self.job.get("devices", ()), *self.memory_folders]
        landlock.restrict(read, write, [f"{prefix}/lib", "/usr/lib"])

    def files_mb(self, held_mb: float) -> float | None:
        return held_mb + (self.on_disk_mb if self.in_memory else 0.0)

    def disk_mb(self, pids: list[int], held_mb: float) -> float:
        listed = measure.disk_mb((self.work, self.tmp), self.sizes)
        self.on_disk_mb = listed + measure.nameless_mb(pids, self.sizes)
        return self.on_disk_mb + held_mb

    def clean(self) -> None:
        remove_tree(self.folder)


class UnsafeTier(LandlockTier):
    """Limits and a clean environment only. The solution can read what we can and use the network."""

    name = "unsafe"

    def confine(self) -> None:
        in_use = 0 if self.as_root else _tasks_of(os.geteuid())
        limits.apply(self.job["limits"], processes_in_use=in_use, limit_data=not self.job.get("devices"))
        kernel.drop_privileges(self.owner if self.as_root else None, keep_read_search=self.as_root)


class ContainerTier:
    """Inside a container that somebody else made: the isolation is there, limits on single processes are added."""

    name = "docker"
    work, data, tmp, box = namespaces.WORK, namespaces.DATA, "/tmp", "/tmp/.box"
    memory_folders: tuple[str, ...] = ()
    as_root = False

    def __init__(self, job: dict):
        self.job = job

    def prepare(self) -> None:
        os.mkdir(self.box, 0o755)

    def enter(self) -> None:
        kernel.adopt_orphans()

    def seal(self) -> None:
        """The container's root is read-only from its start."""

    def confine(self) -> None:
        limits.apply(self.job["limits"], processes_in_use=None, limit_data=not self.job.get("devices"))
        kernel.drop_privileges(None)
        landlock.keep_signals_inside()
        seccomp.install(**_filter(self.job))

    def files_mb(self, held_mb: float) -> float | None:
        return None  # the container's limit counts them

    def disk_mb(self, pids: list[int], held_mb: float) -> float:
        return 0.0  # tmpfs

    def clean(self) -> None:
        """The container is removed."""


TIERS = {tier.name: tier for tier in (NamespaceTier, LandlockTier, UnsafeTier, ContainerTier)}


def _filter(job: dict) -> dict:
    """What the system call filter of a solution depends on; called by its process."""
    return {
        "memory_counted": bool(job.get("memory_counted") or job.get("group")),
        "pinned": bool(job.get("cpus")),
        "protected": (1, os.getppid()),
    }


def folder_name(kind: str, pid: int) -> str:
    """Name of a temporary folder: it says whose it is, so that a later start knows whether its owner is dead."""
    return f"wmrl-{kind}-{pid}-{start_time(pid)}"


def start_time(pid: int) -> int:
    """When a process began, in clock ticks since boot; 0 if there is no such process, or only its remains."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            fields = f.read().rsplit(b")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def kill_descendants(pid: int) -> None:
    """Kill all processes below `pid` there are now."""
    tree = measure.descendants(pid)
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: what cannot run cannot fork meanwhile
        for child in tree:
            with contextlib.suppress(OSError):
                os.kill(child, number)


def end_children() -> None:
    """As the parent of everything that is left of a run: kill and reap until nothing is."""
    while True:
        kill_descendants(os.getpid())
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def remove_tree(folder: str) -> None:
    """Remove a folder that a hostile program has filled, once nothing runs in it: no permission, link or depth stops it."""
    with contextlib.suppress(OSError), _opened(folder) as top:
        numbered = (f"{secrets.token_hex(8)}-{n}" for n in itertools.count())
        pending = os.listdir(top)
        while pending:
            name = pending.pop()
            with contextlib.suppress(OSError):
                if _unlinked(name, top):
                    continue
                with _opened(name, top) as inside:
                    for inner in os.listdir(inside):
                        # A folder moves up to the top: neither a path's length nor recursion bounds how deep it may lie.
                        if not _unlinked(inner, inside):
                            pending.append(next(numbered))
                            os.rename(inner, pending[-1], src_dir_fd=inside, dst_dir_fd=top)
                os.rmdir(name, dir_fd=top)
        os.rmdir(folder)


@contextlib.contextmanager
def _opened(folder: str, directory: int | None = None) -> Iterator[int]:
    """A descriptor of a folder, made accessible first."""
    if stat.S_ISDIR(os.stat(folder, dir_fd=directory, follow_symlinks=False).st_mode):
        os.chmod(folder, 0o700, dir_fd=directory)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _unlinked(name: str, directory: int) -> bool:
    """Remove what is not a folder; a folder becomes accessible."""
    try:
        os.unlink(name, dir_fd=directory)
        return True
    except IsADirectoryError:
        os.chmod(name, 0o700, dir_fd=directory)
        return False


def _without_packages(library: str) -> list[str]:
    """The entries of a lib folder, without the packages installed for any Python in it."""
    allowed = []
    for name in os.listdir(library) if os.path.isdir(library) else ():
        path = f"{library}/{name}"
        if name.startswith("python3"):
            allowed += [f"{path}/{inner}" for inner in os.listdir(path) if inner not in ("site-packages", "dist-packages")]
        elif name != "R":
            allowed.append(path)
    return allowed


def _tasks_of(user: int) -> int:
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == user:
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue
    return count
