"""Moved to `wmrl_envs.world_models.reward.frames`; this name goes with the next release."""

import warnings

from wmrl_envs.world_models.reward.frames import *  # noqa: F403

warnings.warn("wmrl_envs.world_models.frames is now wmrl_envs.world_models.reward.frames", DeprecationWarning, stacklevel=2)
