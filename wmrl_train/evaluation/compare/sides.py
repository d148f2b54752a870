"""What is compared: the folder of a run or of an evaluation, read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from wmrl_envs.errors import InvalidInput
from wmrl_train.episodes.store import Trajectory
from wmrl_train.evaluation.folder import EPISODES, OLD_ROBOT_EPISODES, SETTINGS, read_episodes, read_settings
from wmrl_train.run.rundir import RunDirectory

#: score of what can be paired within a task: a repeat, an initial state, or () for a task's mean
Units = dict[tuple[Any, ...], float]


@dataclass(frozen=True)
class Point:
    """An evaluation during a run: its mean score by split, and what had been paid before it."""

    step: int
    scores: dict[str, float]
    executions: float
    cpu_s: float


@dataclass(frozen=True)
class Side:
    """A run or an evaluation.

    Attributes:
        name: of its folder, unique among those compared.
        kind: "run" or "evaluation".
        settings: by dotted key.
        scores: task -> units; of a run those of its last evaluation.
        categories: task -> category, of an evaluation.
        statuses: how its programs or episodes ended, by number.
        points: evaluations of a run, in order. rewards: (steps, mean reward of each).
    """

    name: str
    kind: str
    settings: dict[str, Any]
    scores: dict[str, Units]
    categories: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    points: tuple[Point, ...] = ()
    rewards: tuple[list[int], list[float]] = ((), ())  # type: ignore[assignment]


def read_sides(folders: Sequence[Path]) -> list[Side]:
    """The folders, read, under names that tell them apart.

    Raises:
        InvalidInput: fewer than two, one twice, or one that holds neither a run nor an evaluation.
    """
    paths = [Path(os.path.abspath(folder)) for folder in folders]
    if len(paths) < 2 or len(set(paths)) < len(paths):
        raise InvalidInput("Nothing to compare: expected the folders of two or more different runs or evaluations.")
    return [_read(path, name) for path, name in zip(paths, _names(paths), strict=True)]


def _names(paths: Sequence[Path]) -> list[str]:
    """As much of the end of each path as tells them apart."""
    for depth in range(1, max(len(p.parts) for p in paths)):
        names = ["/".join(p.parts[-depth:]) for p in paths]
        if len(set(names)) == len(names):
            return names
    return [str(p) for p in paths]


def _read(path: Path, name: str) -> Side:
    if any((path / name).is_file() for name in (EPISODES, OLD_ROBOT_EPISODES, SETTINGS)):  # one that has no episode yet, too
        return _evaluation(path, name)
    if RunDirectory(path).has_run:
        try:
            return _run(path, name)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInput(
                f"The logs in {path} hold a record that is not of `wmrl train` ({type(error).__name__}: {error}): expected "
                "them as the run wrote them."
            ) from error
    raise InvalidInput(f"{path} holds neither a run (config.yaml) nor an evaluation ({EPISODES}): give the folder of one.")


def _evaluation(path: Path, name: str) -> Side:
    episodes = read_episodes(path)
    settings = read_settings(path / SETTINGS) if (path / SETTINGS).exists() else {}
    scores: dict[str, dict[tuple[Any, ...], list[float]]] = {}
    statuses: dict[str, int] = {}
    for episode in episodes:
        for status in episode.statuses:
            statuses[status] = statuses.get(status, 0) + 1
        if episode.score is not None:
            scores.setdefault(episode.task, {}).setdefault(_unit(episode), []).append(episode.score)
    means = {task: {unit: float(np.mean(found)) for unit, found in units.items()} for task, units in scores.items()}
    return Side(name, "evaluation", flat(settings), means, {e.task: e.category for e in episodes}, statuses)


def _unit(episode: Trajectory) -> tuple[Any, ...]:
    """Repeats of a robot's initial state are one unit: they resemble each other, or are copies."""
    return (episode.repeat,) if episode.init_state is None else ("start", episode.init_state)


def _run(path: Path, name: str) -> Side:
    directory = RunDirectory(path)
    try:
        config = yaml.safe_load(directory.config_file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise InvalidInput(f"{directory.config_file} cannot be read ({error}): expected the configuration of a run.") from None
    records = list(directory.read("metrics.jsonl"))
    points = list(_points(records))
    last = [r["eval"] for r in records if "eval" in r][-1:]
    splits = [split for result in last for split in result.values() if isinstance(split, Mapping)]
    scores = {task: {(): float(v)} for split in splits for task, v in split.get("by_task", {}).items() if v is not None}
    statuses: dict[str, int] = {}
    for split in splits:
        for status, count in split.get("statuses", {}).items():
            statuses[status] = statuses.get(status, 0) + int(count)
    steps = [(int(r["step"]), float(r["reward/mean"])) for r in records if r.get("reward/mean") is not None]
    rewards = ([s for s, _ in steps], [r for _, r in steps])
    return Side(name, "run", flat(config or {}), scores, {}, statuses, tuple(points), rewards)


def _points(records: Iterable[Mapping[str, Any]]) -> Iterator[Point]:
    executions = cpu_s = 0.0
    for record in records:
        if "eval" not in record:
            executions = float(record.get("ledger/executions_paid", executions))
            spent = [v for key, v in record.items() if key.startswith("ledger/") and key.endswith("_cpu_s")]
            cpu_s = float(sum(spent)) if spent else cpu_s
            continue
        splits = {name: split for name, split in record["eval"].items() if isinstance(split, Mapping)}
        scores = {name: float(split["avg"]) for name, split in splits.items() if split.get("avg") is not None}
        yield Point(int(record["step"]), scores, executions, cpu_s)


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted key.

    >>> flat({"a": {"b": 1, "c": [2]}, "d": {}})
    {'a.b': 1, 'a.c': [2]}
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def settings_that_differ(sides: Sequence[Side]) -> list[tuple[str, list[str]]]:
    """(key, its value on each side as JSON, "-" where there is none).

    The name of a run says nothing, and runs and evaluations are compared in the settings that both have.
    """
    keys = sorted(dict.fromkeys(key for side in sides for key in side.settings if key != "run.name"))
    if len({side.kind for side in sides}) > 1:
        keys = [key for key in keys if all(key in side.settings for side in sides)]
    shown = [(key, [json.dumps(s.settings[key], default=str) if key in s.settings else "-" for s in sides]) for key in keys]
    return [(key, values) for key, values in shown if len(set(values)) > 1]
