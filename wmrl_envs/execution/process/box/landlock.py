"""Landlock: what a process may read and write, decided by itself for good; needs no privilege and no namespace."""

from __future__ import annotations

import ctypes
import os
import struct

from . import kernel

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_FILE_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_TCP = 3  # bind, connect
_SCOPES = 3  # abstract sockets, signals


def version() -> int:
    """The version of the kernel's interface; 0 where there is none."""
    try:
        return kernel.syscall(_CREATE, None, 0, 1)
    except OSError:
        return 0


def _all_rights(abi: int) -> int:
    rights = (1 << 13) - 1
    if abi >= 2:
        rights |= 1 << 13
    if abi >= 3:
        rights |= _TRUNCATE
    if abi >= 5:
        rights |= _IOCTL_DEV
    return rights


def restrict(read: list[str], write: list[str], names: list[str]) -> None:
    """Allow reading `read`, everything in `write` and listing `names`, nothing else; no TCP, no signals or abstract sockets
    outwards.

    Call it after `kernel.no_new_privileges`. Paths that do not exist are left out. What the kernel's version does not
    know (TCP before 4, signals before 6) stays open: the self-test finds out.
    """
    abi = version()
    if abi < 1:
        raise OSError(38, "this kernel has no Landlock")
    rights = _all_rights(abi)
    attributes = struct.pack("QQQ", rights, _TCP if abi >= 4 else 0, _SCOPES if abi >= 6 else 0)
    attributes = attributes[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    ruleset = kernel.syscall(_CREATE, attributes, len(attributes), 0, what="landlock_create_ruleset")
    for paths, allowed in ((read, _READ), (write, rights), (names, _READ_DIR)):
        for path in paths:
            try:
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            only = allowed if os.path.isdir(path) else allowed & _FILE_ONLY
            rule = ctypes.create_string_buffer(struct.pack("=Qi", only & rights, descriptor))
            kernel.syscall(_ADD_RULE, ruleset, 1, rule, 0, what=f"landlock_add_rule {path}")
            os.close(descriptor)
    kernel.syscall(_RESTRICT, ruleset, 0, what="landlock_restrict_self")
    os.close(ruleset)


def keep_signals_inside() -> None:
    """Allow signals only to processes this one will start, where the kernel can (version 6)."""
    if version() >= 6:
        attributes = struct.pack("QQQ", 0, 0, _SCOPES)
        ruleset = kernel.syscall(_CREATE, attributes, len(attributes), 0, what="landlock_create_ruleset")
        kernel.syscall(_RESTRICT, ruleset, 0, what="landlock_restrict_self")
        os.close(ruleset)
