"""What a configuration says about environments of programs."""

from __future__ import annotations

from typing import Any

from wmrl_envs.execution.base import ExecutionLimits
from wmrl_train.config.schema import Config


def env_kwargs(config: Config) -> dict[str, Any]:
    """Keyword arguments of the environments, the sandbox apart."""
    tasks, execution = config.tasks, config.execution
    return {
        "data_dir": tasks.data_dir, "max_turns": tasks.max_turns, "reward_mode": tasks.reward_mode, "scaffold": tasks.scaffold,
        "observation_tokens": tasks.observation_tokens, "max_rows": tasks.max_rows, "timeout_s": execution.timeout_s,
        "limits": ExecutionLimits(timeout_s=execution.timeout_s, memory_mb=execution.memory_mb, cpu_s=execution.cpu_s),
        **tasks.options,
    }  # fmt: skip
