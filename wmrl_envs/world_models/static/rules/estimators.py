"""What scikit-learn does when a model is fitted or asked: which data it refuses, and what its predictions are like."""

from __future__ import annotations

from typing import Any

from wmrl_envs.world_models.static.rules.inputs import (
    check_input,
    check_parameters,
    first_step,
    one_dimensional,
    tags_of,
    wants_table,
)
from wmrl_envs.world_models.static.rules.pipelines import (
    ALSO_MULTI_OUTPUT,
    META,
    PIPELINES,
    TRANSFORMERS_BY_COLUMN,
    UNIONS,
    cannot_be_negative,
    display,
    final_of,
    inner_of,
    search_size,
    steps_of,
)
from wmrl_envs.world_models.static.rules.transformers import transform
from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import UNKNOWN, Const, Data, Fit, Obj, Seq

_CONTINUOUS = (
    "Unknown label type: continuous. Maybe you are trying to fit a classifier, which expects discrete classes on a "
    "regression target with continuous values."
)
_LISTS = ("RandomForest", "ExtraTrees", "DecisionTree", "ExtraTree", "KNeighbors", "RadiusNeighbors")
_BY_TARGET = ("MultiOutputRegressor", "MultiOutputClassifier", "OneVsRestClassifier", "ClassifierChain", "RegressorChain")


def has_method(run: State, value: Any, method: str) -> bool | None:
    """Whether an estimator (its last step, for a pipeline) offers a method; None if not known."""
    if not isinstance(value, Obj):
        return None
    if value.name in PIPELINES:
        steps = steps_of(value)
        return has_method(run, steps[-1], method) if steps else None
    entry = run.index.resolve(value.path)
    if not isinstance(entry, dict) or entry["t"] != "class":
        return None
    if method not in entry["members"]:
        return False
    if method == "predict_proba":
        if value.name in ("SVC", "NuSVC"):
            return value.get("probability") in (True, UNKNOWN)
        if value.name == "SGDClassifier":
            return value.get("loss", 0, "hinge") in ("log_loss", "modified_huber", UNKNOWN)
        if value.name == "VotingClassifier" and value.get("voting", 1, "hard") == "hard":
            return False
        if value.name in META and value.name not in ("CalibratedClassifierCV", "BaggingClassifier", "StackingClassifier"):
            inner = [has_method(run, i, method) for i in inner_of(value)]
            return False if False in inner else None
    return True


def check_lengths(run: State, x: Any, y: Any) -> None:
    """As many rows of X as of y."""
    if isinstance(x, Data) and isinstance(y, Data) and x.rows and y.rows and x.rows != y.rows:
        if "[?" in x.rows + y.rows and not (x.rows.startswith(y.rows) or y.rows.startswith(x.rows)):
            return  # both were filtered, in ways that cannot be compared
        n, m = run.count(x.rows), run.count(y.rows)
        same_way = x.rows.partition("|")[2] == y.rows.partition("|")[2] != ""
        if (n is None or m is None or n != m) and not same_way:
            run.report("shapes.rows", n=run.shown(x.rows), m=run.shown(y.rows))


def check_fitted(run: State, model: Obj, shown: str) -> None:
    """Whether `fit` was called before."""
    if model.fitted_on is None:
        run.report("runtime.not-fitted", model=shown)


def _check_target(run: State, model: Obj, y: Any) -> None:
    tags = tags_of(run, model)
    if not tags or not isinstance(y, Data) or tags["type"] not in ("regressor", "classifier"):
        return
    if tags["type"] == "classifier" and y.meaning in ("continuous", "log"):
        run.report("shapes.target-type", text=_CONTINUOUS)
    if tags["type"] == "regressor" and y.text is True:
        run.report("shapes.text", prefix="")
    if y.ndim == 2 and (y.width or 1) > 1 and not tags.get("multi") and model.name not in ALSO_MULTI_OUTPUT:
        run.report("shapes.multi-output", n=run.shown(y.rows), m=int(y.width or 2))


def fit(run: State, model: Any, x: Any, y: Any) -> list[Fit]:
    """`model.fit(x, y)`; returns the fits of final estimators."""
    if not isinstance(model, Obj):
        return []
    if model.name == "LabelEncoder":
        model.fitted_on = x if isinstance(x, Data) else Data()
        return []
    check_lengths(run, x, y)
    first = first_step(model)
    if isinstance(x, Data) and x.ndim == 1 and x.kind != "frame" and wants_table(run, first):
        one_dimensional(run, x)
    fits = _fit(run, model, x, y, 1.0)
    model.fitted_on = x if isinstance(x, Data) else Data(rows=None)
    model.target = y if isinstance(y, Data) else None
    return fits


