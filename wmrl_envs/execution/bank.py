"""`ExecutionBank`: a published file of programs with what became of them when they were really executed, once."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.execution.base import Job
from wmrl_envs.outcome import Execution, ExecutionStatus

SUFFIX = ".jsonl.xz"
_FORMAT = 1


class NotRecorded(InfrastructureError):
    """A replay was asked for a run its store does not have; says nothing about the program."""


class ExecutionBank:
    """Recorded executions of many programs of some tasks, read from one compressed file.

    Unlike an `ExecutionStore` it keeps the graded value in place of the submission, so that ten thousand executions fit in a few
    megabytes. The first line of the file says under which `conditions` everything ran: environment lock, limits, prelude,
    variables, and for each task the fingerprint of its data. A job under any other conditions is not answered.

    Args:
        path: the file, which `write` made.

    Raises:
        InvalidInput: no such file, or not one of a bank.
    """

    def __init__(self, path: str | Path):
        self.where = Path(path).expanduser()
        try:
            with lzma.open(self.where, "rt", encoding="utf-8") as file:
                self.conditions: dict[str, Any] = json.loads(next(file))
                if self.conditions["format"] != _FORMAT:
                    raise ValueError(f"format {self.conditions['format']}, expected {_FORMAT}")
                self._records: dict[str, dict[str, dict[str, Any]]] = {task: {} for task in self.conditions["data"]}
                for line in file:
                    record = json.loads(line)
                    self._records[record["task"]][record["code"]] = record
        except FileNotFoundError:
            raise InvalidInput(f"There is no execution bank {self.where}: `make bank` builds one.") from None
        except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError, TypeError, StopIteration) as error:
            raise InvalidInput(f"{self.where} is not an execution bank ({error or type(error).__name__}).") from None

    @staticmethod
    def write(path: str | Path, conditions: dict[str, Any], records: Iterable[dict[str, Any]]) -> None:
        """Write a bank; equal contents give an equal file. A record has `task`, `code`, `status`, and what `get` reads."""
        lines = [json.dumps({"format": _FORMAT, **conditions}, sort_keys=True)]
        lines += sorted(json.dumps(record, sort_keys=True) for record in records)
        data = lzma.compress("".join(f"{line}\n" for line in lines).encode(), preset=9 | lzma.PRESET_EXTREME)
        part = Path(f"{path}.part")
        part.write_bytes(data)
        part.replace(path)

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
            graded={key: record[key] for key in ("raw_score", "error", "feedback") if key in record} or None,
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


def describe(job: Job) -> dict[str, Any]:
    """The conditions of a job that a bank records; variables that belong to the task (its METRIC) are part of its data."""
    return {
        "timeout_s": job.limits.timeout_s,
        "memory_mb": job.limits.memory_mb,
        "max_rows": job.env.get("MAX_ROWS"),
        "prelude": hashlib.sha256(job.prelude.encode()).hexdigest(),
    }


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
