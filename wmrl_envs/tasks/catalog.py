"""The facts of every competition this package can grade, read from one table, `catalog.csv`.

45 + 14 competitions of MLE-Dojo (`train`, `held_out`), the 60 of DSBench the paper keeps (`dsbench`) and the 15 it leaves out
(with `excluded_because`), and the 18 built-in ones (`train`, `held_out`). Facts only: no data is needed to read them.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from wmrl_envs.errors import InvalidInput

SPLITS = ("train", "held_out", "dsbench")
SOURCES = ("mledojo", "dsbench", "builtin")


@dataclass(frozen=True)
class TaskFacts:
    """One row of the catalogue.

    Attributes:
        slug: the Kaggle slug, or our own name for a built-in competition.
        source: "mledojo", "dsbench" or "builtin".
        split: "train", "held_out" or "dsbench".
        category: "tabular", "text" or "image".
        kind: the category DSBench results are reported under: "binary", "multiclass", "regression", "other" ("" elsewhere).
        metric: name in `wmrl_envs.tasks.metrics.METRICS`; `params` are its parameters.
        id_columns: columns of the answers that identify a row.
        target_columns: columns of the answers that are graded; empty: all columns but the ids.
        prediction_columns: columns of a submission besides the ids, where they are not the target columns.
        optional_columns: columns a submission may carry that are not looked at.
        id_match: "text" (ids compared as strings), "integer" (1.0 is 1) or "in_order" (no ids: rows are in file order).
        size: download size on Kaggle.
        ground_truth: DSBench's best value, for the relative performance gap.
        baseline: DSBench's baseline value, for the same.
        excluded_because: why the paper's evaluation leaves it out ("" = kept).
        notes: what makes its scores doubtful (a leak, a contaminated test set).
    """

    slug: str
    source: str
    split: str
    category: str
    metric: str
    higher_is_better: bool
    id_columns: tuple[str, ...]
    target_columns: tuple[str, ...] = ()
    prediction_columns: tuple[str, ...] = ()
    optional_columns: tuple[str, ...] = ()
    params: Mapping[str, int | bool | str] = field(default_factory=dict)
    id_match: str = "text"
    kind: str = ""
    size: str = ""
    ground_truth: float | None = None
    baseline: float | None = None
    excluded_because: str = ""
    notes: str = ""


def _columns(cell: str) -> tuple[str, ...]:
    return tuple(cell.split("|")) if cell else ()


def _value(text: str) -> int | bool | str:
    return text == "true" if text in ("true", "false") else int(text) if text.isdigit() else text


def _number(cell: str) -> float | None:
    return float(cell) if cell else None


@cache
def catalog() -> Mapping[str, TaskFacts]:
    """All rows by slug, in the order of the table."""
    rows = {}
    table = resources.files(__package__).joinpath("catalog.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(table.splitlines()):
        params = dict(pair.split("=", 1) for pair in row["params"].split(";") if pair)
        rows[row["slug"]] = TaskFacts(
            slug=row["slug"],
            source=row["source"],
            split=row["split"],
            category=row["category"],
            metric=row["metric"],
            higher_is_better=row["direction"] == "max",
            id_columns=_columns(row["ids"]),
            target_columns=_columns(row["targets"]),
            prediction_columns=_columns(row["predictions"]),
            optional_columns=_columns(row["optional"]),
            params={k: _value(v) for k, v in params.items()},
            id_match=row["id_match"] or "text",
            kind=row["kind"],
            size=row["size"],
            ground_truth=_number(row["ground_truth"]),
            baseline=_number(row["baseline"]),
            excluded_because=row["excluded_because"],
            notes=row["notes"],
        )
    return rows


def facts(slug: str) -> TaskFacts:
    """The facts of one competition.

    Raises:
        InvalidInput: no such competition; the message suggests the nearest names.

    >>> facts("titanic").metric
    'accuracy'
    """
    try:
        return catalog()[slug]
    except KeyError:
        raise InvalidInput(unknown(slug)) from None


def report_category(slug: str, default: str) -> str:
    """The category results are reported under: DSBench's kind of problem, otherwise `default` (tabular, text or image).

    >>> report_category("titanic", "tabular")
    'binary'
    """
    known = catalog().get(slug)
    return (known.kind if known is not None else "") or default or "other"


def unknown(slug: str) -> str:
    """The sentence about a competition nobody knows, with the nearest names."""
    names = {name.lower(): name for name in catalog()}
    near = difflib.get_close_matches(str(slug).lower(), list(names), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(names[n]) for n in near)}?" if near else "`wmrl tasks list` shows all names."
    return f"Unknown competition {slug!r}: {hint}"


def list_competitions(split: str | None = None, source: str | None = None, *, excluded: bool = False) -> list[str]:
    """Slugs in the order of the catalogue.

    Args:
        split: "train", "held_out" or "dsbench"; None for all.
        source: "mledojo", "dsbench" or "builtin"; None for all.
        excluded: also those that the paper's evaluation leaves out.

    >>> len(list_competitions("train", "mledojo")), len(list_competitions("held_out", "mledojo"))
    (45, 14)
    >>> len(list_competitions("dsbench"))
    60
    """
    for name, value, known in (("split", split, SPLITS), ("source", source, SOURCES)):
        if value is not None and value not in known:
            raise InvalidInput(f"{name}={value!r}: expected one of {', '.join(known)}.")
    return [
        f.slug
        for f in catalog().values()
        if split in (None, f.split) and source in (None, f.source) and (excluded or not f.excluded_because)
    ]
