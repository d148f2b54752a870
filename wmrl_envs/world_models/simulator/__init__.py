"""Prediction by a language model: single-aspect checks whose verdicts make one outcome (Appendix D, E)."""

from wmrl_envs.world_models.simulator.model import SimulatorWorldModel

__all__ = ["SimulatorWorldModel"]
