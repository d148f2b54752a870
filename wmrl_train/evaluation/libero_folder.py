"""An evaluation on LIBERO as a folder: `settings.json`, `trials.jsonl` (continued after a kill), `report.json`, animations."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.envs.libero import catalog
from wmrl_envs.errors import InvalidInput
from wmrl_train.evaluation.libero import LiberoReport, Trial, evaluate_policy, save_gif, summarize


@dataclass(frozen=True)
class LiberoEval:
    """What to evaluate: greedy episodes of each initial state of each task, `repeats` times.

    Attributes:
        agent: what the policy is called; an evaluation is continued with the same agent, suite and env only.
        videos: animations kept of the successes and of the failures of each task.
        env: further arguments of `LIBERO-Long-v0`.
    """

    agent: str = ""
    suite: str = "libero_10"
    tasks: tuple[int | str, ...] = tuple(range(10))
    init_states: str | tuple[int, ...] = "all"
    repeats: int = 1
    videos: int = 2
    env: Any = None


def parse_tasks(text: str | None, suite: str) -> tuple[int | str, ...]:
    """Tasks given as indices or names with commas between; None: all of the suite."""
    if text is None:
        return tuple(range(len(catalog.tasks(suite))))
    chosen = tuple(catalog.index_or_name(t) for t in map(str.strip, text.split(",")) if t)
    if not chosen:
        raise InvalidInput(f"--tasks {text!r}: expected indices or names of tasks with commas between.")
    return chosen


def evaluate_agent(
    settings: LiberoEval, out: Path | None, *, execute_horizon: int | None, device: str, as_json: bool
) -> LiberoReport:
    """What `wmrl eval --env LIBERO-Long-v0` does: the agent by name, the evaluation, its table.

    An agent is the folder of a `VLAPolicy`, or python:module:function with observation -> actions (k, 7).
    """
    from rich.console import Console

    if settings.repeats < 1:
        raise InvalidInput(f"--k {settings.repeats}: expected at least 1.")
    env = dict(settings.env or {})
    if settings.agent.startswith("python:"):
        from wmrl_train.evaluation.policies import function_of

        if execute_horizon is not None:
            raise InvalidInput("--execute-horizon says nothing for a function: it returns the actions to be executed.")
        policy: Callable[[Any], Any] = function_of(settings.agent.removeprefix("python:"))
    else:
        from wmrl_train.agents.vla.policy import VLAPolicy

        loaded = VLAPolicy.load(settings.agent)
        loaded.model.to(device)
        if execute_horizon is not None:
            loaded = replace(loaded, execute_horizon=execute_horizon)
        env |= {"image_size": loaded.model.config.dino.image_size, "orientation": loaded.orientation}
        env["action_chunk"] = loaded.execute_horizon
        policy = loaded
    folder = out or Path("runs") / re.sub(r"[^\w.-]+", "-", f"eval-{settings.agent}-{settings.suite}")[:80].strip("-")
    report = run(policy, replace(settings, env=env), folder)
    if as_json:
        sys.stdout.write(json.dumps(report.as_dict()) + "\n")
        return report
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table(report))
    for name, rate in report.rates.items():
        console.print(f"{name}: {rate}", highlight=False)
    console.print("versions: " + ", ".join(f"{k} {v}" for k, v in report.versions.items()), highlight=False)
    console.print(f"{folder}: trials.jsonl, report.json and animations", highlight=False, soft_wrap=True)
    return report


def run(policy: Callable[[Any], np.ndarray], settings: LiberoEval, out: str | Path) -> LiberoReport:
    """Evaluate; episodes that `trials.jsonl` already has are not run again (those lost to the simulator are)."""
    import gymnasium

    import wmrl_envs  # noqa: F401

    out = Path(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"Cannot write to {out} ({error.strerror}): give a folder of yours with --out.") from None
    trials = _resume(out, settings)
    for wanted in settings.tasks:
        task = catalog.find_task(wanted, settings.suite)
        indices = catalog.start_states(task, settings.init_states).indices
        done = {(t.init_state, t.repeat) for t in trials if t.task == task.name}
        missing = [(i, r) for i in indices for r in range(settings.repeats) if (i, r) not in done]
        if not missing:
            continue
        env = gymnasium.make("LIBERO-Long-v0", task=task.index, suite=settings.suite, init_states="all", **(settings.env or {}))
        try:
            trials += _episodes(env, policy, missing, settings.videos, out)
        finally:
            env.close()
    report = summarize(trials)
    (out / "report.json").write_text(json.dumps({"settings": _fixed(settings)} | report.as_dict(), indent=2))
    return report


def _fixed(settings: LiberoEval) -> dict[str, Any]:
    """What all trials of a folder have in common (tasks, states and repeats may grow)."""
    return {"agent": settings.agent, "suite": settings.suite, "env": {k: str(v) for k, v in (settings.env or {}).items()}}


def _resume(out: Path, settings: LiberoEval) -> list[Trial]:
    """The episodes that are done; refuses a folder of other settings, drops a last line that a kill left unfinished."""
    path, log = out / "settings.json", out / "trials.jsonl"
    if path.is_file() and log.is_file() and (theirs := _read_settings(path)) != (mine := _fixed(settings)):
        key = next(k for k in mine | theirs if k not in theirs or theirs[k] != mine.get(k))
        raise InvalidInput(
            f"{out} holds an evaluation with {key}={theirs.get(key)!r}, now {key}={mine.get(key)!r}: give another folder with --out, "
            "or the same settings to continue it."
        )
    path.write_text(json.dumps(_fixed(settings), indent=2))
    if not log.is_file():
        return []
    text = log.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    os.truncate(log, len(whole))
    try:
        trials = [Trial(**json.loads(line)) for line in whole.splitlines()]
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput(f"{log} holds a line that is no trial ({error}): give another folder with --out.") from None
    return [t for t in trials if not t.infra]


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInput(f"{path} holds no settings of an evaluation: give another folder with --out.")
    return found


def _episodes(env: Any, policy: Any, missing: Iterable[tuple[int, int]], videos: int, out: Path) -> list[Trial]:
    kept = {True: 0, False: 0}
    trials = []

    def note(trial: Trial, frames: list[np.ndarray]) -> None:
        with (out / "trials.jsonl").open("a") as file:
            file.write(json.dumps(asdict(trial)) + "\n")
        if frames and not trial.infra and kept[trial.success] < videos:
            kept[trial.success] += 1
            name = f"{trial.task}-{trial.init_state:02d}-{trial.repeat}-{'success' if trial.success else 'failure'}.gif"
            save_gif(frames, out / name)

    for index, repeat in missing:
        trials += evaluate_policy(env, policy, [index], first_repeat=repeat, on_episode=note)
    return trials


def table(report: LiberoReport) -> Any:
    """The report as a rich table."""
    from rich.table import Table

    result = Table(
        "task",
        "overall",
        "seen",
        "unseen",
        title=f"LIBERO success, 95 % Wilson intervals ({report.infra_failures} episodes lost)",
    )
    for task, rates in report.tasks.items():
        result.add_row(task, *(str(rates[name]) for name in ("overall", "seen", "unseen")))
    result.add_row("all", *(str(report.rates[name]) for name in ("overall", "seen", "unseen")), style="bold")
    return result
