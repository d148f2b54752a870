"""Running a solution for real: sandboxes, their limits, and a cache of what they saw."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from wmrl_envs.execution.base import ExecutionLimits, Job, Sandbox

_LAZY = {
    "ProcessSandbox": "wmrl_envs.execution.process.sandbox",
    "DockerSandbox": "wmrl_envs.execution.docker",
    "ExecutionBank": "wmrl_envs.execution.recorded.bank",
    "RaySandbox": "wmrl_envs.execution.cluster.ray",
    "ReplaySandbox": "wmrl_envs.execution.recorded.store",
    "make_sandbox": "wmrl_envs.execution.factory",
    "describe": "wmrl_envs.execution.classify",
}
__all__ = [
    "DockerSandbox",
    "ExecutionBank",
    "ExecutionLimits",
    "Job",
    "ProcessSandbox",
    "RaySandbox",
    "ReplaySandbox",
    "Sandbox",
    "describe",
    "make_sandbox",
]

if TYPE_CHECKING:
    from wmrl_envs.execution.classify import describe
    from wmrl_envs.execution.cluster.ray import RaySandbox
    from wmrl_envs.execution.docker import DockerSandbox
    from wmrl_envs.execution.factory import make_sandbox
    from wmrl_envs.execution.process.sandbox import ProcessSandbox
    from wmrl_envs.execution.recorded.bank import ExecutionBank
    from wmrl_envs.execution.recorded.store import ReplaySandbox


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'wmrl_envs.execution' has no attribute {name!r}")
