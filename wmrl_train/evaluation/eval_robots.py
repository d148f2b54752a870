"""`wmrl eval` of robots: a policy by name, its folder, its success rates."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from wmrl_envs.envs.libero import catalog
from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.vla.play import Acts
from wmrl_train.episodes.store import Trajectory
from wmrl_train.evaluation import folder as folders
from wmrl_train.evaluation.folder import Folder, evaluation_folder, progress
from wmrl_train.evaluation.policies import CallableRobot
from wmrl_train.evaluation.rates import RobotReport, summarize
from wmrl_train.evaluation.robots import Pictures, RobotStart, evaluate_robot, save_gif
from wmrl_train.run.terminal import Terminal

MOST_SIMULATORS = 4  # at once where nobody says how many: each takes about a gigabyte


@dataclass(frozen=True)
class RobotEval:
    """What to evaluate: greedy episodes of each initial state of each task, `repeats` times.

    Attributes:
        agent: what the policy is called. An evaluation is continued with the same agent, suite and env only.
        tasks: indices or names. init_states: a split, indices, or an .npz of start states.
        videos: animations kept of the successes and of the failures of each task.
        env: further arguments of `LIBERO-Long-v0`.
        workers: simulators at once; None: one a core, four at most, for a policy that acts in several episodes at once.
    """

    agent: str = ""
    suite: str = "libero_10"
    tasks: tuple[int | str, ...] = tuple(range(10))
    init_states: str | tuple[int, ...] = "all"
    repeats: int = 1
    videos: int = 2
    env: Mapping[str, Any] = field(default_factory=dict)
    workers: int | None = None

    def fixed(self) -> dict[str, Any]:
        """What all episodes of a folder have in common (tasks, states and repeats may grow)."""
        own_states = {"init_states": self.init_states} if self._own_states else {}
        env = {name: str(value) for name, value in (dict(self.env) | own_states).items()}
        return {"agent": self.agent, "suite": self.suite, "env": env, "source": folders.fingerprint(self.agent)}

    def arguments(self, task: Any) -> dict[str, Any]:
        """Of the environment of a task. Its initial states are the official ones, or those of the file."""
        states = self.init_states if self._own_states else "all"
        return {"task": task.index, "suite": self.suite, "init_states": states, **self.env}

    @property
    def _own_states(self) -> bool:
        return isinstance(self.init_states, str) and self.init_states.endswith(".npz")


def parse_tasks(text: str | None, suite: str) -> tuple[int | str, ...]:
    """Tasks given as indices or names with commas between; None: all of the suite."""
    if text is None:
        return tuple(range(len(catalog.tasks(suite))))
    chosen = tuple(catalog.index_or_name(t) for t in map(str.strip, text.split(",")) if t)
    if not chosen:
        raise InvalidInput(f"--tasks {text!r}: expected indices or names of tasks with commas between.")
    return chosen


def run(settings: RobotEval, *, out: Path | None, execute_horizon: int | None, device: str, as_json: bool) -> RobotReport:
    """Evaluate an agent, or continue, and print its success rates.

    Args:
        settings: of the evaluation. The agent is the folder of a `VLAPolicy`, or python:module:function with
            observation -> actions (k, 7).
        out: folder of the results; None: one named after the agent.
        execute_horizon: actions of a chunk that are executed; None: the policy's own.
        device: of the policy.
        as_json: print JSON instead of a table.
    """
    for name, value in (("k", settings.repeats), ("workers", settings.workers)):
        if value is not None and value < 1:
            raise InvalidInput(f"--{name} {value}: expected at least 1.")
    policy, env = _policy(settings, execute_horizon, device)
    settings = replace(settings, env=env)
    report = evaluate(policy, settings, path := out or folders.default_folder(settings.agent, settings.suite))
    if as_json:
        sys.stdout.write(json.dumps(report.as_dict()) + "\n")
        return report
    console = Terminal(width=None if sys.stdout.isatty() else 140)
    console.print(table(report))
    for name, rate in report.rates.items():
        console.print(f"{name}: {rate}", highlight=False)
    if report.copies:
        console.print("All repeats of a start were the same episode: each start counts once.", highlight=False)
    console.print("versions: " + ", ".join(f"{k} {v}" for k, v in report.versions.items()), highlight=False)
    console.print(f"{path}: {folders.EPISODES}, {folders.TABLE} and animations", highlight=False, soft_wrap=True)
    return report


def _policy(settings: RobotEval, execute_horizon: int | None, device: str) -> tuple[Acts, dict[str, Any]]:
    """The policy by its name, and the arguments of the environment that it was trained for."""
    if settings.agent.startswith("python:"):
        from wmrl_train.evaluation.named import function_of

        if execute_horizon is not None:
            raise InvalidInput("--execute-horizon says nothing for a function: it returns the actions to be executed.")
        policy = CallableRobot(function_of(settings.agent.removeprefix("python:")))
        if not policy.parallel and (settings.workers or 1) > 1:
            raise InvalidInput(
                f"--workers {settings.workers}: the agent has reset(), so its episodes run one after the other; leave "
                f"--workers out."
            )
        return policy, dict(settings.env)
    from wmrl_train.agents.vla.policy import VLAPolicy

    loaded = VLAPolicy.load(settings.agent)
    loaded.model.to(device)
    if execute_horizon is not None:
        loaded = replace(loaded, execute_horizon=execute_horizon)
    own = {"image_size": loaded.model.config.dino.image_size, "orientation": loaded.orientation}
    return loaded, dict(settings.env) | own | {"action_chunk": loaded.execute_horizon}


def evaluate(policy: Acts, settings: RobotEval, path: Path) -> RobotReport:
    """Evaluate in a folder; episodes that it has are not run again (those lost to the simulator are).

    Args:
        policy: a `VLAPolicy`, or a `CallableRobot`.
        settings: of the evaluation.
        path: of the folder.

    Raises:
        InvalidInput: the folder is in use or holds another evaluation. InfrastructureError: not one episode was scored.
    """
    console, began = Terminal(stderr=True), time.perf_counter()
    with evaluation_folder(path, settings.fixed(), console) as folder:
        chosen = [catalog.find_task(wanted, settings.suite) for wanted in settings.tasks]
        tasks = {task.name: (task, catalog.start_states(task, settings.init_states).indices) for task in chosen}
        wanted = [(name, int(i), r) for name, (_, indices) in tasks.items() for r in range(settings.repeats) for i in indices]
        done = folder.of(set(wanted))
        if folder.done:
            console.print(f"continuing {path}: {len(done)} of {len(wanted)} episodes are there already")
        there = {t.key for t in done}
        missing = [RobotStart(*key) for key in wanted if key not in there]
        ran: list[Trajectory] = []
        if missing:
            with progress(console, len(wanted), done) as advance:
                make = _maker(settings, {name: task for name, (task, _) in tasks.items()})
                keep = _keeper(folder, settings.videos, advance)
                ran = evaluate_robot(policy, make, missing, workers=_workers(policy, settings), on_episode=keep)
        report = summarize([*done, *ran])
        cost = {
            "cost": _cost([*done, *ran]),
            "cost_of_this_run": _cost(ran) | {"wall_s": round(time.perf_counter() - began, 2)},
        }
        folder.write_table({"settings": settings.fixed(), "k": settings.repeats} | report.as_dict() | cost)
    folders.refuse_nothing_scored([*done, *ran])
    return report


def _workers(policy: Acts, settings: RobotEval) -> int:
    if settings.workers is not None:
        return settings.workers
    return 1 if isinstance(policy, CallableRobot) else min(os.cpu_count() or 1, MOST_SIMULATORS)


def _maker(settings: RobotEval, tasks: Mapping[str, Any]) -> Callable[[str], Any]:
    import gymnasium

    import wmrl_envs  # noqa: F401  (registers the environments)

    return lambda name: gymnasium.make("LIBERO-Long-v0", **settings.arguments(tasks[name]))


def _keeper(folder: Folder, videos: int, advance: Callable[[Trajectory], None]) -> Callable[[Trajectory, Pictures], None]:
    """Stores each episode, and animations of the first successes and failures of each task."""
    kept: Counter[tuple[str, bool]] = Counter()

    def keep(trajectory: Trajectory, frames: Pictures) -> None:
        folder.add(trajectory)
        success = trajectory.score == 1.0
        if frames and trajectory.failure is None and kept[trajectory.task, success] < videos:
            kept[trajectory.task, success] += 1
            word = "success" if success else "failure"
            save_gif(frames, folder.path / f"{trajectory.task}-{trajectory.init_state:02d}-{trajectory.repeat}-{word}.gif")
        advance(trajectory)

    return keep


def _cost(trajectories: list[Trajectory]) -> dict[str, float]:
    """Simulator steps, and the seconds they took."""
    turns = [turn for t in trajectories for turn in t.turns]
    return {
        "episodes": len(trajectories),
        "steps": sum(t.steps or 0 for t in trajectories),
        "simulation_s": round(sum(turn.wall_s for turn in turns), 2),
    }


def table(report: RobotReport) -> Table:
    """The report as a rich table."""
    title = f"LIBERO success, 95 % Wilson intervals ({report.infra_failures} episodes lost)"
    result = Table("task", "overall", "seen", "unseen", title=title)
    for task, rates in report.tasks.items():
        result.add_row(task, *(str(rates[name]) for name in ("overall", "seen", "unseen")))
    result.add_row("all", *(str(report.rates[name]) for name in ("overall", "seen", "unseen")), style="bold")
    return result
