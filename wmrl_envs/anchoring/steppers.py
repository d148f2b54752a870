"""One step of many slots under each kind of world model: predictions in one batch, real executions beside them."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from wmrl_envs.anchoring.groups import Group
from wmrl_envs.anchoring.kinds import (
    InSpace,
    Kind,
    checked_outcomes,
    checked_rewards,
    checked_steps,
    instruction_of,
    stack,
    task_of,
)
from wmrl_envs.context import Episode, TaskContext
from wmrl_envs.correction.corrector import Corrector
from wmrl_envs.envs.executable import ExecutableEnv
from wmrl_envs.errors import InfrastructureError
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution

log = logging.getLogger(__name__)

_SHORT_S = 0.001  # an execution this short costs less than handing it to a thread
_SLOW_S = 0.01  # of the executions of one step in the caller's thread


@dataclass(slots=True)
class Transition:
    """What became of one slot's step. `wmrl`: what is known of the keys of `info["wmrl"]`; `failed`: through our fault."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any] = field(default_factory=dict)
    wmrl: dict[str, Any] = field(default_factory=dict)
    failed: bool = False


def failure(observation: Any) -> Transition:
    """An episode cut short by a failure of ours: reward 0, truncated, no score."""
    return Transition(observation, 0.0, False, True, wmrl={"status": ExecutionStatus.INFRA_ERROR.value}, failed=True)


