"""The system calls no solution needs, and arguments no solution needs, refused by a seccomp filter (classic BPF, x86-64 and
aarch64).

A process may do to others of its user what neither Landlock nor a file mode forbids: change their limits, cores, priorities.
Without root our own processes have the solution's user, so it may do these things to itself alone.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
from typing import Any

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
    # what would outlive the run, be found by another one, or tell who opens which file
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191),
    "semtimedop": (220, 192), "mq_open": (240, 180), "mq_unlink": (241, 181),
    "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
    # other processes by other names, and memory that belongs to no process
    "pidfd_send_signal": (424, 424), "migrate_pages": (256, 238), "move_pages": (279, 239), "process_mrelease": (448, 448),
    "vmsplice": (278, 75), "io_setup": (206, 0), "memfd_secret": (447, 447),
}  # fmt: skip
_METADATA = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
}  # fmt: skip
# Refused for some arguments only, see `_filtered`.
_FILTERED = {
    "socket": (41, 198), "socketpair": (53, 199), "clone": (56, 220), "ioctl": (16, 29), "fcntl": (72, 25), "mmap": (9, 222),
    "prctl": (157, 167), "memfd_create": (319, 279), "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434),
}  # fmt: skip
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # AUDIT_ARCH, column of the tables
_CLONE3 = 435
_NEW_NAMESPACES = 0x7E020000
_DATAGRAM = 2  # the bit of SOCK_DGRAM and SOCK_RAW, not of SOCK_STREAM and SOCK_SEQPACKET
_IOCTLS = (0x5412, 0x541C, 0x8901, 0x8902)  # TIOCSTI, TIOCLINUX, FIOSETOWN, SIOCSPGRP
_FCNTLS = (8, 10, 15, 1024, 1026)  # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY
_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20
_PR_SET_DUMPABLE = 4

_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_ANY: tuple = ()  # the condition that always holds

_Instruction = tuple[int, int, int, int]
_Condition = tuple[int, int, int, bool]  # argument, jump, value, whether the jump has to be taken


def program(
    *,
    keep_metadata: bool = False,
    sockets: bool = True,
    memory_counted: bool = False,
    pinned: bool = False,
    protected: tuple[int, ...] = (),
) -> bytes:
    """The filter as an array of `struct sock_filter`. Raises OSError on another architecture.

    Args:
        keep_metadata: changing modes, times and attributes of files seems to succeed and does nothing: for programs that run
            as the owner of files they may only read.
        sockets: whether there are sockets; else only connected pairs (a datagram one could send elsewhere): for programs
            that see socket files of the host, which Landlock does not guard.
        memory_counted: the kernel counts all memory of the run. Else memory that no process shows is refused.
        pinned: the run stays on the cores it has.
        protected: processes of ours that no signal may reach, although the program has their user.
    """
    if kernel.MACHINE not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no seccomp filter for {kernel.MACHINE}")
    architecture, column = _ARCHITECTURES[kernel.MACHINE]
    code: list[_Instruction] = [(_LOAD, 0, 0, 4), (_JUMP_EQUAL, 1, 0, architecture), _refuse(errno.ENOSYS), (_LOAD, 0, 0, 0)]
    if kernel.MACHINE == "x86_64":
        code += [(_JUMP_ABOVE, 0, 1, 0x40000000), _refuse(errno.ENOSYS)]  # the x32 numbers would pass by the table
    # glibc falls back to clone, whose flags a filter can read; EPERM here would break every thread.
    code += [(_JUMP_EQUAL, 0, 1, _CLONE3), _refuse(errno.ENOSYS)]
    refused = [(numbers[column], errno.EPERM) for numbers in _REFUSED.values()]
    refused += [(numbers[column], 0) for numbers in _METADATA.values() if keep_metadata]
    for number, answer in refused:
        if number is not None:
            code += [(_JUMP_EQUAL, 0, 1, number), _refuse(answer)]
    for name, rules in _filtered(sockets, memory_counted, pinned, protected).items():
        code += _block(_FILTERED[name][column], rules)
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _filtered(sockets: bool, memory_counted: bool, pinned: bool, protected: tuple[int, ...]) -> dict[str, list]:
    """For each call: its rules, each an answer and the conditions under which it is given."""
    denied, no_family = errno.EPERM, errno.EAFNOSUPPORT
    of_others = [(denied, (_is_not(0, 0),))]
    signals = [(denied, (_is(0, pid),)) for pid in protected]
    groups = [(denied, (_is(0, -pid & 0xFFFFFFFF),)) for pid in {1, *protected}]  # -1: everything there is
    rules: dict[str, list] = {
        "socket": [(no_family, (_is_not(0, socket.AF_UNIX),) if sockets else _ANY)],
        "socketpair": [] if sockets else [(no_family, (_has(1, _DATAGRAM),))],
        "clone": [(denied, (_has(0, _NEW_NAMESPACES),))],
        "ioctl": [(denied, (_is(1, request),)) for request in _IOCTLS],
        "fcntl": [(denied, (_is(1, command),)) for command in _FCNTLS],
        "prctl": [(denied, (_is(0, _PR_SET_DUMPABLE), _is(1, 0)))],  # whoever cannot be looked at cannot be counted
        "sched_setaffinity": [(denied, _ANY)] if pinned else of_others,
        "setpriority": [(denied, (_is_not(0, 0),)), (denied, (_is_not(1, 0),))],  # PRIO_PROCESS, itself
        "ioprio_set": [(denied, (_is_not(0, 1),)), (denied, (_is_not(1, 0),))],  # IOPRIO_WHO_PROCESS, itself
        **dict.fromkeys(("prlimit64", "sched_setscheduler", "sched_setparam", "sched_setattr"), of_others),
        **dict.fromkeys(("tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open"), signals),
        "kill": signals + groups,
    }
    if not memory_counted:
        rules["mmap"] = [(errno.ENOMEM, (_has(3, _MAP_ANONYMOUS), _has(3, _MAP_SHARED)))]
        rules["memfd_create"] = [(errno.ENOMEM, _ANY)]
    return rules


def _is(argument: int, value: int) -> _Condition:
    return argument, _JUMP_EQUAL, value, True


def _is_not(argument: int, value: int) -> _Condition:
    return argument, _JUMP_EQUAL, value, False


def _has(argument: int, bits: int) -> _Condition:
    return argument, _JUMP_BITS, bits, True


def _refuse(number: int) -> _Instruction:
    return _RETURN, 0, 0, 0x00050000 | number


def _block(number: int, rules: list) -> list[_Instruction]:
    """Instructions for one call: the answer of the first rule whose conditions (on the low halves of arguments) all hold."""
    body: list[_Instruction] = []
    for answer, conditions in rules:
        for n, (argument, jump, value, taken) in enumerate(conditions, 1):
            past = 2 * (len(conditions) - n) + 1  # over the rule's other conditions and its answer
            body += [(_LOAD, 0, 0, 16 + 8 * argument), (jump, 0 if taken else past, past if taken else 0, value)]
        body.append(_refuse(answer))
    body.append((_RETURN, 0, 0, _ALLOW))
    return [(_JUMP_EQUAL, 0, len(body), number), *body]


def install(**options: Any) -> None:
    """Filter this process and all it will start; `no_new_privileges` must be set. The options are those of `program`."""
    instructions = program(**options)
    buffer = ctypes.create_string_buffer(instructions)
    header = ctypes.create_string_buffer(struct.pack("HP", len(instructions) // 8, ctypes.addressof(buffer)))
    kernel.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(header))
