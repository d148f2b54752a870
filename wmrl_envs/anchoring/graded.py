"""`Graded`: what became of one question, predicted, executed or both; the only writer of the wrappers' `info["wmrl"]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wmrl_envs.info import Measured, wmrl_info
from wmrl_envs.outcome import ExecutionStatus


@dataclass(slots=True)
class Graded:
    """A solution (outcome models), a step's reward (dynamics models) or an episode (reward models) after grading.

    Attributes:
        score: what it is paid, at the base environment: true if anchored, else calibrated; None after a failure of ours.
        predicted: raw score of the world model; None without a prediction.
        calibrated: the same after the map in force; None without a prediction.
        true: by execution; only of anchored ones, the others' true score stays unread.
        failed: why it cannot be graded at all (a failure of ours: never a score), or None.
        unpredicted: why there is no prediction, or None; an anchor goes on without one and makes no pair.
        wall_s: seconds of obtaining what is used.
        cpu_s: CPU seconds of obtaining what is used.
        cached: answered from a store of executions.
        remembered: it is not anchored, but was executed before: its truth is known, and is no pair.
        group: id of its group, or None.
        task: key of its task.
        used: what the environment is told, an Outcome or a step's 5-tuple: `prediction` or `execution`.
        prediction: what the world model said, or None.
        execution: what the execution said, or None.
    """

    status: str = ExecutionStatus.OK.value
    score: float | None = None
    raw_score: float | None = None
    predicted: float | None = None
    calibrated: float | None = None
    true: float | None = None
    anchored: bool = False
    failed: str | None = None
    unpredicted: str | None = None
    wall_s: float | None = None
    cpu_s: float = 0.0
    cached: bool = False
    remembered: bool = False
    group: int | None = None
    task: str | None = None
    used: Any = None
    prediction: Any = None
    execution: Any = None
    question: Any = field(default=None, repr=False)  # what was asked, for a world model that learns

    @classmethod
    def lost(cls, why: str, *, anchored: bool = False, group: int | None = None, task: str | None = None) -> Graded:
        """A failure of ours: no score of any kind."""
        return cls(ExecutionStatus.INFRA_ERROR.value, anchored=anchored, failed=why, unpredicted=why, group=group, task=task)

    def take_prediction(self, raw: float, calibrated: float) -> None:
        """The world model's score, raw and calibrated; it is paid unless an execution is."""
        self.predicted, self.calibrated = raw, calibrated
        if not self.anchored:
            self.score = calibrated

    def take_truth(self, true: float) -> None:
        """The score by execution of an anchored question: what is paid."""
        self.true = self.score = true

    def known(self, own: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The entries of `info["wmrl"]` that this decides, over those of the environment itself (`own`); None: not known.

        Of a failure of ours only the status is left, and how long it took.
        """
        if self.failed is not None:
            return {"status": self.status, "wall_s": self.wall_s}
        out: dict[str, Any] = dict(own) if own else {}
        if self.wall_s is not None:
            out["wall_s"] = self.wall_s
        out["status"], out["raw_score"] = self.status, self.raw_score
        out["score"], out["predicted"], out["calibrated"], out["true"] = self.score, self.predicted, self.calibrated, self.true
        return out

    def info(self, own: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """`info["wmrl"]` of a single environment, with every key of the contract."""
        known = self.known(own)
        if known.get("wall_s") is not None:
            known["wall_s"] = Measured(known["wall_s"])
        return wmrl_info({**known, "anchored": self.anchored, "group": self.group, "weight": float(self.failed is None)})


class Pair(NamedTuple):
    """A prediction that met its execution."""

    predicted: float
    true: float
    group: int | None = None
    task: str | None = None


def pairs_of(graded: Sequence[Graded]) -> list[Pair]:
    """The pairs among them: one failed member takes the pairs of its group with it."""
    lost = {g.group for g in graded if g.failed is not None}
    return [
        Pair(g.predicted, g.true, g.group, g.task)
        for g in graded
        if g.true is not None and g.predicted is not None and not g.remembered and (g.group is None or g.group not in lost)
    ]
