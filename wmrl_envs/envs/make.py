"""The environment of a competition, by its slug."""

from __future__ import annotations

from typing import Any

from wmrl_envs.envs.dsbench import DSBenchEnv
from wmrl_envs.envs.mle_dojo import MLEDojoEnv
from wmrl_envs.tasks.catalog import catalog


def make_env(task: str, **kwargs: Any) -> MLEDojoEnv:
    """The environment a task belongs to: `DSBenchEnv` for DSBench's, `MLEDojoEnv` otherwise; `kwargs` are its arguments."""
    facts = catalog().get(task)
    return (DSBenchEnv if facts is not None and facts.split == "dsbench" else MLEDojoEnv)(task, **kwargs)
