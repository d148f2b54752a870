"""A seeded random grammar of short scikit-learn programs for the `sklearn` scaffold, some with a realistic mistake.

The programs teach a small policy the language it writes in, and, executed, they make the reference leaderboards and the
corpus on which world models are measured.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from wmrl_train.agents.brief import PROBABILITY_METRICS, Brief
from wmrl_train.warm_start import faults
from wmrl_train.warm_start.draft import Draft
from wmrl_train.warm_start.estimators import ALWAYS_GIVEN, CLASSIFIERS, REGRESSORS, Estimator
from wmrl_train.warm_start.features import column_steps, picture_steps

MANY_ROWS = 6000  # above it kernel machines are rare


@dataclass(frozen=True)
class Program:
    """A program and the kind of mistake written into it (None: none on purpose; it may fail all the same)."""

    code: str
    fault: str | None


def write_program(brief: Brief, seed: int | str, broken: float = 0.15, by_name: bool = True) -> Program:
    """One random program for a task; equal arguments give equal text.

    Args:
        brief: the task.
        seed: chooses the program, together with the task's name.
        broken: probability of a mistake, in [0, 1].
        by_name: whether columns may be named; without it the program would run on any task of the same kind.
    """
    rng = random.Random(f"{brief.task}|{seed}")
    draft = Draft(brief, rng, faults.draw(rng, broken), by_name)
    regress = brief.target in ("reg", "mlabel") or (brief.target == "ord" and draft.chance(0.4))
    draft.estimator = _choose_estimator(draft, regress)
    model = _estimator_call(draft)
    steps = picture_steps(draft) if brief.category == "image" else column_steps(draft)
    draft.body.append(f"m = make_pipeline({', '.join([*steps, model])})" if steps else f"m = {model}")
    _fit_and_save(draft, regress)
    return Program(faults.assemble(draft), draft.fault)


def _choose_estimator(draft: Draft, regress: bool) -> Estimator:
    brief = draft.brief
    pool = [e for e in (REGRESSORS if regress else CLASSIFIERS) if brief.target != "mlabel" or e.multi_output]
    if brief.rows > MANY_ROWS or (brief.category == "text" and not regress):
        pool = [e for e in pool if not e.slow or draft.chance(0.2)]
    if brief.category == "image":  # boosting on hundreds of pixels is slow
        rarely = {"AdaBoostClassifier": 0.0, "HistGradientBoostingRegressor": 0.0, "HistGradientBoostingClassifier": 0.3}
        pool = [e for e in pool if draft.chance(rarely.get(e.name, 1.0))]
    elif draft.fault == "sparse":
        pool = [e for e in pool if e.dense] or pool
    return draft.choose(pool)


def _estimator_call(draft: Draft) -> str:
    estimator, brief = draft.estimator, draft.brief
    keywords = {k: draft.choose(v) for k, v in estimator.options.items() if k in ALWAYS_GIVEN or draft.chance(0.75)}
    if estimator.weighted and draft.chance(0.4 if brief.metric in ("mcc", "macro_f1") else 0.12):
        keywords["class_weight"] = "'balanced'"
    if estimator.name == "SVC" and brief.metric in PROBABILITY_METRICS:
        keywords["probability"] = True
    return draft.call(estimator.module, estimator.name, **faults.spoil_parameters(draft, keywords))


def _fit_and_save(draft: Draft, regress: bool) -> None:
    brief = draft.brief
    in_log = (
        brief.target == "reg"
        and brief.metric in ("rmsle", "mae", "rmse")
        and (brief.metric != "rmse" or brief.category == "tabular")  # sentiments may be negative
        and draft.chance(0.55 if brief.metric == "rmsle" else 0.15)
    )
    draft.body.append(f"m.fit({faults.fit_arguments(draft, 'np.log1p(y)' if in_log else 'y')})")
    wants_probability = brief.metric in PROBABILITY_METRICS and not regress
    predicted = f"m.{faults.predict_method(draft, wants_probability)}(T)"
    if in_log:
        predicted = f"np.expm1({predicted})"
    elif brief.metric == "rmsle":
        predicted = f"np.maximum({predicted}, 0)" if draft.chance(0.7) else predicted
    elif brief.target == "ord" and regress:
        rounded = f"np.clip(np.round({predicted}), y.min(), y.max()).astype(int)"
        predicted = rounded if draft.chance(0.85) else predicted
    elif brief.metric == "mcc" and brief.target == "bin" and draft.estimator.proba and draft.chance(0.5):
        threshold = draft.choose([0.05, 0.1, 0.2, 0.3, 0.6])
        predicted = f"(m.predict_proba(T)[:, 1] > {threshold}).astype(int)"
    draft.body.append(f"save({predicted})")
