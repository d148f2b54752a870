"""`ProcessSandbox`: runs solutions on this machine without a daemon, in namespaces or behind Landlock.

A server process, started once in the sandbox's own interpreter, has the usual libraries imported and forks a supervisor for
every job (`box/`). It has a clean environment, none of our memory, and ends with us.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from pathlib import Path

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from wmrl_envs.errors import InfrastructureError
from wmrl_envs.execution.base import Job, Sandbox
from wmrl_envs.execution.classify import classify
from wmrl_envs.execution.client import Server, encode
from wmrl_envs.execution.environment import load_environment
from wmrl_envs.execution.reaper import reap
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
_MAX_CODE_BYTES = 1 << 20
_ANSWER_GRACE_S = 90.0


class ProcessSandbox(Sandbox):
    """The embedded sandbox.

    Args:
        environment: name or folder of a sandbox environment (`wmrl sandbox build`).
        warm: fork solutions from a process that has the usual libraries imported; False starts a fresh interpreter each.
        tier: "auto", or the isolation to use: "namespaces", "landlock", "unsafe".
        preload: modules the warm process imports.
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
        allow_unsafe: bool = False,
        preload: Sequence[str] = PRELOAD,
        attempts: int = 3,
    ):
        self.environment = load_environment(environment)
        self.warm = warm
        self.tier = choose_tier(self.environment, tier, allow_unsafe=allow_unsafe)
        reap()
        self._server = Server(self.environment, tuple(preload) if warm else ())
        self._attempts = attempts
        self._finalizer = weakref.finalize(self, self._server.close)

    @property
    def lock(self) -> str:
        return self.environment.digest

    def run_job(self, job: Job) -> Execution:
        problem = _unusable_code(job.code)
        if problem:
            return Execution(ExecutionStatus.AGENT_ERROR, exit_code=1, stderr=problem, tier=self.tier)
        message = encode(job, self.environment, self.tier, self.warm)
        retrying = Retrying(
            retry=retry_if_exception_type(InfrastructureError),
            stop=stop_after_attempt(self._attempts),
            wait=wait_exponential_jitter(0.1, 2.0),
            before_sleep=lambda state: log.warning("execution failed, trying again: %s", state.outcome.exception()),  # type: ignore[union-attr]
            reraise=True,
        )
        return retrying(self._once, job, message)

    def close(self) -> None:
        self._finalizer()

    def _once(self, job: Job, message: bytes) -> Execution:
        answer, (out, err, submission) = self._server.ask(message, job.limits.timeout_s + _ANSWER_GRACE_S)
        if "infra" in answer:
            raise InfrastructureError(f"The sandbox ({self.tier}) failed: {answer['infra']}")
        stderr = err.decode("utf-8", "replace")
        status = classify(answer["killed"], answer["exit"], stderr, answer["problem"])
        succeeded = status is ExecutionStatus.OK and answer["has_submission"]
        return Execution(
            status=status,
            exit_code=answer["exit"],
            stdout=out.decode("utf-8", "replace"),
            stderr=stderr,
            submission=submission if succeeded else None,
            submission_problem=answer["problem"],
            wall_s=answer["wall_s"],
            cpu_s=answer["cpu_s"],
            peak_memory_mb=answer["peak_memory_mb"],
            tier=self.tier,
            detail=f"ended at the limit: {answer['killed']}" if answer["killed"] else "",
        )


def _unusable_code(code: str) -> str | None:
    """Why `code` is not even tried, in one sentence for the agent; None if it is."""
    if not code.strip():
        return "The program is empty: there is nothing to execute."
    if "\0" in code:
        return "SyntaxError: the program contains null bytes; source code must be plain text."
    if len(code) > _MAX_CODE_BYTES:
        return f"The program has {len(code) / 2**20:.1f} MiB of source code; at most {_MAX_CODE_BYTES >> 20} MiB is accepted."
    try:
        code.encode()
    except UnicodeEncodeError as error:
        return f"SyntaxError: the program contains characters that are not valid Unicode text (position {error.start})."
    return None
