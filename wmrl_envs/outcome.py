"""The records everything else exchanges: `Solution` (what an agent proposes), `Execution` (what a sandbox saw) and
`Outcome` (what the agent is told and paid), whether it was executed or predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal


class ExecutionStatus(StrEnum):
    """How an attempt ended. All but `INFRA_ERROR` are the agent's own doing and score 0 (except `OK`).

    >>> ExecutionStatus("timeout").is_agents_own
    True
    >>> ExecutionStatus.INFRA_ERROR.is_agents_own
    False
    """

    OK = "ok"
    AGENT_ERROR = "agent_error"  # the program raised, exited non-zero or was killed by a signal of its own making
    TIMEOUT = "timeout"  # wall clock
    MEMORY = "memory"  # memory of the whole process tree
    PROCESSES = "processes"  # number of processes and threads
    OUTPUT = "output"  # flooded stdout or stderr
    DISK = "disk"  # file size, disk space or number of files
    INVALID_SUBMISSION = "invalid_submission"  # ran, but its submission is missing, unreadable, too large or fails validation
    INFRA_ERROR = "infra_error"  # ours: retried, then the whole group is dropped; the pair never enters the anchor pool

    @property
    def is_agents_own(self) -> bool:
        return self is not ExecutionStatus.INFRA_ERROR


@dataclass(frozen=True)
class Solution:
    """One proposal of an agent.

    Attributes:
        code: the program, for environments that execute code ("" otherwise).
        task: key of the task it was written for (a competition slug, a LIBERO task name).
        action: the action itself, for environments that do not execute code.
        problem: why no program could be read from the action (then nothing is executed and the agent is told this).
    """

    code: str = ""
    task: str = ""
    action: Any = None
    problem: str | None = None


@dataclass(frozen=True)
class Execution:
    """What a sandbox saw of one run. Times in seconds, memory in MiB of the whole process tree.

    Attributes:
        submission: the bytes the program left at SUBMISSION_PATH, or None (absent, refused or too large).
        submission_problem: why `submission` is None although something lies there ("is a FIFO", "600 MiB, limit 512").
        tier: the isolation it ran under ("namespaces", "landlock", "docker", "unsafe"; "replay" for a recorded run).
        cached: answered from the execution cache (`wall_s` and `cpu_s` are those of the recorded run).
        graded: how the submission was graded when it was recorded, for a replay from a bank that keeps no submissions:
            {"raw_score": value of the metric}, or {"error", "feedback"} of an invalid one.
    """

    status: ExecutionStatus
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    submission: bytes | None = None
    submission_problem: str | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_mb: float = 0.0
    tier: str = "unsafe"
    cached: bool = False
    detail: str = ""
    graded: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a solution, executed or predicted.

    Attributes:
        score: in [0, 1]; the leaderboard position score for competitions, success for LIBERO. Of an executed outcome 0 unless `status` is ok; a
            prediction's is the expected score, so that one that will probably fail is worth a little.
        raw_score: value of the task's own metric, or None.
        feedback: the text the agent reads next turn, in the same format from either source.
        source: "executed", "predicted" or "replayed".
        confidence: of a prediction, in [0, 1]; 1 for executions.
        wall_s, cpu_s: cost of obtaining it (recorded cost for replays).
        details: JSON-able extras (board positions, verdicts of the checks, calibrated score).
    """

    status: ExecutionStatus
    score: float = 0.0
    raw_score: float | None = None
    feedback: str = ""
    source: Literal["executed", "predicted", "replayed"] = "executed"
    confidence: float = 1.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_mb: float = 0.0
    tier: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_infra_error(self) -> bool:
        return self.status is ExecutionStatus.INFRA_ERROR

    def with_score(self, score: float) -> Outcome:
        """The same outcome with another score (a calibrated prediction)."""
        return replace(self, score=float(score))
