"""Evaluation of any agent by really executing its programs: k attempts a task, in parallel, aggregated as in the paper."""

from __future__ import annotations

import inspect
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from wmrl_envs.context import TaskContext
from wmrl_envs.engine import Engine, Sampling
from wmrl_envs.envs.mle_dojo import MLEDojoEnv
from wmrl_envs.errors import InfrastructureError, InvalidInput, WmrlError
from wmrl_envs.execution.base import Sandbox
from wmrl_train.episodes.agent import Agent, restriction
from wmrl_train.episodes.store import Trajectory, Turn
from wmrl_train.evaluation.table import Table, aggregate


@dataclass(eq=False)
class Conversation:
    """What a policy is asked to continue: all observations so far (one more than answers), the task as it stands, a seed."""

    context: TaskContext
    observations: list[str]
    seed: int
    answers: list[str] = field(default_factory=list)
    state: Any = None  # the policy's own

    @property
    def turn_seed(self) -> int:
        return _seed(self.seed, len(self.answers))


class Policy(Protocol):
    """Answers conversations; None ends an attempt (no room left in the context).

    `together`: how many conversations one call takes; a policy with 1 is called from several threads.
    """

    together: int

    def respond(self, conversations: Sequence[Conversation]) -> list[str | None]: ...


class CallablePolicy:
    """A Python function `agent(observation) -> answer`, or `agent(observation, context)` with `context.history`."""

    together = 1

    def __init__(self, function: Callable[..., str]):
        self._function, self._with_context = function, _takes_two(function)

    def respond(self, conversations: Sequence[Conversation]) -> list[str | None]:
        return [self._ask(c) for c in conversations]

    def _ask(self, c: Conversation) -> str:
        arguments = (c.observations[-1], c.context) if self._with_context else (c.observations[-1],)
        try:
            answer = self._function(*arguments)
        except WmrlError:
            raise
        except (Exception, SystemExit) as error:
            name = getattr(self._function, "__qualname__", self._function)
            raise InvalidInput(f"The agent {name} raised {type(error).__name__}: {error}; it must return a str.") from error
        if not isinstance(answer, str):
            raise InvalidInput(f"The agent returned {type(answer).__name__}; expected a str, its answer or its program.")
        return answer


class EnginePolicy:
    """An `Agent` on an `Engine`: a batch of conversations is sampled together, token ids in, token ids out."""

    def __init__(self, engine: Engine, agent: Agent, *, temperature: float = 1.0, top_p: float = 1.0, together: int = 64):
        self.together = together
        self._engine, self._agent = engine, agent
        self._sampling = Sampling(temperature, top_p, agent.max_new_tokens, agent.stop_ids)

    def respond(self, conversations: Sequence[Conversation]) -> list[str | None]:
        for c in conversations:
            self._prompt(c)
        limit = getattr(self._engine, "max_context", None)
        fits = [c for c in conversations if limit is None or len(c.state.ids) < limit]
        for c in conversations:
            if c not in fits and not c.answers:
                raise InvalidInput(
                    f"The first prompt of {c.context.task} has {len(c.state.ids)} tokens, and the context of the model is {limit}: "
                    "take a model with a longer context."
                )
        prompts, seeds = [c.state.ids for c in fits], [c.turn_seed for c in fits]
        within = restriction(self._agent, [c.context for c in fits])
        made = self._engine.generate(prompts, self._sampling, seeds, **within) if fits else []
        answers: dict[int, str] = {}
        for c, generation in zip(fits, made, strict=True):
            c.state.ids += generation.ids
            c.state.completion = tuple(generation.ids)
            c.state.texts.append(generation.text)
            answers[id(c)] = self._agent.act(generation.text)
        return [answers.get(id(c)) for c in conversations]

    def _prompt(self, c: Conversation) -> None:
        """Token ids of the conversation so far; of an agent that renders every turn afresh, from its texts."""
        if c.state is None:
            c.state = _Tokens(list(self._agent.begin(c.observations[-1], c.context)))
        elif getattr(self._agent, "one_row_per_turn", False):
            c.state.ids = list(self._agent.render(c.observations, c.state.texts, c.context))  # type: ignore[attr-defined]
        else:
            c.state.ids += self._agent.extend(c.observations[-1], c.state.completion)


