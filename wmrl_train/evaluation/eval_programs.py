"""`wmrl eval` of programs: an agent by name, its folder, its table."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from wmrl_envs.errors import InvalidInput
from wmrl_envs.execution.base import ExecutionLimits
from wmrl_envs.tasks.choose import choose_tasks
from wmrl_train.episodes.store import Trajectory
from wmrl_train.evaluation import folder as folders
from wmrl_train.evaluation.folder import evaluation_folder, progress
from wmrl_train.evaluation.programs import EvalResult, evaluate
from wmrl_train.evaluation.table import Row, Table
from wmrl_train.run.terminal import Terminal


@dataclass(frozen=True)
class Settings:
    """What an evaluation depends on, `k` aside (which may change): written next to its results and compared on resuming.

    Attributes:
        agent: its name, see `named.build`. source: a fingerprint of the module of a `python:` agent.
        tasks: a split or slugs; may change.
        seed: of the samples. temperature: of a model's samples. max_new_tokens: of an answer.
        sandbox: where programs run.
        model: name of the model on a server.
        env: arguments of the environment that the user gave.
    """

    agent: str
    tasks: str
    seed: int = 0
    sandbox: str = "auto"
    temperature: float = 1.0
    max_new_tokens: int | None = None
    model: str | None = None
    env: dict[str, Any] = field(default_factory=dict)
    source: str | None = None


def run(settings: Settings, *, k: int, out: Path | None, workers: int | None, as_json: bool) -> EvalResult:
    """Evaluate, or continue, and print the table. Every finished episode is on disk before the next one counts.

    Args:
        settings: of the evaluation.
        k: episodes a task.
        out: folder of the results; None: one named after agent and tasks.
        workers: programs executed at a time.
        as_json: print JSON instead of a table.
    """
    console = Terminal(stderr=True)
    _check(settings, k, workers)
    tasks, missing = choose_tasks(settings.tasks, settings.env.get("data_dir"))
    if missing:
        console.print(
            f"[yellow]not prepared, left out:[/] {len(missing)} tasks of {settings.tasks} (`wmrl tasks prepare` says how)"
        )
    source = folders.fingerprint(settings.agent)
    settings = replace(settings, source=source)
    path = out or folders.default_folder(settings.agent, settings.tasks, source and source[:6])
    with evaluation_folder(path, asdict(settings), console, may_change=("tasks",)) as folder:
        result = _evaluate(settings, tasks, k, workers, folder, console)
        report = as_dict(result, settings, k)
        folder.write_table(report)
    show(result, report, as_json, f"{settings.agent} on {settings.tasks}", k)
    whole, now = result.cost, result.cost_now
    console.print(
        f"{whole.executions} programs executed, {whole.execution_s:.0f} s of their own time; of these {now.executions} in "
        f"{now.execution_s:.0f} s by this run, which took {result.wall_s:.0f} s"
    )
    console.print(f"{path / folders.EPISODES}: every episode; {path / folders.TABLE}: this table")
    return result


def _evaluate(
    settings: Settings, tasks: list[str], k: int, workers: int | None, folder: folders.Folder, console: Console
) -> EvalResult:
    from wmrl_envs.execution import make_sandbox
    from wmrl_train.evaluation.named import build

    wanted = {(task, repeat) for task in tasks for repeat in range(k)}
    done = folder.of(wanted)
    if folder.done:
        console.print(f"continuing {folder.path}: {len(done)} of {len(wanted)} episodes are there already")
    policy = build(
        settings.agent,
        temperature=settings.temperature,
        max_new_tokens=settings.max_new_tokens,
        turns=settings.env.get("max_turns"),
        model=settings.model,
    )
    try:
        with make_sandbox(settings.sandbox) as box, progress(console, len(wanted), done) as advance:

            def finished(trajectory: Trajectory) -> None:
                folder.add(trajectory)
                advance(trajectory)

            return evaluate(
                policy.policy,
                tasks,
                k,
                sandbox=box,
                env_kwargs=environment_arguments(policy.env_kwargs, settings.env),
                seed=settings.seed,
                workers=workers,
                progress=finished,
                done=done,
            )
    finally:
        policy.close()


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

    def rounded(cost: Mapping[str, float]) -> dict[str, float]:
        return {name: round(value, 2) for name, value in cost.items()}

    gap = {} if result.relative_gap is None else {"relative_gap": result.relative_gap}
    return {
        "agent": settings.agent,
        "tasks_of": settings.tasks,
        "k": k,
        **result.table.as_dict(),
        **gap,
        "cost": rounded(asdict(result.cost)),
        "cost_of_this_run": rounded(asdict(result.cost_now) | {"wall_s": result.wall_s}),
    }


def show(result: EvalResult, report: dict[str, Any], as_json: bool, title: str, k: int) -> None:
    """Print the result on standard output.

    Args:
        result: with the table.
        report: what JSON is made of.
        as_json: print `report` as JSON instead of the table.
        title: of the table.
        k: episodes a task.
    """
    if as_json:
        sys.stdout.write(json.dumps(report) + "\n")
        return
    console = Terminal(width=None if sys.stdout.isatty() else 140)
    console.print(rich_table(result.table, title, k, console.width))
    if result.relative_gap is not None:
        console.print(f"relative performance gap: {result.relative_gap:.3f}")


def rich_table(table: Table, title: str, k: int, width: int = 140) -> RichTable:
    """Percent, as reports have it; "failed programs" counts those that did not end well. A narrow terminal has fewer
    columns.
    """
    heads = ["task", f"avg@{k}", f"{table.confidence:.0%} interval", f"best@{k}", f"all@{k}", "valid", "episodes", "not scored",
             "failed programs"]  # fmt: skip
    shown = [i for i in range(len(heads)) if width >= _FROM_WIDTH.get(i, 0)]
    view = RichTable(title=title, title_justify="left")
    for i in shown:
        right = 0 < i < len(heads) - 1
        view.add_column(heads[i], justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in table.tasks:
        view.add_row(*_cells(row, shown))
    view.add_section()
    for row in table.categories:
        view.add_row(*_cells(row, shown, f"{row.name} ({row.tasks} {'task' if row.tasks == 1 else 'tasks'})"), style="bold")
    view.add_section()
    view.add_row(*_cells(table.overall, shown, "mean of categories"), style="bold green")
    return view


_FROM_WIDTH = {3: 90, 4: 90, 6: 100, 7: 110, 8: 120}  # columns by number: characters of the terminal from which they are shown


def _cells(row: Row, shown: Sequence[int], name: str | None = None) -> list[str]:
    def percent(value: float) -> str:
        return "-" if value != value else f"{100 * value:.1f}"

    cells = [
        name or row.name,
        percent(row.avg),
        "-" if row.low != row.low else f"{percent(row.low)} - {percent(row.high)}",
        percent(row.best),
        percent(row.all),
        percent(row.valid),
        str(row.episodes),
        str(row.failed) if row.failed else "",
        ", ".join(f"{count} {status}" for status, count in row.statuses.items() if status != "ok"),
    ]
    return [cells[i] for i in shown]