def _fit(run: State, model: Any, x: Any, y: Any, times: float) -> list[Fit]:
    if not isinstance(model, Obj):
        return []
    if model.name in PIPELINES:
        steps = steps_of(model)
        if steps is None:
            return []
        for step in steps[:-1]:
            x = transform(run, step, x)
        return _fit(run, steps[-1], x, y, times) if steps else []
    check_parameters(run, model)
    if model.name in META:
        times *= search_size(model)
        inner_y = y
        if model.name in _BY_TARGET and isinstance(y, Data):
            times *= y.width or 1
            inner_y = y.but(ndim=1, width=1.0)
        fits = [f for inner in inner_of(model) for f in _fit(run, inner, x, inner_y, times)]
        if model.name == "TransformedTargetRegressor" and "func" in model.kwargs:
            for f in fits:
                f.log_target = True
        return fits
    check_input(run, model, x)
    _check_target(run, model, y)
    tags = tags_of(run, model)
    if tags and tags["type"] in ("classifier", "regressor"):
        return [Fit(model, x if isinstance(x, Data) else Data(), times, isinstance(y, Data) and y.meaning == "log")]
    if model.name in TRANSFORMERS_BY_COLUMN | UNIONS:
        transform(run, model, x)
    return []


def predict(run: State, model: Obj, method: str, x: Any) -> Any:
    """`model.predict(x)` or `predict_proba`, `decision_function`."""
    if has_method(run, model, method) is False:
        owner = "This 'Pipeline'" if model.name in PIPELINES else f"'{model.name}' object"
        run.report("api.method", owner=owner, name=method)
    check_fitted(run, model, display(model))
    if model.fitted_on is not None and isinstance(x, Data):
        _check_dimensions(run, model, x)
    inputs = x
    if model.name in PIPELINES:
        for step in (steps_of(model) or [])[:-1]:
            inputs = transform(run, step, inputs)
    final = final_of(model)
    if isinstance(final, Obj) and not (model.name in META or (model.name in PIPELINES and steps_of(model)[-1] is not final)):  # type: ignore[index]
        check_input(run, final, inputs)
    rows = x.rows if isinstance(x, Data) else None
    y = model.target
    several = y is not None and y.ndim == 2 and (y.width is None or y.width > 1)
    one = y is None or y.ndim == 1 or y.width == 1.0
    if method == "predict_proba":
        if several or not one:
            return _several_probabilities(final, rows, y)
        return Data("array", rows=rows, nan=False, text=False, ndim=2, meaning="proba", low=0.0)
    tags = tags_of(run, final) if isinstance(final, Obj) else None
    kind = {"classifier": "label", "regressor": "real"}.get((tags or {}).get("type") or "")
    positive = isinstance(final, Obj) and cannot_be_negative(final)
    low = 0.0 if positive and y is not None and y.low == 0.0 else None
    text = y.text if y is not None and kind == "label" else False if kind == "real" else None
    ndim = 2 if several else 1 if one else None
    return Data(
        "array",
        rows=rows,
        nan=False,
        text=text,
        ndim=ndim,
        meaning=kind if one else None,
        low=low,
        width=y.width if several and y else None,
    )


def _several_probabilities(final: Any, rows: str | None, y: Data | None) -> Any:
    """Of several targets: a list with a table for each from trees and neighbours, one table from others."""
    n = int(y.width) if y is not None and y.ndim == 2 and y.width else 0
    name = final.name if isinstance(final, Obj) else ""
    if n and name.startswith(_LISTS):
        return Seq([Data("array", rows=rows, nan=False, text=False, ndim=2, meaning="proba", low=0.0) for _ in range(n)])
    if n and name.startswith(("MLP", "OneVsRest", "ClassifierChain")):
        return Data("array", rows=rows, nan=False, text=False, ndim=2, low=0.0)
    return UNKNOWN


def _check_dimensions(run: State, model: Obj, x: Data) -> None:
    """One row or column where a table is wanted; another number of features than in `fit`."""
    if x.ndim == 1 and wants_table(run, first_step(model)):
        one_dimensional(run, x)
    seen = model.fitted_on
    if seen is None or not (seen.kind == x.kind == "array" and seen.exact and x.exact and seen.ndim == x.ndim == 2):
        return
    if seen.width != x.width and seen.width and x.width:
        run.report("shapes.width", n=int(x.width), m=int(seen.width), model=display(model))


def folds_of(value: Any, default: float = 5.0) -> float:
    """The number of folds behind `cv=...` or a splitter."""
    if isinstance(value, Const) and isinstance(value.value, int) and not isinstance(value.value, bool):
        return float(value.value)
    if isinstance(value, Obj):
        repeats = value.get("n_repeats", 1, 10 if value.name.startswith("Repeated") else 1)
        n = value.get("n_splits", 0, 5)
        known = isinstance(n, int) and isinstance(repeats, int)
        return float(n * (repeats if value.name.startswith("Repeated") else 1)) if known else default
    return default
