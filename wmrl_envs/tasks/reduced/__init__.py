"""Reduced copies of a competition: fewer training rows, fewer test rows, the same files, columns and boards."""

from wmrl_envs.tasks.reduced.copy import CannotReduce, Reduced, reduce_competition, why_not_reduced

__all__ = ["CannotReduce", "Reduced", "reduce_competition", "why_not_reduced"]
