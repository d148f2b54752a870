"""Prediction by static analysis: a program is followed through its data without being run."""

from wmrl_envs.world_models.static.model import StaticWorldModel

__all__ = ["StaticWorldModel"]
