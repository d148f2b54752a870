"""What a reduced copy will hold, decided by looking: which rows of which table, which answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from wmrl_envs.errors import InvalidInput, WmrlError
from wmrl_envs.tasks.competition import Competition
from wmrl_envs.tasks.grading import read_answers, text_columns
from wmrl_envs.tasks.reduced.sample import choose, covered, marks_of, strata_of, target_marks
from wmrl_envs.tasks.reduced.tables import Table, tables_in
from wmrl_envs.tasks.validation import InvalidSubmission, id_text, read_table


class CannotReduce(InvalidInput):
    """No reduced copy of this competition can be made; the message says why and what to do."""


@dataclass(frozen=True)
class Facts:
    """What is told of a copy (see `Reduced`)."""

    rows: int
    test_rows: int
    all_rows: int
    all_test_rows: int
    tested_on: str = "answers"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Rows to keep, by position.

    Attributes:
        public: the folder that is copied.
        files: all its files.
        train: its table of training rows.
        test: its table of test rows; None: the sample alone lists them.
        rows: rows of `train` that are kept.
        test_rows: rows of `test`, or (`held_out`) of `train`, which are the test rows of the copy.
        sample: the sample submission as it will be written, cells as text.
        answers: the answers as they will be written, cells as text.
        side: further tables and their rows.
    """

    public: Path
    files: tuple[Path, ...]
    facts: Facts
    train: Table
    test: Table | None
    rows: np.ndarray
    test_rows: np.ndarray
    sample_path: Path
    sample: pd.DataFrame
    answers: pd.DataFrame
    held_out: bool = False
    side: tuple[tuple[Table, np.ndarray], ...] = ()
    ids: frozenset[str] = field(default=frozenset())

    @property
    def whole(self) -> bool:
        """Whether everything is kept."""
        return (self.facts.rows, self.facts.test_rows) == (self.facts.all_rows, self.facts.all_test_rows)


def plan(competition: Competition, rows: int, test_rows: int, seed: int, max_rows: int | None) -> Plan:
    """Decide what to keep. Raises `CannotReduce`."""
    look = _Look(competition)
    rng = np.random.default_rng([seed, rows, test_rows])
    kept = _train_rows(look, rows, rng, max_rows)
    try:
        chosen, answers, sample = _test_slice(look, kept, test_rows, rng)
        held_out = False
    except _NoSlice as why:
        taken = _held_out(look, kept, rows, test_rows, rng, max_rows, str(why))
        kept, chosen, answers, sample = taken
        held_out = True
    frame, test = look.train.frame, look.test
    all_test = len(look.sample) if test is None else len(test.frame)
    facts = Facts(len(kept), len(chosen), len(frame), all_test, "train" if held_out else "answers", tuple(look.notes))
    names = _values(frame.iloc[kept]) | _values((frame if held_out or test is None else test.frame).iloc[chosen])
    every = _values(frame) | (_values(test.frame) if test is not None else set())
    side = tuple((table, rows_of) for table in look.others if (rows_of := _side_rows(table, look, every, names)) is not None)
    return Plan(
        competition.public_dir, look.files, facts, look.train, test, kept, chosen, competition.sample_submission, sample,
        answers, held_out, side, frozenset(names),
    )  # fmt: skip


class _NoSlice(Exception):
    """Why a part of the answers cannot be graded."""


class _Look:
    """The files of a competition in their roles."""

    def __init__(self, competition: Competition):
        self.competition, self.spec = competition, competition.spec
        folder = competition.public_dir
        self.files = tuple(sorted(p for p in folder.rglob("*") if p.is_file()))
        tables = [t for t in tables_in(folder, list(self.files[:2000])) if t.path != competition.sample_submission]
        self.notes: list[str] = []
        self.answers = self._answers()
        self.ids, self.targets, self.predictions = self.spec.columns(self.answers)
        self.train = self._train(tables)
        self.test = self._test(tables)
        self.others = [t for t in tables if t is not self.train and t is not self.test]
        self.sample = read_table(competition.sample_submission.read_bytes(), None)
        self.target = self.train.frame[[c for c in self.targets if c in self.train.frame]]

    def refuse(self, why: str) -> CannotReduce:
        return CannotReduce(f"{self.competition.slug} cannot be reduced: {why}.")

    def _answers(self) -> pd.DataFrame:
        try:
            return read_answers(self.competition.private.answers, self.spec)
        except (WmrlError, OSError) as error:
            raise self.refuse(f"its answers cannot be read ({error})") from error

    def _train(self, tables: Sequence[Table]) -> Table:
        wanted = set(self.targets)
        named = [t for t in tables if "train" in t.stem]
        for table in sorted(named, key=lambda t: (t.stem != "train", t.name)):
            if wanted & set(table.frame.columns):
                return table
        raise self.refuse(
            f"no table with 'train' in its name has the target {', '.join(sorted(wanted))[:80]} "
            f"(tables: {', '.join(t.name for t in tables) or 'none'})"
        )

    def _test(self, tables: Sequence[Table]) -> Table | None:
        named = [t for t in tables if "test" in t.stem and t is not self.train]
        return min(named, key=lambda t: (t.stem != "test", t.name), default=None)

    def id_column(self, frame: pd.DataFrame) -> str | None:
        """The column of a table that holds the id, if it has the first one."""
        by_lower = {str(c).lower(): c for c in frame.columns}
        return by_lower.get(self.ids[0].lower())


