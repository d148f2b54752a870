"""Evaluation of any agent by really executing its programs: k episodes a task, in parallel, aggregated as in the paper."""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import numpy as np

from wmrl_envs.anchoring.lanes import Threads
from wmrl_envs.anchoring.outcomes import Asked, OutcomeOracle
from wmrl_envs.engine import Engine
from wmrl_envs.envs.make import make_env
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.execution.base import Sandbox
from wmrl_envs.outcome import Execution, Outcome, Solution
from wmrl_envs.tasks.catalog import report_category
from wmrl_train.episodes.agent import Agent
from wmrl_train.episodes.store import Trajectory, Turn
from wmrl_train.evaluation.policies import EnginePolicy, OpenEpisode, Policy, seed_of
from wmrl_train.evaluation.table import Table, aggregate


@dataclass(frozen=True)
class Cost:
    """What episodes cost. `executions`: programs really run; `execution_s`: their wall clock in seconds, summed."""

    executions: int
    execution_s: float

    @classmethod
    def of(cls, trajectories: Iterable[Trajectory]) -> Cost:
        turns = [turn for trajectory in trajectories for turn in trajectory.turns]
        return cls(sum(turn.wall_s > 0 for turn in turns), sum(turn.wall_s for turn in turns))


@dataclass(frozen=True)
class EvalResult:
    """All episodes and their table.

    Attributes:
        trajectories: of every task and repeat that was asked for, those done earlier included.
        cost: of all of them. cost_now: of those that this call ran.
        wall_s: seconds that this call took.
    """

    trajectories: tuple[Trajectory, ...]
    table: Table
    cost: Cost
    cost_now: Cost
    wall_s: float

    @property
    def relative_gap(self) -> float | None:
        """DSBench's score: mean over tasks of the mean relative performance gap of the episodes; None for other tasks."""
        by_task: dict[str, list[float]] = {}
        for trajectory in self.trajectories:
            gaps = [turn.relative_gap for turn in trajectory.turns if turn.relative_gap is not None]
            if gaps and trajectory.failure is None:
                by_task.setdefault(trajectory.task, []).append(max(gaps))
        return float(np.mean([np.mean(gaps) for gaps in by_task.values()])) if by_task else None

    @classmethod
    def of(cls, trajectories: Iterable[Trajectory], now: Iterable[Trajectory] = (), wall_s: float = 0.0) -> EvalResult:
        kept = tuple(sorted(trajectories, key=lambda t: t.key))
        return cls(kept, aggregate(kept), Cost.of(kept), Cost.of(now), wall_s)


def evaluate_policy(
    engine: Engine,
    agent: Agent,
    tasks: Sequence[str],
    k: int,
    *,
    sandbox: Sandbox | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: Callable[[Trajectory], None] | None = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
) -> EvalResult:
    """Sample `k` episodes a task from an engine through an agent, execute every program for real, aggregate.

    Samples depend on (seed, task, repeat, turn) alone.

    Args:
        engine: what samples.
        agent: what makes prompts of observations and programs of samples.
        tasks: slugs of competitions.
        k: episodes a task, at least 1.
        sandbox: where programs run; None: the environment's own choice (`execution` in `env_kwargs`).
        env_kwargs: further arguments of the environment (`max_turns`, `scaffold`, `limits`, ...).
        seed: of the samples.
        workers: programs executed at a time; None: one a core.
        progress: called with each episode as it ends, from one thread at a time.
        temperature: of the samples; 0 is greedy.
        top_p: share of the probability that is sampled from, in (0, 1].
    """
    policy = EnginePolicy(engine, agent, temperature=temperature, top_p=top_p)
    return evaluate(policy, tasks, k, sandbox=sandbox, env_kwargs=env_kwargs, seed=seed, workers=workers, progress=progress)


