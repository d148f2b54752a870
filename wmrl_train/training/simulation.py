"""The wall clock of training steps, simulated: the lanes and the cohorts of `wmrl_train.episodes.roller`, with given durations.

No clock is read and nothing runs. Lanes are taken to be independent of each other (their own devices) and generation to cost
the same for every trajectory, however many are generated together.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from wmrl_envs.errors import InvalidInput
from wmrl_train.config import Config

MOST_PROGRAMS = 400_000  # the table of a dry run, some hundred simulations, takes about half a minute then


@dataclass(frozen=True)
class Durations:
    """Seconds of the stages: generate and predict one group (all turns of its trajectories), execute one program, learn one
    step.
    """

    generate_s: float
    predict_s: float
    execute_s: float
    learn_s: float

    @classmethod
    def per_program(cls, config: Config, seconds: Mapping[str, float]) -> Durations:
        """From seconds a program (`estimate` section of a configuration): a step of `config` has groups x group_size x
        turns.
        """
        programs = config.rollout.group_size * config.tasks.max_turns
        return cls(
            seconds["generate_s"] * programs,
            seconds["predict_s"] * programs,
            seconds["execute_s"],
            seconds["learn_s"] * programs * config.rollout.groups,
        )


@dataclass(frozen=True)
class _Cohort:
    """Groups that advance together, turn by turn (see `Roller`)."""

    id: int
    groups: int
    anchored: bool


class _Lanes:
    """When each lane is free again, and how long generation was busy."""

    def __init__(self, config: Config, durations: Durations, workers: int):
        self._n, self._turns, self._durations = config.rollout.group_size, config.tasks.max_turns, durations
        self.generation_s = self.busy_s = self._prediction_s = 0.0
        self._workers = [0.0] * workers
        self._queue: list[tuple[float, int, int, _Cohort]] = []  # ready at, order, turn
        self.finished: dict[int, float] = {}
        self._order = 0

    def add(self, cohort: _Cohort, ready_s: float, turn: int = 0) -> None:
        heapq.heappush(self._queue, (ready_s, self._order, turn, cohort))
        self._order += 1

    def run_until(self, needed: list[int]) -> float:
        """Advance until the cohorts `needed` are finished; when the last of them was. Others take their turns in between."""
        while self._queue:
            missing = [c for c in needed if c not in self.finished]
            if not missing and self._queue[0][0] >= max((self.finished[c] for c in needed), default=0.0):
                break
            self._turn(*heapq.heappop(self._queue))
        return max((self.finished[c] for c in needed), default=0.0)

    def _turn(self, ready_s: float, order: int, turn: int, cohort: _Cohort) -> None:
        taken_s = self._durations.generate_s * cohort.groups / self._turns
        made_s = self.generation_s = max(ready_s, self.generation_s) + taken_s
        self.busy_s += taken_s
        self._prediction_s = max(made_s, self._prediction_s) + self._durations.predict_s * cohort.groups / self._turns
        over_s = self._prediction_s
        for _ in range(self._n * cohort.groups if cohort.anchored else 0):
            ended_s = max(heapq.heappop(self._workers), made_s) + self._durations.execute_s
            heapq.heappush(self._workers, ended_s)
            over_s = max(over_s, ended_s)
        if turn + 1 < self._turns:
            self.add(cohort, over_s, turn + 1)
        else:
            self.finished[cohort.id] = over_s


def anchors_a_step(config: Config) -> int:
    """Anchor groups of a step (on average, rounded)."""
    return max(config.anchors.min_groups, round(config.anchors.fraction * config.rollout.groups))


def too_large(config: Config, steps: int = 100) -> str:
    """Why `steps` steps of `config` are not simulated, or "": it would take longer than anyone waits."""
    rollout, turns = config.rollout, config.tasks.max_turns
    steps = max(steps, 4 * (config.anchors.lag + 1))
    programs = steps * rollout.groups * rollout.group_size * turns
    if programs <= MOST_PROGRAMS:
        return ""
    return (
        f"{steps} steps of rollout.groups={rollout.groups}, rollout.group_size={rollout.group_size} and "
        f"tasks.max_turns={turns} (as many as anchors.lag={config.anchors.lag} needs) are {programs} programs, and at most "
        f"{MOST_PROGRAMS} are simulated"
    )


def simulate(config: Config, durations: Durations, steps: int = 100, workers: int | None = None) -> dict[str, float]:
    """Wall clock of a step, as the mean of the second half of `steps` and more, under `config`'s anchor fraction and lag.

    A step generates its anchor groups, each a cohort of its own, then all the others as one; every turn is generated when the
    one before is predicted and, in anchor groups, executed. It then waits for the anchors that started `anchors.lag` steps
    ago, and learns, which holds the generation lane.

    Args:
        config: of the run that is simulated.
        durations: of its stages, in seconds.
        steps: simulated; the second half of them is measured.
        workers: executions at a time (default: `execution.workers`, or 4 where that is null).

    Returns:
        `step_s`; `generation_busy`: share of the wall clock in which the generation lane generates or the learner holds it;
        `executions`: programs executed a step.

    Raises:
        InvalidInput: more programs than can be simulated while somebody waits (see `too_large`).
    """
    if why := too_large(config, steps):
        raise InvalidInput(f"{why}: choose smaller numbers.")
    anchors, groups = anchors_a_step(config), config.rollout.groups
    lanes = _Lanes(config, durations, min(workers or config.execution.workers or 4, _most_at_a_time(config)))
    clock_s, ids, anchors_of_step = 0.0, 0, []
    steps = max(steps, 4 * (config.anchors.lag + 1))
    for step in range(steps):
        if step == steps // 2:  # the first deferred anchors have long landed
            since_s, busy_before_s = clock_s, lanes.busy_s
        cohorts = [_Cohort(ids + i, 1, True) for i in range(anchors)]
        if anchors < groups:
            cohorts.append(_Cohort(ids + anchors, groups - anchors, False))
        ids += len(cohorts)
        for cohort in cohorts:
            lanes.add(cohort, clock_s)
        anchors_of_step.append([c.id for c in cohorts if c.anchored])
        due = step - config.anchors.lag
        needed = [c.id for c in cohorts if not c.anchored] + (anchors_of_step[due] if due >= 0 else [])
        clock_s = max(clock_s, lanes.run_until(needed), lanes.generation_s) + durations.learn_s
        lanes.generation_s = clock_s
        lanes.busy_s += durations.learn_s
    wall_s, busy_s = clock_s - since_s, lanes.busy_s - busy_before_s
    return {
        "step_s": wall_s / (steps - steps // 2),
        "generation_busy": busy_s / wall_s if wall_s else 1.0,
        "executions": float(anchors * config.rollout.group_size * config.tasks.max_turns),
    }


def _most_at_a_time(config: Config) -> int:
    """Executions under way at once, were there a sandbox for each."""
    return max(1, anchors_a_step(config) * config.rollout.group_size * (config.anchors.lag + 1))


def sandboxes_needed(config: Config, durations: Durations, tolerance: float = 0.05) -> int:
    """Fewest executions at a time that leave a step within `tolerance` of what it takes with as many as there are programs."""
    most = _most_at_a_time(config)
    allowed_s = (1 + tolerance) * simulate(config, durations, workers=most)["step_s"]
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if simulate(config, durations, workers=middle)["step_s"] <= allowed_s:
            high = middle
        else:
            low = middle + 1
    return low
