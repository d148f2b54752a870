"""`EnsembleWorldModel`: several world models as one, with their spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from wmrl_envs.context import TaskContext
from wmrl_envs.errors import InvalidInput
from wmrl_envs.outcome import Outcome, Solution
from wmrl_envs.world_models.protocols import LearningModel, OutcomeModel, Resumable

Combine = Literal["mean", "worst", "stacking"]
MIN_PAIRS = 30  # executed outcomes before stacking replaces the mean
MAX_PAIRS = 2048
KEPT = 0.98  # of the running mean of the spread, a solution
RIDGE = 1.0  # pull of the stacking weights towards the mean, in pairs


class EnsembleWorldModel:
    """Combines the scores of its members.

    "mean": their mean. "worst": the lowest (a cautious reward). "stacking": non-negative weights fitted online to executed
    outcomes, the mean until 30 of them are there. The spread (standard deviation of the members' scores) is in `spread`; status
    and feedback are those of the member whose score is closest to the combined one.

    A member that fails for reasons of ours has no say in that prediction; where all fail, so does the ensemble.

    Args:
        members: outcome models; those that learn are updated too.
        combine: how.
    """

    def __init__(self, members: Sequence[OutcomeModel], combine: Combine = "mean"):
        if not members:
            raise InvalidInput("EnsembleWorldModel(members=[]): expected at least one world model.")
        if combine not in get_args(Combine):
            raise InvalidInput(f"EnsembleWorldModel(combine={combine!r}): expected one of {', '.join(get_args(Combine))}.")
        self.members, self.combine = list(members), combine
        self._spread: dict[str, float] = {}  # task -> running mean
        self._pairs: list[tuple[list[float], float]] = []  # members' scores before they learnt from the outcome, true score

    @property
    def weights(self) -> np.ndarray:
        """Weight of each member, shape (members,); they sum to 1 for "mean"."""
        n = len(self.members)
        if self.combine != "stacking" or len(self._pairs) < MIN_PAIRS:
            return np.full(n, 1.0 / n)
        from scipy.optimize import nnls

        x = np.array([p for p, _ in self._pairs])
        y = np.array([t for _, t in self._pairs])
        pull = np.sqrt(RIDGE) * np.eye(n)
        return nnls(np.vstack([x, pull]), np.concatenate([y, pull @ np.full(n, 1.0 / n)]))[0]

    def predict(self, solutions: Sequence[Solution], contexts: Sequence[TaskContext]) -> list[Outcome]:
        """One predicted outcome a solution, in order."""
        answers = self._answers(solutions, contexts)
        weights = self.weights
        combined = [self._combined([a[i] for a in answers], weights) for i in range(len(solutions))]
        for context, outcome in zip(contexts, combined, strict=True):
            if (spread := outcome.spread) is None:
                continue
            self._spread[context.task] = spread + KEPT * (self._spread.get(context.task, spread) - spread)
        return combined

    def spread(self, task: str) -> float:
        """How much the members have lately disagreed about solutions of a task; of an unknown task, as much as about any. For
        anchors' priority.
        """
        return self._spread.get(task, max(self._spread.values(), default=0.0))

    def _answers(self, solutions: Sequence[Solution], contexts: Sequence[TaskContext]) -> list[list[Outcome]]:
        answers = [member.predict(solutions, contexts) for member in self.members]
        for member, answer in zip(self.members, answers, strict=True):
            if len(answer) != len(solutions):
                raise InvalidInput(f"{type(member).__name__} gave {len(answer)} predictions for {len(solutions)} solutions.")
            for outcome in answer:
                if not isinstance(outcome, Outcome) or not 0 <= outcome.score <= 1:
                    raise InvalidInput(
                        f"{type(member).__name__} predicted {outcome!r:.200}: expected an Outcome with a score in [0, 1]."
                    )
        return answers

    def _combined(self, outcomes: list[Outcome], weights: np.ndarray) -> Outcome:
        sound = [i for i, o in enumerate(outcomes) if not o.is_infra_error]
        if not sound:
            return outcomes[0]
        if len(sound) < len(outcomes):
            outcomes, weights = [outcomes[i] for i in sound], weights[sound]
            weights = weights / weights.sum() if weights.sum() > 0 else np.full(len(sound), 1 / len(sound))
        scores = np.array([o.score for o in outcomes])
        score = float(scores.min()) if self.combine == "worst" else float(np.clip(scores @ weights, 0.0, 1.0))
        nearest = outcomes[int(np.abs(scores - score).argmin())]
        details = {**nearest.details, "world_model": "ensemble", "member_scores": [float(s) for s in scores]}
        valid = [o.p_valid for o in outcomes if o.p_valid is not None]
        p_valid = float(min(valid) if self.combine == "worst" else np.mean(valid)) if valid else None
        spread = float(scores.std())
        confidence = float(np.mean([o.confidence for o in outcomes]) * (1.0 - min(1.0, 2.0 * spread)))
        return replace(
            nearest, score=score, source="predicted", confidence=confidence, p_valid=p_valid, spread=spread, details=details
        )

    def update(self, solutions: Sequence[Solution], contexts: Sequence[TaskContext], outcomes: Sequence[Outcome]) -> None:
        """Learn from executed outcomes: first the stacking weights (from predictions made before), then the members."""
        used = [i for i, o in enumerate(outcomes) if o.source != "predicted" and not o.is_infra_error]
        if not used:
            return
        s, c, o = [solutions[i] for i in used], [contexts[i] for i in used], [outcomes[i] for i in used]
        if self.combine == "stacking":
            answers = self._answers(s, c)
            self._pairs += [([float(a[i].score) for a in answers], float(o[i].score)) for i in range(len(used))]
            del self._pairs[:-MAX_PAIRS]
        for member in self.members:
            if isinstance(member, LearningModel):
                member.update(s, c, o)

    def state_dict(self) -> dict[str, Any]:
        """JSON-able state of the weights and of the members that have one."""
        members = [m.state_dict() if isinstance(m, Resumable) else None for m in self.members]
        return {"pairs": [[list(p), t] for p, t in self._pairs], "members": members, "spread": dict(self._spread)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""
        if len(state["members"]) != len(self.members):
            raise InvalidInput(f"The state is of {len(state['members'])} members, this ensemble has {len(self.members)}.")
        self._spread = dict(state.get("spread", {}))
        self._pairs = [([float(x) for x in p], float(t)) for p, t in state["pairs"]]
        for member, part in zip(self.members, state["members"], strict=True):
            if part is not None:
                member.load_state_dict(part)  # type: ignore[attr-defined]
