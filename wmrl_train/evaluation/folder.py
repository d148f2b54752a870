"""An evaluation on disk: settings, trajectories, progress on the terminal, the table. What `wmrl eval` does."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from wmrl_envs.errors import InvalidInput
from wmrl_envs.execution.base import ExecutionLimits
from wmrl_envs.tasks.choose import choose_tasks
from wmrl_train.config.imported import source_digest
from wmrl_train.episodes import store as trajectories
from wmrl_train.episodes.store import Trajectory
from wmrl_train.evaluation.attempts import EvalResult, evaluate
from wmrl_train.evaluation.table import Row, Table

FILE, TABLE, SETTINGS = "trajectories.jsonl", "table.json", "settings.json"


@dataclass(frozen=True)
class Settings:
    """What an evaluation depends on, `k` aside (which may grow): written next to its results and compared on resuming."""

    agent: str
    tasks: str
    seed: int = 0
    sandbox: str = "auto"
    temperature: float = 1.0
    max_new_tokens: int | None = None
    model: str | None = None
    env: dict[str, Any] = field(default_factory=dict)
    source: str | None = None  # of a `python:` agent: a fingerprint of its module, so that an edited agent is another one


def run(settings: Settings, *, k: int, out: Path | None, workers: int | None, as_json: bool) -> EvalResult:
    """Evaluate, or continue, and print the table. Every finished attempt is on disk before the next one counts."""
    from wmrl_envs.execution import make_sandbox
    from wmrl_train.evaluation.policies import build

    console = Console(stderr=True)
    _check(settings, k, workers)
    tasks, missing = choose_tasks(settings.tasks, settings.env.get("data_dir"))
    if missing:
        console.print(
            f"[yellow]not prepared, left out:[/] {len(missing)} tasks of {settings.tasks} (`wmrl tasks prepare` says how)"
        )
    if settings.agent.startswith("python:"):
        settings = replace(settings, source=source_digest(settings.agent.removeprefix("python:")))
    folder = out or Path("runs") / _name(settings)
    with _locked(folder):
        done = _resume(folder, settings)
        if done:
            console.print(f"continuing {folder}: {len(done)} attempts are there already")
        policy = build(
            settings.agent,
            temperature=settings.temperature,
            max_new_tokens=settings.max_new_tokens,
            turns=settings.env.get("max_turns"),
            model=settings.model,
        )
        env_kwargs = environment_arguments(policy.env_kwargs, settings.env)
        try:
            with make_sandbox(settings.sandbox) as box, _progress(console, len(tasks) * k, done) as advance:

                def finished(trajectory: Trajectory) -> None:
                    trajectories.append(folder / FILE, trajectory)
                    advance(trajectory)

                result = evaluate(
                    policy.policy,
                    tasks,
                    k,
                    sandbox=box,
                    env_kwargs=env_kwargs,
                    seed=settings.seed,
                    workers=workers,
                    progress=finished,
                    done=done,
                )
        except KeyboardInterrupt:
            console.print(f"stopped: what is finished is in {folder}; the same command goes on from there")
            raise
        finally:
            policy.close()
        report = as_dict(result, settings, k)
        (folder / TABLE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    show(result, report, as_json, f"{settings.agent} on {settings.tasks}", k)
    console.print(
        f"{result.executions} programs executed, {result.execution_s:.0f} s of their own time; this run took {result.wall_s:.0f} s"
    )
    console.print(f"{folder / FILE}: every attempt; {folder / TABLE}: this table")
    return result


def _check(settings: Settings, k: int, workers: int | None) -> None:
    """Refuse numbers nobody can use before anything is written or started."""
    for name, value, least in (
        ("k", k, 1),
        ("workers", workers, 1),
        ("seed", settings.seed, 0),
        ("max-new-tokens", settings.max_new_tokens, 1),
    ):
        if value is not None and value < least:
            raise InvalidInput(f"--{name} {value}: expected at least {least}.")
    if not 0 <= settings.temperature < math.inf:
        raise InvalidInput(f"--temperature {settings.temperature}: expected a finite number of at least 0 (0: the likeliest).")


def environment_arguments(defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the environment: the agent's defaults, then what the user gave; memory and time become limits."""
    kwargs = defaults | given
    limits: dict[str, Any] = {name: kwargs.pop(name) for name in ("memory_mb", "cpu_s") if name in kwargs}
    if "timeout_s" in given:
        limits["timeout_s"] = given["timeout_s"]
        limits.setdefault("cpu_s", None)  # not the agent's own CPU limit under a user's longer time
    if limits:
        kwargs["limits"] = replace(kwargs.get("limits", ExecutionLimits()), **limits)
    return kwargs