def evaluate(
    policy: Policy,
    tasks: Sequence[str],
    k: int,
    *,
    sandbox: Sandbox | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: Callable[[Trajectory], None] | None = None,
    done: Iterable[Trajectory] = (),
) -> EvalResult:
    """Run `k` episodes of a policy in each task.

    Args:
        policy: answers observations.
        tasks: slugs of competitions.
        k: episodes a task, at least 1.
        sandbox: where programs run; None: the environment's own choice (`execution` in `env_kwargs`).
        env_kwargs: further arguments of the environment (`max_turns`, `scaffold`, `limits`, ...).
        seed: of the samples.
        workers: programs executed at a time, and threads that ask a parallel policy; None: one a core.
        progress: called with each episode as it ends, from one thread at a time.
        done: episodes that need not be repeated (those without a score are, those not asked for are left out).

    Raises:
        InvalidInput: k below 1, no tasks, an unknown task.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InvalidInput(f"k={k!r}: expected a whole number of episodes of at least 1.")
    if not tasks:
        raise InvalidInput("No tasks to evaluate: expected at least one competition.")
    began = time.perf_counter()
    wanted = {(task, repeat): None for repeat in range(k) for task in dict.fromkeys(tasks)}
    finished = {t.key: t for t in done if t.failure is None and t.key in wanted}
    todo = [key for key in wanted if key not in finished]
    workers = workers or os.cpu_count() or 1
    kwargs = dict(env_kwargs or {}) | ({} if sandbox is None else {"sandbox": sandbox})
    waves = [todo[i : i + policy.together] for i in range(0, len(todo), policy.together)]
    lock = threading.Lock()

    def finish(trajectory: Trajectory) -> None:
        with lock:
            finished[trajectory.key] = trajectory
            if progress is not None:
                progress(trajectory)

    lane, drivers = Threads(workers), ThreadPoolExecutor(workers if policy.parallel else 1)
    oracle = OutcomeOracle(None, None, execution=lane)  # every program is executed
    try:
        for future in as_completed([drivers.submit(_wave, policy, wave, kwargs, seed, oracle, finish) for wave in waves]):
            future.result()
    finally:  # on Ctrl-C running programs are not waited for: whoever owns the sandbox closes it
        oracle.closing = True
        drivers.shutdown(wait=False, cancel_futures=True)
        lane.close(wait=False)
    return EvalResult.of(finished.values(), (finished[key] for key in todo), time.perf_counter() - began)


def _wave(
    policy: Policy,
    keys: Sequence[tuple[str, int]],
    kwargs: Mapping[str, Any],
    seed: int,
    oracle: OutcomeOracle,
    finish: Callable[[Trajectory], None],
) -> None:
    """Episodes that take their turns together: one call of the policy a turn, their programs executed in parallel."""
    live = [_ProgramEpisode(task, repeat, kwargs, seed) for task, repeat in keys]
    while live:
        try:
            answers = policy.respond(live)
        except InfrastructureError as error:
            answers = [None] * len(live)
            for episode in live:
                episode.trajectory.failure = str(error)
        asked = [episode.ask(answer) for episode, answer in zip(live, answers, strict=True)]
        running = iter(oracle.execute([a for a in asked if a is not None]))
        for episode, question in zip(live, asked, strict=True):  # one by one: what has ended is kept while others still run
            if question is not None:
                (graded,) = oracle.join([question], [None], [next(running)])
                episode.take(graded.execution)
            if episode.over:
                episode.env.close()
                finish(episode.trajectory)
        live = [e for e in live if not e.over]


class _ProgramEpisode(OpenEpisode):
    """An episode with its environment and its record."""

    def __init__(self, task: str, repeat: int, kwargs: Mapping[str, Any], seed: int):
        self.env = make_env(task, **kwargs)
        own_seed = seed_of(seed, zlib.crc32(task.encode()), repeat)
        observation, _ = self.env.reset(seed=own_seed)
        super().__init__(self.env.context(), [observation], own_seed)
        self.trajectory = Trajectory(task, report_category(task, self.context.category), repeat, own_seed)
        self.over = False
        self._execution: Execution | None = None

    def ask(self, answer: str | None) -> Asked | None:
        """The program to be executed; None ends the episode."""
        if answer is None:
            self.over = True
            return None
        self.answers.append(answer)
        return Asked(self.env.propose(answer), self.context, self._execute, anchored=True)

    def take(self, outcome: Outcome) -> None:
        """What became of the program."""
        observation, _, terminated, truncated, info = self.env.observe(outcome)
        self.over = terminated or truncated
        gap = info["wmrl"].get("relative_gap")
        self.trajectory.turns.append(Turn.of(self.answers[-1], outcome, self._execution, observation, gap))
        if outcome.is_infra_error:
            self.trajectory.failure = outcome.error or "a failure of the sandbox"
        self.observations.append(observation)
        self.context = self.env.context()

    def _execute(self, solution: Solution) -> Outcome:
        outcome, self._execution = self.env.run(solution)
        return outcome
