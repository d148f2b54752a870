"""Builds the built-in competitions in MLE-Dojo's layout: `<slug>/data/public/...` and `<slug>/data/private/test_answer.csv`.

Splits, ids and noise come from a secret salt (`WMRL_SALT`), so which rows are tested is unknown but reproducible.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from wmrl_envs import paths
from wmrl_envs.errors import InvalidInput
from wmrl_envs.tasks.builtin.archives import Source, fetch
from wmrl_envs.tasks.builtin.descriptions import description
from wmrl_envs.tasks.builtin.recipes import RECIPES
from wmrl_envs.tasks.catalog import TaskFacts, facts

log = logging.getLogger(__name__)

DEV_SALT = "dev-salt"  # for development and tests; set WMRL_SALT for anything whose answers should stay unknown
_FORMAT = 3  # raise it when the built files change
_TEST_SHARE = 0.3


@dataclass(frozen=True)
class Parts:
    """A competition split in two: `images` are in the row order of the frames."""

    train: pd.DataFrame
    test: pd.DataFrame
    answers: pd.DataFrame
    images: dict[str, np.ndarray] | None


def salt() -> bytes:
    """The secret that decides ids and splits: `WMRL_SALT`, else a fixed one for development."""
    return os.environ.get("WMRL_SALT", DEV_SALT).encode()


def split(slug: str, source: Source, secret: bytes) -> Parts:
    """Cut, split and shuffle one competition. Same secret, same result."""
    seed = hmac.new(secret, slug.encode(), "sha256").digest()[:8]
    rng = np.random.default_rng(int.from_bytes(seed, "big"))
    raw = RECIPES[slug][0](source, rng)
    frame, targets, n = raw.frame.reset_index(drop=True), list(raw.targets), len(raw.frame)
    if raw.is_test is not None:
        is_test = raw.is_test
    elif raw.group:
        groups = frame.pop(raw.group)
        names = np.asarray(pd.unique(groups), dtype=object)
        is_test = groups.isin(set(rng.permutation(names)[: round(_TEST_SHARE * len(names))])).to_numpy()
    else:
        is_test = np.zeros(n, bool)
        strata = frame[targets[0]].astype(str) if raw.stratify else pd.Series(["_"] * n)
        for rows in strata.groupby(strata).groups.values():
            shuffled = rng.permutation(np.asarray(rows))
            is_test[shuffled[: round(_TEST_SHARE * len(shuffled))]] = True
    order = rng.permutation(n)  # raw order often gives the class away
    frame, is_test = frame.iloc[order].reset_index(drop=True), is_test[order]
    ids = [hmac.new(secret, f"{slug}|{row}".encode(), "sha256").hexdigest()[:10] for row in order]
    if len(set(ids)) != n:
        raise InvalidInput(f"{slug}: two rows got the same id under this salt; choose another WMRL_SALT.")
    frame.insert(0, "id", ids)
    test = frame[is_test].reset_index(drop=True)
    images = None
    if raw.images is not None:
        images = {"train": raw.images[order][~is_test], "test": raw.images[order][is_test]}
    return Parts(frame[~is_test].reset_index(drop=True), test.drop(columns=targets), test[["id", *targets]], images)


def sample_submission(task: TaskFacts, parts: Parts) -> pd.DataFrame:
    """The weakest valid submission: class shares, the commonest labels, or the mean."""
    sample = parts.test[["id"]].copy()
    for target in task.target_columns:
        column = parts.train[target]
        if task.metric == "log_loss":
            for label in sorted(column.unique()):
                sample[label] = round(float((column == label).mean()), 5)
        elif task.metric == "map_at_k":
            sample[target] = " ".join(column.value_counts().index[: task.params["k"]])
        elif task.metric in ("accuracy", "mcc", "qwk", "macro_f1"):
            sample[target] = column.mode()[0]
        else:
            sample[target] = round(float(column.mean()), 5)
    return sample


def write(task: TaskFacts, parts: Parts, data: Path) -> None:
    """Write the public and the private folder of one competition under `data`."""
    public, private = data / "public", data / "private"
    public.mkdir(parents=True)
    private.mkdir(mode=0o700)
    parts.train.to_csv(public / "train.csv", index=False)
    parts.test.to_csv(public / "test.csv", index=False)
    sample = sample_submission(task, parts)
    sample.to_csv(public / "sample_submission.csv", index=False)
    if parts.images is not None:
        np.savez_compressed(public / "images.npz", train=parts.images["train"], test=parts.images["test"])
    (public / "description.txt").write_text(description(task, sample, parts.images), encoding="utf-8")
    answers = private / "test_answer.csv"
    parts.answers.to_csv(answers, index=False)
    answers.chmod(0o600)


def _stamp(secret: bytes) -> dict[str, object]:
    return {"format": _FORMAT, "salt": hashlib.sha256(b"wmrl|" + secret).hexdigest()[:16]}


def is_built(slug: str, data_dir: Path, secret: bytes) -> bool:
    """Whether `slug` lies there complete, in this format and under this salt."""
    stamp = data_dir / slug / "built.json"
    try:
        return json.loads(stamp.read_text(encoding="utf-8")) == _stamp(secret)
    except (OSError, ValueError):
        return False


def prepare(
    data_dir: str | Path | None = None,
    slugs: Iterable[str] | None = None,
    *,
    force: bool = False,
    progress: Callable[[str, str], None] | None = None,
) -> list[Path]:
    """Download what is missing (at most 79 MB), build what is missing, delete the downloads.

    Each competition appears complete or not at all, so an interrupted call can simply be repeated; a second call
    returns at once.

    Args:
        data_dir: where to build (default: `wmrl_envs.paths.data_dir()`).
        slugs: which of the built-in competitions (default: all 18).
        force: build again what is there.
        progress: called with (slug, "built" | "present") after each competition.

    Returns:
        The folders `<data_dir>/<slug>`, in the order asked for.
    """
    from filelock import FileLock

    root = Path(data_dir).expanduser().resolve() if data_dir is not None else paths.data_dir()
    wanted = list(RECIPES) if slugs is None else list(slugs)
    for slug in wanted:
        if slug not in RECIPES:
            raise InvalidInput(f"{slug!r} is not a built-in competition; the built-in ones are {', '.join(RECIPES)}.")
    secret = salt()
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / ".prepare.lock").acquire()
    except OSError as error:
        raise InvalidInput(f"Cannot write to {root} ({error.strerror}): give a folder of yours with --data-dir.") from error
    with lock:
        missing = [slug for slug in wanted if force or not is_built(slug, root, secret)]
        for slug in wanted:
            if slug not in missing and progress:
                progress(slug, "present")
        if missing:
            with tempfile.TemporaryDirectory(prefix=".building-", dir=root) as scratch:
                archives = Path(scratch, "archives")
                archives.mkdir()
                fetch(archives, sorted({RECIPES[slug][1] for slug in missing}))
                for slug in missing:
                    _build(slug, Source(archives), secret, Path(scratch, slug), root / slug)
                    if progress:
                        progress(slug, "built")
    return [root / slug for slug in wanted]


def _build(slug: str, source: Source, secret: bytes, scratch: Path, target: Path) -> None:
    log.info("building %s", slug)
    parts = split(slug, source, secret)
    write(facts(slug), parts, scratch / "data")
    _mark_hard_rows(slug, parts, scratch / "data" / "private")
    (scratch / "built.json").write_text(json.dumps(_stamp(secret)), encoding="utf-8")
    if target.exists():  # moved aside first, so that a complete competition is there nearly all the time
        target.rename(scratch.with_name(f"old-{slug}"))
    scratch.rename(target)


def _mark_hard_rows(slug: str, parts: Parts, private: Path) -> None:
    from wmrl_envs.tasks.honesty import hard_rows

    hard = hard_rows(facts(slug), parts.train, parts.test, parts.answers)
    if hard is not None:
        hard.to_csv(private / "hard_rows.csv", index=False)
