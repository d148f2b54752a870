"""From what a supervisor or a container reports to an `ExecutionStatus`, and to words an agent can act on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from wmrl_envs.execution.base import ExecutionLimits
from wmrl_envs.outcome import Execution, ExecutionStatus

_MAX_CODE_BYTES = 1 << 20
_KILLED = {
    "timeout": ExecutionStatus.TIMEOUT,
    "cpu": ExecutionStatus.TIMEOUT,
    "memory": ExecutionStatus.MEMORY,
    "output": ExecutionStatus.OUTPUT,
    "disk": ExecutionStatus.DISK,
}
_ENDED_AT = "ended at the limit: "  # in `Execution.detail`
# The class and the number of an uncaught exception tell which limit the program ran into; what its message says does not.
_EXCEPTIONS = (
    (ExecutionStatus.MEMORY, re.compile(r"(\w+\.)*_?\w*MemoryError\b|std::bad_alloc|(OS|IO)Error: \[Errno 12\]")),
    (ExecutionStatus.PROCESSES, re.compile(r"(BlockingIO|OS|IO)Error: \[Errno 11\]|RuntimeError: can't start new thread$")),
    (ExecutionStatus.DISK, re.compile(r"(OS|IO)Error: \[Errno (27|28|122)\]")),
)
_CHAINED = re.compile(
    r"\n\n(?:During handling of the above exception, another exception occurred|"
    r"The above exception was the direct cause of the following exception):\n\n"
)


def classify(killed: str, exit_code: int | None, stderr: str, problem: str | None, crowded: bool = False) -> ExecutionStatus:
    """The status of a run.

    Args:
        killed: the limit we ended it at ("timeout", "cpu", "memory", "output", "disk"), or "".
        exit_code: of the program, negative for a signal.
        stderr: what the program wrote there.
        problem: why its submission was refused, if it was.
        crowded: as many processes and threads as are allowed were there, so that it may have waited for one that never came.
    """
    if killed == "timeout" and crowded:
        return ExecutionStatus.PROCESSES
    if killed:
        return _KILLED[killed]
    if exit_code == 0:
        return ExecutionStatus.INVALID_SUBMISSION if problem else ExecutionStatus.OK
    for section in reversed(_CHAINED.split(stderr.rstrip())):  # libraries that clean up after a failure fail in their turn
        last = section.rsplit("\n", 1)[-1]
        if "Traceback (most recent call last)" not in section and not last.startswith(("MemoryError", "std::bad_alloc")):
            continue
        for status, pattern in _EXCEPTIONS:
            if pattern.match(last):
                return status
    return ExecutionStatus.AGENT_ERROR


def unusable_code(code: str) -> str | None:
    """Why `code` is not even tried, in one sentence for the agent; None if it is."""
    if not code.strip():
        return "The program is empty: there is nothing to execute."
    if "\0" in code:
        return "SyntaxError: the program contains null bytes; source code must be plain text."
    if len(code) > _MAX_CODE_BYTES:
        return f"The program has {len(code) / 2**20:.1f} MiB of source code; at most {_MAX_CODE_BYTES >> 20} MiB is accepted."
    try:
        code.encode()
    except UnicodeEncodeError as error:
        return f"SyntaxError: the program contains characters that are not valid Unicode text (position {error.start})."
    return None


def to_execution(answer: Mapping[str, Any], parts: Sequence[bytes], tier: str) -> Execution:
    """The record of a run from its supervisor's answer (`box/supervisor.py`)."""
    out, err, submission = parts
    stderr = err.decode("utf-8", "replace")
    status = classify(answer["killed"], answer["exit"], stderr, answer["problem"], answer.get("crowded", False))
    # One that was written before the time limit may be graded (`grade_late`).
    kept = status in (ExecutionStatus.OK, ExecutionStatus.TIMEOUT) and answer["has_submission"]
    return Execution(
        status=status,
        exit_code=answer["exit"],
        stdout=out.decode("utf-8", "replace"),
        stderr=stderr,
        submission=submission if kept else None,
        submission_problem=answer["problem"],
        wall_s=answer["wall_s"],
        cpu_s=answer["cpu_s"],
        peak_memory_mb=answer["peak_memory_mb"],
        tier=tier,
        detail=f"{_ENDED_AT}{answer['killed']}" if answer["killed"] else answer.get("detail", ""),
    )


def describe(execution: Execution, limits: ExecutionLimits) -> str:
    r"""One or two sentences on how a run ended and what to change; for a failed program its traceback.

    >>> from wmrl_envs.outcome import Execution, ExecutionStatus
    >>> text = describe(Execution(ExecutionStatus.TIMEOUT, wall_s=20.1), ExecutionLimits(timeout_s=20))
    >>> print(text.replace(". ", ".\n"))
    Execution failed: the time limit of 20 s was exceeded and the program was stopped.
    Make it faster: fewer rows, trees or folds.
    """
    match execution.status:
        case ExecutionStatus.OK:
            if execution.submission is None:
                return "The program ended without an error but wrote no submission: write the CSV file to SUBMISSION_PATH."
            return f"The program ended without an error after {execution.wall_s:.1f} s."
        case ExecutionStatus.TIMEOUT:
            by_cpu = limits.cpu_s is not None and execution.detail == f"{_ENDED_AT}cpu"
            limit = f"CPU-time limit of {limits.cpu_s:g} s" if by_cpu else f"time limit of {limits.timeout_s:g} s"
            return (
                f"Execution failed: the {limit} was exceeded and the program was stopped. "
                "Make it faster: fewer rows, trees or folds."
            )
        case ExecutionStatus.MEMORY:
            return (
                f"Execution failed: the memory limit of {limits.memory_mb:g} MiB (all processes together) was exceeded "
                f"(peak {execution.peak_memory_mb:.0f} MiB). Use smaller arrays, chunks or fewer workers."
            )
        case ExecutionStatus.PROCESSES:
            return (
                f"Execution failed: the limit of {limits.processes} processes and threads was exceeded. "
                "Use fewer workers (n_jobs) or threads."
            )
        case ExecutionStatus.OUTPUT:
            return "Execution failed: the program printed far too much and was stopped. Print summaries, not data."
        case ExecutionStatus.DISK:
            return (
                f"Execution failed: a file grew above {limits.file_mb:g} MiB or the work directory above "
                f"{limits.disk_mb:g} MiB. Write less."
            )
        case ExecutionStatus.INVALID_SUBMISSION:
            problem = execution.submission_problem or "is not usable"
            return f"The program ended without an error, but what it left at SUBMISSION_PATH {problem}."
        case ExecutionStatus.AGENT_ERROR:
            return f"Execution failed: {execution.stderr.strip() or _exit_words(execution.exit_code)}"
        case _:
            return "The sandbox itself failed; this says nothing about the program."


def _exit_words(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        import signal

        try:
            name = signal.Signals(-exit_code).name
        except ValueError:
            name = f"signal {-exit_code}"
        return f"the program was ended by {name} without a traceback."
    return f"the program ended with exit status {exit_code} and no message."
