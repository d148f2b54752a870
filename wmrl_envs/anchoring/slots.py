"""The slots of an environment: each a wrapper chain whose base asks the oracle; one step of many is one batch.

A class a kind of world model says what is asked at the base, and what is told there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import gymnasium

from wmrl_envs.anchoring.bill import Bill
from wmrl_envs.anchoring.dynamics import DynamicsOracle, Move, StepResult, real_step
from wmrl_envs.anchoring.graded import Graded
from wmrl_envs.anchoring.groups import Group
from wmrl_envs.anchoring.kinds import Kind, instruction_of, task_of
from wmrl_envs.anchoring.lanes import HERE, Lane
from wmrl_envs.anchoring.outcomes import Asked, OutcomeOracle
from wmrl_envs.anchoring.rewards import Finished, RewardOracle
from wmrl_envs.anchoring.side_by_side import SideBySide
from wmrl_envs.chain import Chain
from wmrl_envs.context import Episode
from wmrl_envs.correction.corrector import Corrector
from wmrl_envs.errors import InfrastructureError
from wmrl_envs.outcome import Outcome, Solution


@dataclass(slots=True)
class Transition:
    """What became of one slot's step, as its outermost wrapper returned it. `graded.failed`: cut short through our fault.

    `group`: of the episode it belongs to.
    """

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    graded: Graded
    info: dict[str, Any] = field(default_factory=dict)
    group: Any = None

    @property
    def failed(self) -> bool:
        return self.graded.failed is not None

    @classmethod
    def lost(cls, observation: Any, graded: Graded) -> Transition:
        """An episode cut short by a failure of ours: reward 0, truncated, no score."""
        return cls(observation, 0.0, False, True, graded)


class Slots(ABC):
    """Steps slots. Each has an environment, a group (which says whether it is anchored) and the observation it is at.

    Args:
        envs: one environment a slot.
        oracle: grades what their bases ask.
        grouped: pairs carry the ids of their groups (without, eta2 is measured against the variance of the window).
    """

    def __init__(self, envs: Sequence[gymnasium.Env], oracle: Any, *, grouped: bool = False):
        self.envs, self.oracle, self.grouped = envs, oracle, grouped
        self.chains = [Chain(env, "execute" if isinstance(self, OutcomeSlots) else "step") for env in envs]
        self.groups: list[Group] = [Group(-1, 0, False, 0.0, 1)] * len(envs)
        self.observations: list[Any] = [None] * len(envs)  # of the outermost wrappers
        self._graded: dict[int, list[Graded]] = {}  # of the step under way
        self._last: dict[int, bool] = {}
        self._side_by_side = SideBySide()
        self.bill = Bill()

    def reset(self, slot: int, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in the slot."""
        chain = self.chains[slot]
        before = chain.resets
        try:
            observation, info = chain.reset(**arguments)
        finally:
            self.bill.resets += chain.resets - before
        self.observations[slot] = observation
        return observation, info

    def step(self, slots: Sequence[int], actions: Sequence[Any], last: Sequence[bool]) -> list[Transition]:
        """One step of each of these slots; `last`: it reaches the time limit. What was graded is learned from."""
        self._graded = {i: [] for i in slots}
        self._last = dict(zip(slots, last, strict=True))
        work = [partial(self.chains[i].step, action) for i, action in zip(slots, actions, strict=True)]
        results = self._side_by_side.run(work, lambda which, asked: self._answer([slots[k] for k in which], asked))
        out = [self._transition(i, result) for i, result in zip(slots, results, strict=True)]
        self._finish(slots, out)
        self.oracle.learn([graded for of_slot in self._graded.values() for graded in of_slot])
        return out

    @abstractmethod
    def _answer(self, slots: list[int], asked: list[Any]) -> Sequence[Any]:
        """What the bases of these slots are told; an InfrastructureError for one that cannot go on."""

    def _finish(self, slots: Sequence[int], out: list[Transition]) -> None:  # noqa: B027 - most have nothing left
        """What is left to do once every chain has stepped."""

    def _charge(self, real: int, total: int) -> None:
        self.bill.real_steps += real
        self.bill.predicted_steps += total - real

    def _group(self, slot: int) -> int | None:
        return self.groups[slot].id if self.grouped else None

    def _transition(self, slot: int, result: Any) -> Transition:
        graded = total(self._graded[slot]) if self._graded[slot] else Graded(anchored=self.groups[slot].anchored)
        if isinstance(result, InfrastructureError):
            if graded.failed is None:
                graded = Graded.lost(str(result), anchored=graded.anchored, group=self._group(slot))
                self._graded[slot].append(graded)
            return Transition.lost(self.observations[slot], graded)
        observation, reward, terminated, truncated, info = result
        self.observations[slot] = observation
        if graded.failed is not None:
            return Transition(observation, 0.0, False, True, graded, info)
        return Transition(observation, float(reward), bool(terminated), bool(truncated), graded, info)


