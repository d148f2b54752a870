"""`WorldModelEnv`: one environment whose expensive step is predicted."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs

from wmrl_envs.anchoring.kinds import time_limit, world_model_kind
from wmrl_envs.anchoring.slots import make_slots
from wmrl_envs.correction import Corrector
from wmrl_envs.world_models.protocols import Seedable


class WorldModelEnv(gymnasium.Wrapper, RecordConstructorArgs):
    """`env` with a world model in place of its expensive part; any kind of world model, told by its method.

    The model sits at the base environment (`env.unwrapped`): every wrapper of `env` acts on what it predicts, too.

    * `predict`: the environment proposes and observes, the model replaces `execute`.
    * `step`: the environment only resets, the model replaces its transitions; an episode ends by the model's
      `terminated` or, truncated, at the time limit.
    * `score`: the environment is stepped for real, the reward is 0 until the end and the model's score there.

    Args:
        corrector: calibrates the predictions (it learns nothing here: there are no anchors); default: raw predictions.
        max_episode_steps: time limit; default: the TimeLimit wrapper in the chain, else the spec.
        retries: further attempts after the world model failed for reasons of ours.

    `info["wmrl"]` has `predicted`, `calibrated`, `score`, `anchored=False` and `weight` (1, or 0 after a failure of
    ours). A failure of ours (of the world model too) cuts the episode short: reward 0, truncated, `status` "infra_error", no
    score.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        world_model: Any,
        *,
        corrector: Corrector | None = None,
        max_episode_steps: int | None = None,
        retries: int = 2,
    ):
        RecordConstructorArgs.__init__(  # so that `env.spec` can make the environment again
            self, world_model=world_model, corrector=corrector, max_episode_steps=max_episode_steps, retries=retries,
            _disable_deepcopy=True,
        )  # fmt: skip
        gymnasium.Wrapper.__init__(self, env)
        self.kind = world_model_kind(world_model, env)
        self.world_model, self.corrector = world_model, corrector
        self.max_episode_steps = time_limit(env, max_episode_steps)
        self._slots = make_slots(self.kind, [env], world_model, corrector, retries=retries)
        self._elapsed: int | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None and isinstance(self.world_model, Seedable):
            self.world_model.seed(seed)
        observation, info = self._slots.reset(0, seed=seed, options=options)
        self._elapsed = 0
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._elapsed is None:
            raise ResetNeeded("step() before reset(): call reset() first.")
        self._elapsed += 1
        last = self._elapsed == self.max_episode_steps
        (t,) = self._slots.step([0], [action], [last])
        info = {**t.info, "wmrl": t.graded.info(t.info.get("wmrl"))}
        return t.observation, t.reward, t.terminated, t.truncated or last, info
