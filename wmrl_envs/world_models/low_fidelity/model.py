"""`LowFidelityWorldModel`: predicts what execution would report by executing the program on a reduced copy of its task.

It sees every crash and needs neither a language model nor rules; what it gets wrong is what fewer rows change: scores are a
little lower, more so for programs that need many rows, which the corrections are there for. It costs CPU seconds of the
sandbox, told in `Outcome.cpu_s`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from cachetools import LRUCache

from wmrl_envs.context import TaskContext
from wmrl_envs.errors import InvalidInput
from wmrl_envs.execution.base import ExecutionLimits, Sandbox
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution
from wmrl_envs.tasks import feedback
from wmrl_envs.world_models.low_fidelity.growth import Growth
from wmrl_envs.world_models.low_fidelity.runs import Reducer, Seen
from wmrl_envs.world_models.low_fidelity.telling import predicted

REMEMBERED = 4096  # programs whose prediction is free when they come again
PRIOR_RUNS = 40.0  # executed programs that P(valid) known beforehand weighs
P_VALID = {True: 0.98, False: 0.03}  # by whether the reduced run was accepted
INTERPRETER_S, INTERPRETER_MB = 0.03, 110.0  # of an empty program


def _seconds() -> Growth:
    return Growth(exponent=0.6, sd=0.65, floor=INTERPRETER_S)  # of 112 whole scripts 0.5, of 151 programs of the scaffold 0.8


def _memory() -> Growth:
    return Growth(exponent=0.5, sd=0.5, floor=INTERPRETER_MB)


class LowFidelityWorldModel:
    """An `OutcomeModel` that executes programs on a reduced copy of their competition, in the same sandbox as ever.

    The copy is made on first use. A task with no more rows than asked for is executed as it is, which is said once; one that
    cannot be reduced raises `InvalidInput`. A program that was predicted before is answered from memory, at no cost.

    Args:
        rows: about how many training rows a copy has; in fact the next prime number, so that a program that names a round
            number of rows meets it as it does at full size.
        test_rows: about how many test rows a copy has, likewise.
        sandbox: "auto", "process", "docker", or a `Sandbox`, which stays the caller's to close.
        seed: of the drawn rows.
        data_dir: folder of prepared competitions; default: where the environment that asks has them, else the usual one.
        workers: predictions at a time; None: as many as the sandbox has room for.
        limits: of a program at full size; `timeout_s` of the task's context is the shorter one if it is.
        nice: how far predictions stand back behind executions for the processor, 0 to 19.
    """

    def __init__(
        self,
        rows: int = 500,
        test_rows: int = 300,
        sandbox: str | Sandbox = "auto",
        seed: int = 0,
        *,
        data_dir: str | Path | None = None,
        workers: int | None = None,
        limits: ExecutionLimits | None = None,
        nice: int = 10,
    ):
        if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
            raise InvalidInput(
                f"LowFidelityWorldModel(workers={workers!r}): expected a number of predictions of at least 1, or None."
            )
        if isinstance(nice, bool) or not isinstance(nice, int) or not 0 <= nice <= 19:
            raise InvalidInput(f"LowFidelityWorldModel(nice={nice!r}): expected a whole number from 0 to 19.")
        self._reducer = Reducer(rows, test_rows, sandbox, seed, data_dir, limits or ExecutionLimits(), nice)
        self._workers = workers
        self._pool: ThreadPoolExecutor | None = None
        self._seen: LRUCache[tuple[Any, ...], Future[Seen]] = LRUCache(REMEMBERED)
        self._lock = threading.Lock()
        self._valid = {True: [0.0, 0.0], False: [0.0, 0.0]}  # reduced run accepted -> [really valid, executed]
        self.seconds, self.memory = _seconds(), _memory()
        self._cpu_s, self._runs = 0.0, 0

    def predict(self, solutions: Sequence[Solution], contexts: Sequence[TaskContext]) -> list[Outcome]:
        """One predicted outcome a solution, in order; `cpu_s` is what it cost, now or (`cached`) when it came first.

        Raises:
            InvalidInput: a task that cannot be reduced, or lengths that differ. DataNotBuilt: a task that is not prepared.
            InfrastructureError: the sandbox failed.
        """
        if len(solutions) != len(contexts):
            raise InvalidInput(f"{len(solutions)} solutions with {len(contexts)} contexts: expected one for each.")
        asked = [self._ask(s, c) if s.problem is None else None for s, c in zip(solutions, contexts, strict=True)]
        return [self._outcome(s, c, a) for s, c, a in zip(solutions, contexts, asked, strict=True)]

    def anew(self) -> LowFidelityWorldModel:
        """A model that has learnt nothing and shares what this one ran; it is closed with this one."""
        made = copy(self)
        made._valid = {True: [0.0, 0.0], False: [0.0, 0.0]}
        made.seconds, made.memory = _seconds(), _memory()
        return made

    @property
    def cost_s(self) -> float:
        """CPU seconds a prediction costs, as seen so far (a guess before the first)."""
        return self._cpu_s / self._runs if self._runs else 0.2

    def close(self) -> None:
        """End the predictions under way and, unless it was passed in, the sandbox. Idempotent."""
        with self._lock:
            pool, self._pool = self._pool, None
        self._reducer.close()
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def __enter__(self) -> LowFidelityWorldModel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- asking -----------------------------------------------------------------------------------------------------
    def _ask(self, solution: Solution, context: TaskContext) -> tuple[Future[Seen], bool]:
        """The run of a program, and whether it was asked for before."""
        task = self._reducer.task(context)  # here, so that what is wrong with a task is said before anything runs
        key = (task.key, solution.code)
        with self._lock:
            known = self._seen.get(key)
            if known is not None and not (known.done() and known.exception() is not None):
                return known, True
            if self._pool is None:
                workers = self._workers or self._reducer.sandbox.slots
                self._pool = ThreadPoolExecutor(workers, thread_name_prefix="low-fidelity")
            self._seen[key] = started = self._pool.submit(self._reducer.run, solution.code, task)
            return started, False

    def _outcome(self, solution: Solution, context: TaskContext, asked: tuple[Future[Seen], bool] | None) -> Outcome:
        if asked is None:
            told = feedback.unreadable(str(solution.problem))
            return Outcome(
                ExecutionStatus.AGENT_ERROR, feedback=feedback.render(told), report=told, source="predicted", p_valid=0.0
            )
        run, again = asked
        seen = run.result()
        if again:
            seen = replace(seen, cached=True)
        else:
            self._cpu_s, self._runs = self._cpu_s + seen.cpu_s, self._runs + 1
        limits = self._reducer.limits_of(context)
        late = self.seconds.p_above(seen.run.cpu_s, seen.factor, limits.effective_s)
        large = self.memory.p_above(seen.run.peak_memory_mb, seen.factor, limits.memory_mb)
        return predicted(
            seen, limits, self._p_valid(seen.accepted), late, large,
            seconds=self.seconds.predict(seen.run.cpu_s, seen.factor),
            memory_mb=self.memory.predict(seen.run.peak_memory_mb, seen.factor),
        )  # fmt: skip

    def _p_valid(self, accepted: bool) -> float:
        """P(valid), time and memory apart."""
        valid, executed = self._valid[accepted]
        return (PRIOR_RUNS * P_VALID[accepted] + valid) / (PRIOR_RUNS + executed)

    # ---- learning ---------------------------------------------------------------------------------------------------
    def update(self, solutions: Sequence[Solution], contexts: Sequence[TaskContext], outcomes: Sequence[Outcome]) -> None:
        """Learn from executed outcomes how far a reduced run can be trusted and how costs grow; nothing is executed for it."""
        if not len(solutions) == len(contexts) == len(outcomes):
            raise InvalidInput(
                f"{len(solutions)} solutions, {len(contexts)} contexts, {len(outcomes)} outcomes: expected one each."
            )
        for solution, context, outcome in zip(solutions, contexts, outcomes, strict=True):
            if outcome.source == "predicted" or outcome.is_infra_error or solution.problem is not None:
                continue
            run = self._seen.get((self._reducer.task(context).key, solution.code))
            if run is None or not run.done() or run.exception() is not None:
                continue
            self._learn(run.result(), outcome)

    def _learn(self, seen: Seen, outcome: Outcome) -> None:
        at_limit = outcome.status in (ExecutionStatus.TIMEOUT, ExecutionStatus.MEMORY)
        if not at_limit:  # how such a program would have ended is not known
            count = self._valid[seen.accepted]
            count[0] += float(outcome.status is ExecutionStatus.OK)
            count[1] += 1.0
        if outcome.status is ExecutionStatus.OK and seen.accepted:
            self.seconds.observe(seen.run.cpu_s, outcome.cpu_s, seen.factor)
            self.memory.observe(seen.run.peak_memory_mb, outcome.peak_memory_mb, seen.factor)

    def state_dict(self) -> dict[str, Any]:
        """What was learnt, JSON-able."""
        return {
            "valid": {str(int(k)): list(v) for k, v in self._valid.items()},
            "seconds": self.seconds.state_dict(),
            "memory": self.memory.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`.

        Raises:
            InvalidInput: it is not one.
        """
        try:
            valid = {bool(int(k)): [float(x) for x in v] for k, v in state["valid"].items()}
            if set(valid) != {True, False} or any(len(v) != 2 for v in valid.values()):
                raise ValueError(f"valid={valid}")
            self.seconds.load_state_dict(state["seconds"])
            self.memory.load_state_dict(state["memory"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInput(
                f"No state of a LowFidelityWorldModel ({type(error).__name__}: {error}): expected what state_dict() gave."
            ) from None
        self._valid = valid
