"""`ExecutionBank`: a published file of programs with what became of them when they were really executed, once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import lzma
import math
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.execution.base import Job
from wmrl_envs.outcome import Execution, ExecutionStatus, RecordedGrade

SUFFIX = ".jsonl.xz"
_FORMAT = 1
_LARGEST_BYTES = 512 << 20  # of an unpacked bank; ten thousand executions take a few percent of it
_UNPACKING_BYTES = 256 << 20  # that the unpacking may take besides


class NotRecorded(InfrastructureError):
    """A replay was asked for a run its store does not have; says nothing about the program."""


class ExecutionBank:
    """Recorded executions of many programs of some tasks, read from one compressed file.

    Unlike an `ExecutionStore` it keeps the graded value in place of the submission, so that ten thousand executions fit in a
    few megabytes. The first line of the file says under which `conditions` everything ran: environment lock, limits, prelude,
    variables, and for each task the fingerprint of its data. A job under any other conditions is not answered.

    Args:
        path: the file, which `write` made.

    Raises:
        InvalidInput: no such file, or not one of a bank; of a damaged one the message names the line.
    """

    def __init__(self, path: str | Path):
        self.where = Path(path).expanduser()
        number = 0
        try:
            lines = _decompressed(self.where.read_bytes()).splitlines()
            for number, line in enumerate(lines, 1):
                if number == 1:
                    self.conditions = _conditions(json.loads(line))
                    self._records: dict[str, dict[str, dict[str, Any]]] = {task: {} for task in self.conditions["data"]}
                    continue
                record = _record(json.loads(line), self._records)
                if self._records[record["task"]].setdefault(record["code"], record) != record:
                    raise ValueError(f"another execution of a program of {record['task']} that is there already")
        except FileNotFoundError:
            raise InvalidInput(f"There is no execution bank {self.where}: `make bank` builds one.") from None
        except (OSError, lzma.LZMAError, ValueError, RecursionError, MemoryError) as error:
            where = f"line {number}: " if number else ""
            raise InvalidInput(
                f"{self.where} is not an execution bank ({where}{error}): expected the file that `make bank` wrote."
            ) from None

    @staticmethod
    def write(path: str | Path, conditions: dict[str, Any], records: Iterable[dict[str, Any]]) -> None:
        """Write a bank; equal contents give an equal file. A record has `task`, `code`, `status`, and what `get` reads."""
        lines = [json.dumps({"format": _FORMAT, **conditions}, sort_keys=True)]
        lines += sorted(json.dumps(record, sort_keys=True) for record in records)
        data = lzma.compress("".join(f"{line}\n" for line in lines).encode(), preset=9 | lzma.PRESET_EXTREME)
        part = Path(f"{path}.part")
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(data)
            part.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink()
            raise InvalidInput(f"The execution bank {path} cannot be written ({error.strerror}): give another place.") from None

    @property
    def tasks(self) -> list[str]:
        return sorted(self._records)

    def programs(self, task: str) -> list[str]:
        """The programs of a task, in the order of their text.

        Raises:
            InvalidInput: the bank has none of this task.
        """
        if not self._records.get(task):
            raise InvalidInput(f"{self.where} has no programs of {task!r}: expected one of {', '.join(self.tasks)}.")
        return sorted(self._records[task])

    def get(self, job: Job, lock: str | None) -> Execution | None:
        """The recorded execution, or None if this program was not executed.

        Raises:
            NotRecorded: nothing was executed under the conditions of this job.
        """
        record = self._records[self._task(job, lock)].get(job.code)
        if record is None:
            return None
        status, problem = ExecutionStatus(record["status"]), record.get("problem")
        if status is ExecutionStatus.INVALID_SUBMISSION and problem is None:
            status = ExecutionStatus.OK  # of the program; its submission was refused by the grader, or is missing
        return Execution(
            status, record["exit_code"], stderr=record["stderr"], submission_problem=problem, wall_s=record["wall_s"],
            cpu_s=record["cpu_s"], peak_memory_mb=record["peak_memory_mb"],
            graded=_graded(record),
        )  # fmt: skip

    def close(self) -> None:
        """Nothing is open."""

    def _task(self, job: Job, lock: str | None) -> str:
        recorded = self.conditions
        asked = describe(job) | ({} if lock is None else {"lock": lock})
        for key, value in asked.items():
            if recorded.get(key) != value:
                raise NotRecorded(f"{self.where} was recorded with {key}={recorded.get(key)!r}; this run has {key}={value!r}.")
        task = self._by_folder.get(str(job.data_dir)) or self._by_data.get(fingerprint(job.data_dir))
        if task is None:
            raise NotRecorded(f"{self.where} was recorded on other data than that of {job.data_dir}.")
        self._by_folder[str(job.data_dir)] = task
        return task

    @cached_property
    def _by_data(self) -> dict[str, str]:
        return {data: task for task, data in self.conditions["data"].items()}

    @cached_property
    def _by_folder(self) -> dict[str, str]:
        return {}


def _decompressed(data: bytes) -> bytes:
    """The content of one xz stream and nothing else (`lzma.open` passes over what comes after it)."""
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_UNPACKING_BYTES)
    content = stream.decompress(data, _LARGEST_BYTES)
    if not stream.eof and not stream.needs_input:
        raise ValueError(f"an archive of more than {_LARGEST_BYTES >> 20} MiB")
    if not stream.eof or stream.unused_data:
        raise ValueError("an archive with something behind its end" if stream.eof else "an archive that is cut short")
    if not content:
        raise ValueError("an empty file")
    return content


def _conditions(header: Any) -> dict[str, Any]:
    """The first line, if it is one."""
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise ValueError(f"no header of format {_FORMAT}")
    data = header.get("data")
    if not isinstance(data, dict) or not all(isinstance(digest, str) for digest in data.values()):
        raise ValueError(f"data={data!r:.80}, expected the fingerprint of each task's data")
    return header


_STATUSES = [status.value for status in ExecutionStatus if status is not ExecutionStatus.INFRA_ERROR]
_TEXT, _OPTIONAL_TEXT = (lambda v: isinstance(v, str)), (lambda v: v is None or isinstance(v, str))
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {  # of a record
    "code": (_TEXT, "a text"),
    "stderr": (_TEXT, "a text"),
    "status": (lambda v: v in _STATUSES, "the status of an execution"),
    "exit_code": (lambda v: v is None or type(v) is int, "a whole number or null"),
    **dict.fromkeys(("wall_s", "cpu_s", "peak_memory_mb"), (lambda v: _finite(v) and v >= 0, "a number of at least 0")),
}
_FIELDS_OF_SOME: dict[str, tuple[Callable[[Any], bool], str]] = {
    "raw_score": (lambda v: v is None or _finite(v), "a finite number or null"),
    **dict.fromkeys(("problem", "error", "feedback"), (_OPTIONAL_TEXT, "a text or null")),
}


def _record(record: Any, tasks: Iterable[str]) -> dict[str, Any]:
    """A record that `ExecutionBank.get` can answer from."""
    if not isinstance(record, dict) or record.get("task") not in list(tasks):
        raise ValueError("no record of a task that the header has")
    some = {name: check for name, check in _FIELDS_OF_SOME.items() if name in record}
    for name, (good, expected) in (_FIELDS | some).items():
        if name not in record:
            raise ValueError(f"a record without {name}")
        if not good(record[name]):
            raise ValueError(f"{name}={record[name]!r:.80}, expected {expected}")
    if record.get("raw_score") is not None and record["status"] != ExecutionStatus.OK:
        raise ValueError(f"raw_score={record['raw_score']!r} of a program that ended with {record['status']}")
    return record


def _graded(record: dict[str, Any]) -> RecordedGrade | None:
    """How the submission was graded, if there was one."""
    if record.get("error") is not None:
        return RecordedGrade(error=record["error"], feedback=record.get("feedback") or "")
    return RecordedGrade(record["raw_score"]) if "raw_score" in record else None


def _finite(value: Any) -> bool:
    return (type(value) is int and abs(value) < 2**63) or (type(value) is float and math.isfinite(value))


def describe(job: Job) -> dict[str, Any]:
    """The conditions of a job that a bank records; variables that belong to the task (its METRIC) are part of its data."""
    conditions = {
        "timeout_s": job.limits.timeout_s,
        "memory_mb": job.limits.memory_mb,
        "max_rows": job.env.get("MAX_ROWS"),
        "prelude": hashlib.sha256(job.prelude.encode()).hexdigest(),
    }
    return conditions if job.limits.cpu_s is None else conditions | {"cpu_s": job.limits.cpu_s}


def fingerprint(folder: Path) -> str:
    """Of the names and contents of the files under a folder."""
    total = hashlib.sha256()
    for name, _ in walk(folder):
        with open(folder / name, "rb") as f:
            total.update(f"{name}\0{hashlib.file_digest(f, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


def walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every file under a folder in a fixed order: path relative to it, and stat."""
    for path, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            full = os.path.join(path, name)
            yield os.path.relpath(full, folder), os.stat(full)
