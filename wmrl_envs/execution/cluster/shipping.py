"""Sending a data folder to machines that do not have it: what it looks like, what it is made of, and its copy at the other end.

A folder is recognised by the names, sizes and modification times of its files (`signature`: cheap, asked before every
execution), and addressed by its contents (`digest`: computed once, while it is packed), so that a machine keeps one copy of
the same data, whichever run sends it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock

from wmrl_envs import paths
from wmrl_envs.errors import InvalidInput

PART_BYTES = 64 << 20  # of a packed folder, sent as one object


def signature(folder: Path) -> str:
    """Of the names, sizes and modification times of all files: equal where the folder is shared, or the same.

    Raises:
        InvalidInput: there is no such folder.
    """
    if not folder.is_dir():
        raise InvalidInput(f"The data directory {folder} does not exist or is no folder.")
    stats = [(name, info.st_size, info.st_mtime_ns) for name in _names(folder) for info in [os.stat(folder / name)]]
    return hashlib.sha256(json.dumps(stats).encode()).hexdigest()


def pack(folder: Path, keep: Callable[[bytes], object], part_bytes: int = PART_BYTES) -> str:
    """Hand the folder's files to `keep` as parts of one archive; returns its digest, which depends on names and contents alone.

    >>> folder = Path(tempfile.mkdtemp()); _ = (folder / "train.csv").write_text("x,y")
    >>> parts = []; digest = pack(folder, parts.append)
    >>> copy = unpack(parts, digest, Path(tempfile.mkdtemp()))
    >>> (copy / "train.csv").read_text()
    'x,y'
    """
    out = _Parts(keep, part_bytes)
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, dereference=True) as archive:
        for name in _names(folder):
            member = tarfile.TarInfo(name)
            member.size, member.mode = os.stat(folder / name).st_size, 0o644  # no times, no owners: the same bytes every time
            with open(folder / name, "rb") as file:
                archive.addfile(member, file)
    return out.finish()


def unpack(parts: Iterable[bytes], digest: str, store: Path | None = None) -> Path:
    """The folder that was packed into `parts`, unpacked into `store` unless it is there already (then no part is read).

    Raises:
        InvalidInput: the parts are not those of this digest.
    """
    target = copy_of(digest, store)
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):  # several workers of a machine may be asked at once
        if target.is_dir():
            return target
        partial = Path(tempfile.mkdtemp(dir=target.parent, prefix="partial-"))
        try:
            total = hashlib.sha256()
            arriving = _hashed(parts, total)
            with tarfile.open(fileobj=_Stream(arriving), mode="r|") as archive:
                archive.extractall(partial, filter="data")
            for _ in arriving:  # what the archive did not need of its end
                continue
            if total.hexdigest() != digest:
                raise InvalidInput(f"The data that was sent is not that of {digest[:12]}: send it again.")
            partial.chmod(0o755)  # programs run as another user
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return target


def _hashed(parts: Iterable[bytes], total: Any) -> Iterator[bytes]:
    for part in parts:
        total.update(part)
        yield part


def copy_of(digest: str, store: Path | None = None) -> Path:
    """Where this machine keeps its copy of the data with this digest (which need not be there)."""
    return (store or paths.home() / "shipped") / digest


def _names(folder: Path) -> Iterator[str]:
    for path, folders, names in os.walk(folder):
        folders.sort()
        yield from (os.path.relpath(os.path.join(path, name), folder) for name in sorted(names))


class _Parts(io.RawIOBase):
    """What is written goes to `keep` in parts of equal size."""

    def __init__(self, keep: Callable[[bytes], object], part_bytes: int):
        self._keep, self._part_bytes = keep, part_bytes
        self._buffer, self._digest = bytearray(), hashlib.sha256()

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._digest.update(data)
        self._buffer += data
        while len(self._buffer) >= self._part_bytes:
            self._keep(bytes(self._buffer[: self._part_bytes]))
            del self._buffer[: self._part_bytes]
        return len(data)

    def finish(self) -> str:
        if self._buffer:
            self._keep(bytes(self._buffer))
        return self._digest.hexdigest()


class _Stream(io.RawIOBase):
    """Reads parts one after the other, fetching each when it is needed."""

    def __init__(self, parts: Iterator[bytes]):
        self._parts, self._left = parts, b""

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._left) < size:
            part = next(self._parts, None)
            if part is None:
                break
            self._left += part
        taken, self._left = (self._left, b"") if size < 0 else (self._left[:size], self._left[size:])
        return taken
