"""`wmrl eval` and `wmrl rescore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

_AGENT = "demo, openai:URL, python:module:function, or a model directory (a saved model, or the checkpoint of a run)."
_TASKS = "A split (train, held_out, dsbench: the tasks of it that are prepared) or slugs with commas between."


def register(app: typer.Typer) -> None:
    """Add these subcommands to `app`."""
    app.command("eval")(evaluate)
    app.command("rescore")(rescore)


def evaluate(
    agent: Annotated[str, typer.Option(help=_AGENT)],
    tasks: Annotated[str, typer.Option(help=_TASKS)] = "held_out",
    k: Annotated[int, typer.Option("--k", "-k", help="Attempts a task.")] = 8,
    turns: Annotated[int | None, typer.Option(help="Programs an attempt (default: 4, demo: 1).")] = None,
    workers: Annotated[int | None, typer.Option(help="Programs executed at a time (default: one a core).")] = None,
    out: Annotated[Path | None, typer.Option(help="Where results go; an evaluation there is continued.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of a table.")] = False,
    seed: Annotated[int, typer.Option(help="Samples depend on seed, task, attempt and turn alone.")] = 0,
    sandbox: Annotated[str, typer.Option(help="auto, process, docker or replay.")] = "auto",
    timeout_s: Annotated[float | None, typer.Option(help="Seconds a program may take (default: 1200, demo: its own).")] = None,
    memory_mb: Annotated[int | None, typer.Option(help="Memory of a program in MB (default: 4096, demo: its own).")] = None,
    scaffold: Annotated[
        str | None, typer.Option(help="sklearn: a prelude loads the data (default: none, demo: sklearn).")
    ] = None,
    max_rows: Annotated[int | None, typer.Option(help="Training rows the scaffold loads.")] = None,
    hide_score: Annotated[bool, typer.Option(help="Do not tell the agent its scores.")] = False,
    data_dir: Annotated[
        Path | None, typer.Option(help="Prepared competitions (default: where `wmrl tasks prepare` puts them).")
    ] = None,
    temperature: Annotated[float, typer.Option(help="Of the samples of a model.")] = 1.0,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Tokens an answer of a model (default: 4096, demo: its own).")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Name of the model at openai:URL, where it serves several.")] = None,
) -> None:
    """Evaluate an agent: k really executed attempts a task, resumable after a kill, aggregated by task and category."""
    from wmrl_train import eval_run

    given: dict[str, Any] = {
        "max_turns": turns,
        "timeout_s": timeout_s,
        "memory_mb": memory_mb,
        "scaffold": scaffold,
        "max_rows": max_rows,
        "hide_score": hide_score or None,
        "data_dir": None if data_dir is None else str(data_dir.expanduser().resolve()),
    }
    settings = eval_run.Settings(
        agent=agent,
        tasks=tasks,
        seed=seed,
        sandbox=sandbox,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        model=model,
        env={name: value for name, value in given.items() if value is not None},
    )
    eval_run.run(settings, k=k, out=out, workers=workers, as_json=json_)


def rescore(
    folder: Annotated[Path, typer.Argument(help="Folder of an evaluation or of a training run.")],
    data_dir: Annotated[Path | None, typer.Option(help="Prepared competitions (default: those it was made with).")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of a table.")] = False,
) -> None:
    """Grade stored submissions again with today's graders and boards; runs no program, changes no stored trajectory."""
    from wmrl_train import rescore as module

    module.run(folder, data_dir=data_dir, as_json=json_)
