"""Reward models: a score for a finished episode from its pictures (Robometer, a server, progress)."""
