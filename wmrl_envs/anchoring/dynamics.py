"""`DynamicsOracle`: steps of ordinary environments, predicted in one batch, with the anchored ones taken beside."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from wmrl_envs.anchoring.actions import Admission
from wmrl_envs.anchoring.graded import Graded, pairs_of
from wmrl_envs.anchoring.kinds import InSpace, checked_steps, stack
from wmrl_envs.anchoring.lanes import settle
from wmrl_envs.anchoring.oracle import Oracle
from wmrl_envs.errors import InfrastructureError
from wmrl_envs.outcome import ExecutionStatus
from wmrl_envs.world_models.protocols import EpisodicModel

log = logging.getLogger(__name__)

StepResult = tuple[Any, Any, Any, Any, dict[str, Any]]


@dataclass(slots=True)
class Move:
    """A step to be graded, from `observation` by `action`, both of the base environment. `execute`: its real step."""

    observation: Any
    action: Any
    execute: Callable[[Any], StepResult]
    anchored: bool
    group: int | None = None
    slot: int = 0


class DynamicsOracle(Oracle):
    """For `DynamicsModel`s. A graded step's `used` is the 5-tuple the environment returns."""

    def __init__(
        self,
        world_model: Any,
        corrector: Any,
        *,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        **arguments: Any,
    ):
        super().__init__(world_model, corrector, **{"score_range": None, **arguments})
        self._in_space, self._admit = InSpace(observation_space), Admission(action_space)
        self._seen = SeenRange()
        self._episodic = world_model if isinstance(world_model, EpisodicModel) else None
        self._ended: set[int] = set()  # slots whose real episode goes on after the model's has ended

    def begin(self, slot: int, observation: Any, **reset: Any) -> tuple[Any, dict[str, Any]] | None:
        """An episode begins in the slot, at `observation` or (None) where the model says, if it says so."""
        self._ended.discard(slot)
        return None if self._episodic is None else self._episodic.begin(slot, observation=observation, **reset)

    @property
    def starts(self) -> bool:
        """Whether the model may start predicted episodes by itself."""
        return self._episodic is not None

    def grade(self, moves: Sequence[Move]) -> list[Graded]:
        """Every step graded. Without an answer of the world model, anchors go on and the others are lost."""
        running = self.execution.start(real_step, [(m.execute, m.action) for m in moves if m.anchored])
        try:
            out = self._predicted(moves)
            executed = iter([job.result() for job in running])
        finally:
            settle(running)
        for graded in out:
            if graded.anchored:
                _take(graded, *next(executed))
        return out

    def learn(self, graded: Sequence[Graded]) -> None:
        """Pool the pairs of what was graded, and teach a world model that learns the real transitions."""
        self.observe(pairs_of(graded))
        self._seen.extend([g.true for g in graded if g.true is not None])
        real = [g for g in graded if g.true is not None] if self._learns else []
        if real:
            self.teach(
                stack([g.question.observation for g in real]),
                stack([g.question.action for g in real]),
                np.array([g.true for g in real]),
                stack([g.used[0] for g in real]),
                np.array([bool(g.used[2]) for g in real]),
            )

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self._seen.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "seen" in state:
            self._seen.load_state_dict(state["seen"])

    def _predicted(self, moves: Sequence[Move]) -> list[Graded]:
        out = [Graded(anchored=m.anchored, group=m.group, question=m) for m in moves]
        asked = out if not self._ended else [g for g in out if g.question.slot not in self._ended]
        if not asked:
            return out
        try:
            observations, rewards, terminated, truncated = self._answer([g.question for g in asked])
        except InfrastructureError as error:
            for graded in asked:
                graded.unpredicted = str(error)
                if not graded.anchored:
                    graded.status, graded.failed = ExecutionStatus.INFRA_ERROR.value, str(error)
            return out
        rewards = self._seen.keep(rewards)
        calibrated = self._seen.keep(self.calibrate(rewards))
        rows = zip(asked, observations, rewards.tolist(), calibrated.tolist(), terminated, truncated, strict=True)
        for graded, observation, raw, fair, end, cut in rows:
            graded.take_prediction(raw, fair)
            graded.used = graded.prediction = (observation, fair, end, cut, {})
            if end and graded.anchored and self._episodic is not None:
                self._ended.add(graded.question.slot)
        return out

    def _answer(self, moves: Sequence[Move]) -> tuple[np.ndarray, np.ndarray, list[bool], list[bool]]:
        """What the world model says of these steps, in the environment's spaces."""
        before, acted = stack([m.observation for m in moves]), self._admit([m.action for m in moves])
        truncated = [False] * len(moves)
        if self._episodic is None:
            answer = self.ask(self.world_model.step, before, acted)
        else:
            *answer, cut = self.ask(self._episodic.step_slots, [m.slot for m in moves], before, acted)
            truncated = np.asarray(cut, dtype=bool).tolist()
        observations, rewards, terminated = checked_steps(answer, before, self.score_range)
        return self._in_space(observations), rewards, terminated.tolist(), truncated


class SeenRange:
    """The range of the real rewards seen so far, once they are enough to say so:
    a prediction beyond it is an error of the model's.
    """

    ENOUGH = 200

    def __init__(self) -> None:
        self.n, self.low, self.high, self._warned = 0, float("inf"), float("-inf"), False

    def extend(self, rewards: Sequence[float]) -> None:
        """Take real rewards in."""
        if rewards:
            self.n, self.low, self.high = self.n + len(rewards), min(self.low, *rewards), max(self.high, *rewards)

    def keep(self, rewards: np.ndarray) -> np.ndarray:
        """Predicted rewards, put into the range."""
        if self.n < self.ENOUGH:
            return rewards
        kept = np.minimum(np.maximum(rewards, self.low), self.high)
        if (
            not self._warned
            and (kept != rewards).any()
            and (np.abs(kept - rewards) > 0.1 * max(self.high - self.low, abs(self.high), 1e-9)).any()
        ):
            self._warned = True
            log.warning(
                "The world model predicts rewards from %.4g to %.4g; the %d real ones were from %.4g to %.4g: predictions are "
                "kept in "
                "that range (said once).", rewards.min(), rewards.max(), self.n, self.low, self.high,
            )  # fmt: skip
        return kept

    def state_dict(self) -> dict[str, Any]:
        return {"n": self.n, "low": self.low, "high": self.high} if self.n else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            self.n, self.low, self.high = int(state["n"]), float(state["low"]), float(state["high"])


def real_step(job: tuple[Callable[[Any], StepResult], Any]) -> tuple[StepResult | None, str | None, float]:
    """A real step: its result, or why it failed for reasons of ours; and its seconds."""
    execute, action = job
    start = time.perf_counter()
    try:
        result = execute(action)
    except InfrastructureError as error:
        return None, str(error), time.perf_counter() - start
    own = result[4].get("wmrl") or {}
    if own.get("status") == ExecutionStatus.INFRA_ERROR:
        return None, str(own.get("detail", "the environment failed")), time.perf_counter() - start
    return result, None, time.perf_counter() - start


def _take(graded: Graded, result: StepResult | None, why: str | None, wall_s: float) -> None:
    graded.wall_s, graded.execution = wall_s, result
    if result is None:
        graded.status, graded.failed, graded.score = ExecutionStatus.INFRA_ERROR.value, why, None
        return
    graded.used, graded.status = result, (result[4].get("wmrl") or {}).get("status", graded.status)
    graded.take_truth(float(result[1]))