class Stepper(ABC):
    """Steps the given slots. A slot's observation, group and environment are its own; pairs go to the corrector."""

    def __init__(
        self,
        envs: Sequence[gymnasium.Env],
        world_model: Any,
        corrector: Corrector,
        *,
        retries: int,
        workers: int,
        grouped: bool,
    ):
        self.envs, self.world_model, self.corrector, self.retries = envs, world_model, corrector, retries
        self.grouped = grouped
        self.groups: list[Group] = []
        self.observations: list[Any] = [None] * len(envs)
        self._took: deque[float] = deque(maxlen=8)  # seconds of the longest real execution of each step, lately
        self._executor = ThreadPoolExecutor(workers, "wmrl-execute") if workers else None

    def begin(self, slot: int, observation: Any) -> None:
        """An episode begins in the slot."""
        self.observations[slot] = observation

    @abstractmethod
    def step(self, slots: list[int], actions: list[Any], last: list[bool]) -> list[Transition]:
        """One step of each slot; `last`: the step reaches the time limit."""

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def _ask(self, question: Callable[[], Any], otherwise: Callable[[InfrastructureError], Any]) -> Any:
        """What the world model answers; it is asked again after a failure of ours, and `otherwise` stands in for the last."""
        for _ in range(self.retries):
            try:
                return question()
            except InfrastructureError as error:
                log.warning("The world model failed, trying again: %s", error)
        try:
            return question()
        except InfrastructureError as error:
            log.warning("The world model failed: %s", error)
            return otherwise(error)

    def _beside(self, jobs: Sequence[Callable[[], Any]], predict: Callable[[], Any]) -> tuple[list[Any], Any]:
        """Results of `jobs` and of `predict`, run at the same time; nothing is left running when either raises."""
        if self._executor is None or not jobs or self._short():
            predicted = predict()
            start = time.perf_counter()
            results = [job() for job in jobs]
            if time.perf_counter() - start > _SLOW_S:
                self._took.clear()  # one slow execution brings the threads back
            return results, predicted
        futures: list[Future] = [self._executor.submit(_timed, job) for job in jobs]
        try:
            predicted = predict()
            timed = [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
            wait(futures)
        self._took.append(max(seconds for _, seconds in timed))
        return [result for result, _ in timed], predicted

    def _short(self) -> bool:
        """Whether handing executions to threads costs more than it saves (the least of several times: waits are not ours)."""
        return len(self._took) == self._took.maxlen and min(self._took) < _SHORT_S

    def _kept(self, slots: list[int], out: list[Transition]) -> list[bool]:
        """Whether each slot's group goes on: one failed member takes the pairs of the others with it."""
        lost = {self.groups[i].id for i, transition in zip(slots, out, strict=True) if transition.failed}
        return [self.groups[i].id not in lost for i in slots]

    def _observe(self, slots: list[int], predicted: np.ndarray, true: list[float], tasks: list[str] | None = None) -> None:
        """Pool the pairs of anchored slots. Without groups the yardstick of eta2 is the whole window: no group id."""
        if slots:
            group = [self.groups[i].id for i in slots] if self.grouped else None
            self.corrector.observe(predicted, np.array(true), group=group, task=tasks)


class OutcomeStepper(Stepper):
    """`ExecutableEnv`s: a world model predicts what execution would report."""

    def step(self, slots: list[int], actions: list[Any], last: list[bool]) -> list[Transition]:
        bases: list[ExecutableEnv] = [self.envs[i].unwrapped for i in slots]  # type: ignore[misc]
        solutions = [base.propose(_inner_action(self.envs[i], a)) for base, i, a in zip(bases, slots, actions, strict=True)]
        contexts = [base.context() for base in bases]
        anchored = [k for k, i in enumerate(slots) if self.groups[i].anchored]
        jobs = [partial(self._execute, bases[k], solutions[k]) for k in anchored]
        executed, predictions = self._beside(jobs, partial(self._predict, solutions, contexts))
        outcomes, scores = checked_outcomes(predictions, len(slots))
        tasks = [context.task for context in contexts]
        calibrated = self.corrector.calibrate(scores, tasks)
        real = dict(zip(anchored, executed, strict=True))
        out = []
        for k, i in enumerate(slots):
            prediction, outcome = outcomes[k], real.get(k)
            used = outcome
            if used is None:
                used = prediction if prediction.score == calibrated[k] else prediction.with_score(calibrated[k])
            obs, reward, terminated, truncated, info = observe_through(self.envs[i], actions[k], solutions[k], used)
            known = {**info.pop("wmrl", {}), "status": used.status.value, "wall_s": used.wall_s}
            failed = used.is_infra_error
            if failed:
                known = {"status": used.status.value, "wall_s": used.wall_s}
                reward, truncated = 0.0, True
            elif prediction.is_infra_error:
                known |= {"score": used.score, "predicted": None, "calibrated": None, "true": used.score}
            else:
                known |= {"score": used.score, "raw_score": used.raw_score, "predicted": float(scores[k]), "calibrated": float(calibrated[k])}  # fmt: skip
                known["true"] = None if outcome is None else outcome.score
            out.append(Transition(obs, float(reward), bool(terminated), bool(truncated), info, known, failed))
        kept = self._kept(slots, out)
        pairs = [k for k in anchored if kept[k] and not outcomes[k].is_infra_error]
        self._observe([slots[k] for k in pairs], scores[pairs], [real[k].score for k in pairs], [tasks[k] for k in pairs])
        learned = [k for k in anchored if not real[k].is_infra_error]
        if learned and hasattr(self.world_model, "update"):
            self.world_model.update([solutions[k] for k in learned], [contexts[k] for k in learned], [real[k] for k in learned])
        return out

    def _predict(self, solutions: list[Solution], contexts: list[TaskContext]) -> Sequence[Outcome]:
        return self._ask(
            lambda: self.world_model.predict(solutions, contexts),
            lambda error: [Outcome(ExecutionStatus.INFRA_ERROR, feedback=str(error), source="predicted")] * len(solutions),
        )

    def _execute(self, base: ExecutableEnv, solution: Solution) -> Outcome:
        start = time.perf_counter()
        for attempt in range(self.retries + 1):
            try:
                outcome = base.execute(solution)
            except InfrastructureError as error:
                outcome = Outcome(ExecutionStatus.INFRA_ERROR, feedback=str(error), wall_s=time.perf_counter() - start)
            if not outcome.is_infra_error or attempt == self.retries:
                return outcome
        raise AssertionError("unreachable")


class DynamicsStepper(Stepper):
    """Ordinary environments: a world model predicts the next observation, the reward and the end."""

    def __init__(self, envs: Sequence[gymnasium.Env], world_model: Any, corrector: Corrector, **arguments: Any):
        super().__init__(envs, world_model, corrector, **arguments)
        self._in_space = InSpace(envs[0].observation_space)

    def step(self, slots: list[int], actions: list[Any], last: list[bool]) -> list[Transition]:
        before, acted = stack([self.observations[i] for i in slots]), stack(actions)
        anchored = [k for k, i in enumerate(slots) if self.groups[i].anchored]
        jobs = [partial(_real_step, self.envs[slots[k]], actions[k]) for k in anchored]
        executed, result = self._beside(jobs, lambda: self._ask(lambda: self.world_model.step(before, acted), lambda _: None))
        if result is None:  # unanchored groups are lost, anchored ones go on without a pair
            rewards, out = np.zeros(0), [failure(self.observations[i]) for i in slots]
        else:
            observations, rewards, terminated = checked_steps(result, before, self.corrector.score_range)
            observations = self._in_space(observations)
            calibrated = self.corrector.calibrate(rewards)
            out = [
                Transition(obs, c, end, False, wmrl={"status": "ok", "score": c, "predicted": p, "calibrated": c})
                for obs, p, c, end in zip(observations, rewards.tolist(), calibrated.tolist(), terminated.tolist(), strict=True)
            ]
        good = []
        for k, transition in zip(anchored, executed, strict=True):
            if transition.failed:
                out[k] = failure(self.observations[slots[k]])
                continue
            predicted, calibrated_reward = out[k].wmrl.get("predicted"), out[k].wmrl.get("calibrated")
            transition.wmrl |= {"score": transition.reward, "predicted": predicted, "calibrated": calibrated_reward,
                                "true": transition.reward}  # fmt: skip
            out[k] = transition
            good.append(k)
        kept = self._kept(slots, out)
        pairs = [k for k in good if kept[k] and result is not None]
        self._observe([slots[k] for k in pairs], rewards[pairs], [out[k].reward for k in pairs])
        if good and hasattr(self.world_model, "update"):
            after, ends = stack([out[k].observation for k in good]), np.array([out[k].terminated for k in good])
            self.world_model.update(before[good], acted[good], np.array([out[k].reward for k in good]), after, ends)
        for k, i in enumerate(slots):
            self.observations[i] = out[k].observation
        return out


class RewardStepper(Stepper):
    """Environments stepped for real whose reward is read off the finished episode, once; anchors get their own reward."""

    def __init__(self, envs: Sequence[gymnasium.Env], world_model: Any, corrector: Corrector, **arguments: Any):
        super().__init__(envs, world_model, corrector, **arguments)
        self._episodes: list[tuple[list[Any], list[Any]]] = [([], []) for _ in envs]
        self._returns = [0.0] * len(envs)

    def begin(self, slot: int, observation: Any) -> None:
        super().begin(slot, observation)
        self._episodes[slot], self._returns[slot] = ([observation], []), 0.0

    def step(self, slots: list[int], actions: list[Any], last: list[bool]) -> list[Transition]:
        jobs = [partial(_real_step, self.envs[i], action) for i, action in zip(slots, actions, strict=True)]
        out, _ = self._beside(jobs, lambda: None)
        ended = []
        for k, i in enumerate(slots):
            if out[k].failed:
                out[k] = failure(self.observations[i])
                continue
            self.observations[i] = out[k].observation
            self._episodes[i][0].append(out[k].observation)
            self._episodes[i][1].append(actions[k])
            self._returns[i] += out[k].reward
            if not self.groups[i].anchored:  # its true reward stays unread, whatever the environment says
                out[k].reward = 0.0
                out[k].wmrl = {key: out[k].wmrl[key] for key in ("status", "wall_s")}
            if out[k].terminated or out[k].truncated or last[k]:
                ended.append(k)
        if ended:
            self._score(slots, out, ended)
        return out

    def _score(self, slots: list[int], out: list[Transition], ended: list[int]) -> None:
        mine = [slots[k] for k in ended]
        tasks = [task_of(self.envs[i]) for i in mine]
        episodes = [Episode(obs, acts, instruction_of(obs[0]), task)
                    for (obs, acts), task in zip((self._episodes[i] for i in mine), tasks, strict=True)]  # fmt: skip
        answer = self._ask(lambda: self.world_model.score(episodes), lambda _: None)
        if answer is None:  # unanchored groups are lost, anchored ones keep their own reward and make no pair
            for k, i in zip(ended, mine, strict=True):
                if self.groups[i].anchored:
                    out[k].wmrl |= {"true": self._returns[i], "score": self._returns[i]}
                else:
                    out[k] = failure(self.observations[i])
            return
        scores = checked_rewards(answer, len(episodes), self.corrector.score_range)
        calibrated = self.corrector.calibrate(scores, tasks)
        kept = self._kept(slots, out)
        pairs = []
        for at, (k, i) in enumerate(zip(ended, mine, strict=True)):
            known = {"predicted": float(scores[at]), "calibrated": float(calibrated[at])}
            if self.groups[i].anchored:
                known |= {"true": self._returns[i], "score": self._returns[i]}
                if kept[k]:
                    pairs.append(at)
            else:
                out[k].reward = known["score"] = known["calibrated"]
            out[k].wmrl |= known
        self._observe(
            [mine[at] for at in pairs], scores[pairs], [self._returns[mine[at]] for at in pairs], [tasks[at] for at in pairs]
        )


STEPPERS: dict[Kind, type[Stepper]] = {"outcome": OutcomeStepper, "reward": RewardStepper, "dynamics": DynamicsStepper}


def observe_through(
    env: gymnasium.Env, action: Any, solution: Solution, outcome: Outcome
) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
    """Advance an executable environment by an outcome, through every wrapper around it (time limits, observations)."""
    base: Any = env.unwrapped
    if not isinstance(env, gymnasium.Wrapper):
        return base.observe(outcome)  # no wrapper in between
    base.propose, base.execute = (lambda _: solution), (lambda _: outcome)  # shadows the methods for this one step
    try:
        return env.step(action)
    finally:
        del base.propose, base.execute


def _inner_action(env: gymnasium.Env, action: Any) -> Any:
    """The action as it reaches the base environment."""
    layer: Any = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, gymnasium.ActionWrapper):
            action = layer.action(action)
        layer = layer.env
    return action


def _timed(job: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return job(), time.perf_counter() - start


def _real_step(env: gymnasium.Env, action: Any) -> Transition:
    start = time.perf_counter()
    try:
        obs, reward, terminated, truncated, info = env.step(action)
    except InfrastructureError:
        return failure(None)
    own = dict(info.pop("wmrl", None) or {})
    if own.get("status") == ExecutionStatus.INFRA_ERROR:
        return failure(None)
    own = {"status": "ok", **own, "wall_s": time.perf_counter() - start}
    return Transition(obs, float(reward), bool(terminated), bool(truncated), info, own)
