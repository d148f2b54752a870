"""Writing a reduced copy: tables and arrays with fewer rows, pictures of the kept ones as links, everything else as it is."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np

from wmrl_envs.tasks.reduced.plan import CannotReduce, Plan
from wmrl_envs.tasks.reduced.tables import Table, write_npz

MANY_FILES = 12  # a folder with more files is one of pictures (or the like), of which the kept rows' are taken
STRAYS = 0.05  # share of such files that no row names


def write(plan: Plan, public: Path, private: Path) -> None:
    """Write everything below these folders.

    Raises:
        CannotReduce: arrays or folders whose entries cannot be told from the tables.
    """
    plan.answers.to_csv(private / "test_answer.csv", index=False)
    done = {plan.sample_path, plan.train.path}
    plan.sample.to_csv(public / plan.sample_path.name, index=False)
    _table(plan, plan.train, plan.rows, public)
    if plan.test is not None:
        done.add(plan.test.path)
        if plan.held_out:
            _held_out_table(plan, public)
        else:
            _table(plan, plan.test, plan.test_rows, public)
    for table, rows in plan.side:
        done.add(table.path)
        _table(plan, table, rows, public)
    folders = defaultdict(list)
    for path in plan.files:
        if path not in done:
            folders[path.parent].append(path)
    for folder, files in folders.items():
        if folder != plan.public and len(files) > MANY_FILES:
            _pictures(plan, folder, files, public)
        else:
            for path in files:
                _file(plan, path, public)


def _place(plan: Plan, path: Path, public: Path) -> Path:
    to = public / path.relative_to(plan.public)
    to.parent.mkdir(parents=True, exist_ok=True)
    return to


def _table(plan: Plan, table: Table, rows: np.ndarray, public: Path) -> None:
    table.write(rows, _place(plan, table.path, public))


def _held_out_table(plan: Plan, public: Path) -> None:
    """The test table of rows of train: their features, in the test table's columns."""
    import pandas as pd

    assert plan.test is not None
    to = _place(plan, plan.test.path, public)
    part = to.with_name("held-out" + plan.train.path.suffix)
    plan.train.write(plan.test_rows, part)
    separator = "\t" if to.suffix.lower() == ".tsv" else ","
    rows = pd.read_csv(part, sep="\t" if part.suffix == ".tsv" else ",", dtype=str, na_filter=False, encoding="latin-1")
    rows[list(plan.test.frame.columns)].to_csv(to, sep=separator, index=False, encoding="latin-1")
    part.unlink()


def _file(plan: Plan, path: Path, public: Path) -> None:
    to = _place(plan, path, public)
    if path.suffix.lower() == ".npz":
        write_npz(path, to, lambda name, length: _array_rows(plan, name, length))
    elif path.suffix.lower() == ".npy":
        values = np.load(path, allow_pickle=False)
        rows = _array_rows(plan, path.stem, len(values) if values.ndim else 0)
        np.save(to, values if rows is None else values[rows])
    else:
        _link(path, to)


def _array_rows(plan: Plan, name: str, length: int) -> np.ndarray | None:
    """Rows to keep of an array, told by its name and length; None if it has nothing to do with the tables."""
    train, test = plan.facts.all_rows, plan.facts.all_test_rows
    if "test" in name.lower() and length == test and plan.held_out:
        raise CannotReduce(
            "A competition whose test rows would have to be held out of train keeps them in arrays: not supported."
        )
    if length == test and ("test" in name.lower() or length != train):
        return plan.test_rows
    if length == train and ("train" in name.lower() or length != test):
        return plan.rows
    if length in (train, test):
        raise CannotReduce(f"The array {name!r} may be of the {length} rows of train or of test: its name does not say.")
    return None


def _pictures(plan: Plan, folder: Path, files: list[Path], public: Path) -> None:
    names = {file: {file.name, file.stem, file.relative_to(plan.public).as_posix()} for file in files}
    everything = _named(plan)
    strays = [file for file in files if not names[file] & everything]
    if len(strays) > max(MANY_FILES, STRAYS * len(files)):
        where = folder.relative_to(plan.public)
        raise CannotReduce(f"{len(strays)} of the {len(files)} files in {where} are named by no row of a table.")
    for file in files:
        if names[file] & plan.ids or not names[file] & everything:
            _link(file, _place(plan, file, public))


def _named(plan: Plan) -> set[str]:
    from wmrl_envs.tasks.reduced.plan import _values

    tables = [plan.train, *([plan.test] if plan.test is not None else []), *(table for table, _ in plan.side)]
    return set().union(*(_values(table.frame) for table in tables))


def _link(path: Path, to: Path) -> None:
    """The same file once more; a copy where file systems differ."""
    try:
        os.link(path, to)
    except OSError:
        shutil.copyfile(path, to)
