"""The first process of a container: supervises one job like `server` does, and writes the answer to its output."""

from __future__ import annotations

import os
import socket
import sys

from . import kernel, wire
from .supervisor import run


def main() -> None:
    """`... <job file>`: run the job of this file."""
    # Not even the solution, which runs as the same user, may look into this process or use its descriptors.
    kernel.undumpable()
    with open(sys.argv[1], "rb") as f:
        job, (code, prelude) = wire.unpack(f.read)
    job["code"], job["prelude"] = code.decode(), prelude.decode()
    ours, theirs = socket.socketpair()  # stands for the connection to a harness, whose end `theirs` here lives as long as we
    answer = run(job, ours)
    wire.write_all(1, answer)
    theirs.close()
    os._exit(0)
