"""Gymnasium environments whose expensive step can be executed or predicted, the world models that predict it, and
the correction that keeps predictions honest. Importing this package loads neither torch nor transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import gymnasium

__version__ = "0.1.0"

_LAZY = {
    "WorldModelEnv": "wmrl_envs.wrappers.world_model_env",
    "AnchoredVecEnv": "wmrl_envs.wrappers.anchored_vec_env",
    "StaticWorldModel": "wmrl_envs.world_models.static.model",
    "SimulatorWorldModel": "wmrl_envs.world_models.simulator.model",
    "LowFidelityWorldModel": "wmrl_envs.world_models.low_fidelity",
    "StackedWorldModel": "wmrl_envs.world_models.stacked",
    "EnsembleWorldModel": "wmrl_envs.world_models.ensemble",
    "CheapEnvModel": "wmrl_envs.world_models.cheap_env",
    "Solution": "wmrl_envs.outcome",
    "Execution": "wmrl_envs.outcome",
    "ExecutionStatus": "wmrl_envs.outcome",
    "Outcome": "wmrl_envs.outcome",
    "UnicodeText": "wmrl_envs.spaces",
    "ExecutableEnv": "wmrl_envs.envs.executable",
}
__all__ = [
    "AnchoredVecEnv",
    "CheapEnvModel",
    "EnsembleWorldModel",
    "ExecutableEnv",
    "Execution",
    "ExecutionStatus",
    "LowFidelityWorldModel",
    "Outcome",
    "SimulatorWorldModel",
    "Solution",
    "StackedWorldModel",
    "StaticWorldModel",
    "UnicodeText",
    "WorldModelEnv",
    "__version__",
    "register_envs",
]

if TYPE_CHECKING:
    from wmrl_envs.envs.executable import ExecutableEnv
    from wmrl_envs.outcome import Execution, ExecutionStatus, Outcome, Solution
    from wmrl_envs.spaces import UnicodeText
    from wmrl_envs.world_models.cheap_env import CheapEnvModel
    from wmrl_envs.world_models.ensemble import EnsembleWorldModel
    from wmrl_envs.world_models.low_fidelity import LowFidelityWorldModel
    from wmrl_envs.world_models.simulator.model import SimulatorWorldModel
    from wmrl_envs.world_models.stacked import StackedWorldModel
    from wmrl_envs.world_models.static.model import StaticWorldModel
    from wmrl_envs.wrappers.anchored_vec_env import AnchoredVecEnv
    from wmrl_envs.wrappers.world_model_env import WorldModelEnv


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'wmrl_envs' has no attribute {name!r}")


_ENVS = {  # id -> (entry point, nondeterministic: real execution has a wall clock, so a borderline program can flip)
    "MLEDojo-v0": ("wmrl_envs.envs.mle_dojo:MLEDojoEnv", True),
    "DSBench-v0": ("wmrl_envs.envs.dsbench:DSBenchEnv", True),
    "LIBERO-Long-v0": ("wmrl_envs.envs.libero_long:LiberoLongEnv", False),
}


def register_envs() -> None:
    """Register the environments with Gymnasium (done on import; `gymnasium.make("wmrl_envs:MLEDojo-v0")` imports it, and so do
    the gymnasium releases that read the entry point `gymnasium.envs`).
    """
    for env_id, (entry_point, nondeterministic) in _ENVS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=entry_point, nondeterministic=nondeterministic)


register_envs()
