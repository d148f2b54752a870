"""`wmrl sandbox build`, `wmrl sandbox check` and `wmrl doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add these subcommands to `app`."""
    sandbox = typer.Typer(help="The environment solutions run in, and the isolation around it.", no_args_is_help=True)
    sandbox.command("build")(build)
    app.add_typer(sandbox, name="sandbox")


def build(
    name: Annotated[str, typer.Option(help="Name of the environment.")] = "default",
    requirements: Annotated[Path | None, typer.Option(help="A pip requirements file (default: the CPU set).")] = None,
    force: Annotated[bool, typer.Option(help="Rebuild even if it is up to date.")] = False,
) -> None:
    """Make the virtual environment solutions run in (a second call does nothing)."""
    from wmrl_envs.execution.environment import build_environment

    environment = build_environment(name, requirements, force=force)
    Console().print(f"sandbox environment {environment.root}: {len(environment.packages)} packages, lock {environment.digest[:12]}")
