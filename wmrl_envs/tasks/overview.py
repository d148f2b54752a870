"""The task overview an agent and a world model read: made from the public files by looking, with nothing written by hand.

The parts are those of the paper's appendix: head of the description with its evaluation section, data inventory, target
columns, submission contract.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmrl_envs.context import FileInfo, TaskContext
from wmrl_envs.tasks.inventory import Entry, inventory

if TYPE_CHECKING:
    from wmrl_envs.tasks.competition import Competition

DESCRIPTION_TOKENS = 900
EVALUATION_TOKENS = 300
_TOKEN = re.compile(r"[A-Za-z0-9_]{1,5}|[^\sA-Za-z0-9_]")  # a little finer than the tokenizers of language models
_EVALUATION = re.compile(r"^[#* \t]*(evaluation|scoring|metric)\b[^\n]{0,60}$", re.IGNORECASE | re.MULTILINE)
_HEADING = re.compile(r"^(#{1,6} |\*\*[^*\n]+\*\*\s*$)", re.MULTILINE)
_COLUMNS_SHOWN = 60
_EXAMPLES_SHOWN = 12


def count_tokens(text: str) -> int:
    """Tokens of a text, estimated a little high: pieces of words of up to five letters, and every other sign.

    >>> count_tokens("Predict the probability.")
    7
    """
    return sum(1 for _ in _TOKEN.finditer(text))


def cut(text: str, tokens: int) -> str:
    """The head of `text` with at most `tokens` tokens, cut at the end of a line or sentence where one is near."""
    end = None
    for i, match in enumerate(_TOKEN.finditer(text)):
        if i == tokens:
            break
        end = match.end()
    else:
        return text.rstrip()
    head = text[:end]
    for mark in ("\n", ". "):
        place = head.rfind(mark)
        if place > 0.8 * len(head):
            return head[: place + 1].rstrip()
    return head.rstrip()


def describe(text: str, tokens: int = DESCRIPTION_TOKENS) -> str:
    """The head of a description, with the head of its evaluation section appended if that was cut off."""
    text = text.strip()
    head = cut(text, tokens)
    if len(head) == len(text):
        return head
    section = _evaluation_section(text)
    if section is None:
        return f"{head}\n[...]"
    start, end = section
    if end <= len(head):
        return f"{head}\n[...]"
    if start < len(head):
        head = text[:start].rstrip()
    return f"{head}\n[...]\n{cut(text[start:end], EVALUATION_TOKENS)}"


def _evaluation_section(text: str) -> tuple[int, int] | None:
    """Where the evaluation section starts and ends; None if there is none."""
    found = _EVALUATION.search(text)
    if found is None:
        return None
    rest = _HEADING.search(text, found.end())
    return found.start(), rest.start() if rest else len(text)


def _size(n: int) -> str:
    value = float(n)
    for unit in ("bytes", "kB", "MB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"


def _short(value: object, width: int = 80) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= width else text[: width - 3] + "..."


def _schema(columns: Mapping[str, str]) -> str:
    shown = [f"{name} ({kind})" for name, kind in list(columns.items())[:_COLUMNS_SHOWN]]
    more = len(columns) - len(shown)
    return "[" + ", ".join(shown) + (f", ... and {more} more" if more > 0 else "") + "]"


def _lines(entry: Entry) -> list[str]:
    if entry.kind == "table":
        rows = "rows not counted" if entry.rows is None else f"{entry.rows} rows"
        lines = [f"{entry.name}: {rows} x {len(entry.columns)} cols: {_schema(entry.columns)}"]
        examples = [f"{name}: e.g. {_short(value)!r}" for name, value in list(entry.examples.items())[:_EXAMPLES_SHOWN]]
        if examples:
            lines.append("    string-column examples -> " + "; ".join(examples))
        return lines
    if entry.kind == "array":
        return [f"{entry.name}: arrays " + ", ".join(f"{name} {what}" for name, what in entry.columns.items())]
    if entry.kind == "folder":
        schema = f"; columns {_schema(entry.columns)}" if entry.columns else ""
        return [f"{entry.name}: {entry.rows} {entry.note} ({_size(entry.size_bytes)} in all){schema}"]
    return [f"{entry.name}: {_size(entry.size_bytes)}" + (f", {entry.note}" if entry.note else "")]


def _table(entries: Sequence[Entry], name: str) -> Entry | None:
    """The table called `name`, in whatever format."""
    return next((e for e in entries if e.kind == "table" and e.name.rsplit(".", 1)[0].lower() == name), None)


def _targets(competition: Competition, entries: Sequence[Entry]) -> tuple[str, ...]:
    train, test = _table(entries, "train"), _table(entries, "test")
    if train is not None and test is not None:
        found = tuple(c for c in train.columns if c not in test.columns)
        if found:
            return found
    return competition.target_columns


def _names(columns: Sequence[str]) -> str:
    shown = list(columns[:_COLUMNS_SHOWN])
    more = len(columns) - len(shown)
    return str(shown) if more <= 0 else f"{str(shown)[:-1]}, ... and {more} more]"


def _contract(competition: Competition, sample: Entry | None, rows: list[list[str]]) -> list[str]:
    columns, fill = competition.submission_columns, competition.prediction_columns
    copy = [c for c in columns if c not in fill]
    lines = [f"columns = {_names(columns)}" + ("" if sample is None or sample.rows is None else f", {sample.rows} rows")]
    lines.append(f"FILL the prediction column(s) with your model output: {_names(fill)}.")
    lines.append(f"COPY the column(s) {_names(copy)} straight from the test set (id / passthrough).")
    lines.append("Example rows (cells truncated for display):")
    lines += ["  " + " ".join(_short(cell, 30) for cell in row[:20]) + (" ..." if len(row) > 20 else "") for row in rows]
    return lines


def _example_rows(path: Path, n: int = 2) -> list[list[str]]:
    import csv

    with path.open(encoding="utf-8-sig", errors="replace", newline="") as f:
        reader = csv.reader(f)
        next(reader, None)
        return [row for row, _ in zip(reader, range(n), strict=False)]


def build(competition: Competition) -> TaskContext:
    """Read the public folder of `competition` (never the private one) and describe it."""
    from wmrl_envs.tasks.metrics import METRICS

    entries = inventory(competition.public_dir)
    sample_name = competition.sample_submission.name
    sample = next((e for e in entries if e.name == sample_name), None)
    targets = _targets(competition, entries)
    metric = METRICS[competition.metric]
    direction = "higher" if competition.higher_is_better else "lower"
    parts = [
        f"Competition. {competition.slug}",
        "",
        "Description.",
        describe(competition.description),
        "",
        f"Metric. {metric.title}; {direction} is better.",
        "",
        "Data inventory (every file under DATA_DIR, with the schema of each table).",
        *(line for entry in entries for line in _lines(entry)),
        "",
        "Target columns (present in train but not in test).",
        _names(targets),
        "",
        "Submission contract (written exactly this way to SUBMISSION_PATH).",
        *_contract(competition, sample, _example_rows(competition.sample_submission)),
    ]
    return TaskContext(
        task=competition.slug,
        overview="\n".join(parts),
        category=competition.category,
        metric=competition.metric,
        higher_is_better=competition.higher_is_better,
        files=tuple(FileInfo(e.name, e.size_bytes, e.rows, dict(e.columns), e.missing) for e in entries),
        submission_columns=competition.submission_columns,
        id_columns=competition.id_columns,
        target_columns=targets,
        submission_rows=None if sample is None else sample.rows,
    )


def task_context(
    competition: Competition,
    *,
    timeout_s: float = 1200.0,
    scaffold: str | None = None,
    scaffold_names: Mapping[str, Any] | None = None,
) -> TaskContext:
    """What an agent may know about `competition`; the folder is read once and remembered until it changes."""
    from dataclasses import replace

    version = competition.public_dir.stat().st_mtime_ns
    context = _cached(_Key(competition), version)
    return replace(context, timeout_s=timeout_s, scaffold=scaffold, scaffold_names=dict(scaffold_names or {}))


class _Key:
    """A competition as a cache key: the same folder and task are the same key."""

    def __init__(self, competition: Competition):
        self.competition = competition
        self.identity = (competition.slug, str(competition.public_dir))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)


@lru_cache(maxsize=256)
def _cached(key: _Key, _version: int) -> TaskContext:
    return build(key.competition)
