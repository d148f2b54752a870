"""`StackedWorldModel`: several world models as one, weighed by what the executed programs say of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from cachetools import LRUCache

from wmrl_envs.context import TaskContext
from wmrl_envs.errors import InvalidInput
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution
from wmrl_envs.world_models.protocols import LearningModel, OutcomeModel, Priced, Resumable
from wmrl_envs.world_models.stacking import Weights, fitted

REMEMBERED = 8192  # programs whose predictions wait for their execution
MAX_PAIRS = 4096
KEPT = 0.98  # of the running mean of the doubt about a task
DOUBT = 0.2  # standard deviation of a score before anything was executed


@dataclass(frozen=True)
class Pair:
    """An executed program. `said`: P(valid) and score if valid of each member asked before it learnt of it,
    None of the others.
    """

    task: str
    said: tuple[tuple[float, float] | None, ...]
    valid: bool
    score: float


class StackedWorldModel:
    """Combines its members by what the anchors teach.

    P(valid) and the score of a valid program are stacked apart: a logistic and a linear model on what the members said before
    they learnt of a program, for all tasks together and, drawn towards that, for each task. Before there are pairs it answers
    as its most trusted member, the first one; so the first should be the best. Cheap members are asked first; those that cost
    executions (`Priced`) are asked for the share `budget` of the programs, the ones the cheap ones are least sure of.

    Args:
        members: outcome models, the most trusted one first.
        budget: share of the programs for which expensive members are asked, in [0, 1].
    """

    def __init__(self, members: Sequence[OutcomeModel], budget: float = 1.0):
        if not members:
            raise InvalidInput("StackedWorldModel(members=[]): expected at least one world model.")
        if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not 0 <= budget <= 1:
            raise InvalidInput(f"StackedWorldModel(budget={budget!r}): expected a share of the programs between 0 and 1.")
        self.members, self.budget = list(members), float(budget)
        self._expensive = frozenset(i for i, m in enumerate(self.members) if isinstance(m, Priced))
        self._cheap = frozenset(range(len(self.members))) - self._expensive
        if budget < 1 and not (self._cheap and self._expensive):
            raise InvalidInput(
                f"StackedWorldModel(budget={budget:g}): a budget is for members that cost executions beside one that does not; "
                "leave it at 1, or add StaticWorldModel()."
            )
        self._asked: LRUCache[tuple[str, str], dict[int, tuple[float, float]]] = LRUCache(REMEMBERED)
        self._pairs: list[Pair] = []
        self._weights: dict[frozenset[int], Weights] = {}
        self._credit = 0.0
        self._doubt: dict[str, float] = {}

    # ---- prediction -------------------------------------------------------------------------------------------------
    def predict(self, solutions: Sequence[Solution], contexts: Sequence[TaskContext]) -> list[Outcome]:
        """One predicted outcome a solution, in order; `cpu_s` is what the members' executions cost together."""
        answers: list[dict[int, Outcome]] = [{} for _ in solutions]
        self._ask(self._cheap or self._expensive, range(len(solutions)), solutions, contexts, answers)
        if self._cheap and self._expensive:
            self._ask(self._expensive, self._unsure(contexts, answers), solutions, contexts, answers)
        combined = []
        for solution, context, said in zip(solutions, contexts, answers, strict=True):
            sound = {i: o for i, o in said.items() if not o.is_infra_error}
            self._asked[context.task, solution.code] = {i: _opinion(o) for i, o in sound.items()}
            combined.append(self._combined(context.task, sound) if sound else next(iter(said.values())))
        return combined

    def spread(self, task: str) -> float:
        """Standard deviation of the score that is left in doubt about solutions of a task; of an unknown task,
        as much as of any.
        """
        return self._doubt.get(task, max(self._doubt.values(), default=DOUBT))

    def close(self) -> None:
        """Close the members that can be."""
        for member in self.members:
            if isinstance(member, Priced):
                member.close()

    def _ask(
        self,
        members: frozenset[int],
        which: Sequence[int],
        solutions: Sequence[Solution],
        contexts: Sequence[TaskContext],
        answers: list[dict[int, Outcome]],
    ) -> None:
        if not which:
            return
        some, their = [solutions[i] for i in which], [contexts[i] for i in which]
        for m in sorted(members):
            name = type(self.members[m]).__name__
            said = self.members[m].predict(some, their)
            if len(said) != len(some):
                raise InvalidInput(f"{name} gave {len(said)} predictions for {len(some)} solutions.")
            for i, outcome in zip(which, said, strict=True):
                if not isinstance(outcome, Outcome) or not 0 <= outcome.score <= 1:
                    raise InvalidInput(f"{name} predicted {outcome!r:.200}: expected an Outcome with a score in [0, 1].")
                answers[i][m] = outcome

    def _unsure(self, contexts: Sequence[TaskContext], answers: list[dict[int, Outcome]]) -> list[int]:
        """The programs worth an expensive answer, within the budget over all calls."""
        if self.budget >= 1:
            return list(range(len(answers)))
        self._credit += self.budget * len(answers)
        n = min(math.floor(self._credit + 1e-9), len(answers))
        self._credit -= n
        doubts = [
            self._variance(c.task, {i: _opinion(o) for i, o in a.items()}) for c, a in zip(contexts, answers, strict=True)
        ]
        return sorted(sorted(range(len(answers)), key=lambda i: (-doubts[i], i))[:n])

    def _variance(self, task: str, said: Mapping[int, tuple[float, float]]) -> float:
        weights = self._fit(frozenset(said))
        p, score = weights.predict(task, [said[i] for i in sorted(said)])
        return p * (1 - p) * score**2 + p * weights.residual(task, DOUBT) ** 2

    def _combined(self, task: str, said: Mapping[int, Outcome]) -> Outcome:
        opinions = {i: _opinion(o) for i, o in said.items()}
        p, score = self._fit(frozenset(said)).predict(task, [opinions[i] for i in sorted(said)])
        doubt = math.sqrt(self._variance(task, opinions))
        self._doubt[task] = doubt + KEPT * (self._doubt.get(task, doubt) - doubt)
        order = sorted(said)
        told = said[next((i for i in order if (said[i].status is ExecutionStatus.OK) == (p >= 0.5)), order[0])]
        return replace(
            told, score=min(max(p * score, 0.0), 1.0), p_valid=p, confidence=max(p, 1 - p), source="predicted",
            spread=float(np.std([said[i].score for i in order])), cpu_s=sum(o.cpu_s for o in said.values()),
            wall_s=sum(o.wall_s for o in said.values()), cached=any(o.cached for o in said.values()),
            details={**told.details, "world_model": "stacked", "asked": order,
                     "member_scores": [float(said[i].score) for i in order]},
        )  # fmt: skip

    # ---- learning ---------------------------------------------------------------------------------------------------
    def update(self, solutions: Sequence[Solution], contexts: Sequence[TaskContext], outcomes: Sequence[Outcome]) -> None:
        """Learn from executed outcomes: first the weights, from what was said before, then the members.
        Nothing is asked for it.
        """
        rows = [
            r for r in zip(solutions, contexts, outcomes, strict=True) if r[2].source != "predicted" and not r[2].is_infra_error
        ]
        for solution, context, outcome in rows:
            said = self._asked.get((context.task, solution.code))
            if said:
                opinions = tuple(said.get(i) for i in range(len(self.members)))
                self._pairs.append(Pair(context.task, opinions, outcome.status is ExecutionStatus.OK, float(outcome.score)))
        del self._pairs[:-MAX_PAIRS]
        self._weights.clear()
        for member in self.members:
            if rows and isinstance(member, LearningModel):
                member.update(*map(list, zip(*rows, strict=True)))

    def _fit(self, members: frozenset[int]) -> Weights:
        """The weights of these members, from the pairs for which all of them were asked."""
        if members not in self._weights:
            order = sorted(members)
            rows = [
                (p.task, [p.said[i] for i in order], p.valid, p.score) for p in self._pairs if all(p.said[i] for i in order)
            ]
            self._weights[members] = fitted(rows, len(order))  # type: ignore[arg-type]
        return self._weights[members]

    def state_dict(self) -> dict[str, Any]:
        """JSON-able state of the weights and of the members that have one; loading it gives the same predictions."""
        members = [m.state_dict() if isinstance(m, Resumable) else None for m in self.members]
        pairs = [[p.task, [None if s is None else list(s) for s in p.said], p.valid, p.score] for p in self._pairs]
        return {"pairs": pairs, "credit": self._credit, "doubt": dict(self._doubt), "members": members}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`.

        Raises:
            InvalidInput: it is of another stack.
        """
        if len(state["members"]) != len(self.members):
            raise InvalidInput(f"The state is of {len(state['members'])} members, this stack has {len(self.members)}.")
        self._pairs = [
            Pair(str(task), tuple(None if s is None else (float(s[0]), float(s[1])) for s in said), bool(valid), float(score))
            for task, said, valid, score in state["pairs"]
        ]
        self._credit, self._doubt = float(state["credit"]), dict(state["doubt"])
        self._weights.clear()
        for member, part in zip(self.members, state["members"], strict=True):
            if part is not None and isinstance(member, Resumable):
                member.load_state_dict(part)


def _opinion(outcome: Outcome) -> tuple[float, float]:
    """P(valid) and the score if valid that a prediction implies."""
    p = outcome.p_valid
    if p is None:
        p = outcome.confidence if outcome.status is ExecutionStatus.OK else 1.0 - outcome.confidence
    p = min(max(float(p), 0.005), 0.995)
    return p, min(max(float(outcome.score) / p, 0.0), 1.0)
