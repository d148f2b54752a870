"""From eight verdicts to one outcome: failures cap the score, the quality check scores what is valid. Every weight is here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wmrl_envs.context import TaskContext
from wmrl_envs.errors import InvalidInput
from wmrl_envs.outcome import ExecutionStatus, Feedback, Outcome, Solution
from wmrl_envs.tasks.feedback import EXECUTION_HEADER, of_text, render, unreadable
from wmrl_envs.world_models.simulator.verdict import Verdict
from wmrl_envs.world_models.static.feedback import failure, success, timeout
from wmrl_envs.world_models.static.values import Finding

STATUS = {"compute": ExecutionStatus.TIMEOUT, "submission": ExecutionStatus.INVALID_SUBMISSION}  # others: agent_error


@dataclass(frozen=True)
class AggregationWeights:
    """How verdicts become a score.

    A failed check with confidence c caps the score at `1 - severity * c`; the score is `min(cap, quality)`.

    Attributes:
        severity: how far a certain failure of a check pulls the cap down, in [0, 1]; checks not named here have 1.
        default_quality: quality without a readable quality verdict.
        quality_trust: quality = trust * verdict's score + (1 - trust) * default_quality.
        fail_threshold: `severity * confidence` from which the outcome's status is a failure.
    """

    severity: Mapping[str, float] = field(default_factory=lambda: {"compute": 0.9})
    default_quality: float = 0.5
    quality_trust: float = 1.0
    fail_threshold: float = 0.5

    def __post_init__(self) -> None:
        numbers = {**self.severity, "default_quality": self.default_quality, "quality_trust": self.quality_trust}
        for name, value in {**numbers, "fail_threshold": self.fail_threshold}.items():
            if not 0.0 <= value <= 1.0:
                raise InvalidInput(f"AggregationWeights: {name}={value!r} is outside [0, 1].")

    def doubt(self, check: str, verdict: Verdict) -> float:
        """How far one verdict pulls the cap down."""
        return self.severity.get(check, 1.0) * verdict.confidence if verdict.verdict == "fail" and check != "quality" else 0.0


def aggregate(
    solution: Solution, context: TaskContext, verdicts: Mapping[str, Verdict], weights: AggregationWeights
) -> Outcome:
    """The predicted outcome of a solution from the verdicts of its checks."""
    doubts = {name: weights.doubt(name, v) for name, v in verdicts.items()}
    cap = 1.0 - max(doubts.values(), default=0.0)
    judged = verdicts.get("quality")
    quality = weights.default_quality
    if judged is not None and judged.parsed and judged.score is not None:
        quality = weights.quality_trust * judged.score + (1.0 - weights.quality_trust) * weights.default_quality
    score = min(cap, quality)
    worst = max(doubts, key=lambda name: doubts[name], default=None)
    failed = worst is not None and doubts[worst] > 0.0 and doubts[worst] >= weights.fail_threshold
    details: dict[str, Any] = {
        "world_model": "simulator",
        "quality": quality,
        "verdicts": {name: v.model_dump() | {"parsed": v.parsed} for name, v in verdicts.items()},
        "unparsed": sum(not v.parsed for v in verdicts.values()),
    }
    if not failed or worst is None:
        sure = [v.confidence for name, v in verdicts.items() if name != "quality"]
        confidence = sum(sure) / len(sure) if sure else 0.0
        return _outcome(ExecutionStatus.OK, score, success(score, 0.0), confidence=confidence, p_valid=cap, details=details)
    verdict = verdicts[worst]
    return _outcome(
        STATUS.get(worst, ExecutionStatus.AGENT_ERROR),
        score,
        _feedback(solution, context, worst, verdict),
        confidence=verdict.confidence,
        p_valid=cap,
        error_type=verdict.error_type,
        error_line=verdict.error_line,
        details=details | {"failed_check": worst},
    )


def no_program(solution: Solution) -> Outcome:
    """The outcome of an answer without a program; no check is asked about it."""
    told = unreadable(solution.problem or "no program")
    details = {"world_model": "simulator", "verdicts": {}}
    return _outcome(ExecutionStatus.AGENT_ERROR, 0.0, told, p_valid=0.0, error_type="NoCode", details=details)


def _outcome(status: ExecutionStatus, score: float, told: Feedback, **fields: Any) -> Outcome:
    return Outcome(status, score, feedback=render(told), source="predicted", report=told, **fields)


def _feedback(solution: Solution, context: TaskContext, check: str, verdict: Verdict) -> Feedback:
    """The verdict's own text if it has the sandbox's form, else the same content in the sandbox's form."""
    text = verdict.env_feedback or ""
    if text.startswith(EXECUTION_HEADER):
        return of_text(text)
    if check == "compute":
        return timeout(context)
    if text.startswith(("Execution failed", "Execution successful")):
        return of_text(text)
    if text.startswith(("Traceback", '  File "')):
        return of_text(f"Execution failed: {text}")
    kind = verdict.error_type or ("InvalidSubmissionError" if check == "submission" else "RuntimeError")
    message = text.removeprefix(f"{kind}: ") or verdict.reason
    line = verdict.error_line or len(solution.code.splitlines()) or 1
    return failure(solution, Finding("simulator", check, line, kind, message, verdict.confidence), 0.0)
