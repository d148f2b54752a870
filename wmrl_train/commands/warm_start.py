"""`wmrl warm-start`: rebuild the small policy that ships with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add this subcommand to `app`."""
    app.command("warm-start")(warm_start_command)


def warm_start_command(
    out: Annotated[Path, typer.Option(help="Directory to write the model to.")] = Path("runs/warm-start"),
    steps: Annotated[int, typer.Option(help="Optimizer steps; 1000 make the model that ships.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of programs and weights.")] = 0,
    threads: Annotated[int, typer.Option(min=0, help="Torch threads; 0 leaves torch's own choice.")] = 0,
) -> None:
    """Train the small policy on programs of the grammar for the built-in training tasks (about 5 minutes on 2 cores)."""
    from rich.progress import Progress

    from wmrl_train.agents.brief import training_briefs
    from wmrl_train.run.terminal import Terminal
    from wmrl_train.warm_start.build import WarmStartConfig, check_writable, warm_start

    config = WarmStartConfig(steps=steps, seed=seed)
    check_writable(out)
    briefs = training_briefs()
    if threads:
        import torch

        torch.set_num_threads(threads)
    console = Terminal()
    with Progress(console=console) as bar:
        task = bar.add_task("warm start", total=steps)

        def show(step: int, loss: float) -> None:
            bar.update(task, completed=step, description=f"warm start, loss {loss:.3f}")

        result = warm_start(briefs, out, config, show)
    console.print(
        f"Wrote {out}: {result['parameters'] / 1e6:.2f} M parameters, loss {result['loss']['first']:.2f} -> "
        f"{result['loss']['last_50']:.2f} nats a token, {result['seconds']:.0f} s."
    )