def _train_rows(look: _Look, rows: int, rng: np.random.Generator, max_rows: int | None) -> np.ndarray:
    frame, target = look.train.frame[:max_rows], look.target[:max_rows]
    features = frame.drop(columns=[c for c in (*look.targets, *look.ids) if c in frame])
    column = look.id_column(frame)
    units = np.arange(len(frame)) if column is None else pd.factorize(frame[column], use_na_sentinel=False)[0]
    marks = [*target_marks(target), *marks_of(features, rows)]
    return choose(rows, strata_of(target, rows), units, marks, rng)


def _keys(frame: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    parts = [id_text(frame[c]).to_numpy() for c in columns]
    return parts[0].astype(object) if len(parts) == 1 else np.array(["|".join(row) for row in zip(*parts, strict=True)], object)


def _test_slice(
    look: _Look, kept: np.ndarray, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, pd.DataFrame, pd.DataFrame]:
    """Positions of the test rows to keep, their answers and their rows of the sample; raises `_NoSlice`."""
    raw = read_table(look.competition.private.answers.read_bytes(), None)
    keys, wanted = _keys(raw, look.ids), _sample_keys(look)
    in_order = look.spec.facts.id_match == "in_order"
    if len(raw) != len(wanted) or (not in_order and set(keys) != set(wanted)):
        raise _NoSlice("the sample submission and the answers do not list the same ids")
    order = (
        np.arange(len(raw)) if in_order else pd.Index(keys).get_indexer(pd.Index(wanted)) if pd.Index(keys).is_unique else None
    )
    if order is None:
        raise _NoSlice("the ids of the answers are not unique")
    answers = look.answers.iloc[order].reset_index(drop=True)
    owner = _owners(look, wanted)  # of each row of the sample, its row of the test table
    chosen = _choose_test(look, kept, n, answers, owner, rng)
    inside = np.isin(owner, chosen)
    part, sample = raw.iloc[np.sort(order[inside])], look.sample[inside]
    _check_metric(look, part, sample)
    return chosen, part, sample


def _sample_keys(look: _Look) -> np.ndarray:
    by_lower = {str(c).lower(): str(c) for c in look.sample.columns}
    columns = [by_lower.get(c.lower(), "") for c in look.ids]
    if not all(columns):
        raise _NoSlice(f"the sample submission lacks the column {look.ids[0]}")
    return _keys(look.sample, columns)


def _owners(look: _Look, wanted: np.ndarray) -> np.ndarray:
    if look.test is None:
        return np.arange(len(wanted))
    frame = look.test.frame
    column = look.id_column(frame)
    if column is not None:
        raw = id_text(frame[column]).to_numpy()
        first = pd.Series(np.arange(len(raw)), index=raw)[~pd.Index(raw).duplicated()]
        own = id_text(look.sample.iloc[:, [str(c).lower() for c in look.sample.columns].index(look.ids[0].lower())]).to_numpy()
        found = first.reindex(own)
        if found.notna().all():
            return found.to_numpy(int)
    if len(frame) == len(wanted):
        return np.arange(len(wanted))
    raise _NoSlice("the rows of the test table cannot be told from the ids of the sample submission")


def _choose_test(
    look: _Look, kept: np.ndarray, n: int, answers: pd.DataFrame, owner: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Positions of the test table's rows; with several rows an id all of them."""
    size = len(look.sample) if look.test is None else len(look.test.frame)
    first = np.full(size, -1)
    first[owner[::-1]] = np.arange(len(owner))[::-1]
    units = np.arange(size)
    if look.test is not None and (column := look.id_column(look.test.frame)) is not None:
        units = pd.factorize(look.test.frame[column], use_na_sentinel=False)[0]
        leaders = pd.Series(first).groupby(units).transform("max").to_numpy()  # rows of an id that the sample lists once
        first = np.where(first < 0, leaders, first)
    usable = np.flatnonzero(first >= 0)
    if size <= n:
        return usable
    target = answers[list(look.targets)].iloc[first[usable]]
    allowed, marks = np.ones(len(usable), bool), target_marks(target)
    if look.test is not None:
        test = look.test.frame.iloc[usable]
        allowed, unseen = covered(look.train.frame, kept, test, n)
        features = test.drop(columns=[c for c in look.ids if c in test])
        marks += unseen + marks_of(features, n)
    inside = np.flatnonzero(allowed)
    drawn = choose(n, strata_of(target.iloc[inside], n), units[usable][inside], [mark[inside] for mark in marks], rng)
    return usable[inside[drawn]]


def _check_metric(look: _Look, answers: pd.DataFrame, sample: pd.DataFrame) -> None:
    """Raise `_NoSlice` if neither the answers themselves nor the sample submission get a number on this part of the answers."""
    truth = read_table(answers.to_csv(index=False).encode(), text_columns(look.spec))
    problems = []
    for table in (answers, sample):
        try:
            table = read_table(table.to_csv(index=False).encode(), text_columns(look.spec))
            if not math.isnan(look.spec.metric(truth, table[[c for c in table if c in (*look.ids, *look.predictions)]])):
                return
            problems.append("it is undefined")
        except InvalidSubmission as error:
            problems.append(error.details)
        except Exception as error:  # whatever the metric does not like about a part of the answers
            problems.append(f"{type(error).__name__}: {error}")
    raise _NoSlice(f"the metric cannot be computed on a part of the answers ({problems[-1][:200]})")


def _held_out(
    look: _Look, kept: np.ndarray, rows: int, n: int, rng: np.random.Generator, max_rows: int | None, why: str
) -> tuple[np.ndarray, np.ndarray, pd.DataFrame, pd.DataFrame]:
    """Rows of train for test rows, with the answers they carry themselves."""
    frame = look.train.frame
    column = look.id_column(frame)
    lacking = [c for c in look.targets if c not in frame]
    if column is None or lacking or not frame[column].is_unique:
        raise look.refuse(f"{why}, and its training table cannot stand in (it lacks {', '.join(lacking) or 'unique ids'})")
    if look.test is not None and not set(look.test.frame.columns) <= set(frame.columns):
        raise look.refuse(f"{why}, and its training table lacks columns of the test table")
    if any(set(_keys(look.sample, [str(look.sample.columns[0])])) & set(id_text(frame[column]))):
        raise look.refuse(f"{why}, and ids of train and test are the same")
    both = _train_rows(look, rows + n, rng, max_rows) if len(frame) > rows + n else np.arange(len(frame))
    target = look.target.iloc[both]
    share = max(10, round(len(both) * n / (rows + n)))
    test = both[choose(share, strata_of(target, share), np.arange(len(both)), target_marks(target), rng)]
    rest = np.setdiff1d(both, test)
    raw = read_table(look.train.path.read_bytes(), None) if look.train.path.suffix == ".csv" else frame.astype(str)
    template = read_table(look.competition.private.answers.read_bytes(), None).columns
    answers = pd.DataFrame(
        {c: raw[column if c == look.ids[0] else c].iloc[test] if c in (*look.ids, *look.targets) else "" for c in template}
    )
    sample = look.sample.iloc[np.arange(len(test)) % len(look.sample)].copy()
    sample[sample.columns[0]] = raw[column].iloc[test].to_numpy()
    try:
        _check_metric(look, answers, sample)
    except _NoSlice as error:
        raise look.refuse(f"{why}; on rows held out of train neither ({error})") from None
    look.notes.append(f"test rows are held out of train: {why}")
    return rest, test, answers, sample


def _values(frame: pd.DataFrame) -> set[str]:
    """What the rows of a table can be known by elsewhere: the values of columns in which hardly any repeats."""
    found: set[str] = set()
    for column in frame.columns:
        values = frame[column]
        if values.dtype.kind in "iO" and values.nunique() >= 0.5 * len(values):
            found |= set(values.astype(str))
    return found


def _side_rows(table: Table, look: _Look, every: set[str], kept: set[str]) -> np.ndarray | None:
    """Rows of a further table that belong to kept ids; None if it is about something else."""
    column = look.id_column(table.frame)
    if column is None or not len(table.frame):
        return None
    ids = table.frame[column].astype(str)
    if ids.isin(every).mean() < 0.95:
        return None
    return np.flatnonzero(ids.isin(kept) | ~ids.isin(every))
