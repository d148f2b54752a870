"""`StaticWorldModel`: predicts outcomes without a language model, and learns from executed ones.

Score = P(valid) x quality. P(valid) comes from the failures that static analysis finds, each rule trusted as far as the
executed outcomes bear it out, and from the estimated cost; quality from a prior corrected by a Gaussian process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cachetools import LRUCache

from wmrl_envs.context import TaskContext
from wmrl_envs.errors import InvalidInput
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution
from wmrl_envs.tasks.feedback import render
from wmrl_envs.world_models.static.analyze import Analysis, analyze
from wmrl_envs.world_models.static.branches import NEVER_S
from wmrl_envs.world_models.static.feedback import failure, success, timeout
from wmrl_envs.world_models.static.index.api import ApiIndex, load_index
from wmrl_envs.world_models.static.quality import QualityHead, prior_score
from wmrl_envs.world_models.static.rules.submission import metric_family
from wmrl_envs.world_models.static.values import Finding

ASPECTS = ("imports", "api", "data", "shapes", "compute", "runtime", "submission", "quality")
RULE_WEIGHT = 8.0  # executed outcomes that weigh as much as the confidence a rule starts with
BASE_WEIGHT = 40.0
COST_WEIGHT = 4.0
CACHE_SIZE = 4096
LATE_AT, LATE_SCALE = (
    0.7,
    0.6,
)  # log(estimate / limit) at which half the programs are late, and how sharp that is: the estimate is rough
UNFOLLOWED = 0.95  # times P(valid) of a program that was not followed from its model to its submission


class StaticWorldModel:
    """Eight aspects from static analysis and a quality head that learns online.

    Args:
        sandbox_lock: what is installed in the sandbox: distribution -> version, or a requirements file; None asks the sandbox's
            interpreter.
        learn: whether `update` changes anything.
        base_valid: P(valid) of a program in which nothing was found.
        index: an `ApiIndex` to use instead of the cached one.
    """

    def __init__(
        self,
        sandbox_lock: Mapping[str, str] | str | Path | None = None,
        learn: bool = True,
        base_valid: float = 0.93,
        index: ApiIndex | None = None,
    ):
        if not 0.0 < base_valid < 1.0:
            raise InvalidInput(f"StaticWorldModel(base_valid={base_valid!r}): expected a probability strictly between 0 and 1.")
        self.learn = learn
        self.base_valid = base_valid
        self._lock = sandbox_lock
        self._index = index
        self._rules: dict[str, list[float]] = {}  # rule -> [times it fired and the program failed, times it fired]
        self._base = [0.0, 0.0]  # programs without findings: valid ones, all
        self._cost: dict[str, list[float]] = {}  # estimator family -> [sum of log(true / estimated CPU seconds), count]
        self._quality = QualityHead()
        self._cache: LRUCache[tuple[str, str | None, TaskContext], Analysis] = LRUCache(CACHE_SIZE)

    @property
    def index(self) -> ApiIndex:
        """The interfaces of the sandbox's libraries (made or loaded on first use)."""
        if self._index is None:
            self._index = load_index(self._lock)
        return self._index

    # ---- prediction -------------------------------------------------------------------------------------------------
    def predict(self, solutions: Sequence[Solution], contexts: Sequence[TaskContext]) -> list[Outcome]:
        """One predicted outcome a solution, in order."""
        _same_length(solutions, contexts)
        analyses = [self._analysis(s, c) for s, c in zip(solutions, contexts, strict=True)]
        features = [a.features for a in analyses]
        residual, spread = self._quality.correct([c.task for c in contexts], features)
        rows = zip(solutions, contexts, analyses, residual, spread, strict=True)
        return [self._outcome(s, c, a, float(r), float(sd)) for s, c, a, r, sd in rows]

    def _analysis(self, solution: Solution, context: TaskContext) -> Analysis:
        key = (solution.code, solution.problem, id_of(context))
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = analyze(solution, context, self.index.with_packages(context.installed))
        return found

    def _confidence(self, finding: Finding) -> float:
        """P(the program fails | this rule fired): the rule's own confidence, corrected by what happened."""
        failed, fired = self._rules.get(finding.rule, (0.0, 0.0))
        return (RULE_WEIGHT * finding.confidence + failed) / (RULE_WEIGHT + fired)

    def _p_valid(self, analysis: Analysis, timeout_s: float) -> tuple[float, float]:
        """P(valid) and P(time limit hit)."""
        valid, seen = self._base
        p = (BASE_WEIGHT * self.base_valid + valid) / (BASE_WEIGHT + seen)
        for confidence in _strongest(analysis.findings, self._confidence).values():
            p *= 1.0 - confidence
        if not analysis.followed:
            p *= UNFOLLOWED
        late = self._p_late(analysis, timeout_s)
        return p * (1.0 - late), late

    def _p_late(self, analysis: Analysis, timeout_s: float) -> float:
        total, count = self._cost.get(analysis.family, (0.0, 0.0))
        if not (math.isfinite(timeout_s) and timeout_s > 0):
            return 0.0  # no limit that says anything
        log_cpu = math.log(max(analysis.cpu_s, 1e-3)) + total / (COST_WEIGHT + count)
        return 1.0 / (1.0 + math.exp(-(log_cpu - math.log(timeout_s) - LATE_AT) / LATE_SCALE))

    def _outcome(self, solution: Solution, context: TaskContext, analysis: Analysis, residual: float, spread: float) -> Outcome:
        prior = prior_score(analysis.features, context.category, metric_family(context.metric))
        quality = min(max(prior + residual, 0.0), 1.0)
        p_valid, late = self._p_valid(analysis, context.timeout_s)
        score = min(max(p_valid * quality, 0.0), 1.0)
        worst = max(analysis.findings, key=self._confidence, default=None)
        cause = analysis.fatal or worst
        cpu_s = min(analysis.cpu_s, context.timeout_s)
        error_type = None if cause is None else cause.error_type
        line: int | None = None
        if p_valid >= 0.5:
            status, told, error_type = ExecutionStatus.OK, success(score, cpu_s), None
        elif cause is None or (late > 0.5 and self._confidence(cause) < 0.5):
            status, told = ExecutionStatus.TIMEOUT, timeout(context)
        else:
            own = cause.error_type in ("InvalidSubmissionError", "SubmissionNotFoundError")
            status = ExecutionStatus.INVALID_SUBMISSION if own else ExecutionStatus.AGENT_ERROR
            told, line = failure(solution, cause, cpu_s), cause.line
        # an invalid prediction still carries its expected score in `score`: what the reward is made of
        return Outcome(
            status,
            score,
            feedback=render(told),
            source="predicted",
            confidence=max(p_valid, 1.0 - p_valid) * (1.0 if analysis.read else 0.3),
            report=told,
            error_type=error_type,
            error_line=line,
            p_valid=p_valid,
            details={
                "world_model": "static",
                "quality": quality,
                "quality_spread": spread,
                "verdicts": self._verdicts(analysis, late, quality),
                "features": dict(analysis.features),
                "estimated_cpu_s": analysis.cpu_s,
            },
        )

    def _verdicts(self, analysis: Analysis, late: float, quality: float) -> dict[str, dict[str, Any]]:
        verdicts: dict[str, dict[str, Any]] = {a: {"verdict": "pass", "confidence": 1.0 - 1.0 / 8.0} for a in ASPECTS}
        for finding in analysis.findings:
            p = self._confidence(finding)
            if p >= 0.5 or (verdicts[finding.aspect]["verdict"] == "pass" and p > 1.0 - verdicts[finding.aspect]["confidence"]):
                verdicts[finding.aspect] = {
                    "verdict": "fail" if p >= 0.5 else "pass",
                    "confidence": p if p >= 0.5 else 1.0 - p,
                    "reason": f"{finding.error_type}: {finding.message}",
                    "error_type": finding.error_type,
                    "error_line": finding.line,
                    "rule": finding.rule,
                }
        if late >= 0.5:
            verdicts["compute"] = {"verdict": "fail", "confidence": late, "reason": f"about {analysis.cpu_s:.1f} CPU seconds"}
        verdicts["quality"] = {"verdict": "pass", "confidence": 1.0, "score": quality}
        return verdicts

    # ---- learning ---------------------------------------------------------------------------------------------------
    def update(self, solutions: Sequence[Solution], contexts: Sequence[TaskContext], outcomes: Sequence[Outcome]) -> None:
        """Learn from executed outcomes; predicted ones and failures of the infrastructure are passed over."""
        _same_length(solutions, contexts)
        _same_length(solutions, outcomes)
        if not self.learn:
            return
        for solution, context, outcome in zip(solutions, contexts, outcomes, strict=True):
            if outcome.source == "predicted" or outcome.is_infra_error:
                continue
            if not (0 <= outcome.score <= 1 and 0 <= outcome.cpu_s < math.inf):
                raise InvalidInput(
                    f"An executed outcome with score={outcome.score!r}, cpu_s={outcome.cpu_s!r}: expected a score in [0, 1] "
                    "and seconds of at least 0; nothing was learnt from it."
                )
            self._learn(self._analysis(solution, context), context, outcome)

    def _learn(self, analysis: Analysis, context: TaskContext, outcome: Outcome) -> None:
        ok = outcome.status is ExecutionStatus.OK
        late = outcome.status is ExecutionStatus.TIMEOUT
        strongest = _strongest(analysis.findings, self._confidence)
        if not late:  # how a slow program would have ended is not known
            for rule in strongest:
                count = self._rules.setdefault(rule, [0.0, 0.0])
                count[0] += float(not ok)
                count[1] += 1.0
            if not strongest:
                self._base[0] += float(ok)
                self._base[1] += 1.0
        if (ok or late) and analysis.family and analysis.cpu_s < NEVER_S:
            true = max(outcome.cpu_s, context.timeout_s if late else 1e-3)
            residual = math.log(true / max(analysis.cpu_s, 1e-3))
            total = self._cost.setdefault(analysis.family, [0.0, 0.0])
            total[0] += max(residual, 0.0) if late else residual
            total[1] += 1.0
        if ok and analysis.features:
            prior = prior_score(analysis.features, context.category, metric_family(context.metric))
            self._quality.add(context.task, analysis.features, outcome.score - prior)

    def state_dict(self) -> dict[str, Any]:
        """Everything learnt, JSON-able; loading it gives the same predictions bit for bit."""
        return {
            "rules": {k: list(v) for k, v in self._rules.items()},
            "base": list(self._base),
            "cost": {k: list(v) for k, v in self._cost.items()},
            "quality": self._quality.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`.

        Raises:
            InvalidInput: it is not one; then nothing is changed.
        """
        try:
            rules, cost = ({str(k): _pair(v) for k, v in state[name].items()} for name in ("rules", "cost"))
            base = _pair(state["base"])
            self._quality.load_state_dict(state["quality"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise InvalidInput(
                f"No state of a StaticWorldModel ({type(error).__name__}: {error}): expected what state_dict() gave."
            ) from None
        self._rules, self._cost, self._base = rules, cost, base


def _pair(values: Any) -> list[float]:
    """A sum and a count."""
    total, count = (float(v) for v in values)
    if not (math.isfinite(total) and 0 <= count < math.inf):
        raise ValueError(f"a sum of {total} over {count}")
    return [total, count]


def _strongest(findings: Sequence[Finding], confidence: Any) -> dict[str, float]:
    """The highest confidence of each rule that fired (a rule that fires on ten lines is one piece of evidence)."""
    best: dict[str, float] = {}
    for f in findings:
        best[f.rule] = max(best.get(f.rule, 0.0), confidence(f))
    return best


def id_of(context: TaskContext) -> Any:
    """A hashable key of what the analysis reads from a context."""
    names = repr(sorted(context.scaffold_names.items()))
    files = tuple((f.name, f.rows, tuple(f.columns.items()), f.missing) for f in context.files)
    return (
        context.task,
        context.category,
        context.metric,
        context.scaffold,
        names,
        files,
        context.submission_columns,
        context.submission_rows,
        context.installed,
    )


def _same_length(a: Sequence[Any], b: Sequence[Any]) -> None:
    if len(a) != len(b):
        raise InvalidInput(f"{len(a)} solutions with {len(b)} contexts or outcomes: expected one for each solution.")