class OutcomeSlots(Slots):
    """`ExecutableEnv`s: the base asks what execution would report."""

    oracle: OutcomeOracle

    def _answer(self, slots: list[int], asked: list[Solution]) -> list[Outcome]:
        chains = [self.chains[i] for i in slots]
        graded = self.oracle.grade(
            [
                Asked(solution, chain.base.context(), chain.real, self.groups[i].anchored, self._group(i))  # type: ignore[attr-defined]
                for i, chain, solution in zip(slots, chains, asked, strict=True)
            ]
        )
        for i, g in zip(slots, graded, strict=True):
            self._graded[i].append(g)
        self._charge(sum(g.execution is not None for g in graded), len(graded))
        return [g.used for g in graded]


class DynamicsSlots(Slots):
    """Ordinary environments: the base asks for its next observation, its reward and whether it has ended."""

    oracle: DynamicsOracle

    def reset(self, slot: int, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in the slot; a predicted one where the model starts it, if it does."""
        if not self.oracle.starts:
            return super().reset(slot, **arguments)
        asked = {"seed": arguments.get("seed"), "options": arguments.get("options")}
        chain = self.chains[slot]
        chain.start = None if self.groups[slot].anchored else self.oracle.begin(slot, None, **asked)
        spared = chain.start is not None
        try:
            started = super().reset(slot, **arguments)
        finally:
            chain.start = None
        if not spared:
            self.oracle.begin(slot, chain.observation, **asked)
        return started

    def _answer(self, slots: list[int], asked: list[Any]) -> list[Any]:
        chains = [self.chains[i] for i in slots]
        graded = self.oracle.grade(
            [
                Move(chain.observation, action, chain.real, self.groups[i].anchored, self._group(i), i)
                for i, chain, action in zip(slots, chains, asked, strict=True)
            ]
        )
        self._charge(sum(g.anchored for g in graded), len(graded))
        answers: list[Any] = []
        for i, chain, g in zip(slots, chains, graded, strict=True):
            self._graded[i].append(g)
            if g.failed is not None:
                answers.append(InfrastructureError(g.failed))
                continue
            chain.observation = g.used[0]
            answers.append(g.used)
        return answers


class RewardSlots(Slots):
    """Environments stepped for real: the base's reward is read off the finished episode, once; anchors get their own."""

    oracle: RewardOracle

    def __init__(self, envs: Sequence[gymnasium.Env], oracle: RewardOracle, **arguments: Any):
        super().__init__(envs, oracle, **arguments)
        self._episodes: list[tuple[list[Any], list[Any]]] = [([], []) for _ in envs]
        self._returns = [0.0] * len(envs)
        self._scored = [False] * len(envs)

    def reset(self, slot: int, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        started = super().reset(slot, **arguments)
        self._episodes[slot], self._returns[slot], self._scored[slot] = ([self.chains[slot].observation], []), 0.0, False
        return started

    def _answer(self, slots: list[int], asked: list[Any]) -> list[Any]:
        self._charge(len(slots), len(slots))
        jobs = self.oracle.execution.start(real_step, [(self.chains[i].real, a) for i, a in zip(slots, asked, strict=True)])
        answers: list[Any] = []
        ended = []
        for k, (i, action, job) in enumerate(zip(slots, asked, jobs, strict=True)):
            result, why, wall_s = job.result()
            if result is None:
                answers.append(InfrastructureError(why))
                continue
            answers.append(self._told(i, action, result, wall_s))
            if (result[2] or result[3] or self._last[i] or self.chains[i].at_limit()) and not self._scored[i]:
                ended.append(k)
        for k, graded in zip(ended, self._score([slots[k] for k in ended]), strict=True):
            if graded.failed is not None:
                answers[k] = InfrastructureError(graded.failed)
            elif not graded.anchored:
                answers[k] = (answers[k][0], graded.score, *answers[k][2:])
        return answers

    def _told(self, slot: int, action: Any, result: StepResult, wall_s: float) -> StepResult:
        """A real step as the slot is told of it: its own reward in anchors; elsewhere 0, whatever the environment says."""
        observation, reward, terminated, truncated, info = result
        observations, actions = self._episodes[slot]
        observations.append(observation)
        actions.append(action)
        self._returns[slot] += float(reward)
        own = dict(info.get("wmrl") or {})
        anchored = self.groups[slot].anchored
        self._graded[slot].append(
            Graded(
                own.get("status", "ok"),
                anchored=anchored,
                wall_s=wall_s,
                group=self._group(slot),
                raw_score=own.get("raw_score"),
            )
        )
        if anchored:
            return result
        hidden = {key: value for key, value in own.items() if key not in ("score", "raw_score", "best_score", "true")}
        self._graded[slot][-1].raw_score = None
        return observation, 0.0, terminated, truncated, {**info, "wmrl": hidden}

    def _score(self, slots: list[int]) -> list[Graded]:
        """Grade the episodes of these slots, which have ended."""
        finished = [
            Finished(
                Episode(*self._episodes[i], instruction_of(self._episodes[i][0][0]), task_of(self.envs[i])),
                self._returns[i] if self.groups[i].anchored else None,
                self._group(i),
            )
            for i in slots
        ]
        graded = self.oracle.grade(finished)
        for i, g in zip(slots, graded, strict=True):
            self._scored[i] = True
            step = self._graded[i].pop()
            g.wall_s, g.raw_score = step.wall_s, step.raw_score
            if g.failed is None:
                g.status = step.status
            self._graded[i].append(g)
        return graded

    def _finish(self, slots: Sequence[int], out: list[Transition]) -> None:
        """Episodes that a wrapper of the user's ended, which their bases could not know,
        are scored now and paid as they are.
        """
        late = [k for k, t in enumerate(out) if (t.terminated or t.truncated) and not t.failed and not self._scored[slots[k]]]
        for k, graded in zip(late, self._score([slots[k] for k in late]), strict=True):
            if graded.failed is not None:
                out[k] = Transition.lost(out[k].observation, graded)
                continue
            out[k].graded = graded
            out[k].reward += 0.0 if graded.anchored else float(graded.score or 0.0)


def total(graded: Sequence[Graded]) -> Graded:
    """Several questions of one step of a chain (a wrapper that repeats actions) as one: scores add up,
    the rest is of the last.
    """
    if len(graded) == 1:
        return graded[0]
    sums: dict[str, Any] = {}
    for key in ("score", "predicted", "calibrated", "true"):
        values = [value for g in graded if (value := getattr(g, key)) is not None]
        sums[key] = sum(values) if values and graded[-1].failed is None else None
    return replace(graded[-1], **sums)


def make_slots(
    kind: Kind, envs: Sequence[gymnasium.Env], world_model: Any, corrector: Corrector | None, *,
    retries: int = 2, execution: Lane = HERE, grouped: bool = False,
) -> Slots:  # fmt: skip
    """The slots for a kind of world model."""
    arguments: dict[str, Any] = {"retries": retries, "execution": execution}
    if kind == "outcome":
        return OutcomeSlots(envs, OutcomeOracle(world_model, corrector, **arguments), grouped=grouped)
    if kind == "reward":
        return RewardSlots(envs, RewardOracle(world_model, corrector, **arguments), grouped=grouped)
    base = envs[0].unwrapped
    arguments |= {"observation_space": base.observation_space, "action_space": base.action_space}
    return DynamicsSlots(envs, DynamicsOracle(world_model, corrector, **arguments), grouped=grouped)
