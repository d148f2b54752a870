"""Whole scripts in other styles than the grammar's: programs without the scaffold as people and language models write them.

`whole/<author>/<name>.py.j2` is one program, adapted to several tasks by a few facts of each (names of columns, metric, kind of
target). Its first line names the tasks, and after a colon a variant of it; many variants hold a mistake that such authors make.
What comes of a script is decided by executing it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FOLDER = Path(__file__).parent / "whole"
FEW_LEVELS = 20  # levels of a categorical column that is one-hot encoded without a thought
_TASKS = re.compile(r"<# tasks: (.*?) #>\n")


def authors() -> list[str]:
    """The styles, in a fixed order."""
    return sorted(p.name for p in FOLDER.iterdir() if p.is_dir())


def whole_scripts(
    slug: str, category: str, metric: str, names: Mapping[str, Any], columns: tuple[str, ...]
) -> Iterator[tuple[str, str, str]]:
    """The scripts for one task: (author, name of the script and variant, code).

    Args:
        slug: the task.
        category: tabular, text or image.
        metric: name of its metric.
        names: facts about its columns, as `scaffold.describe` gives them.
        columns: of its submission.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        variable_start_string="<<", variable_end_string=">>", block_start_string="<%", block_end_string="%>",
        comment_start_string="<#", comment_end_string="#>", trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        undefined=StrictUndefined, autoescape=False,
    )  # fmt: skip
    facts = _facts(slug, category, metric, names, columns)
    for path in sorted(FOLDER.glob("*/*.py.j2")):
        text = path.read_text(encoding="utf-8")
        head = _TASKS.match(text)
        if head is None:
            raise ValueError(f"{path}: expected a first line <# tasks: TASK TASK:VARIANT ... #>.")
        for wanted, _, variant in (entry.partition(":") for entry in head.group(1).split()):
            if wanted == slug:
                code = environment.from_string(text[head.end() :]).render(t=facts, v=variant)
                name = path.name.removesuffix(".py.j2") + (f":{variant}" if variant else "")
                yield path.parent.name, name, code


def _facts(slug: str, category: str, metric: str, names: Mapping[str, Any], columns: tuple[str, ...]) -> SimpleNamespace:
    levels, targets = names["levels"], list(names["target"])
    kind = str(names["target_kind"])
    return SimpleNamespace(
        slug=slug, category=category, metric=metric, kind=kind, reg=kind == "reg", columns=list(columns), target=targets[0], targets=targets,
        num=list(names["num"]), cat=list(names["cat"]), text=list(names["text"]), date=list(names["date"]),
        low=[c for c in names["cat"] if levels[c] <= FEW_LEVELS], high=[c for c in names["cat"] if levels[c] > FEW_LEVELS],
        shape=names["image"],
    )  # fmt: skip
