"""`FlatInfos`: infos for libraries that read numbers by name and nothing else (torchrl)."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper


class FlatInfos(VectorWrapper):
    """Infos without nested dictionaries and texts: `infos["wmrl"]["score"]` becomes `infos["wmrl_score"]`, with its mask
    `_wmrl_score`.

    Columns of numbers and truth values stay, others (texts, objects) go; `final_obs` stays as it is, `final_info` is flat too.

    >>> import gymnasium as gym
    >>> from wmrl_envs import AnchoredVecEnv, CheapEnvModel
    >>> make = lambda: gym.make("CartPole-v1")
    >>> venv = FlatInfos(AnchoredVecEnv([make] * 2, CheapEnvModel(make)))
    >>> infos = venv.reset(seed=0)[1]
    >>> infos["wmrl_weight"].tolist(), "wmrl" in infos
    ([1.0, 1.0], False)
    """

    def __init__(self, env: VectorEnv):
        super().__init__(env)
        # Readers ask the outermost object for the mode, and gymnasium's wrapper does not pass it on.
        self.metadata = dict(env.metadata)
        self.autoreset_mode = self.metadata["autoreset_mode"]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        return observations, flat(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        *result, infos = self.env.step(actions)
        return (*result, flat(infos))


def flat(infos: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The columns of a vector environment's infos, nested names joined by "_"."""
    out: dict[str, Any] = {}
    for key, value in infos.items():
        if key in ("final_info", "_final_info", "final_obs", "_final_obs"):
            out[key] = flat(value) if isinstance(value, dict) else value
            continue
        private, name = key.startswith("_"), key.lstrip("_")
        whole = f"{'_' if private else ''}{prefix}{name}"
        if isinstance(value, dict):
            out |= flat(value, f"{prefix}{name}_")
        elif (
            isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and not (private and isinstance(infos.get(name), dict))
        ):
            out[whole] = value
    return {key: value for key, value in out.items() if not key.startswith("_") or key[1:] in out}