def as_dict(result: EvalResult, settings: Settings, k: int) -> dict[str, Any]:
    """The machine-readable result (scores are fractions; null where nothing was scored)."""
    cost = {"executions": result.executions, "execution_s": round(result.execution_s, 2), "wall_s": round(result.wall_s, 2)}
    gap = {} if result.relative_gap is None else {"relative_gap": result.relative_gap}
    return {"agent": settings.agent, "tasks_of": settings.tasks, "k": k, **result.table.as_dict(), **gap, "cost": cost}


def show(result: EvalResult, report: dict[str, Any], as_json: bool, title: str, k: int) -> None:
    """Print the result on standard output."""
    if as_json:
        sys.stdout.write(json.dumps(report) + "\n")
        return
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(rich_table(result.table, title, k))
    if result.relative_gap is not None:
        console.print(f"relative performance gap: {result.relative_gap:.3f}")


def rich_table(table: Table, title: str, k: int) -> RichTable:
    """Percent, as reports have it."""
    view = RichTable(title=title, title_justify="left")
    view.add_column("task", overflow="fold")
    for name in (f"avg@{k}", f"{table.confidence:.0%} interval", f"best@{k}", f"all@{k}", "valid", "attempts", "not scored"):
        view.add_column(name, justify="right")
    for row in table.tasks:
        view.add_row(*_cells(row))
    view.add_section()
    for row in table.categories:
        view.add_row(*_cells(row, f"{row.name} ({row.tasks} tasks)"), style="bold")
    view.add_section()
    view.add_row(*_cells(table.overall, "mean of categories"), style="bold green")
    return view


def _cells(row: Row, name: str | None = None) -> list[str]:
    def percent(value: float) -> str:
        return "-" if value != value else f"{100 * value:.1f}"

    interval = "-" if row.low != row.low else f"{percent(row.low)} - {percent(row.high)}"
    failed = str(row.failed) if row.failed else ""
    return [
        name or row.name,
        percent(row.avg),
        interval,
        percent(row.best),
        percent(row.all),
        percent(row.valid),
        str(row.attempts),
        failed,
    ]


def _name(settings: Settings) -> str:
    return re.sub(r"[^\w.-]+", "-", f"eval-{settings.agent}-{settings.tasks}")[:80].strip("-") + (
        f"-{settings.source[:6]}" if settings.source else ""
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise InvalidInput(
            f"{folder} is in use by another evaluation: wait for it, or give another folder with --out."
        ) from None
    except OSError as error:
        raise InvalidInput(f"Cannot write to {folder} ({error.strerror}): give a folder of yours with --out.") from error
    try:
        yield
    finally:
        lock.release()


def _resume(folder: Path, settings: Settings) -> list[Trajectory]:
    """The attempts done already; refuses a folder whose results were made with other settings."""
    path = folder / SETTINGS
    mine = asdict(settings)
    done = trajectories.read(folder / FILE, repair=True)
    if path.exists() and done:
        theirs = read_settings(path)
        differ = [key for key in mine if key != "tasks" and theirs.get(key) != mine[key]]
        if differ:
            key = differ[0]
            raise InvalidInput(
                f"{folder} holds an evaluation with {key}={theirs.get(key)!r}, now {key}={mine[key]!r}: "
                "give another folder with --out, or the same settings to continue it."
            )
    try:
        path.write_text(json.dumps(mine, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written ({error.strerror}): give another folder with --out.") from error
    return done


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a stored evaluation, as they were written.

    Raises:
        InvalidInput: no such file, or not of `wmrl eval`.
    """
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not JSON ({error}): give the folder of a `wmrl eval`, or another one.") from error
    env = settings.get("env", {}) if isinstance(settings, dict) else None
    if not (isinstance(env, dict) and isinstance(env.get("data_dir"), (str, type(None)))):
        raise InvalidInput(f"{path} does not hold the settings of a `wmrl eval`: give its folder as it was, or another one.")
    return settings


@contextmanager
def _progress(console: Console, total: int, done: list[Trajectory]) -> Iterator[Any]:
    """A live line on a terminal; a line every tenth of the way elsewhere."""
    scores = [t.score for t in done if t.score is not None]
    count = len(scores)

    def note(trajectory: Trajectory) -> str:
        nonlocal count
        count += 1
        if trajectory.score is not None:
            scores.append(trajectory.score)
        return f"mean {100 * sum(scores) / len(scores):.1f}" if scores else ""

    if not console.is_terminal:

        def plain(trajectory: Trajectory) -> None:
            text = note(trajectory)
            if count == total or count % max(1, total // 10) == 0:
                console.print(f"{count}/{total} attempts  {text}")

        yield plain
        return
    columns = (TextColumn("attempts"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        line = bar.add_task("", total=total, completed=count, note="")
        yield lambda trajectory: bar.update(line, advance=1, note=f"{note(trajectory)}  last: {trajectory.task}")
