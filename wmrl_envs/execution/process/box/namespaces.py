"""The file tree a solution sees, built in mount, pid, network, IPC and UTS namespaces of its own.

Everything writable lies on one tmpfs of exactly the allowed size, which disappears with the namespace: a run leaves
nothing on the host, whatever becomes of us.
"""

from __future__ import annotations

import os
import stat

from . import kernel

WORK, DATA = "/work", "/data"
SYSTEM = ("bin", "lib", "lib32", "lib64", "sbin", "usr/bin", "usr/lib", "usr/lib32", "usr/lib64", "usr/share/zoneinfo")
SETTINGS = ("etc/ld.so.cache", "etc/ld.so.conf", "etc/ld.so.conf.d", "etc/localtime", "etc/alternatives")
_DEVICES = ("null", "full", "random", "urandom")  # pages of /dev/zero, mapped shared, are memory of no process
_PASSWD = "root:x:0:0::/:/bin/false\nagent:x:{0}:{0}::/tmp:/bin/sh\n"
INSIDE_USER = 1000


def isolate(as_root: bool) -> None:
    """Leave the host's namespaces; the *children* of this process get a pid namespace.

    Without root this needs a user namespace, in which this process gets the capabilities for what follows.
    """
    if as_root:
        kernel.unshare(kernel.CLONE_NEWPID)
        return
    user, group = os.getuid(), os.getgid()  # before unshare: afterwards both are unknown
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{INSIDE_USER} {user} 1")
    _write("/proc/self/gid_map", f"{INSIDE_USER} {group} 1")


def build_root(job: dict, owner: int) -> None:
    """As pid 1 of the new pid namespace: make the solution's root, work directory and devices, and enter it.

    Args:
        job: the job as the server got it.
        owner: user id, as seen here, of the solution.
    """
    os.umask(0o022)
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("wmrl", "/tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=0755,size=16m,nr_inodes=4000")
    os.chdir("/tmp")
    os.mkdir("old")
    kernel.pivot_root(".", "old")  # the old root's own /tmp is reachable again below /old
    os.chdir("/")
    _scratch(job["limits"]["disk_mb"] + len(job["code"]) / 2**20, owner)
    for path in (*SYSTEM, *SETTINGS):
        _same_as_host(path)
    for path in (job["base_prefix"], job["venv"]):
        if not path.startswith(("/usr/bin", "/usr/lib")) and path != "/usr":
            _bind("/old" + path, path)
    _hide_other_packages(job["base_prefix"])
    os.makedirs(DATA, exist_ok=True)
    kernel.bind("/old" + job["data_dir"], DATA, user_namespace=job.get("data_namespace"))
    _devices(job.get("devices", ()))
    os.makedirs("/proc", exist_ok=True)
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    _write("/etc/passwd", _PASSWD.format(owner))
    _write("/etc/group", f"root:x:0:\nagent:x:{owner}:\n")
    _write("/etc/hosts", "127.0.0.1 localhost\n")
    os.mkdir("/box", 0o755)


def private_shared_memory(size_mb: float, owner: int) -> None:
    """Mount a /dev/shm for this process and its children alone, of a limited size. Needs privilege."""
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    size = f"mode=0700,uid={owner},gid={owner},size={max(64, int(size_mb * 1024))}k,nr_inodes={max(1000, 16 * int(size_mb))}"
    kernel.mount("wmrl", "/dev/shm", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, size)


def seal() -> None:
    """Cut the last way to the host's files and make the root read-only."""
    kernel.unmount("/old")
    os.rmdir("/old")
    kernel.set_mount_flags("/", kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV, recursive=False)


def _scratch(size_mb: float, owner: int) -> None:
    inodes = max(20_000, 16 * int(size_mb))
    os.mkdir("/scratch")
    size = f"mode=0755,size={int(size_mb * 1024) + 64}k,nr_inodes={inodes}"
    kernel.mount("wmrl", "/scratch", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, size)
    os.makedirs("/dev/shm")
    for name, target in (("work", WORK), ("tmp", "/tmp"), ("shm", "/dev/shm")):
        os.mkdir(f"/scratch/{name}", 0o700)
        os.chown(f"/scratch/{name}", owner, owner)
        os.makedirs(target, exist_ok=True)
        kernel.bind(f"/scratch/{name}", target, read_only=False)
    kernel.unmount("/scratch")
    os.rmdir("/scratch")


def _same_as_host(path: str) -> None:
    source, target = "/old/" + path, "/" + path
    try:
        mode = os.lstat(source).st_mode
    except OSError:
        return
    if stat.S_ISLNK(mode):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.symlink(os.readlink(source), target)
    else:
        _bind(source, target)


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "a").close()
    kernel.bind(source, target)


def other_packages(base_prefix: str) -> list[str]:
    """Folders of packages of the system's and of the base interpreter: none of the sandbox's, they may carry task data."""
    candidates = ["/usr/lib/R", "/usr/lib/python3/dist-packages"]
    for library in (f"{base_prefix}/lib", "/usr/lib"):
        versions = [name for name in os.listdir(library) if name.startswith("python3.")] if os.path.isdir(library) else []
        candidates += [f"{library}/{name}/{kind}" for name in versions for kind in ("site-packages", "dist-packages")]
    return [path for path in candidates if os.path.isdir(path)]


def _hide_other_packages(base_prefix: str) -> None:
    os.mkdir("/empty", 0o755)
    for path in other_packages(base_prefix):
        kernel.bind("/empty", path)


def data_namespace(data_dir: str, owner: int) -> int | None:
    """For root: a user namespace that shows private data as the solution's user's own; None if anybody can read it."""
    if os.geteuid() != 0 or readable_by_others(data_dir):
        return None
    ready, made = os.pipe()
    hold, release = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            kernel.unshare(kernel.CLONE_NEWUSER)
            os.close(release)
            os.write(made, b"1")
            os.read(hold, 1)
        finally:
            os._exit(0)
    os.close(made)
    os.close(hold)
    try:
        os.read(ready, 1)
        _write(f"/proc/{child}/uid_map", f"0 {owner} 1")
        _write(f"/proc/{child}/gid_map", f"0 {owner} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(release)
        os.close(ready)
        os.waitpid(child, 0)


def readable_by_others(folder: str, budget: int = 5000) -> bool:
    """Whether another user could read this tree (the first `budget` entries are looked at)."""
    if os.stat(folder).st_mode & 0o005 != 0o005:
        return False
    pending = [folder]
    while pending and budget > 0:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                budget -= 1
                is_folder = entry.is_dir(follow_symlinks=False)
                wanted = 0o005 if is_folder else 0o004
                if not entry.is_symlink() and entry.stat(follow_symlinks=False).st_mode & wanted != wanted:
                    return False
                if is_folder:
                    pending.append(entry.path)
    return True


def _devices(extra: tuple[str, ...]) -> None:
    for name in _DEVICES:
        _bind_device(f"/dev/{name}")
    for path in extra:
        _bind_device(path)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(target, f"/dev/{name}")


def _bind_device(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "a").close()
    kernel.mount("/old" + path, path, flags=kernel.MS_BIND)
    kernel.set_mount_flags(path, kernel.ATTR_NOSUID)


def _write(path: str, text: str) -> None:
    with open(path, "w") as f:
        f.write(text)
