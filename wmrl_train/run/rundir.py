"""A run directory: `config.yaml`, `rollouts.jsonl`, `metrics.jsonl`, `anchors.jsonl`, `checkpoints/`, `report.html`, and a
lock.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from wmrl_envs.errors import InvalidInput, WmrlError

LOGS = ("rollouts.jsonl", "metrics.jsonl", "anchors.jsonl")
_NAMES = (*LOGS, "settings.jsonl", "config.yaml", "report.html", ".lock", "checkpoints")


class LogError(WmrlError, OSError):
    """A line of a log could not be written."""


class RunDirectory:
    """Holds the lock of a run from `acquire` to `release`, and appends to its logs.

    >>> import tempfile
    >>> run = RunDirectory(Path(tempfile.mkdtemp()) / "demo")
    >>> run.acquire(); run.append("metrics.jsonl", {"step": 1}); run.release()
    >>> list(run.read("metrics.jsonl"))
    [{'step': 1}]
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self._lock: FileLock | None = None
        self._made: list[Path] = []  # folders that were not there before, deepest last

    @property
    def config_file(self) -> Path:
        return self.path / "config.yaml"

    @property
    def has_run(self) -> bool:
        """Whether a run was started here before."""
        return self.config_file.exists()

    def acquire(self, min_free_disk_mb: int = 0) -> None:
        """Make the directory and take its lock.

        Raises:
            InvalidInput: in use by another process, not writable, too little free space, or with links in it (`check`).
        """
        self.check()
        self._made = [folder for folder in (self.checkpoints, *self.checkpoints.parents) if not folder.exists()][::-1]
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / ".lock", timeout=0)
            lock.acquire()
        except Timeout:
            raise InvalidInput(
                f"The run directory {self.path} is in use by another process: wait for it to end, or choose another run.name."
            ) from None
        except OSError as error:
            raise InvalidInput(
                f"The run directory {self.path} cannot be written ({error.strerror}): choose another run.dir."
            ) from None
        self._lock = lock
        free_mb = shutil.disk_usage(self.path).free // 2**20
        if free_mb < min_free_disk_mb:
            self.release()
            raise InvalidInput(
                f"Only {free_mb} MiB are free where {self.path} lies, and run.min_free_disk_mb asks for {min_free_disk_mb}: "
                "free some space, choose another run.dir, or lower the limit."
            )

    def check(self) -> None:
        """A folder of a run may be from elsewhere: what a link in it points at is neither read nor written.

        Raises:
            InvalidInput: one of its files or folders is a symbolic link.
        """
        for path in [self.path / name for name in _NAMES] + sorted(self.checkpoints.glob("[.s]*")):
            if path.is_symlink():
                raise InvalidInput(
                    f"{path} is a symbolic link, and no link in the folder of a run is followed: put the file itself in its "
                    f"place, or remove it."
                )

    def release(self) -> None:
        """Give the lock back; folders of a run that was refused before anything was written are removed again."""
        if self._lock is None:
            return
        if self.path in self._made and not any(self.checkpoints.iterdir()):
            with contextlib.suppress(OSError):  # something was written
                if {p.name for p in self.path.iterdir()} <= {".lock", self.checkpoints.name}:
                    (self.path / ".lock").unlink(missing_ok=True)
                    for folder in reversed(self._made):
                        folder.rmdir()
        self._lock.release()
        self._lock = None

    def append(self, log: str, record: Mapping[str, Any]) -> None:
        """Add one line to a log; a link in its place is replaced by a file.

        Raises:
            LogError: the disk is full or gone; what is in the checkpoints is intact.
        """
        line = json.dumps(_plain(record), allow_nan=False) + "\n"
        try:
            _unlinked(self.path / log)
            with open(_opened(self.path / log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            raise LogError(
                f"{self.path / log} cannot be written ({error.strerror}): make room and go on with --resume; the checkpoints "
                f"are intact."
            ) from error

    def read(self, log: str) -> Iterator[dict[str, Any]]:
        """The records of a log; a last line that a kill cut short is left out.

        Raises:
            InvalidInput: another line is no JSON object (the message says which), or the log is no file.
        """
        path = self.path / log
        try:
            file = open(_opened(path, os.O_RDONLY), "rb")  # noqa: SIM115 - bytes: a line that is no UTF-8 is found with its number
        except FileNotFoundError:
            return
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read ({error.strerror}): expected the log of a run.") from None
        with file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    yield _record(line, path, number)

    def sizes(self) -> dict[str, int]:
        """Bytes of each log, for a checkpoint."""
        return {log: (self.path / log).stat().st_size if (self.path / log).exists() else 0 for log in LOGS}

    def truncate(self, sizes: Mapping[str, int]) -> None:
        """Cut the logs back to a checkpoint, so that a resumed run repeats no line; a link in place of one is removed."""
        for log in LOGS:
            path = self.path / log
            _unlinked(path)
            with contextlib.suppress(FileNotFoundError), open(_opened(path, os.O_WRONLY), "ab") as file:
                if os.fstat(file.fileno()).st_size > sizes.get(log, 0):
                    os.ftruncate(file.fileno(), sizes.get(log, 0))

    def set_aside(self) -> Path | None:
        """Rename an earlier run of this name (`demo` -> `demo.1`), so that a new one can start and nothing is lost."""
        if not self.has_run:
            return None
        self.acquire()  # refuses while it is in use
        self.release()
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.{number}")).exists():
            number += 1
        self.path.rename(aside)
        return aside


def _unlinked(path: Path) -> None:
    if path.is_symlink():
        path.unlink()


def _opened(path: Path, flags: int) -> int:
    """A descriptor of a plain file. Raises OSError for anything else: no link is followed, no pipe waited for."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no plain file")
    return descriptor


def _record(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is damaged: line {number} is not JSON ({error}); remove that line.") from None
    if not isinstance(record, dict):
        what = f"holds a {type(record).__name__}, expected an object"
        raise InvalidInput(f"{path} is damaged: line {number} {what}; remove that line.")
    return record


def _plain(value: Any) -> Any:
    """Strict JSON: numpy values as Python's, numbers that are not finite as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
