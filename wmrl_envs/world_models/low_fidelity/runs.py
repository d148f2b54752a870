"""Running a program on the reduced copy of its task, and once more where the first run says more about the copy than about the
program.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wmrl_envs.context import TaskContext
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.execution.base import ExecutionLimits, Job, Sandbox
from wmrl_envs.outcome import Execution, ExecutionStatus, Outcome
from wmrl_envs.tasks.competition import Competition, load_competition
from wmrl_envs.tasks.reduced import Reduced, reduce_competition
from wmrl_envs.world_models.low_fidelity.sizes import next_prime, wants_rows, with_sizes

log = logging.getLogger(__name__)

LARGER = 4  # times as many rows on the copy that confirms an error which may come of too few
LEAST_GROWTH = (
    0.3  # exponent of the slowest growth with rows: a reduced run is ended when even that would exceed the time limit
)
WAIT = 3.0  # times the limit on CPU seconds that a run may take by the clock: predictions stand back behind other work
#: Equal programs give equal predictions; several workers of a program's own would cost more than so few rows are worth.
_SEEDED = "__import__('random').seed(0); __import__('numpy').random.seed(0)\n"
_ALONE = {"LOKY_MAX_CPU_COUNT": "1"}


@dataclass(frozen=True)
class Task:
    """A competition with its reduced copies, as contexts name it. `max_rows`: training rows that full execution loads."""

    key: tuple[Any, ...]
    competition: Competition
    copy: Reduced
    max_rows: int | None
    scaffold: dict[str, Any] | None
    effective_s: float


@dataclass(frozen=True)
class Seen:
    """What became of a program on a reduced copy.

    Attributes:
        run: the run that counts.
        outcome: as graded there.
        reduced: the copy.
        factor: times as many rows there are at full size, mean of training and test rows.
        all_rows: training rows there.
        cpu_s: CPU seconds of all its runs, with what was set up for it.
        wall_s: seconds of the same.
    """

    run: Execution
    outcome: Outcome
    reduced: Reduced
    factor: float
    all_rows: int
    cpu_s: float
    wall_s: float
    cached: bool = False

    @property
    def accepted(self) -> bool:
        """Whether its submission was scored."""
        return self.outcome.status is ExecutionStatus.OK


class Reducer:
    """Makes reduced copies and runs programs on them. The arguments are those of `LowFidelityWorldModel`."""

    def __init__(
        self,
        rows: int,
        test_rows: int,
        sandbox: str | Sandbox,
        seed: int,
        data_dir: str | Path | None,
        limits: ExecutionLimits,
        nice: int,
    ):
        for name, value in (("rows", rows), ("test_rows", test_rows)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 10:
                raise InvalidInput(f"LowFidelityWorldModel({name}={value!r}): expected a whole number of rows of at least 10.")
        self._sizes, self._seed, self._data_dir = (next_prime(rows), next_prime(test_rows)), seed, data_dir
        self._limits, self._nice = limits, nice
        self._given, self._made = sandbox, None if isinstance(sandbox, str) else sandbox
        self._competitions: dict[tuple[str, str | None], Competition] = {}
        self._told: set[str] = set()
        self._closed = False
        self._lock = threading.Lock()

    @property
    def sandbox(self) -> Sandbox:
        """Where programs run; made on first use."""
        with self._lock:
            if self._closed:
                raise InvalidInput("This LowFidelityWorldModel is closed.")
            if self._made is None:
                from wmrl_envs.execution.factory import make_sandbox

                self._made = make_sandbox(str(self._given))
            return self._made

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if isinstance(self._given, str) and self._made is not None:
                self._made.close()

    def limits_of(self, context: TaskContext) -> ExecutionLimits:
        """At full size."""
        seconds = min(self._limits.effective_s, context.timeout_s)
        return replace(self._limits, timeout_s=seconds, cpu_s=None)

    def task(self, context: TaskContext) -> Task:
        """The task of a context with its reduced copy. Raises `InvalidInput` if there can be none."""
        competition = self._competition(context)
        names = dict(context.scaffold_names) if context.scaffold else None
        copy = reduce_competition(competition, *self._sizes, self._seed)
        loaded = None if names is None else int(names["rows"])
        max_rows = loaded if loaded is not None and loaded < copy.all_rows else None
        if max_rows is not None:
            copy = reduce_competition(competition, *self._sizes, self._seed, max(max_rows, 10))
        if copy.whole and competition.slug not in self._told:
            self._told.add(competition.slug)
            log.warning(
                "%s has %d training and %d test rows, no more than a reduced copy would: each prediction is a full execution.",
                competition.slug, copy.all_rows, copy.all_test_rows,
            )  # fmt: skip
        seconds = self.limits_of(context).effective_s
        key = (competition.slug, str(copy.competition.public_dir), context.scaffold, max_rows, seconds)
        return Task(key, competition, copy, max_rows, names, seconds)

    def _competition(self, context: TaskContext) -> Competition:
        where = context.data_dir if self._data_dir is None else str(self._data_dir)
        key = (context.task, where)
        if key not in self._competitions:
            self._competitions[key] = load_competition(context.task, where)
        return self._competitions[key]

    def run(self, code: str, task: Task) -> Seen:
        """Run a program. Raises `InfrastructureError` if the sandbox fails."""
        seen = self._once(code, task, task.copy)
        if seen.accepted or seen.reduced.whole:
            return seen
        sized = with_sizes(code, _sizes(task, task.copy))
        if sized is not None:  # it knows how many rows there are
            again = self._once(sized, task, task.copy)
            seen = _both(again if again.accepted else seen, seen, again)
        if seen.outcome.status is ExecutionStatus.AGENT_ERROR and wants_rows(_last_line(seen.run.stderr)):
            again = self._once(code, task, self._larger(task))
            seen = _both(again, seen, again)
        return seen

    def _larger(self, task: Task) -> Reduced:
        rows, test_rows = (next_prime(LARGER * n) for n in self._sizes)
        return reduce_competition(task.competition, rows, test_rows, self._seed, task.max_rows)

    def _once(self, code: str, task: Task, copy: Reduced) -> Seen:
        from wmrl_envs.tasks.grading import grade

        factor = ((task.max_rows or copy.all_rows) / copy.rows + copy.all_test_rows / copy.test_rows) / 2
        run = self.sandbox.run_job(self._job(code, task, copy, factor))
        outcome = grade(copy.competition, run, limits=replace(self._limits, timeout_s=task.effective_s, cpu_s=None))
        if outcome.is_infra_error:
            raise InfrastructureError(f"A prediction for {task.competition.slug} could not be graded: {outcome.error}")
        lean = replace(run, submission=None, setup_cpu_s=0.0)
        return Seen(lean, outcome, copy, factor, task.max_rows or copy.all_rows, run.cpu_s + run.setup_cpu_s, run.wall_s)

    def _job(self, code: str, task: Task, copy: Reduced, factor: float) -> Job:
        seconds = task.effective_s / max(factor, 1.0) ** LEAST_GROWTH
        limits = replace(self._limits, cpu_s=seconds, timeout_s=WAIT * task.effective_s)
        folder = copy.competition.public_dir
        if task.scaffold is None:
            return Job(code, folder, limits, _SEEDED, _ALONE, nice=self._nice)
        from wmrl_envs.tasks import scaffold

        max_rows = task.max_rows if copy.whole else None  # a copy has no more rows than are to be loaded
        prelude = scaffold.PRELUDE if copy.whole else scaffold.prelude(task.scaffold)
        return Job(
            code, folder, limits, prelude, scaffold.environment(task.competition, max_rows) | _ALONE, hold=True, nice=self._nice
        )


def _both(counts: Seen, first: Seen, second: Seen) -> Seen:
    return replace(counts, cpu_s=first.cpu_s + second.cpu_s, wall_s=first.wall_s + second.wall_s)


def _sizes(task: Task, copy: Reduced) -> dict[int, int]:
    """Row counts at full size -> on the copy."""
    sizes = {task.max_rows or copy.all_rows: copy.rows, copy.all_test_rows: copy.test_rows}
    return {full: reduced for full, reduced in sizes.items() if full != reduced}


def _last_line(stderr: str) -> str:
    return stderr.rstrip().rsplit("\n", 1)[-1]
