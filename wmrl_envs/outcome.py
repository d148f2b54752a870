"""The records everything else exchanges: `Solution` (what an agent proposes), `Execution` (what a sandbox saw), `Feedback`
(what the agent is told) and `Outcome` (what became of it), whether it was executed or predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal


class ExecutionStatus(StrEnum):
    """How an execution ended. All but `INFRA_ERROR` are the agent's own doing and score 0 (except `OK`).

    >>> ExecutionStatus("timeout").is_agents_own
    True
    >>> ExecutionStatus.INFRA_ERROR.is_agents_own
    False
    """

    OK = "ok"
    AGENT_ERROR = "agent_error"  # the program raised, exited non-zero or was killed by a signal of its own making
    TIMEOUT = "timeout"  # wall clock or CPU time; `Execution.detail` says which
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
class RecordedGrade:
    """How a submission was graded when its run was recorded; its place on the boards is worked out anew.

    Attributes:
        raw_score: value of the metric; None where it is undefined, or the submission was refused.
        error: why it was refused ("InvalidSubmissionError: ..."), None if it was accepted.
        feedback: the text the agent was given with the refusal.
    """

    raw_score: float | None = None
    error: str | None = None
    feedback: str = ""


@dataclass(frozen=True)
class Execution:
    """What a sandbox saw of one run. Times in seconds, memory in MiB of the whole process tree.

    Attributes:
        submission: the bytes the program left at SUBMISSION_PATH, or None (absent, refused or too large).
        submission_problem: why `submission` is None although something lies there ("is a FIFO", "600 MiB, limit 512").
        tier: the isolation it ran under ("namespaces", "landlock", "docker", "unsafe"; "replay" for a recorded run); with
            "+cgroup" where the kernel limits all memory of the run together, else what its processes show is counted.
        detail: the limit it was ended at ("ended at the limit: cpu"), or "".
        setup_cpu_s: CPU seconds spent with this run for later ones too (reading data that many programs start from).
        cached: answered from the execution cache (`wall_s` and `cpu_s` are those of the recorded run).
        graded: how the submission was graded when it was recorded, for a replay from a bank that keeps no submissions.
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
    setup_cpu_s: float = 0.0
    tier: str = "unsafe"
    cached: bool = False
    detail: str = ""
    graded: RecordedGrade | None = None


@dataclass(frozen=True)
class BoardPosition:
    """Place on one board: `rank` in 1..total + 1, `total` entries, position `score` in [0, 1], and the `medal` of that rank.

    `medal`: "gold", "silver", "bronze" or None.
    """

    rank: int
    total: int
    score: float
    medal: str | None = None


@dataclass(frozen=True)
class Position:
    """Place on the boards there are; `score` is the mean of their position scores."""

    score: float
    private: BoardPosition | None = None
    public: BoardPosition | None = None


@dataclass(frozen=True)
class SubmissionProblem:
    """Why a submission got no score, in MLE-Dojo's terms.

    Attributes:
        kind: class shown in brackets: "SubmissionNotFoundError", "InvalidSubmissionError", "EvaluationError", ...
        message: one line.
        details: what is wrong and where; written for the agent that has to fix it.
    """

    kind: str
    message: str
    details: str = ""


@dataclass(frozen=True)
class Feedback:
    """What there is to tell an agent about one program, whoever knows it: grading, a recorded run or a world model.

    `wmrl_envs.tasks.feedback.render` is the only one that makes a text of it; what it says of the best attempt so far, the
    environment adds when it renders.

    Attributes:
        failure: why the program did not come to its end; None if it did.
        output: what it printed.
        errors: the end of what it wrote to stderr, where that is to be told.
        seconds: how long it ran.
        notice: said in place of "Execution successful".
        problem: why its submission got no score; None if it was accepted (or there was none, after a failure).
        position: places on the boards, where they are to be told.
        score: position score in [0, 1], None where it is not known.
        raw_score: value of the metric, likewise.
    """

    failure: str | None = None
    output: str = ""
    seconds: float = 0.0
    problem: SubmissionProblem | None = None
    position: Position | None = None
    score: float | None = None
    raw_score: float | None = None
    errors: str = ""
    notice: str | None = None

    @property
    def accepted(self) -> bool:
        """Whether there is a submission that was scored."""
        return self.failure is None and self.problem is None


@dataclass(frozen=True)
class Outcome:
    """What became of a solution, executed or predicted.

    Attributes:
        score: in [0, 1]; the leaderboard position score for competitions, success for LIBERO. Of an executed outcome 0 unless
            `status` is ok; a prediction's is the expected score, so that one that will probably fail is worth a little.
        raw_score: value of the task's own metric, or None.
        feedback: what the agent is told of this attempt alone, as a text.
        source: "executed", "predicted" or "replayed".
        confidence: of a prediction, in [0, 1]; 1 for executions.
        wall_s: seconds that it took to obtain (as recorded, for replays).
        cpu_s: CPU seconds that it took to obtain (likewise).
        report: the record behind `feedback`; an environment renders it with what it knows of the episode. Without one (a world
            model that writes text only) the text of a failure is shown as it is, and that of a success is made of its scores.
        position: places on the leaderboards.
        relative_gap: DSBench's.
        cached: answered from the execution cache.
        error: what the grader or the infrastructure said, in one line; None where nothing was wrong.
        error_type: of a prediction: class of the error that it expects.
        error_line: of a prediction: line of that error.
        p_valid: of a prediction: P(the submission is accepted).
        spread: standard deviation of an ensemble's scores.
        steps: simulator steps taken (LIBERO).
        details: JSON-able extras of one source, for reports that look into that source.
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
    report: Feedback | None = None
    position: Position | None = None
    relative_gap: float | None = None
    cached: bool = False
    error: str | None = None
    error_type: str | None = None
    error_line: int | None = None
    p_valid: float | None = None
    spread: float | None = None
    steps: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_infra_error(self) -> bool:
        return self.status is ExecutionStatus.INFRA_ERROR

    def with_score(self, score: float) -> Outcome:
        """The same outcome with another score (a calibrated prediction)."""
        return replace(self, score=float(score))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Outcome:
        """From what `dataclasses.asdict` gave, perhaps by way of JSON; a version that kept fields in `details` is read too."""
        details = dict(data.get("details") or {})
        moved = {name: details.pop(name) for name in _ONCE_DETAILS if name in details and name not in data}
        report, position = data.get("report"), data.get("position")
        return cls(
            **{
                **data,
                **moved,
                "status": ExecutionStatus(data["status"]),
                "report": report and _feedback(report),
                "position": position and _position(position),
                "details": details,
            }
        )


_ONCE_DETAILS = ("relative_gap", "cached", "error", "error_type", "error_line", "p_valid", "spread", "steps")


def _feedback(data: Mapping[str, Any]) -> Feedback:
    problem, position = data["problem"], data["position"]
    return Feedback(
        **{**data, "problem": problem and SubmissionProblem(**problem), "position": position and _position(position)}
    )


def _position(data: Mapping[str, Any]) -> Position:
    private, public = (side and BoardPosition(**side) for side in (data["private"], data["public"]))
    return Position(data["score"], private, public)
