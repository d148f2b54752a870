"""The system calls Python has no function for (x86-64 and aarch64)."""

from __future__ import annotations

import ctypes
import os
import platform
import struct

_libc = ctypes.CDLL(None if os.name == "posix" else "msvcrt", use_errno=True)  # elsewhere nothing here is called
_libc.syscall.restype = ctypes.c_long

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_IDMAP = 1, 2, 4, 0x100000

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS, _PR_CAPBSET_DROP = 1, 4, 8, 24
_PR_SET_SECUREBITS, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 28, 36, 38, 47
_AT_RECURSIVE, _AT_EMPTY_PATH, _OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 0x8000, 0x1000, 1, 0o2000000
_MOVE_MOUNT_F_EMPTY_PATH = 4
CAP_DAC_READ_SEARCH = 2
_MEMORY_FILE_SYSTEMS = (0x01021994, 0x858458F6)  # tmpfs, ramfs

MACHINE = platform.machine()
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}.get(MACHINE, -1)
_CAPSET = {"x86_64": 126, "aarch64": 91}.get(MACHINE, -1)
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: object, what: str = "") -> int:
    """A raw system call; integers are passed as 64-bit values. Raises OSError."""
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *converted), what or f"syscall {number}")


def prctl(option: int, *arguments: int) -> None:
    values = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    _checked(_libc.prctl(ctypes.c_int(option), *values), f"prctl {option}")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(ctypes.c_int(flags)), f"unshare {flags:#x}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    result = _libc.mount(
        source.encode(), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None
    )
    _checked(result, f"mount {kind or source} on {target}")


def unmount(target: str) -> None:
    _checked(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    syscall(_PIVOT_ROOT, new.encode(), old.encode(), what="pivot_root")


def set_mount_flags(path: str, flags: int, *, recursive: bool = True) -> None:
    attributes = struct.pack("QQQQ", flags, 0, 0, 0)
    how = _AT_RECURSIVE if recursive else 0
    syscall(_MOUNT_SETATTR, -100, os.fsencode(path), how, attributes, len(attributes), what=f"mount_setattr {path}")


def bind(source: str, target: str, *, read_only: bool = True, user_namespace: int | None = None) -> None:
    """Bind-mount `source`, a file or folder with all below it; with `user_namespace` its owners are mapped by that one."""
    if user_namespace is None:
        mount(source, target, flags=MS_BIND | MS_REC)
    else:
        tree = syscall(_OPEN_TREE, -100, os.fsencode(source), _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC, what=f"open_tree {source}")
        attributes = struct.pack("QQQQ", ATTR_IDMAP, 0, 0, user_namespace)
        syscall(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, attributes, len(attributes), what=f"idmap {source}")
        syscall(_MOVE_MOUNT, tree, b"", -100, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH, what=f"move_mount {target}")
        os.close(tree)
    if read_only:
        set_mount_flags(target, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV)


def in_memory(folder: str) -> bool:
    """Whether the files of a folder are held in memory."""
    buffer = ctypes.create_string_buffer(256)
    _checked(_libc.statfs(os.fsencode(folder), buffer), f"statfs {folder}")
    return struct.unpack("l", buffer.raw[:8])[0] in _MEMORY_FILE_SYSTEMS


def die_with_parent() -> None:
    prctl(_PR_SET_PDEATHSIG, 9)


def undumpable() -> None:
    """Forbid other processes of the same user to look into this one (`drop_privileges` undoes it in a child)."""
    prctl(_PR_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def no_new_privileges() -> None:
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_privileges(user: int | None, *, keep_read_search: bool = False) -> None:
    """Give up every capability for good, and become `user` (and group) if one is given.

    `keep_read_search` keeps CAP_DAC_READ_SEARCH: reading what file modes forbid. Only where something else (Landlock)
    decides what can be read.
    """
    for capability in range(64):
        if not (keep_read_search and capability == CAP_DAC_READ_SEARCH):
            try:
                prctl(_PR_CAPBSET_DROP, capability)
            except OSError:  # beyond the last capability of this kernel, or already without CAP_SETPCAP
                break
    if user is not None:
        if keep_read_search:
            prctl(_PR_SET_KEEPCAPS, 1)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    mask = 1 << CAP_DAC_READ_SEARCH if keep_read_search else 0
    header, sets = struct.pack("Ii", 0x20080522, 0), struct.pack("6I", mask, mask, mask, 0, 0, 0)
    syscall(_CAPSET, header, sets, what="capset")
    if keep_read_search:
        prctl(_PR_CAP_AMBIENT, 2, CAP_DAC_READ_SEARCH)
    # Changing the user makes a process undumpable, and its own /proc/self unreadable to it.
    prctl(_PR_SET_DUMPABLE, 1)
    no_new_privileges()
