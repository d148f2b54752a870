"""Predicting by really running the program, on a reduced copy of its task."""

from wmrl_envs.world_models.low_fidelity.model import LowFidelityWorldModel

__all__ = ["LowFidelityWorldModel"]
