"""The first process of a container: supervises one job like `server` does, and writes the answer to its output."""

from __future__ import annotations

import os
import signal
import socket
import sys

from . import kernel, wire
from .supervisor import run


def main() -> None:
    """`... <job file>`: run the job of this file."""
    # Not even the solution, which runs as the same user, may look into this process, use its descriptors or interrupt it.
    kernel.undumpable()
    with open(sys.argv[1], "rb") as f:
        job, (code, prelude) = wire.unpack(f.read)
    job["code"], job["prelude"] = code.decode(), prelude.decode()
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    ours, theirs = socket.socketpair()  # stands for the connection to a harness, whose end `theirs` here lives as long as we
    run(job, ours, 1, started=lambda: wire.write_all(1, wire.pack({"started": True})))
    theirs.close()
    os._exit(0)
