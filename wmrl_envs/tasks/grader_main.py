"""The grading process: reads requests from its standard input, scores them one by one, answers on its standard output.

Started by `grader.py` with nothing of the caller but the path of this package; ends when its input closes or stays idle.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import select
import signal
import traceback
import warnings
from collections.abc import Iterator
from typing import Any, BinaryIO

import wmrl_envs.tasks.metrics  # noqa: F401
from wmrl_envs.tasks.grader import HEAD, REPLY
from wmrl_envs.tasks.reading import read_table
from wmrl_envs.tasks.refusals import SubmissionError
from wmrl_envs.tasks.scoring import score

IDLE_S = 300.0


def main() -> None:
    """Serve until the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = os.fdopen(0, "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not get into the answers
    warnings.simplefilter("ignore")
    read_table(b"id,y\n1,2\n", ("id",))  # what pandas loads when it first reads is no part of what a grading may cost
    while True:
        ready, _, _ = select.select([requests], [], [], IDLE_S)
        head = requests.read(HEAD.size) if ready else b""
        if len(head) < HEAD.size:
            return
        described, size = HEAD.unpack(head)
        request, data = pickle.loads(requests.read(described)), requests.read(size)  # from our own process
        _reply(answers, _serve(request, data))


def _reply(answers: BinaryIO, reply: dict[str, Any]) -> None:
    text = json.dumps(reply).encode()
    answers.write(REPLY.pack(len(text)) + text)
    answers.flush()


def _serve(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    try:
        with _limited(request["memory_bytes"], request["cpu_s"]):
            return {"raw": score(request["spec"], request["answers"], data)}
    except SubmissionError as error:
        return {"refused": [type(error).__name__, error.details, error.message]}
    except MemoryError:
        return {"failed": "memory"}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:500], "traceback": traceback.format_exc()[-4000:]}


@contextlib.contextmanager
def _limited(memory_bytes: int, cpu_s: float) -> Iterator[None]:
    """More memory than `memory_bytes` beside what is there is a MemoryError, more CPU time than `cpu_s` ends the process."""
    before = resource.getrlimit(resource.RLIMIT_DATA)  # address space would count what allocators only reserve
    with contextlib.suppress(OSError, ValueError):  # where the system has no such limit, that of time is left
        with open("/proc/self/statm") as f:
            present = int(f.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_DATA, (present + memory_bytes, before[1]))
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, before)
