"""The system calls no solution needs, refused by a seccomp filter (classic BPF, x86-64 and aarch64)."""

from __future__ import annotations

import ctypes
import errno
import struct

from . import kernel

# name: (x86-64, aarch64)
_REFUSED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "fanotify_init": (300, 262),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "sethostname": (170, 161), "setdomainname": (171, 162), "syslog": (103, 116), "vhangup": (153, 58),
    "iopl": (172, None), "ioperm": (173, None), "personality": (135, 92), "lookup_dcookie": (212, 18),
}  # fmt: skip
_METADATA = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
}  # fmt: skip
_ARCHITECTURES = {  # AUDIT_ARCH, column of the table, then the numbers of socket, socketpair, clone, ioctl
    "x86_64": (0xC000003E, 0, 41, 53, 56, 16),
    "aarch64": (0xC00000B7, 1, 198, 199, 220, 29),
}
_CLONE3 = 435
_NEW_NAMESPACES = 0x7E020000
_DATAGRAM = 2  # the bit of SOCK_DGRAM and SOCK_RAW, not of SOCK_STREAM and SOCK_SEQPACKET
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2


def _refuse(number: int) -> int:
    return 0x00050000 | number


def program(*, keep_metadata: bool = False, sockets: bool = True) -> bytes:
    """The filter as an array of `struct sock_filter`. Raises OSError on another architecture.

    With `keep_metadata`, changing modes, times and attributes of files seems to succeed and does nothing: for programs that
    run as the owner of files they may only read. Without `sockets` there are only connected pairs (a datagram one could
    send elsewhere): for programs that see socket files of the host, which Landlock does not guard.
    """
    if kernel.MACHINE not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no seccomp filter for {kernel.MACHINE}")
    architecture, column, socket_, socketpair, clone, ioctl = _ARCHITECTURES[kernel.MACHINE]
    code: list[tuple[int, int, int, int]] = []

    def deny_if(jump: int, value: int, number: int) -> None:
        code.extend([(jump, 0, 1, value), (_RETURN, 0, 0, _refuse(number))])

    code += [(_LOAD, 0, 0, 4), (_JUMP_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _refuse(errno.ENOSYS)), (_LOAD, 0, 0, 0)]
    if kernel.MACHINE == "x86_64":
        deny_if(_JUMP_ABOVE, 0x40000000, errno.ENOSYS)  # the x32 numbers would pass by the table
    # glibc falls back to clone, whose flags a filter can read; EPERM here would break every thread.
    deny_if(_JUMP_EQUAL, _CLONE3, errno.ENOSYS)
    for numbers in _REFUSED.values():
        number = numbers[column]
        if number is not None:
            deny_if(_JUMP_EQUAL, number, errno.EPERM)
    for numbers in _METADATA.values() if keep_metadata else ():
        number = numbers[column]
        if number is not None:
            deny_if(_JUMP_EQUAL, number, 0)
    no_socket = (_RETURN, 0, 0, _refuse(errno.EAFNOSUPPORT))
    unix_only = [(_LOAD, 0, 0, 16), (_JUMP_EQUAL, 1, 0, 1), no_socket, (_RETURN, 0, 0, _ALLOW)] if sockets else [no_socket]
    no_datagram = [(_LOAD, 0, 0, 24), (_JUMP_BITS, 0, 1, _DATAGRAM), no_socket, (_RETURN, 0, 0, _ALLOW)]
    no_namespace = [(_LOAD, 0, 0, 16), (_JUMP_BITS, 0, 1, _NEW_NAMESPACES), (_RETURN, 0, 0, _refuse(errno.EPERM))]
    code += [(_JUMP_EQUAL, 0, len(unix_only), socket_), *unix_only]
    if not sockets:
        code += [(_JUMP_EQUAL, 0, len(no_datagram), socketpair), *no_datagram]
    code += [(_JUMP_EQUAL, 0, len(no_namespace) + 1, clone), *no_namespace, (_RETURN, 0, 0, _ALLOW)]
    code += [(_JUMP_EQUAL, 1, 0, ioctl), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 24)]
    for request in _TERMINAL_INJECTION:
        deny_if(_JUMP_EQUAL, request, errno.EPERM)
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def install(*, keep_metadata: bool = False, sockets: bool = True) -> None:
    """Filter this process and all it will start (see `program`); `no_new_privileges` must be set."""
    instructions = program(keep_metadata=keep_metadata, sockets=sockets)
    buffer = ctypes.create_string_buffer(instructions)
    header = ctypes.create_string_buffer(struct.pack("HP", len(instructions) // 8, ctypes.addressof(buffer)))
    kernel.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(header))
