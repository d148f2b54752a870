"""A rough estimate of the CPU seconds a program needs, from its fits: rows, columns and hyperparameters."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import Const, Fit, Obj, Seq

TREES = {"RandomForest", "ExtraTrees", "DecisionTree", "HistGradientBoosting", "GradientBoosting", "AdaBoost"}
START_S = 0.28  # reading the data and importing estimators
_FAMILIES = ("HistGradientBoosting", "GradientBoosting", "RandomForest", "ExtraTrees", "DecisionTree", "AdaBoost", "KNeighbors")


def family_of(name: str) -> str:
    """Estimators that cost alike ("RandomForestClassifier" and "...Regressor" do).

    >>> family_of("RandomForestClassifier"), family_of("LinearSVR")
    ('RandomForest', 'LinearSV')
    """
    for family in _FAMILIES:
        if name.startswith(family):
            return family
    for suffix in ("Classifier", "Regressor"):
        if name.endswith(suffix) and name != suffix:
            return name[: -len(suffix)]
    return {"SVC": "SVM", "SVR": "SVM", "NuSVC": "SVM", "LinearSVC": "LinearSV", "LinearSVR": "LinearSV"}.get(name, name)


def _number(model: Obj, key: str, default: float) -> float:
    value = model.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else default


def _trees_s(model: Obj, family: str, n: float, d: float, active: float, many: float) -> float:
    """Trees and their ensembles; `active` features of a row are not zero, `many` trees an iteration for several classes."""
    if family in ("RandomForest", "ExtraTrees"):
        depth = min(_number(model, "max_depth", 25.0), math.log2(max(n, 2)) * 1.5)
        used = math.sqrt(d) if model.name.endswith("Classifier") else min(d, 2.0 * active)
        per = 1.6e-8 if family == "RandomForest" else 0.8e-8
        return _number(model, "n_estimators", 100.0) * (6e-4 + per * n * used * depth * (1.5 if active < d else 1.0))
    if family == "DecisionTree":
        return 2.5e-8 * n * min(d, 2.0 * active) * min(_number(model, "max_depth", 25.0), 20.0)
    if family == "HistGradientBoosting":
        leaves = _number(model, "max_leaf_nodes", 31.0)
        return 0.05 + _number(model, "max_iter", 100.0) * many * (
            8e-4 + 1.2e-9 * n * d * math.log2(leaves + 1) + 2e-6 * d * leaves / 8
        )
    if family == "GradientBoosting":
        return _number(model, "n_estimators", 100.0) * many * 1.5e-7 * n * d
    return _number(model, "n_estimators", 50.0) * (1e-3 + 6e-8 * n * d)  # AdaBoost


def _fit_s(fit: Fit, run: State) -> float:
    """Seconds of one fit on one core of a small server; constants were fitted to a few hundred runs of the training tasks."""
    model = fit.model
    if not isinstance(model, Obj):
        return 0.0
    n = float(run.count(fit.inputs.rows) or 5000)
    d = float(fit.inputs.width or 50.0)
    sparse = fit.inputs.sparse is not False
    active = min(d, 60.0) if sparse else d  # non-zeros a row
    family = family_of(model.name)
    many = 3.0 if model.name.endswith("Classifier") or model.name in ("SVC", "LogisticRegression") else 1.0
    if family in TREES:
        return _trees_s(model, family, n, d, active if sparse else d, many)
    if family == "SVM":
        linear = model.get("kernel", None, "rbf") == "linear"
        cost = 2e-9 * n * n * min(active, 60.0) * (1.0 + (_number(model, "C", 1.0) if linear else 0.0))
        if linear and not fit.inputs.scaled:
            cost *= 40.0  # features of different size: libsvm hardly converges
        return cost * (5.0 if model.get("probability") is True else 1.0)
    if family == "LinearSV":
        return 2e-7 * n * active * max(_number(model, "C", 1.0), 0.1) * 3
    if family == "MLP":
        sizes = hidden_sizes(model)
        weights = (min(d, active + 0.1 * d) if sparse else d) * sum(sizes[:1]) + sum(a * b for a, b in pairwise(sizes))
        return _number(model, "max_iter", 200.0) * n * (2.5e-6 + 4e-10 * weights)
    if family == "KNeighbors":
        return 1e-8 * n * float(run.rows.get("test", n)) * max(1.0, active / 30.0)
    if family == "LogisticRegression":
        return 0.01 + _number(model, "max_iter", 100.0) * many * n * active * 2.5e-9 * (
            1 + math.log10(max(_number(model, "C", 1.0), 0.1))
        )
    if family == "SGD":
        return _number(model, "max_iter", 1000.0) * many * n * active * 2e-9
    if family == "Lasso":
        return 0.01 + 1e-8 * n * active * 3.0 / max(_number(model, "alpha", 1.0), 0.003)
    if family == "LinearDiscriminantAnalysis":
        return 1e-9 * n * d * min(n, d)
    return 0.01 + (5e-8 * n * active if sparse else 2e-9 * n * d * min(d, 500.0))


def hidden_sizes(model: Obj) -> list[float]:
    """Units of each hidden layer of a neural network; the default where a program computes them."""
    given = model.get("hidden_layer_sizes")
    layers = [i.value if isinstance(i, Const) else None for i in given.items] if isinstance(given, Seq) else [given]
    return [float(n) if isinstance(n, (int, float)) and 1 <= n < 1e6 else 100.0 for n in layers]


def estimate_cpu_s(run: State) -> tuple[float, str]:
    """CPU seconds of a program and the family of its most expensive fit."""
    costs: list[tuple[float, Any]] = [(_fit_s(f, run) * f.times, f) for f in run.fits]
    if not costs:
        return START_S, ""
    most = max(costs, key=lambda c: c[0])[1]
    return START_S + sum(c for c, _ in costs), family_of(most.model.name) if isinstance(most.model, Obj) else ""
