"""`ProcessSandbox`: runs solutions on this machine without a daemon, in namespaces or behind Landlock.

A server process, started once in the sandbox's own interpreter, has the usual libraries imported and forks a supervisor for
every job (`box/`). It has a clean environment, none of our memory, and ends with us.
"""

from __future__ import annotations

import itertools
import logging
import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.execution.base import CGROUP, Job, Sandbox
from wmrl_envs.execution.classify import to_execution, unusable_code
from wmrl_envs.execution.environment import load_environment
from wmrl_envs.execution.process.box import cgroup
from wmrl_envs.execution.process.client import Server, encode, granted_cores
from wmrl_envs.execution.process.gpus import GpuLeases
from wmrl_envs.execution.process.holders import Holders
from wmrl_envs.execution.process.reaper import reap
from wmrl_envs.execution.selftest import choose_tier
from wmrl_envs.outcome import Execution, ExecutionStatus

log = logging.getLogger(__name__)

#: Imported by the warm server; names the environment does not have are left out.
PRELOAD = (
    "numpy", "pandas", "scipy.sparse", "scipy.stats", "sklearn.linear_model", "sklearn.ensemble", "sklearn.model_selection",
    "sklearn.preprocessing", "sklearn.pipeline", "sklearn.compose", "sklearn.impute", "sklearn.metrics", "sklearn.tree",
    "sklearn.feature_extraction.text", "sklearn.neighbors", "sklearn.svm", "sklearn.naive_bayes", "sklearn.decomposition",
    "sklearn.cluster", "sklearn.dummy", "sklearn.feature_selection", "sklearn.calibration",
)  # fmt: skip
_ANSWER_GRACE_S = 90.0


class ProcessSandbox(Sandbox):
    """The embedded sandbox.

    Args:
        environment: name or folder of a sandbox environment (`wmrl sandbox build`).
        warm: fork solutions from a process that has the usual libraries imported; False starts a fresh interpreter each.
        tier: "auto", or the isolation to use: "namespaces", "landlock", "unsafe".
        preload: modules the warm process imports.
        cpus: cores a solution may use, taken in turn (default: all).
        gpus: indices or UUIDs of the GPUs to lend, one solution a GPU. Not tested on a GPU machine.
        held: how many preludes are kept executed (`Job.hold`); the least recently used end.
        held_mb: MiB that they may take together.
        allow_unsafe: run untrusted code although this machine cannot isolate it.
        attempts: how often a run is tried when the sandbox itself fails, before `InfrastructureError` is raised.

    Raises:
        DataNotBuilt: the environment does not exist. IsolationError: this machine cannot isolate untrusted code.
    """

    def __init__(
        self,
        environment: str | Path = "default",
        *,
        warm: bool = True,
        tier: str = "auto",
        cpus: int | None = None,
        gpus: Sequence[str | int] = (),
        allow_unsafe: bool = False,
        preload: Sequence[str] = PRELOAD,
        attempts: int = 3,
        held: int = 32,
        held_mb: int = 2048,
    ):
        self.environment = load_environment(environment)
        self.warm = warm
        self._isolation = choose_tier(self.environment, tier, allow_unsafe=allow_unsafe)
        self._group = cgroup.usable_group()
        self.tier = self._isolation + (CGROUP if self._group else "")
        self._gpus = GpuLeases(gpus)
        self._cores, self._jobs = _core_sets(cpus), itertools.count()
        reap()
        if self._group:
            cgroup.remove_dead(self._group)
        self._server = Server(self.environment, tuple(preload) if warm else ())
        self._holders = Holders(self._server, held if warm else 0, held_mb)
        self._attempts = attempts
        self._finalizer = weakref.finalize(self, _close, self._holders, self._server)

    @property
    def lock(self) -> str:
        return self.environment.digest

    @property
    def packages(self) -> tuple[str, ...]:
        return self.environment.packages

    def run_job(self, job: Job) -> Execution:
        problem = unusable_code(job.code)
        if problem:
            return Execution(ExecutionStatus.AGENT_ERROR, exit_code=1, stderr=problem, tier=self.tier)
        retrying = Retrying(
            retry=retry_if_exception(lambda e: isinstance(e, InfrastructureError) and not self._server.closed),
            stop=stop_after_attempt(self._attempts),
            wait=wait_random_exponential(multiplier=0.1, max=2.0),
            before_sleep=lambda state: log.warning("execution failed, trying again: %s", state.outcome.exception()),  # type: ignore[union-attr]
            reraise=True,
        )
        with self._gpus.lease() as gpu:
            devices = GpuLeases.nodes(gpu) if gpu else []
            if gpu:
                job = replace(job, env={**job.env, "CUDA_VISIBLE_DEVICES": gpu})
            return retrying(self._once, job, devices, next(self._cores) or self._granted(job))

    def close(self) -> None:
        self._finalizer()

    def _granted(self, job: Job) -> list[int]:
        """The cores for a job where `cpus` does not say it: so many that one worker a core stays within its limit of
        processes.
        """
        available = sorted(os.sched_getaffinity(0))
        n = granted_cores(len(available), job.limits.processes)
        first = n * next(self._jobs) % len(available)
        return [available[(first + i) % len(available)] for i in range(n)]

    def _once(self, job: Job, devices: list[str], cpus: list[int]) -> Execution:
        held = self._holders.lend(job) if job.hold else None
        asked = job if held is None else replace(job, prelude="")  # it has been executed there
        venv, prefix = str(self.environment.root), str(self.environment.base_prefix)
        message = encode(
            asked, venv, prefix, self._isolation, self.warm, devices=devices, cpus=cpus, cpu_count=len(cpus), group=self._group
        )
        try:
            control = None if held is None else held.control
            answer, parts = self._server.ask(message, job.limits.timeout_s + _ANSWER_GRACE_S, control)
        except InfrastructureError:
            self._holders.forget(job)  # it may be the holder that is gone
            raise
        if "infra" in answer:
            raise InfrastructureError(f"The sandbox ({self.tier}) failed: {answer['infra']}")
        execution = to_execution(answer, parts, self.tier)
        return execution if held is None else replace(execution, setup_cpu_s=held.take_cpu_s())


def _close(holders: Holders, server: Server) -> None:
    server.close()
    holders.close()


def _core_sets(cpus: int | None) -> Iterator[list[int]]:
    """Endlessly: the cores of the next solution; [] for all."""
    if cpus is None:
        return itertools.repeat([])
    available = sorted(os.sched_getaffinity(0))
    if not 1 <= cpus <= len(available):
        raise InvalidInput(f"cpus={cpus}: this machine lets us use 1 to {len(available)}.")
    return itertools.cycle([available[i : i + cpus] for i in range(0, len(available) - cpus + 1, cpus)])
