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
    if not isinstance(data, Data) or model.name in VECTORIZERS | ACCEPTS_ANYTHING | _ONE_COLUMN:
        return
    tags = tags_of(run, model)
    if not tags:
        return
    _check_size(run, model, data)
    _check_dates(run, model, data, tags)
    if data.text is True and not tags["string"] and not _own_categories(model, data):
        strategy = model.get("strategy", None, "mean")
        if model.name != "SimpleImputer":
            run.report("shapes.text", prefix="")
        elif strategy in ("mean", "median"):
            run.report("shapes.text", prefix=f"Cannot use {strategy} strategy with non-numeric data:\n")
    if data.sparse is True and not tags["sparse"] and model.name not in ENCODERS:
        run.report("shapes.sparse")
    if data.sparse is None and not tags["sparse"]:
        run.report("shapes.sparse-likely")
    if data.nan is True and not tags["nan"]:
        run.report("runtime.nan", model=model.name)
    if data.nan is True and tags["nan"] and data.sparse is not False and tags["type"] in ("classifier", "regressor"):
        run.report("runtime.nan-sparse" if data.sparse else "runtime.nan-sparse-likely", model=model.name)


def _check_dates(run: State, model: Obj, data: Data, tags: dict[str, Any]) -> None:
    """Dates beside numbers."""
    kinds = {c.dtype for c in (data.columns or {}).values()}
    if tags["type"] in ("classifier", "regressor") and data.kind == "frame" and "date" in kinds and len(kinds - {None}) > 1:
        run.report("shapes.dates")


def _own_categories(model: Obj, data: Data) -> bool:
    """Histogram boosting takes columns of dtype category as they are."""
    columns = (data.columns or {}).values()
    return (
        model.name.startswith("HistGradientBoosting")
        and bool(columns)
        and all(c.dtype == "category" or not c.text for c in columns)
    )


def _check_size(run: State, model: Obj, data: Data) -> None:
    if data.ndim is not None and data.ndim > 2:
        run.report("shapes.dimensions", text=f"Found array with dim {data.ndim}, while dim <= 2 is required by {model.name}.")
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
        text = (
            "Expected a 2-dimensional container but got <class 'pandas.Series'> instead. Pass a DataFrame containing a single "
            "row (i.e. single sample) or a single column (i.e. single feature) instead."
        )
    else:
        text = (
            "Expected 2D array, got 1D array instead. "
            "Reshape your data using array.reshape(1, -1) if it contains a single sample."
        )
    run.report("shapes.dimensions", text=text)


def check_parameters(run: State, model: Obj) -> None:
    """The value of a parameter that `fit` refuses; for a search, the names in its grid."""
    if model.problem:
        run.report("api.value", model.problem[0], text=model.problem[1])
    if model.name.endswith("SearchCV"):
        _check_grid(run, model)


def _check_grid(run: State, search: Obj) -> None:
    inner, grid = search.get("estimator", 0), search.get("param_grid", 1, search.get("param_distributions", 1))
    for one in grid.items if isinstance(grid, Seq) else [grid]:
        for key in one.items if isinstance(one, Dict) and isinstance(inner, Obj) else ():
            if _has_parameter(run, inner, str(key)) is False:
                text = f"Invalid parameter {str(key).split('__')[0]!r} for estimator {display(inner)}."
                run.report("api.value", "ValueError", text=text)


def _has_parameter(run: State, model: Any, key: str) -> bool | None:
    """Whether `set_params(key=...)` works, "a__b" being parameter b of part a; None if that is not known."""
    head, _, rest = key.partition("__")
    if not isinstance(model, Obj) or not model.complete:
        return None
    if model.name in PIPELINES:
        parts = _named_steps(model)
        if parts is None or head in ("memory", "verbose", "steps", "transform_input"):
            return None
        return head in parts and (_has_parameter(run, parts[head], rest) is not False if rest else True)
    entry = run.index.resolve(model.path)
    signature = entry.get("sig") if isinstance(entry, dict) and entry["t"] == "class" else None
    if (
        not signature
        or signature["kw"]
        or model.name in TRANSFORMERS_BY_COLUMN | UNIONS
        or model.name.startswith(("Voting", "Stacking"))
    ):
        return None
    if head not in {*signature["p"], *signature["k"]}:
        return False
    return _has_parameter(run, model.kwargs.get(head), rest) is not False if rest else True


def _named_steps(model: Obj) -> dict[str, Any] | None:
    """The steps of a pipeline by name."""
    if model.name == "make_pipeline":
        found = {a.name.lower(): a for a in model.args if isinstance(a, Obj)}
        return found if len(found) == len(model.args) else None
    steps = model.get("steps", 0)
    pairs = steps.items if isinstance(steps, Seq) and steps.sure else []
    if not pairs or not all(isinstance(s, Seq) and len(s.items) == 2 and isinstance(s.items[0], Const) for s in pairs):
        return None
    return {str(s.items[0].value): s.items[1] for s in pairs}
