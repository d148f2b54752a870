"""Remembered executions: a store addressed by content, `CachedSandbox` over another sandbox, `ReplaySandbox` over nothing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

from diskcache.core import DBNAME

from wmrl_envs import paths
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.execution.base import Job, Sandbox, is_tier
from wmrl_envs.execution.recorded import entry
from wmrl_envs.execution.recorded.bank import SUFFIX, ExecutionBank, NotRecorded, fingerprint, walk
from wmrl_envs.execution.recorded.database import BROKEN, ReadOnlyCache, open_cache
from wmrl_envs.outcome import Execution, ExecutionStatus
from wmrl_envs.text import visible

CacheMode = Literal["off", "read", "read-write"]
_FORMAT = 1
log = logging.getLogger(__name__)


class StoreFailure(InfrastructureError):
    """An execution store that cannot be read or written. Whoever only remembers goes on without it."""


def check_mode(mode: str) -> None:
    """Raise `InvalidInput` unless `mode` is one that remembers executions."""
    if mode not in ("read", "read-write"):
        raise InvalidInput(f"cache={mode!r}: expected 'off', 'read' or 'read-write'.")


def store_folder(folder: str | Path | None = None) -> Path:
    """Where a store of this name lies (default: `executions` in `paths.home()`)."""
    if not (folder is None or isinstance(folder, (str, Path))):
        raise InvalidInput(f"store={folder!r}: expected a folder, the file of a bank, or None.")
    return Path(folder).expanduser() if folder else paths.home() / "executions"


class ExecutionStore:
    """Executions on disk, safe for concurrent processes.

    An execution is found by program, data, limits and environment lock, or (for a replay, which has no environment)
    without the lock: then it is the one recorded last.

    Args:
        folder: where it lies (default: `executions` in `paths.home()`).
        create: make it if it is not there.
        read_only: nothing in it is changed; for stores from elsewhere, and in folders nobody may write to.

    Raises:
        InvalidInput: no folder for a store, a damaged one, or none at all.
    """

    def __init__(self, folder: str | Path | None = None, *, create: bool = True, read_only: bool = False):
        self.folder = store_folder(folder)
        if not create and not (self.folder / DBNAME).is_file():
            raise InvalidInput(
                f"There is no execution store {self.folder}: expected the folder that runs with a cache have filled, or the "
                f"file of a bank (*{SUFFIX})."
            )
        try:
            self._cache = ReadOnlyCache(self.folder) if read_only else open_cache(self.folder)
        except BROKEN as error:
            raise InvalidInput(
                f"The execution store {self.folder} cannot be opened ({error}): give a folder you may write to, or delete this "
                "one if it is damaged (what it remembers is executed again)."
            ) from None
        self._fingerprints: dict[str, str] = {}

    def get(self, job: Job, lock: str | None) -> Execution | None:
        """The recorded execution of `job`, marked as cached, or None; a damaged entry counts as none.

        Raises:
            StoreFailure: the store cannot be read.
        """
        with self._failing("read"):
            stored = self._cache.get(self._key(job, lock))
        if stored is None:
            return None
        try:
            return entry.decode(stored, job.limits)
        except (ValueError, TypeError) as error:
            log.warning("The execution store %s has a damaged entry (%s), which counts as none.", self.folder, visible(error))
            return None

    def put(self, job: Job, lock: str, execution: Execution) -> None:
        """Record an execution; failures of ours are not recorded.

        Raises:
            StoreFailure: the store cannot be written.
        """
        if execution.status is ExecutionStatus.INFRA_ERROR or execution.cached:
            return
        value = entry.encode(execution)
        with self._failing("written"):
            self._cache.set(self._key(job, lock), value)
            self._cache.set(self._key(job, None), value)

    @contextlib.contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except InvalidInput:
            raise
        except BROKEN as error:
            raise StoreFailure(
                f"The execution store {self.folder} cannot be {what} ({error or type(error).__name__}): free space on its "
                "disk, or delete the folder if it is damaged (what it remembers is executed again)."
            ) from error

    @property
    def where(self) -> Path:
        return self.folder

    def close(self) -> None:
        self._cache.close()

    def __len__(self) -> int:
        return len(self._cache)

    def _key(self, job: Job, lock: str | None) -> str:
        limits = asdict(job.limits)
        if limits["cpu_s"] is None:  # as stores from before there was such a limit have it
            del limits["cpu_s"]
        parts = {
            "format": _FORMAT, "code": job.code, "prelude": job.prelude, "env": sorted(job.env.items()),
            "limits": limits, "data": self._fingerprint(job.data_dir), "lock": lock,
        }  # fmt: skip
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()

    def _fingerprint(self, data_dir: Path) -> str:
        """Of the names and contents of a data folder; remembered as long as no size or time of modification changes."""
        files = list(walk(data_dir))
        stats = [(name, info.st_size, info.st_mtime_ns) for name, info in files]
        signature = hashlib.sha256(json.dumps([str(data_dir.resolve()), stats]).encode()).hexdigest()
        if signature not in self._fingerprints:
            remembered = None
            with contextlib.suppress(*BROKEN):
                remembered = self._cache.get(f"data-{signature}")
            if not isinstance(remembered, bytes) or len(remembered) != 64:
                remembered = fingerprint(data_dir).encode()
                with contextlib.suppress(*BROKEN):  # only saves time
                    self._cache.set(f"data-{signature}", remembered)
            self._fingerprints[signature] = remembered.decode(errors="replace")
        return self._fingerprints[signature]


class CachedSandbox(Sandbox):
    """Another sandbox whose executions are remembered.

    Args:
        inner: the sandbox that runs what is not recorded; closed with this one. It says its environment's `lock`.
        mode: "read-write", or "read" to record nothing new.
        store: the store, or its folder.
    """

    def __init__(self, inner: Sandbox, mode: CacheMode = "read-write", store: ExecutionStore | str | Path | None = None):
        check_mode(mode)
        self.inner, self.mode = inner, mode
        self.store = store if isinstance(store, ExecutionStore) else ExecutionStore(store)

    @property
    def tier(self) -> str:  # type: ignore[override]
        return self.inner.tier

    @property
    def lock(self) -> str:
        return self.inner.lock

    @property
    def packages(self) -> tuple[str, ...]:
        return self.inner.packages

    @property
    def slots(self) -> int:
        return self.inner.slots

    def run_job(self, job: Job) -> Execution:
        if not job.data_dir.is_dir():
            return self.inner.run_job(job)  # which says what is wrong
        recorded = None
        with _optional():
            recorded = self.store.get(job, self.lock)
        if recorded is not None and is_tier(recorded.tier, self.tier):
            return recorded
        if recorded is not None:
            log.warning("The execution store %s has tier=%r, which never was; the program is executed again.",
                        self.store.where, recorded.tier)  # fmt: skip
        execution = self.inner.run_job(job)
        if self.mode == "read-write":
            with _optional():
                self.store.put(job, self.lock, execution)
        return execution

    def close(self) -> None:
        self.inner.close()
        self.store.close()


@contextlib.contextmanager
def _optional() -> Iterator[None]:
    """A store that fails costs time, never an execution."""
    try:
        yield
    except StoreFailure as error:
        log.warning("Executed without remembering: %s", error)


class ReplaySandbox(Sandbox):
    """Answers from recorded executions alone, at their recorded cost; runs nothing.

    Args:
        store: an `ExecutionStore` or its folder, or an `ExecutionBank` or its file. It is never created.
        environment_lock: only executions in the environment with this lock (default: in any, the latest).

    Raises:
        InvalidInput: no such store.
    """

    tier = "replay"

    def __init__(self, store: ExecutionStore | ExecutionBank | str | Path | None = None, environment_lock: str | None = None):
        self.store: ExecutionStore | ExecutionBank | None
        if isinstance(store, (ExecutionStore, ExecutionBank)):
            self.store = store
        elif store is not None and (store_folder(store).is_file() or str(store).endswith(SUFFIX)):
            self.store = ExecutionBank(store)
        elif store is None and not store_folder().exists():
            self.store = None  # nothing was ever recorded; whoever replays what there is can live with that
        else:
            self.store = ExecutionStore(store, create=False, read_only=True)
        self._lock = environment_lock

    @property
    def lock(self) -> str:
        return self._lock or ""

    def run_job(self, job: Job) -> Execution:
        if not job.data_dir.is_dir():
            raise InvalidInput(f"The data directory {job.data_dir} does not exist or is no folder.")
        if self.store is None:
            raise NotRecorded(f"There is no execution store {store_folder()}: nothing was executed with a cache yet.")
        recorded = self.store.get(job, self._lock)
        if recorded is None:
            raise NotRecorded(f"{self.store.where} has no execution of this program on {job.data_dir} under these limits.")
        return replace(recorded, tier=self.tier)

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
