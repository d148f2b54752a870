"""Which of the three kinds a world model is, and checks on what it returns."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers
from gymnasium.wrappers import TimeLimit

from wmrl_envs.correction.scores import ScoreRange, check_scores
from wmrl_envs.envs.executable import ExecutableEnv
from wmrl_envs.errors import InvalidInput
from wmrl_envs.outcome import Outcome
from wmrl_envs.world_models.protocols import DynamicsModel, OutcomeModel, RewardModel

Kind = Literal["outcome", "reward", "dynamics"]
_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def world_model_kind(world_model: Any, env: gymnasium.Env) -> Kind:
    """The kind of `world_model`, told by its method, once it is clear that it fits `env`."""
    name = type(world_model).__name__
    if isinstance(world_model, gymnasium.Env):
        raise InvalidInput(
            f"world_model is an environment ({name}), whose `step` takes one action: to predict with a cheaper environment, "
            "pass CheapEnvModel(make_env), with a function that makes it."
        )
    if isinstance(world_model, OutcomeModel):
        if not isinstance(env.unwrapped, ExecutableEnv):
            raise InvalidInput(
                f"{name} predicts outcomes, but {type(env.unwrapped).__name__} is not an ExecutableEnv (propose, execute, "
                "observe): pass a dynamics model (`step`) or a reward model (`score`) instead."
            )
        if not env.unwrapped.replaceable:
            raise InvalidInput(
                f"{name} predicts outcomes, but what {type(env.unwrapped).__name__} shows next is no function of an outcome "
                "(its simulator must have moved): pass a reward model (`score`), which reads the reward off real episodes."
            )
        return "outcome"
    if isinstance(world_model, RewardModel):
        return "reward"
    if isinstance(world_model, DynamicsModel):
        base = env.unwrapped
        for what, space in (("observation", base.observation_space), ("action", base.action_space)):
            if not isinstance(space, _ARRAYS):
                raise InvalidInput(f"{name} is a dynamics model, which needs arrays, but the {what} space is {space}.")
        return "dynamics"
    raise InvalidInput(
        f"world_model of type {name}: expected a method `predict` (outcomes), `score` (rewards) or `step` (dynamics)."
    )


def time_limit(env: gymnasium.Env, explicit: int | None) -> int | None:
    """Steps after which an episode is truncated: `explicit`, else the TimeLimit wrapper in the chain, else the spec."""
    if explicit is not None:
        if isinstance(explicit, bool) or not isinstance(explicit, int) or explicit < 1:
            raise InvalidInput(f"max_episode_steps={explicit!r}: expected a whole number of at least 1, or None.")
        return explicit
    layer: Any = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, TimeLimit):
            return layer._max_episode_steps
        layer = layer.env
    return None if env.spec is None else env.spec.max_episode_steps


_OUTSIDE = {
    wrappers.NormalizeReward: "gymnasium.wrappers.vector.NormalizeReward",
    wrappers.NormalizeObservation: "gymnasium.wrappers.vector.NormalizeObservation",
    wrappers.RecordVideo: "gymnasium.wrappers.vector.RecordVideo",
}


def warn_of_statistics(env: gymnasium.Env) -> None:
    """Warn of wrappers that keep statistics (or films) of one slot, where predicted and real episodes take turns."""
    layer: Any = env
    while isinstance(layer, gymnasium.Wrapper):
        outside = _OUTSIDE.get(type(layer))
        if outside is not None:
            warnings.warn(
                f"{type(layer).__name__} inside env_fns sees the predicted and the real episodes of one slot, each slot for "
                f"itself: use {outside} around the AnchoredVecEnv instead.",
                stacklevel=3,
            )
        layer = layer.env


def checked_outcomes(outcomes: Any, n: int) -> tuple[list[Outcome], np.ndarray]:
    """The predictions of an outcome model and their scores, one a solution, each score in [0, 1]."""
    outcomes = list(outcomes)
    if len(outcomes) != n:
        raise InvalidInput(f"the world model returned {len(outcomes)} predictions for {n} solutions: expected one each.")
    return outcomes, check_scores([o.score for o in outcomes], "predicted score of the world model", (0.0, 1.0))


def checked_rewards(scores: Any, n: int, score_range: ScoreRange) -> np.ndarray:
    """The scores of a reward model, one an episode."""
    scores = np.atleast_1d(np.asarray(scores, dtype=float))
    if scores.shape != (n,):
        raise InvalidInput(f"the world model returned scores of shape {scores.shape} for {n} episodes: expected one each.")
    return check_scores(scores, "predicted score of the world model", score_range)


def checked_steps(result: Any, observations: np.ndarray, score_range: ScoreRange) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The step of a dynamics model: observations like those given, rewards (n,), terminated (n,) bool, all finite."""
    n = len(observations)
    if not isinstance(result, (tuple, list)) or len(result) != 3:
        given = f"{len(result)} values" if isinstance(result, (tuple, list)) else f"a {type(result).__name__}"
        raise InvalidInput(f"the world model's step returned {given}: expected three, (observations, rewards, terminated).")
    try:
        predicted, rewards, terminated = (np.asarray(part) for part in result)
    except (RuntimeError, TypeError, ValueError) as error:  # a tensor with a gradient, or on another device
        raise InvalidInput(
            f"the world model's step returned something that is no array ({error}): return numpy arrays, of a tensor "
            "`tensor.detach().cpu().numpy()`."
        ) from None
    if predicted.shape != observations.shape or rewards.shape != (n,) or terminated.shape != (n,):
        raise InvalidInput(
            f"the world model returned observations {predicted.shape}, rewards {rewards.shape} and terminated "
            f"{terminated.shape} for {n} steps from observations {observations.shape}: expected {observations.shape}, ({n},) "
            f"and ({n},)."
        )
    if predicted.dtype.kind not in "fiub" or not np.isfinite(predicted).all():
        raise InvalidInput("the world model predicted an observation that is not finite: check what it was fitted on.")
    return predicted, check_scores(rewards, "predicted reward of the world model", score_range), terminated.astype(bool)


class InSpace:
    """Predicted observations as members of a space: cast to its dtype and, for a Box, clipped to its bounds."""

    def __init__(self, space: spaces.Space):
        self.dtype: Any = space.dtype
        self.low: Any = None
        self.high: Any = None
        if isinstance(space, spaces.Box):
            self.low, self.high = space.low, space.high
        elif isinstance(space, spaces.Discrete):
            self.low, self.high = space.start, space.start + space.n - 1

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        if np.issubdtype(self.dtype, np.integer) and not np.issubdtype(observations.dtype, np.integer):
            observations = np.rint(observations)
        if self.low is not None:
            observations = np.minimum(np.maximum(observations, self.low), self.high)  # np.clip, in half the time
        return observations.astype(self.dtype, copy=False)


def instruction_of(observation: Any) -> str:
    """The language instruction in an observation, if it carries one."""
    return str(observation["instruction"]) if isinstance(observation, dict) and "instruction" in observation else ""


def task_of(env: gymnasium.Env) -> str:
    """The task an environment is playing: of its context, else the id of its spec."""
    base = env.unwrapped
    if isinstance(base, ExecutableEnv):
        return base.context().task
    return "" if env.spec is None else env.spec.id


def stack(rows: Sequence[Any]) -> np.ndarray:
    """Observations or actions of single environments as one array."""
    return np.array(rows)
