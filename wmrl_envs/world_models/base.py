"""Moved to `wmrl_envs.context` and `wmrl_envs.world_models.protocols`; this name goes with the next release."""

import warnings

from wmrl_envs.context import Episode, FileInfo, TaskContext
from wmrl_envs.world_models.protocols import DynamicsModel, OutcomeModel, RewardModel

__all__ = ["DynamicsModel", "Episode", "FileInfo", "OutcomeModel", "RewardModel", "TaskContext"]

warnings.warn(
    "wmrl_envs.world_models.base is now wmrl_envs.context and wmrl_envs.world_models.protocols",
    DeprecationWarning,
    stacklevel=2,
)
