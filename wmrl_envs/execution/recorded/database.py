"""The database of an execution store, opened as data: a folder from elsewhere cannot make us touch a file outside it.

It is a `diskcache.Cache`. What such a database says about itself (file names, settings, triggers) is checked before it is used.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import diskcache
from diskcache import core

from wmrl_envs.errors import InvalidInput

#: What goes wrong with a database: damaged, locked for too long, a full disk, or not one of ours.
BROKEN = (sqlite3.Error, diskcache.Timeout, OSError, ValueError)
_VALUE_FILE = re.compile(r"[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{28}\.val")
_LARGEST_BYTES = 1 << 30  # of one value
_TIMEOUT_S = 60.0


class _PlainDisk(diskcache.Disk):
    """Values are bytes in the database. Files, which stores of earlier versions have,
    are those of the store and nothing else.
    """

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
        if mode == core.MODE_PICKLE:
            raise InvalidInput("This execution store holds a pickled value: it was not written by WMRL.")
        if mode == core.MODE_BINARY and filename:
            with _folder_of(self._directory, filename) as (folder, name):
                return _content(name, folder)
        return bytes(value) if isinstance(value, bytes) else value

    def remove(self, file_path: str) -> None:
        with contextlib.suppress(OSError, ValueError), _folder_of(self._directory, file_path) as (folder, name):
            os.unlink(name, dir_fd=folder)


@contextlib.contextmanager
def _folder_of(directory: str, filename: str) -> Iterator[tuple[int, str]]:
    """A descriptor of the folder a value's file lies in, and its name there; no link is followed."""
    if not _VALUE_FILE.fullmatch(filename):
        raise ValueError(f"it names the file {filename!r:.80}, expected one of its own")
    *folders, name = filename.split("/")
    with contextlib.ExitStack() as stack:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, folder)
        for inner in folders:
            try:
                folder = os.open(inner, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            except NotADirectoryError:
                raise ValueError(f"its folder {inner} is a link or no folder") from None
            stack.callback(os.close, folder)
        yield folder, name


def _content(name: str, folder: int) -> bytes:
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with open(file, "rb") as f:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode) or info.st_size > _LARGEST_BYTES:
            raise ValueError(f"its file {name} is no file of at most {_LARGEST_BYTES >> 20} MiB")
        return f.read(_LARGEST_BYTES)


def open_cache(folder: Path) -> diskcache.Cache:
    """The database of this folder, made if it is not there. Raises one of `BROKEN`."""
    check(folder)
    # Every setting is ours, whatever the database says. Nothing is ever evicted: a replay must not depend on how full it was.
    settings = core.DEFAULT_SETTINGS | {
        "eviction_policy": "none", "size_limit": 2**62, "disk_min_file_size": _LARGEST_BYTES
    }  # fmt: skip
    return diskcache.Cache(str(folder), timeout=_TIMEOUT_S, disk=_PlainDisk, **settings)


class ReadOnlyCache:
    """Lookups in a database that is not written to, not even opened for it. Raises one of `BROKEN`."""

    def __init__(self, folder: Path):
        check(folder)
        self._disk = _PlainDisk(str(folder))
        self._connection = _connect(folder, check_same_thread=False)

    def get(self, key: str) -> Any:
        row = self._connection.execute("SELECT mode, filename, value FROM Cache WHERE key = ? AND raw = 1", (key,)).fetchone()
        return None if row is None else self._disk.fetch(row[0], row[1], row[2], False)

    def set(self, key: str, value: bytes) -> None:
        """Nothing is remembered."""

    def __len__(self) -> int:
        return self._connection.execute("SELECT COUNT(*) FROM Cache").fetchone()[0]

    def close(self) -> None:
        self._connection.close()


def _connect(folder: Path, **options: Any) -> sqlite3.Connection:
    """A read-only connection; also to a database in a folder that nobody may write to."""
    address = f"file:{quote(str((folder / core.DBNAME).absolute()))}"
    for query in ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(f"{address}?{query}", uri=True, timeout=_TIMEOUT_S, **options)
        try:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_BYTES)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            return connection
        except sqlite3.OperationalError:
            connection.close()
            if "immutable" in query or os.access(folder, os.W_OK):
                raise
    raise AssertionError


def check(folder: Path) -> None:
    """Raise ValueError unless the database of this folder, if there is one, is as `diskcache` makes them."""
    for name in (core.DBNAME, f"{core.DBNAME}-wal", f"{core.DBNAME}-shm"):
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG((folder / name).lstat().st_mode):
                raise ValueError(f"{name} is a link or no file")
    if not (folder / core.DBNAME).exists() or (folder / core.DBNAME).stat().st_size == 0:
        return
    with contextlib.closing(_connect(folder)) as connection:
        found = set(connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
        if strange := {name for kind, name, text in found - _schema()}:
            raise ValueError(f"it has {', '.join(sorted(map(repr, strange)))}, which no execution store has")
        settings = connection.execute("SELECT key, value FROM Settings LIMIT 100") if ("table", "Settings") in {
            (kind, name) for kind, name, _ in found
        } else ()  # fmt: skip
        for key, value in settings:
            if key not in core.DEFAULT_SETTINGS and key not in core.METADATA:
                raise ValueError(f"it has the setting {key!r:.80}, which no execution store has")
            if key in core.METADATA and type(value) is not int:
                raise ValueError(f"its {key} is {value!r:.80}, expected a whole number")


@functools.cache
def _schema() -> set[tuple[str, str, str]]:
    """All that a database of this version of `diskcache` can consist of."""
    with tempfile.TemporaryDirectory() as folder:
        for policy in core.EVICTION_POLICY:
            diskcache.Cache(folder, eviction_policy=policy).close()
        with contextlib.closing(_connect(Path(folder))) as connection:
            return set(connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
