"""`WorldModelEnv`: one environment whose expensive step is predicted."""

from __future__ import annotations

import logging
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs

from wmrl_envs.anchoring.kinds import (
    InSpace,
    checked_outcomes,
    checked_rewards,
    checked_steps,
    instruction_of,
    task_of,
    time_limit,
    world_model_kind,
)
from wmrl_envs.context import Episode
from wmrl_envs.correction import Corrector
from wmrl_envs.errors import InfrastructureError
from wmrl_envs.info import wmrl_info
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution

log = logging.getLogger(__name__)
_LOST = {"status": ExecutionStatus.INFRA_ERROR.value, "predicted": None, "calibrated": None, "score": None}


class WorldModelEnv(gymnasium.Wrapper, RecordConstructorArgs):
    """`env` with a world model in place of its expensive part; any kind of world model, told by its method.

    * `predict`: the environment proposes and observes, the model replaces `execute`.
    * `step`: the environment only resets, the model replaces its transitions; an episode ends by the model's
      `terminated` or, truncated, at the time limit.
    * `score`: the environment is stepped for real, the reward is 0 until the end and the model's score there.

    Args:
        corrector: calibrates the predictions (it learns nothing here: there are no anchors); default: raw predictions.
        max_episode_steps: time limit; default: the TimeLimit wrapper in the chain, else the spec.

    `info["wmrl"]` has `predicted`, `calibrated`, `score` and `anchored=False`. A failure of ours (of the world model too) cuts
    the episode short: reward 0, truncated, `status` "infra_error", no score.
    """

    def __init__(
        self, env: gymnasium.Env, world_model: Any, *, corrector: Corrector | None = None, max_episode_steps: int | None = None
    ):
        RecordConstructorArgs.__init__(  # so that `env.spec` can make the environment again
            self, world_model=world_model, corrector=corrector, max_episode_steps=max_episode_steps, _disable_deepcopy=True
        )
        gymnasium.Wrapper.__init__(self, env)
        self.kind = world_model_kind(world_model, env)
        self.world_model, self.corrector = world_model, corrector
        self.max_episode_steps = time_limit(env, max_episode_steps)
        self._score_range = corrector.score_range if corrector is not None else None if self.kind == "dynamics" else (0.0, 1.0)
        self._in_space = InSpace(env.observation_space) if self.kind == "dynamics" else None
        self._observations: list[Any] = []
        self._actions: list[Any] = []
        self._elapsed: int | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None and hasattr(self.world_model, "seed"):
            self.world_model.seed(seed)
        observation, info = self.env.reset(seed=seed, options=options)
        self._observations, self._actions, self._elapsed = [observation], [], 0
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._elapsed is None:
            raise ResetNeeded("step() before reset(): call reset() first.")
        self._elapsed += 1
        last = self._elapsed == self.max_episode_steps
        take = {"outcome": self._predict, "dynamics": self._imagine, "reward": self._judge}[self.kind]
        observation, reward, terminated, truncated, info = take(action, last)
        return observation, float(reward), bool(terminated), bool(truncated or last), info

    def _calibrate(self, scores: np.ndarray, task: str | None = None) -> np.ndarray:
        return scores if self.corrector is None else self.corrector.calibrate(scores, task)

    def _predict(self, action: Any, last: bool) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        base: Any = self.unwrapped
        known: dict[str, Any] = {}

        def predict(solution: Solution) -> Outcome:
            context = base.context()
            try:
                predicted = self.world_model.predict([solution], [context])
            except InfrastructureError as error:
                known.update(_LOST)
                return Outcome(ExecutionStatus.INFRA_ERROR, feedback=str(error), source="predicted")
            (outcome,), scores = checked_outcomes(predicted, 1)
            calibrated = float(self._calibrate(scores, context.task)[0])
            if outcome.is_infra_error:
                known.update(_LOST)
                return outcome
            known.update(status=outcome.status.value, predicted=float(scores[0]), calibrated=calibrated, score=calibrated)
            return outcome.with_score(calibrated)

        base.execute = predict  # shadows the method for this one step, so that every wrapper in between takes part
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
        finally:
            del base.execute
        wmrl = wmrl_info({**info.get("wmrl", {}), "anchored": False, "true": None, **known})
        return observation, reward, terminated, truncated, {**info, "wmrl": wmrl}

    def _imagine(self, action: Any, last: bool) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        assert self._in_space is not None
        before = np.asarray(self._observations[-1])[None]
        try:
            result = self.world_model.step(before, np.asarray(action)[None])
        except InfrastructureError as error:
            log.warning("The world model failed: %s", error)
            return self._observations[-1], 0.0, False, True, {"wmrl": wmrl_info({"anchored": False, **_LOST})}
        observations, rewards, terminated = checked_steps(result, before, self._score_range)
        reward = float(self._calibrate(rewards)[0])
        observation = self._in_space(observations)[0]
        self._observations = [observation]
        known = {"status": "ok", "predicted": float(rewards[0]), "calibrated": reward, "score": reward, "anchored": False}
        return observation, reward, bool(terminated[0]), False, {"wmrl": wmrl_info(known)}

    def _judge(self, action: Any, last: bool) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = self.env.step(action)
        self._observations.append(observation)
        self._actions.append(action)
        hidden = dict.fromkeys(("score", "raw_score", "best_score", "true"))  # its true reward stays unread
        known: dict[str, Any] = {"status": "ok", **info.get("wmrl", {}), "anchored": False, **hidden}
        reward = 0.0
        if (terminated or truncated or last) and known["status"] != "infra_error":
            task = task_of(self.env)
            episode = Episode(self._observations, self._actions, instruction_of(self._observations[0]), task)
            try:
                answer = self.world_model.score([episode])
            except InfrastructureError as error:
                log.warning("The world model failed: %s", error)
                return observation, 0.0, False, True, {**info, "wmrl": wmrl_info({**known, **_LOST})}
            scores = checked_rewards(answer, 1, self._score_range)
            reward = float(self._calibrate(scores, task)[0])
            known |= {"predicted": float(scores[0]), "calibrated": reward, "score": reward}
        return observation, reward, terminated, truncated, {**info, "wmrl": wmrl_info(known)}
