"""Wrappers that put a world model in place of an environment's expensive step."""

from wmrl_envs.wrappers.anchored_vec_env import AnchoredVecEnv
from wmrl_envs.wrappers.world_model_env import WorldModelEnv

__all__ = ["AnchoredVecEnv", "WorldModelEnv"]
