"""`wmrl fidelity`: how faithful world models are, against programs that were really executed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wmrl_envs.errors import InvalidInput

CORPUS = Path(__file__).parents[2] / "benchmarks" / "boards" / "executed.jsonl.xz"  # of the repository: no package has it
_MODEL = (
    "low_fidelity, static, stacked, simulator, or several with commas between (of static,simulator their mean is measured too)."
)


def register(app: typer.Typer) -> None:
    """Add this subcommand to `app`."""
    app.command("fidelity")(fidelity)


def fidelity(
    model: Annotated[str, typer.Option(help=_MODEL)] = "static",
    sizes: Annotated[str, typer.Option(help="Of low_fidelity: training rows of the reduced copies.")] = "500",
    programs: Annotated[
        str, typer.Option(help="all, scripts (whole ones) or scaffold (those that complete a prelude).")
    ] = "all",
    corpus: Annotated[Path, typer.Option(help="Stored executed programs, .jsonl or .jsonl.xz.")] = CORPUS,
    fresh: Annotated[int, typer.Option(help="Instead of a stored corpus: programs to execute now for each task.")] = 0,
    tasks: Annotated[
        str | None, typer.Option(help="Slugs with commas between (default: all; --fresh: the built-in ones).")
    ] = None,
    split: Annotated[str, typer.Option(help="What is measured: held_out, train or all.")] = "held_out",
    anchors: Annotated[int, typer.Option(help="Executed programs a learning model is given first.")] = 200,
    limit: Annotated[int | None, typer.Option(help="At most this many programs, drawn at random.")] = None,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    engine: Annotated[str, typer.Option(help="Of the simulator: transformers, vllm or openai.")] = "transformers",
    engine_model: Annotated[str | None, typer.Option(help="Model directory, or the name a server knows it by.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Of an OpenAI-compatible server.")] = None,
    layout: Annotated[str, typer.Option(help="Of the simulator's prompts: shared-prefix or paper.")] = "shared-prefix",
    context_tokens: Annotated[int, typer.Option(help="Longest prompt of the simulator.")] = 12_288,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer of the simulator.")] = 1024,
    data_report: Annotated[bool, typer.Option(help="Give the simulator the verified data report of each task.")] = False,
    max_rows: Annotated[int | None, typer.Option(help="--fresh: training rows the scaffold loads.")] = 1000,
    timeout_s: Annotated[float, typer.Option(help="--fresh: seconds a program may take.")] = 20.0,
    out: Annotated[Path, typer.Option(help="Folder for fidelity.json and fidelity.html.")] = Path("runs/fidelity"),
) -> None:
    """Measure world models: validity, ranking, calibration, feedback and cost, by task, category and kind of error."""
    from wmrl_train.fidelity import models as fidelity_models
    from wmrl_train.fidelity import report as fidelity_report
    from wmrl_train.fidelity import run as fidelity_run

    slugs = None if tasks is None else [s.strip() for s in tasks.split(",") if s.strip()]
    if slugs == []:
        raise InvalidInput(f"--tasks {tasks!r}: expected slugs with commas between; leave it out to take all.")
    makers = fidelity_models.makers(
        model,
        engine=engine,
        engine_model=engine_model,
        base_url=base_url,
        layout=layout,
        context_tokens=context_tokens,
        max_new_tokens=max_new_tokens,
        data_report=data_report,
        sizes=_numbers(sizes),
    )
    executed, notes = fidelity_run.collect(
        corpus=corpus,
        fresh=fresh,
        tasks=slugs,
        seed=seed,
        limit=limit,
        max_rows=max_rows,
        timeout_s=timeout_s,
        programs=programs,
    )
    reports = {
        name: fidelity_run.run_fidelity(make, executed, split=split, anchors=anchors, seed=seed)
        for name, make in makers.items()
    }
    fidelity_report.write(out, reports, notes)
    fidelity_report.show(reports, out, notes)


def _numbers(sizes: str) -> list[int]:
    try:
        return [int(size) for size in sizes.split(",") if size.strip()]
    except ValueError:
        raise InvalidInput(f"--sizes {sizes!r}: expected whole numbers with commas between, for example 125,500.") from None
