"""`reduce_competition`: a copy of a competition with fewer rows, made once and kept beside the prepared data."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

from filelock import FileLock

from wmrl_envs import paths
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.tasks.competition import Competition
from wmrl_envs.tasks.reduced.plan import CannotReduce, Plan, plan
from wmrl_envs.tasks.reduced.write import write

__all__ = ["CannotReduce", "Reduced", "reduce_competition", "why_not_reduced"]

_FORMAT = 1  # of the copies: raise it when rows are chosen or written in another way
_HASHED_BYTES = 64 << 20  # larger files are known by size and time
_FACTS = "reduced.json"


@dataclass(frozen=True)
class Reduced:
    """A reduced copy.

    Attributes:
        competition: the copy, ranked on the same boards; the competition itself where nothing could be left out.
        rows: training rows that are kept.
        test_rows: test rows that are kept.
        all_rows: training rows that there are.
        all_test_rows: test rows that there are.
        tested_on: "answers": test rows with their answers; "train": rows held out of train, because the metric takes no part of
            the answers.
        notes: what else is different.
    """

    competition: Competition
    rows: int
    test_rows: int
    all_rows: int
    all_test_rows: int
    tested_on: str = "answers"
    notes: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether it is the competition itself."""
        return (self.rows, self.test_rows) == (self.all_rows, self.all_test_rows)


def reduce_competition(
    competition: Competition, rows: int = 500, test_rows: int = 300, seed: int = 0, max_rows: int | None = None
) -> Reduced:
    """The reduced copy of a competition, made if it is not there. Safe to call from several processes.

    Train rows are drawn in proportion to the classes or quantiles of the target, every class with some; rows of one id stay
    together; test rows, sample submission, answers, arrays and pictures go with them. Data that changed gives another copy.

    Args:
        competition: what to reduce.
        rows: about how many training rows to keep; more where every class needs one.
        test_rows: about how many test rows to keep.
        seed: of the draw.
        max_rows: draw from the first so many training rows only (those a scaffold loads).

    Raises:
        CannotReduce: this competition has no shape that can be reduced; the message says why.
        InfrastructureError: its files changed while they were copied, or the copy could not be written.
    """
    for name, value in (("rows", rows), ("test_rows", test_rows), ("max_rows", rows if max_rows is None else max_rows)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 10:
            raise InvalidInput(f"{name}={value!r}: expected a whole number of rows of at least 10.")
    for _ in range(2):
        before = _signature(competition)
        made = _reduced(_Key(competition), rows, test_rows, seed, max_rows, before)
        if _signature(competition) == before:
            return made
    raise InfrastructureError(
        f"The data of {competition.slug} in {competition.public_dir} changes while it is read; try again."
    )


def why_not_reduced(competition: Competition) -> str | None:
    """Why there can be no reduced copy of a competition, in one sentence; None if there can. Reads its tables,
    writes nothing.
    """
    try:
        plan(competition, 500, 300, 0, None)
    except CannotReduce as error:
        return str(error)
    return None


class _Key:
    """A competition as a cache key: the same folders and the same task are the same key."""

    def __init__(self, competition: Competition):
        self.competition = competition
        self._identity = (competition.slug, str(competition.public_dir), competition.private)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)


def _signature(competition: Competition) -> tuple[tuple[str, int, int], ...]:
    """Cheap to look at, and another one after every change: names, sizes and times of the files at the top, times of the
    folders there.
    """
    entries = [*os.scandir(competition.public_dir)]
    seen = [(e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in entries]
    answers = competition.private.answers.stat()
    return (*sorted(seen), (competition.private.answers.name, answers.st_size, answers.st_mtime_ns))


@lru_cache(maxsize=256)
def _reduced(key: _Key, rows: int, test_rows: int, seed: int, max_rows: int | None, _signature: object) -> Reduced:
    competition = key.competition
    digest = _digest(competition, rows, test_rows, seed, max_rows)
    folder = paths.home() / "reduced" / f"{competition.slug}-{digest[:20]}"
    try:
        _once(folder, lambda: plan(competition, rows, test_rows, seed, max_rows))
    except OSError as error:
        raise InfrastructureError(f"The reduced copy of {competition.slug} cannot be written to {folder}: {error}") from error
    facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
    notes = tuple(facts.pop("notes"))
    if facts["rows"] == facts["all_rows"] and facts["test_rows"] == facts["all_test_rows"]:
        return Reduced(competition, notes=notes, **facts)
    private = replace(competition.private, answers=folder / "private" / "test_answer.csv", hard_rows=None)
    public = folder / "public"
    sample = public / competition.sample_submission.name
    copy = replace(competition, public_dir=public, sample_submission=sample, private=private)  # ranked on the same boards
    return Reduced(copy, notes=notes, **facts)


def _once(folder: Path, make_plan: Callable[[], Plan]) -> None:
    """Write the copy to `folder`, unless somebody has; all of it or nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if (folder / _FACTS).is_file():
        return
    with FileLock(f"{folder}.lock"):
        if (folder / _FACTS).is_file():
            return
        scratch = folder.with_name(folder.name + ".part")  # under the lock: nobody else's
        shutil.rmtree(scratch, ignore_errors=True)
        chosen = make_plan()
        (scratch / "public").mkdir(parents=True)
        (scratch / "private").mkdir()
        if not chosen.whole:
            write(chosen, scratch / "public", scratch / "private")
        (scratch / _FACTS).write_text(json.dumps(asdict(chosen.facts)), encoding="utf-8")
        scratch.replace(folder)


def _digest(competition: Competition, *sizes: int | None) -> str:
    """Of everything a copy depends on: the contents of the files, and how it is made."""
    total = hashlib.sha256(repr((_FORMAT, competition.slug, sizes)).encode())
    files = sorted(path for path in competition.public_dir.rglob("*") if path.is_file())
    for path in [*files, competition.private.answers]:
        stat = path.stat()
        if stat.st_size <= _HASHED_BYTES and len(files) < 1000:
            with path.open("rb") as f:
                content = hashlib.file_digest(f, "sha256").hexdigest()
        else:
            content = str(stat.st_mtime_ns)
        total.update(f"{path.name}\0{stat.st_size}\0{content}\n".encode())
    return total.hexdigest()
