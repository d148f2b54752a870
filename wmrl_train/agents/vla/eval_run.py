"""An evaluation on LIBERO as a folder: `trials.jsonl` (continued after a kill), `report.json`, animations of some episodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.envs.libero import catalog
from wmrl_train.agents.vla.evaluation import LiberoReport, Trial, evaluate_policy, save_gif, summarize


@dataclass(frozen=True)
class LiberoEval:
    """What to evaluate: greedy episodes of each initial state of each task, `repeats` times.

    Attributes:
        videos: animations kept of the successes and of the failures of each task.
        env: further arguments of `LIBERO-Long-v0`.
    """

    suite: str = "libero_10"
    tasks: tuple[int | str, ...] = tuple(range(10))
    init_states: str | tuple[int, ...] = "all"
    repeats: int = 1
    videos: int = 2
    env: Any = None


def run(policy: Callable[[Any], np.ndarray], settings: LiberoEval, out: str | Path) -> LiberoReport:
    """Evaluate; episodes that `trials.jsonl` already has are not run again (those lost to the simulator are)."""
    import gymnasium

    import wmrl_envs  # noqa: F401

    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    log = out / "trials.jsonl"
    trials = [Trial(**json.loads(line)) for line in log.read_text().splitlines()] if log.is_file() else []
    trials = [t for t in trials if not t.infra]
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
    (out / "report.json").write_text(json.dumps(report.as_dict(), indent=2))
    return report


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
