"""`wmrl tasks list|show|prepare`: what competitions there are, what one is, and how its data gets here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from wmrl_envs.errors import DataNotBuilt, InvalidInput
from wmrl_train.run.terminal import Terminal

tasks = typer.Typer(name="tasks", help="Competitions: list them, show one, prepare their data.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of prepared competitions (default: WMRL_DATA_DIR).")]


def register(app: typer.Typer) -> None:
    """Add these subcommands to `app`."""
    app.add_typer(tasks)


@tasks.command("list")
def list_tasks(
    split: Annotated[str | None, typer.Option(help="train, held_out or dsbench.")] = None,
    source: Annotated[str | None, typer.Option(help="mledojo, dsbench or builtin.")] = None,
    prepared: Annotated[bool, typer.Option("--prepared", help="Only those whose data is here.")] = False,
    excluded: Annotated[bool, typer.Option("--excluded", help="Also those the paper leaves out.")] = False,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """List competitions with their metric and whether their data is prepared."""
    from wmrl_envs.tasks.catalog import facts, list_competitions

    rows = []
    for slug in list_competitions(split, source, excluded=excluded):
        f = facts(slug)
        ready = _is_prepared(slug, data_dir)
        if ready or not prepared:
            direction = "max" if f.higher_is_better else "min"
            rows.append(
                {
                    "slug": slug,
                    "split": f.split,
                    "source": f.source,
                    "category": f.category,
                    "kind": f.kind,
                    "metric": f.metric,
                    "direction": direction,
                    "prepared": ready,
                    "excluded_because": f.excluded_because,
                }
            )
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table(box=None, pad_edge=False)
    for name in ("competition", "split", "source", "category", "metric", "", "prepared"):
        table.add_column(name)
    for r in rows:
        name = f"{r['slug']} (excluded: {r['excluded_because']})" if r["excluded_because"] else str(r["slug"])
        table.add_row(
            name,
            str(r["split"]),
            str(r["source"]),
            str(r["category"]),
            str(r["metric"]),
            str(r["direction"]),
            "yes" if r["prepared"] else "-",
        )
    console = Terminal(width=None if sys.stdout.isatty() else 200)  # a pipe has no width, and a cut name is of no use
    console.print(table)
    console.print(f"{len(rows)} competitions, {sum(bool(r['prepared']) for r in rows)} prepared")


def _is_prepared(slug: str, data_dir: Path | None) -> bool:
    from wmrl_envs.tasks.competition import load_competition

    try:
        load_competition(slug, data_dir)
    except (DataNotBuilt, InvalidInput):
        return False
    return True


@tasks.command("show")
def show(
    slug: Annotated[str, typer.Argument(help="Name of the competition.")],
    as_json: Json = False,
    data_dir: DataDir = None,
    overview: Annotated[bool, typer.Option("--overview", help="Print the task overview an agent reads.")] = False,
) -> None:
    """Show the facts of one competition and, if its data is here, its files and boards."""
    from wmrl_envs.tasks import load_competition, task_context
    from wmrl_envs.tasks.catalog import facts
    from wmrl_envs.text import visible

    f = facts(slug)
    if overview:
        typer.echo(visible(task_context(load_competition(slug, data_dir)).overview))
        return
    info: dict[str, Any] = {
        "slug": f.slug,
        "source": f.source,
        "split": f.split,
        "category": f.category,
        "kind": f.kind or None,
        "metric": f.metric,
        "params": dict(f.params),
        "higher_is_better": f.higher_is_better,
        "id_columns": list(f.id_columns),
        "target_columns": list(f.target_columns),
        "prediction_columns": list(f.prediction_columns or f.target_columns),
        "kaggle_size": f.size or None,
        "ground_truth": f.ground_truth,
        "baseline": f.baseline,
        "excluded_because": f.excluded_because or None,
        "notes": f.notes or None,
    }
    try:
        competition = load_competition(slug, data_dir)
        info["data"] = str(competition.public_dir)
        board = competition.board
        info["boards"] = board.sizes if board else {}
        info["medals"] = {name: f"{score:g}" for name, score in board.medal_scores().items()} if board else {}
    except DataNotBuilt as error:
        info["data"], info["note"] = None, str(error)
    if as_json:
        typer.echo(json.dumps(info, indent=1))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for key, value in info.items():
        if value not in (None, {}, []):
            table.add_row(key, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
    Terminal().print(table)


@tasks.command("prepare")
def prepare(
    source: Annotated[
        str, typer.Argument(help="builtin (downloads 79 MB and builds), mledojo or dsbench (checks a folder you have).")
    ],
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Where to build, or the folder to check.")] = None,
    only: Annotated[list[str] | None, typer.Option("--only", help="Build only this built-in competition (repeatable).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Build again what is there.")] = False,
    as_json: Json = False,
) -> None:
    """Prepare the data of competitions. Safe to interrupt and repeat."""
    console = Terminal()
    if source == "builtin":
        from wmrl_envs.tasks.builtin import prepare as build

        done: list[dict[str, str]] = []

        def progress(slug: str, what: str) -> None:
            done.append({"slug": slug, "state": what})
            if not as_json and what == "built":  # what was there is in the count
                console.print(f"{slug}: {what}")

        folders = build(data_dir, only, force=force, progress=progress)
        if as_json:
            typer.echo(json.dumps(done, indent=1))
        else:
            console.print(f"{len(folders)} competitions are ready in {folders[0].parent}")
        return
    from wmrl_envs.tasks.prepare import ABSENT, check_folder, index

    if source not in ("mledojo", "dsbench"):
        raise InvalidInput(f"prepare {source!r}: expected builtin, mledojo or dsbench.")
    if data_dir is None:
        raise InvalidInput(f"prepare {source} needs --data-dir, the folder that holds the data of {source}.")
    checked = check_folder(source, data_dir)
    noted = index(checked, data_dir)
    ready = [c for c in checked if c.problem is None]
    if as_json:
        typer.echo(json.dumps([{"slug": c.slug, "problem": c.problem, "notes": list(c.notes)} for c in checked], indent=1))
        return
    console.print(f"{len(ready)} of {len(checked)} competitions are ready; noted in {noted}", soft_wrap=True)
    absent = [c for c in checked if c.problem == ABSENT]
    for c in (c for c in checked if c.problem is not None and c not in absent):
        console.print(f"{c.slug}: [yellow]not ready[/]: {escape(c.problem or '')}", soft_wrap=True)
    for c in ready:
        console.print(f"{c.slug}: [green]ready[/]" + "".join(f" ({escape(note)})" for note in c.notes), soft_wrap=True)
    if absent:
        console.print(f"{len(absent)} are not in this folder: {', '.join(c.slug for c in absent)}", soft_wrap=True)
