"""Episodes of a robot policy in several simulators at once: one batched look of the policy, then all step together."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from wmrl_envs.context import Episode
from wmrl_envs.errors import InfrastructureError
from wmrl_train.episodes.lanes import Lane
from wmrl_train.episodes.seeds import seed_of

log = logging.getLogger(__name__)


class Acts(Protocol):
    """A robot's policy that looks at several observations together, as `VLAPolicy` does."""

    def act(
        self, observations: Sequence[Any], temperature: float = 1.0, seeds: Sequence[int] | None = None
    ) -> tuple[Any, Any, Any]:
        """Actions (n, k, 7), the codes they come from and the codes' log-probabilities. Temperature 0 is greedy."""


class Simulators:
    """At most `count` environments, each of one task, that are kept and used again.

    Args:
        make: task -> environment such as `LIBERO-Long-v0`. count: at once; a task that has none when all are taken gets the
            place of an idle one.

    Attributes:
        lane: where environments are reset and stepped.
    """

    def __init__(self, make: Callable[[str], Any], count: int = 1):
        self.lane = Lane("execute", count)
        self._make, self._count = make, count
        self._idle: list[tuple[str, Any]] = []
        self._lent: dict[int, tuple[str, Any]] = {}  # by id of the environment

    def lend(self, task: str) -> Any | None:
        """An environment of the task, to be given back; None while all are taken."""
        if len(self._lent) == self._count:
            return None
        at = next((i for i, (other, _) in enumerate(self._idle) if other == task), None)
        if at is None and len(self._idle) + len(self._lent) == self._count:
            self._idle.pop(0)[1].close()
        env = self._make(task) if at is None else self._idle.pop(at)[1]
        self._lent[id(env)] = (task, env)
        return env

    def give_back(self, env: Any) -> None:
        """Let others have it; the next episode resets it."""
        self._idle.append(self._lent.pop(id(env)))

    def reclaim(self) -> None:
        """Take back what an interrupted `play` had borrowed."""
        self._idle += self._lent.values()
        self._lent.clear()

    def close(self) -> None:
        """End all of them."""
        self.lane.close()
        self.reclaim()
        with ExitStack() as stack:  # the others also when one fails to
            while self._idle:
                stack.callback(self._idle.pop()[1].close)


@dataclass(frozen=True)
class Start:
    """All that an episode depends on besides the policy: its task, the number of its initial state, the seed of its samples."""

    task: str
    index: int
    seed: int


@dataclass
class Played:
    """An episode of L looks. `lost`: why the simulator has lost it (then it has no score), or None."""

    start: Start
    seen: list[dict[str, Any]] = field(default_factory=list)  # L + 1 observations
    codes: list[np.ndarray] = field(default_factory=list)  # L x (groups,)
    logprobs: list[np.ndarray] = field(default_factory=list)
    success: bool = False
    steps: int = 0
    wall_s: float = 0.0  # of simulating
    lost: str | None = None
    over: bool = False

    def episode(self) -> Episode:
        """For a reward model."""
        return Episode(self.seen, self.codes, self.seen[0]["instruction"], self.start.task, self.success)

    def begin(self, env: Any) -> None:
        try:
            observation, _ = env.reset(options={"init_state": self.start.index})
            self.seen.append(observation)
        except InfrastructureError as error:
            self.lost, self.over = str(error), True

    def advance(self, code: np.ndarray, logprob: np.ndarray, stepped: tuple[Any, float, bool, bool, dict[str, Any]]) -> None:
        """Take in a look's codes and what became of them."""
        observation, _, terminated, truncated, info = stepped
        own = info["wmrl"]
        self.seen.append(observation)
        self.codes.append(code)
        self.logprobs.append(logprob)
        self.success, self.steps, self.over = bool(terminated), int(own["steps"]), bool(terminated or truncated)
        self.wall_s += float(own.get("wall_s") or 0.0)
        if own["status"] == "infra_error":
            self.lost, self.over = str(own.get("detail", "the simulator failed")), True


def play(
    policy: Acts,
    simulators: Simulators,
    starts: Sequence[Start],
    *,
    temperature: float = 1.0,
    retries: int = 2,
    look: Callable[..., Any] | None = None,
    on_played: Callable[[int, Played], None] | None = None,
) -> list[Played]:
    """One episode from each start, in their order. What is sampled depends on the start and the number of the look alone.

    Args:
        policy: chooses the actions of all running episodes together.
        simulators: where the episodes run, as many at a time as there are environments.
        starts: task, initial state and seed of each episode.
        temperature: 0 is greedy.
        retries: further attempts, from the beginning, at an episode that the simulator loses; after them `lost` says why.
        look: called as `policy.act` is, in its place (to run it somewhere else).
        on_played: called with the number of a start and its episode, as it ends.
    """
    look = look or policy.act
    simulators.reclaim()
    results: dict[int, Played] = {}
    waiting, left = deque(range(len(starts))), [retries] * len(starts)
    active: dict[int, tuple[Any, Played]] = {}
    while waiting or active:
        begun = []
        while waiting and (env := simulators.lend(starts[waiting[0]].task)) is not None:
            active[waiting[0]] = (env, Played(starts[waiting[0]]))
            begun.append(active[waiting.popleft()])
        simulators.lane.map(lambda pair: pair[1].begin(pair[0]), begun)
        live = [pair for pair in active.values() if not pair[1].over]
        if live:
            seeds = [seed_of(p.start.seed, len(p.codes)) for _, p in live]
            actions, codes, logprobs = look([p.seen[-1] for _, p in live], temperature, seeds)
            envs = [env for env, _ in live]
            stepped = simulators.lane.map(lambda pair: pair[0].step(pair[1]), zip(envs, actions, strict=True))
            for (_, played), code, logprob, outcome in zip(live, codes, logprobs, stepped, strict=True):
                played.advance(code, logprob, outcome)
        for number, (env, played) in list(active.items()):
            if not played.over:
                continue
            del active[number]
            simulators.give_back(env)
            if played.lost is not None and left[number]:
                log.warning("An episode of %s is begun again: %s", played.start.task, played.lost)
                left[number] -= 1
                waiting.append(number)
            else:
                results[number] = played
                if on_played is not None:
                    on_played(number, played)
    return [results[number] for number in range(len(starts))]
