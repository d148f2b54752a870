"""`Sb3VecEnv`: an `AnchoredVecEnv` as a Stable-Baselines3 `VecEnv` (the two interfaces differ in every method)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from wmrl_envs.errors import InvalidInput, MissingExtra
from wmrl_envs.spaces import UnicodeText
from wmrl_envs.wrappers.anchored_vec_env import AnchoredVecEnv

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError:
    raise MissingExtra("stable-baselines3", "sb3", "Sb3VecEnv") from None


class Sb3VecEnv(VecEnv):
    """`venv` for Stable-Baselines3. It takes the vector environment over: sets it to SAME_STEP and closes it.

    Infos of every step hold `wmrl` (a dict of this slot's values), `TimeLimit.truncated`, and for `VecMonitor`'s
    `info_keywords` always `anchored` (bool), `wm_reward` (the episode's return so far by calibrated predictions) and
    `real_reward` (by real execution; NaN in predicted episodes). At the end of an episode `terminal_observation`.

    Stable-Baselines3 knows no weights: with the buffers of `wmrl_train.integrations.sb3` its algorithms apply them. For
    `ep_rew_mean` put SB3's `Monitor` into `env_fns` (it counts predicted rewards too) or `VecMonitor` around this; `anchored`
    says which episodes are real.
    """

    def __init__(self, venv: AnchoredVecEnv):
        if not isinstance(venv, AnchoredVecEnv):
            raise InvalidInput(f"Sb3VecEnv of a {type(venv).__name__}: expected an AnchoredVecEnv.")
        for what, space in (("observation", venv.single_observation_space), ("action", venv.single_action_space)):
            if _has_text(space):
                raise TypeError(
                    f"the {what} space is {space}: Stable-Baselines3 has no text spaces; embed the text with an "
                    "ObservationWrapper and choose among programs with a Discrete action, or train with `wmrl train`."
                )
        self.venv = venv
        venv.set_autoreset_mode(AutoresetMode.SAME_STEP)
        self._actions: Any = None
        self._wm = np.zeros(venv.num_envs)
        self._real = np.zeros(venv.num_envs)
        super().__init__(venv.num_envs, venv.single_observation_space, venv.single_action_space)

    def reset(self) -> Any:
        # SB3 has counted the seed up slot by slot; the vector environment does so itself, group by group.
        seed = None if self._seeds[0] is None else int(self._seeds[0])
        observations, infos = self.venv.reset(seed=seed, options=self._options[0] or None)
        self.reset_infos = split_infos(infos, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        self._wm[:], self._real[:] = 0, 0
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        observations, rewards, terminated, truncated, vector_infos = self.venv.step(self._actions)
        dones = terminated | truncated
        finals = vector_infos.pop("final_info", None)
        final_obs = vector_infos.pop("final_obs", None)
        for key in ("_final_info", "_final_obs"):
            vector_infos.pop(key, None)
        infos = split_infos(vector_infos, self.num_envs)
        ended = split_infos(finals, self.num_envs) if finals is not None else infos
        for i in range(self.num_envs):
            if dones[i]:
                self.reset_infos[i], infos[i] = infos[i], ended[i]
                infos[i]["terminal_observation"] = final_obs[i]
            self._account(i, infos[i]["wmrl"], float(rewards[i]))
            anchored = infos[i]["wmrl"]["anchored"]
            infos[i] |= {
                "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
                "anchored": anchored,
                "wm_reward": float(self._wm[i]),
                "real_reward": float(self._real[i]) if anchored else float("nan"),
            }
            if dones[i]:
                self._wm[i] = self._real[i] = 0
        return observations, rewards.astype(np.float32), dones, infos

    def _account(self, i: int, wmrl: dict[str, Any], reward: float) -> None:
        """Add up the episode's return by prediction and for real."""
        self._real[i] += reward
        if "calibrated" in wmrl:
            # An outcome's score is the best of an episode's attempts; rewards of steps and of whole episodes add up.
            score = wmrl["calibrated"]
            self._wm[i] = max(self._wm[i], score) if self.venv.kind == "outcome" else self._wm[i] + score

    def close(self) -> None:
        self.venv.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        if self.render_mode != "rgb_array":
            warnings.warn(f"render_mode is {self.render_mode!r}, images need 'rgb_array'.", stacklevel=2)
            return [None] * self.num_envs
        return list(self.venv.render())

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [env.get_wrapper_attr(attr_name) for env in self._targets(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        for env in self._targets(indices):
            env.set_wrapper_attr(attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        return [env.get_wrapper_attr(method_name)(*method_args, **method_kwargs) for env in self._targets(indices)]

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: Any = None) -> list[bool]:
        """Whether the wrapper is around the real environments; they act on predictions too."""
        from stable_baselines3.common.env_util import is_wrapped

        return [is_wrapped(env, wrapper_class) for env in self._targets(indices)]

    def _targets(self, indices: Any) -> list[gymnasium.Env]:
        return [self.venv.envs[i] for i in self._get_indices(indices)]


def split_infos(infos: dict[str, Any], n: int) -> list[dict[str, Any]]:
    """Gymnasium's dict of arrays with masks as one dict a slot, of plain Python values."""
    out: list[dict[str, Any]] = [{} for _ in range(n)]
    for key, values in infos.items():
        mask = infos.get(f"_{key}")
        if mask is None or isinstance(mask, dict):
            continue
        if isinstance(values, dict):
            parts: Sequence[Any] = split_infos(values, n)
        else:
            parts = values.tolist() if values.ndim == 1 and values.dtype != object else values
        for i in np.flatnonzero(mask).tolist():
            out[i][key] = deepcopy(parts[i]) if isinstance(parts[i], (dict, list, np.ndarray)) else parts[i]
    return out


def _has_text(space: spaces.Space) -> bool:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return any(_has_text(part) for part in (space.values() if isinstance(space, spaces.Dict) else space))
    return isinstance(space, (spaces.Text, UnicodeText))
