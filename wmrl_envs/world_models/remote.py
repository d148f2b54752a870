"""Moved to `wmrl_envs.world_models.reward.remote`; this name goes with the next release."""

import warnings

from wmrl_envs.world_models.reward.remote import *  # noqa: F403

warnings.warn("wmrl_envs.world_models.remote is now wmrl_envs.world_models.reward.remote", DeprecationWarning, stacklevel=2)
