"""The limits that the kernel sets on each process of a run."""

from __future__ import annotations

_INTERPRETER_BYTES = 64 << 20
_ADDRESS_BYTES = 16 << 30


def apply(limits: dict, *, processes_in_use: int | None, limit_data: bool = True) -> None:
    """Set the resource limits of this process and of all it starts.

    `processes_in_use` count for its user already; None: something else limits the number of processes.
    """
    import resource  # of Unix alone, where a box is; elsewhere this module must only be importable

    mib = 2**20
    wanted = {
        resource.RLIMIT_FSIZE: int(limits["file_mb"] * mib),
        # Also how many descriptors may be on their way through sockets, where nothing shows what they hold.
        resource.RLIMIT_NOFILE: 1024,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_CORE: 0,
    }
    if processes_in_use is not None:
        wanted[resource.RLIMIT_NPROC] = int(limits["processes"]) + processes_in_use
    if limit_data:
        # Not tightly the address space: thread stacks, arenas and CUDA reserve far more of that than they use.
        # The interpreter itself always starts; that it is above a tiny limit is then noticed by measuring.
        wanted[resource.RLIMIT_DATA] = max(int(limits["memory_mb"] * mib), _INTERPRETER_BYTES)
        # A wide backstop all the same: page tables grow with it, and nothing else bounds mappings that are only read.
        wanted[resource.RLIMIT_AS] = 4 * int(limits["memory_mb"] * mib) + _ADDRESS_BYTES
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
