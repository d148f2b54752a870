"""Moved to `wmrl_envs.world_models.reward.robometer`; this name goes with the next release."""

import warnings

from wmrl_envs.world_models.reward.robometer import *  # noqa: F403

warnings.warn(
    "wmrl_envs.world_models.robometer is now wmrl_envs.world_models.reward.robometer", DeprecationWarning, stacklevel=2
)
