"""From eight verdicts to one outcome: failures cap the score, the quality check scores what is valid. Every weight is here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wmrl_envs.context import TaskContext
from wmrl_envs.errors import InvalidInput
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution
from wmrl_envs.tasks.feedback import EXECUTION_HEADER
from wmrl_envs.world_models.simulator.verdict import Verdict
from wmrl_envs.world_models.static.feedback import failure_text, success_text, timeout_text
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
        "p_valid": cap,
        "quality": quality,
        "verdicts": {name: v.model_dump() | {"parsed": v.parsed} for name, v in verdicts.items()},
        "unparsed": sum(not v.parsed for v in verdicts.values()),
        "error_type": None,
        "error_line": None,
    }
    if not failed or worst is None:
        sure = [v.confidence for name, v in verdicts.items() if name != "quality"]
        confidence = sum(sure) / len(sure) if sure else 0.0
        return Outcome(ExecutionStatus.OK, score, None, success_text(score, 0.0), "predicted", confidence, details=details)
    verdict = verdicts[worst]
    details |= {"error_type": verdict.error_type, "error_line": verdict.error_line, "failed_check": worst}
    status = STATUS.get(worst, ExecutionStatus.AGENT_ERROR)
    feedback = _feedback(solution, context, worst, verdict)
    return Outcome(status, score, None, feedback, "predicted", verdict.confidence, details=details)


def _feedback(solution: Solution, context: TaskContext, check: str, verdict: Verdict) -> str:
    """The verdict's own text if it has the sandbox's form, else the same content written by the sandbox's writer."""
    text = verdict.env_feedback or ""
    if text.startswith(EXECUTION_HEADER):
        return text
    if check == "compute":
        return timeout_text(context)
    if text.startswith(("Execution failed", "Execution successful")):
        return f"{EXECUTION_HEADER}\n{text}"
    if text.startswith(("Traceback", '  File "')):
        return f"{EXECUTION_HEADER}\nExecution failed: {text}"
    kind = verdict.error_type or ("InvalidSubmissionError" if check == "submission" else "RuntimeError")
    message = text.removeprefix(f"{kind}: ") or verdict.reason
    line = verdict.error_line or len(solution.code.splitlines()) or 1
    return failure_text(solution, Finding("simulator", check, line, kind, message, verdict.confidence), 0.0)
