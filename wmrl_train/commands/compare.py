"""`wmrl compare`: runs and evaluations side by side."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add this subcommand to `app`."""
    app.command("compare")(compare)


def compare(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of runs or evaluations; the others are compared with the first.")
    ],
    page: Annotated[Path | None, typer.Option(help="Also write the comparison as a page to this HTML file.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Compare runs or evaluations: the settings that differ, scores task by task with paired intervals, curves of runs."""
    from wmrl_train.evaluation.compare.differences import compare as compared
    from wmrl_train.evaluation.compare.page import write_page
    from wmrl_train.evaluation.compare.show import show
    from wmrl_train.evaluation.compare.sides import read_sides, settings_that_differ
    from wmrl_train.run.terminal import Terminal

    first, *others = sides = read_sides(folders)
    comparisons = [compared(first, other) for other in others]
    if json_:
        differ = {key: dict(zip((s.name for s in sides), values, strict=True)) for key, values in settings_that_differ(sides)}
        sys.stdout.write(json.dumps({"settings": differ, "comparisons": [c.as_dict() for c in comparisons]}) + "\n")
    else:
        show(Terminal(width=None if sys.stdout.isatty() else 140), sides, comparisons)
    if page is not None:
        typer.echo(write_page(page, sides, comparisons), err=json_)
