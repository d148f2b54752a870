"""Which data and parameters a scikit-learn estimator refuses."""

from __future__ import annotations

from typing import Any

from wmrl_envs.world_models.static.rules.pipelines import (
    ACCEPTS_ANYTHING,
    ENCODERS,
    META,
    PIPELINES,
    TRANSFORMERS_BY_COLUMN,
    UNIONS,
    VECTORIZERS,
    display,
    steps_of,
)
from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import UNKNOWN, Const, Data, Dict, Obj, Seq

_ONE_COLUMN = {"FunctionTransformer", "LabelEncoder", "LabelBinarizer", "MultiLabelBinarizer"}


def tags_of(run: State, obj: Obj) -> dict[str, Any] | None:
    """What an estimator's class says it takes, or None if that is not known."""
    entry = run.index.resolve(obj.path)
    return entry.get("tags") if isinstance(entry, dict) else None


def check_input(run: State, model: Obj, data: Any) -> None:
    """NaN, sparse or text input that an estimator refuses; no rows, no columns, three dimensions."""
    if not isinstance(data, Data) or model.name in VECTORIZERS | ACCEPTS_ANYTHING:
        return
    tags = tags_of(run, model)
    if not tags:
        return
    _check_size(run, model, data)
    if data.text is True and not tags["string"]:
        strategy = model.get("strategy", None, "mean")
        if model.name != "SimpleImputer":
            run.report("shapes.text", prefix="")
        elif strategy in ("mean", "median"):
            run.report("shapes.text", prefix=f"Cannot use {strategy} strategy with non-numeric data:\n")
    if data.sparse is True and not tags["sparse"] and model.name not in ENCODERS:
        run.report("shapes.sparse")
    if data.sparse is None and not tags["sparse"]:
        run.report("shapes.sparse-likely")
    if data.sparse is True and model.name == "StandardScaler" and model.get("with_mean", None, True) is True:
        run.report("shapes.sparse-centre")
    if data.nan is True and not tags["nan"]:
        run.report("runtime.nan", model=model.name)
    if data.nan is True and tags["nan"] and data.sparse is not False and tags["type"] in ("classifier", "regressor"):
        run.report("runtime.nan-sparse" if data.sparse else "runtime.nan-sparse-likely", model=model.name)
    if tags.get("positive") and data.low is not None and data.low < 0:
        run.report("runtime.negative", model=model.name)


def _check_size(run: State, model: Obj, data: Data) -> None:
    if data.ndim is not None and data.ndim > 2:
        run.report("shapes.dimensions", text=f"Found array with dim {data.ndim}, while dim <= 2 is required by {model.name}.")
    if data.rows == "0":
        run.report("shapes.empty", n=0, m=int(data.width or 1), model=model.name)
    if data.width == 0 and (data.columns is not None or data.exact) and not data.open:
        n = run.shown(data.rows)
        text = f"Found array with 0 feature(s) (shape=({n}, 0)) while a minimum of 1 is required by {model.name}."
        run.report("shapes.dimensions", text="at least one array or dtype is required" if data.kind == "frame" else text)


def first_step(model: Obj) -> Any:
    """The first step of a pipeline, or the estimator itself."""
    return (steps_of(model) or [UNKNOWN])[0] if model.name in PIPELINES else model


def wants_table(run: State, first: Any) -> bool:
    """Whether an estimator certainly refuses a single column."""
    known = isinstance(first, Obj) and (first.name in TRANSFORMERS_BY_COLUMN or tags_of(run, first) is not None)
    return known and first.name not in VECTORIZERS | UNIONS | META.keys() | _ONE_COLUMN


def one_dimensional(run: State, x: Data) -> None:
    """One row or column where a table is wanted."""
    if x.kind == "series":
        text = "Expected a 2-dimensional container but got <class 'pandas.Series'> instead. Pass a DataFrame containing a single row (i.e. single sample) or a single column (i.e. single feature) instead."
    else:
        text = "Expected 2D array, got 1D array instead. Reshape your data using array.reshape(1, -1) if it contains a single sample."
    run.report("shapes.dimensions", text=text)


def check_parameters(run: State, model: Obj) -> None:
    """The value of a parameter that `fit` refuses; for a search, the names in its grid."""
    if model.problem:
        run.report("api.value", model.problem[0], text=model.problem[1])
    if model.name.endswith("SearchCV"):
        _check_grid(run, model)


def _check_grid(run: State, search: Obj) -> None:
    inner, grid = search.get("estimator", 0), search.get("param_grid", 1, search.get("param_distributions", 1))
    if not isinstance(inner, Obj) or not isinstance(grid, Dict):
        return
    names = _step_names(inner)
    for key in grid.items:
        step = str(key).split("__")[0]
        if names is not None and step not in names:
            text = f"Invalid parameter {step!r} for estimator {display(inner)}. Valid parameters are: {sorted(names)}."
            run.report("api.value", "ValueError", text=text)


def _step_names(inner: Obj) -> set[str] | None:
    """What the parameters of a pipeline or estimator may begin with."""
    if inner.name == "Pipeline":
        steps = inner.get("steps", 0)
        named = isinstance(steps, Seq) and all(
            isinstance(s, Seq) and s.items and isinstance(s.items[0], Const) for s in steps.items
        )
        return (
            {*(str(s.items[0].value) for s in steps.items), "memory", "verbose", "steps", "transform_input"} if named else None
        )
    if inner.name == "make_pipeline" and inner.complete and all(isinstance(a, Obj) for a in inner.args):
        found = {a.name.lower() for a in inner.args}
        return {*found, "memory", "verbose", "steps", "transform_input"} if len(found) == len(inner.args) else None
    return None