@dataclass
class _Tokens:
    ids: list[int]
    completion: tuple[int, ...] = ()
    texts: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class EvalResult:
    """All attempts and their table. `executions`: programs run; `execution_s`: their wall clock, summed; `wall_s`: of the whole."""

    trajectories: tuple[Trajectory, ...]
    table: Table
    executions: int
    execution_s: float
    wall_s: float

    @property
    def relative_gap(self) -> float | None:
        """DSBench's score: mean over tasks of the mean relative performance gap of the attempts; None for other tasks."""
        by_task: dict[str, list[float]] = {}
        for trajectory in self.trajectories:
            gaps = [turn.relative_gap for turn in trajectory.turns if turn.relative_gap is not None]
            if gaps and trajectory.failure is None:
                by_task.setdefault(trajectory.task, []).append(max(gaps))
        return float(np.mean([np.mean(gaps) for gaps in by_task.values()])) if by_task else None

    @classmethod
    def of(cls, trajectories: Iterable[Trajectory], wall_s: float = 0.0) -> EvalResult:
        kept = tuple(sorted(trajectories, key=lambda t: t.key))
        turns = [turn for trajectory in kept for turn in trajectory.turns]
        executed = sum(turn.wall_s > 0 for turn in turns)
        return cls(kept, aggregate(t.as_attempt() for t in kept), executed, sum(t.wall_s for t in turns), wall_s)


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
    """Sample `k` attempts a task from an engine through an agent, execute every program for real, aggregate.

    Samples depend on (seed, task, attempt, turn) alone. `progress` is called with each finished attempt. See `evaluate`.
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
    """Run `k` attempts of a policy at each task.

    Args:
        policy: answers conversations.
        tasks: slugs of competitions. k: attempts a task.
        sandbox: where programs run; None: the environment's own choice (`execution` in `env_kwargs`).
        env_kwargs: further arguments of the environment (`max_turns`, `scaffold`, `limits`, ...).
        workers: programs executed at a time, and conversations of a one-at-a-time policy; None: one a core.
        progress: called with each attempt as it ends, from one thread at a time.
        done: attempts that need not be repeated (those without a score are).

    Raises:
        InvalidInput: k below 1, no tasks, an unknown task.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InvalidInput(f"k={k!r}: expected a whole number of attempts of at least 1.")
    if not tasks:
        raise InvalidInput("No tasks to evaluate: expected at least one competition.")
    began = time.perf_counter()
    wanted = {(task, attempt): None for attempt in range(k) for task in dict.fromkeys(tasks)}
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

    executors, drivers = ThreadPoolExecutor(workers), ThreadPoolExecutor(workers if policy.together == 1 else 1)
    try:
        for future in as_completed([drivers.submit(_wave, policy, wave, kwargs, seed, executors, finish) for wave in waves]):
            future.result()
    finally:  # on Ctrl-C running programs are not waited for: whoever owns the sandbox closes it
        drivers.shutdown(wait=False, cancel_futures=True)
        executors.shutdown(wait=False, cancel_futures=True)
    return EvalResult.of(finished.values(), time.perf_counter() - began)


def _wave(
    policy: Policy,
    keys: Sequence[tuple[str, int]],
    kwargs: Mapping[str, Any],
    seed: int,
    executors: ThreadPoolExecutor,
    finish: Callable[[Trajectory], None],
) -> None:
    """Attempts that take their turns together: one call of the policy a turn, their programs executed in parallel."""
    live = [_Attempt(task, attempt, kwargs, seed) for task, attempt in keys]
    while live:
        try:
            answers = policy.respond([a.conversation for a in live])
        except InfrastructureError as error:
            answers = [None] * len(live)
            for attempt in live:
                attempt.trajectory.failure = str(error)
        if len(live) == 1:
            live[0].take_turn(answers[0])
        else:
            list(executors.map(_Attempt.take_turn, live, answers))
        for attempt in live:
            if attempt.over:
                finish(attempt.trajectory)
        live = [a for a in live if not a.over]


class _Attempt:
    """An environment, the conversation about it, and the record of both."""

    def __init__(self, task: str, number: int, kwargs: Mapping[str, Any], seed: int):
        self.env = make_env(task, **kwargs)
        own_seed = _seed(seed, zlib.crc32(task.encode()), number)
        observation, _ = self.env.reset(seed=own_seed)
        self.conversation = Conversation(self.env.context(), [observation], own_seed)
        self.trajectory = Trajectory(task, category(task, self.conversation.context.category), number, own_seed)
        self.over = False

    def take_turn(self, answer: str | None) -> None:
        if answer is None:
            self.over = True
        else:
            self._step(answer)
        if self.over:
            self.env.close()

    def _step(self, answer: str) -> None:
        outcome, execution = self.env.run(self.env.propose(answer))
        observation, _, terminated, truncated, info = self.env.observe(outcome)
        self.over = terminated or truncated
        self.trajectory.turns.append(Turn.of(answer, outcome, execution, observation, info["wmrl"].get("relative_gap")))
        if outcome.is_infra_error:
            self.trajectory.failure = outcome.error or "a failure of the sandbox"
        self.conversation.answers.append(answer)
        self.conversation.observations.append(observation)
        self.conversation.context = self.env.context()


def make_env(task: str, **kwargs: Any) -> MLEDojoEnv:
    """The environment a task belongs to: `DSBenchEnv` for DSBench's, `MLEDojoEnv` otherwise."""
    from wmrl_envs.envs.dsbench import DSBenchEnv
    from wmrl_envs.tasks.catalog import catalog

    facts = catalog().get(task)
    return (DSBenchEnv if facts is not None and facts.split == "dsbench" else MLEDojoEnv)(task, **kwargs)


def category(task: str, default: str) -> str:
    """The category results are reported under: DSBench's kind of problem, otherwise `default` (tabular, text or image)."""
    from wmrl_envs.tasks.catalog import catalog

    facts = catalog().get(task)
    return (facts.kind if facts is not None else "") or default or "other"


def _seed(*parts: int) -> int:
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def _takes_two(function: Callable[..., Any]) -> bool:
    """Whether a callable has a place for a second positional argument."""
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return False
    return True
