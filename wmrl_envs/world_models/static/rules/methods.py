"""What method calls give; those of series and arrays, and of frames what has no module of its own."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from wmrl_envs.world_models.static.rules import frames, submission
from wmrl_envs.world_models.static.rules.access import FRAME_MEMBERS
from wmrl_envs.world_models.static.rules.arrays import elementwise, reshape
from wmrl_envs.world_models.static.rules.containers import dict_method, list_method, string_method
from wmrl_envs.world_models.static.rules.models import estimator_method
from wmrl_envs.world_models.static.rules.signatures import check_keywords
from wmrl_envs.world_models.static.rules.tables import SUBMISSION
from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import UNKNOWN, Const, Data, Dict, Groups, Obj, Ref, Seq

REDUCTIONS = frozenset(
    [
        "mean",
        "sum",
        "max",
        "min",
        "std",
        "median",
        "mode",
        "unique",
        "value_counts",
        "quantile",
        "argmax",
        "nunique",
        "any",
        "all",
        "var",
        "prod",
    ]
)
NUMBERS_ONLY = frozenset(["mean", "median", "std", "var", "skew", "corr", "cov"])
SAME_SHAPE = frozenset(
    [
        "fillna",
        "astype",
        "clip",
        "abs",
        "round",
        "copy",
        "replace",
        "apply",
        "map",
        "applymap",
        "transform",
        "rank",
        "interpolate",
        "ffill",
        "bfill",
        "shift",
        "diff",
        "mask",
        "where",
        "add",
        "sub",
        "mul",
        "div",
        "pow",
        "cumsum",
        "isna",
        "notna",
        "isnull",
        "notnull",
        "infer_objects",
        "convert_dtypes",
        "to_numpy",
        "toarray",
        "todense",
        "squeeze",
        "ravel",
        "flatten",
        "cat",
        "lower",
        "upper",
        "len",
        "count",
        "strip",
        "contains",
        "get",
        "year",
        "month",
        "day",
        "dayofweek",
        "dayofyear",
        "hour",
        "weekday",
        "quarter",
        "days",
        "total_seconds",
        "str",
        "dt",
        "values",
        "T",
        "isin",
        "extract",
        "startswith",
        "endswith",
        "between",
        "lt",
        "gt",
        "le",
        "ge",
        "eq",
        "ne",
        "pct_change",
        "sort_index",
        "tolist",
        "swapaxes",
        "rename",
        "reset_index",
        "title",
    ]
)
WHOLE = {"real": "whole", "continuous": "target"}  # what rounding makes of predictions and of targets
_FLAGS = frozenset(
    [
        "isna",
        "notna",
        "isnull",
        "notnull",
        "isin",
        "contains",
        "startswith",
        "endswith",
        "lt",
        "gt",
        "le",
        "ge",
        "eq",
        "ne",
        "between",
    ]
)


def call_method(run: State, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`owner.name(*args, **kwargs)`."""
    if isinstance(owner, Obj):
        return estimator_method(run, owner, name, args, kwargs)
    if isinstance(owner, Data):
        return data_method(run, owner, name, args, kwargs)
    if isinstance(owner, Seq):
        return list_method(run, owner, name, args, kwargs)
    if isinstance(owner, Dict):
        return dict_method(run, owner, name, args)
    if isinstance(owner, Const) and isinstance(owner.value, str):
        return string_method(owner.value, name, args)
    if isinstance(owner, Groups):
        return _group_method(run, owner, name, kwargs)
    return UNKNOWN


def data_method(run: State, owner: Data, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`owner.name(...)` of a frame, series or array."""
    check_keywords(
        run,
        FRAME_MEMBERS[owner.kind],
        name,
        kwargs,
        "NDFrame" if name == "fillna" else FRAME_MEMBERS[owner.kind].rpartition(".")[2],
    )
    if owner.kind == "series" and name in NUMBERS_ONLY and owner.dtype == "str":
        run.report("shapes.text-reduction", text=f"Cannot perform reduction '{name}' with string dtype")
    if name == "to_csv":
        return _to_csv(run, owner, args, kwargs)
    if owner.kind == "frame" and name in frames.METHODS:
        return frames.call(run, owner, name, args, kwargs)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(run, owner, args, kwargs)
    if name in ("head", "tail", "sample"):
        return _some_rows(run, owner, name, args, kwargs)
    if owner.kind == "frame" and name in NUMBERS_ONLY:
        return _of_numbers(run, owner, name, args, kwargs)
    if name in REDUCTIONS:
        return _reduced(owner, name, args, kwargs)
    if name in SAME_SHAPE:
        return frames.in_place(owner, _same_shape(run, owner, name, args, kwargs), kwargs)
    return (
        owner.but(rows=None, columns=None, open=True, nan=None, text=None, width=None, default_index=False)
        if owner.kind == "frame"
        else UNKNOWN
    )


def _to_frame(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Any:
    label = args[0] if args else kwargs.get("name", UNKNOWN)
    known = isinstance(label, Const) and isinstance(label.value, str)
    columns = {label.value: frames.column_from(owner)} if known else None
    return Data("frame", columns=columns, open=not known, rows=owner.rows, ndim=2, default_index=owner.default_index)


def _factorized(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return Seq([Data("array", rows=owner.rows, nan=False, text=False, ndim=1), UNKNOWN])


def _without_some(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return owner.but(rows=None, default_index=False, dtype=owner.dtype)


def _aligned(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Any:
    both = [owner, args[0]] if args and isinstance(args[0], Data) else []
    same = [Data("frame", open=True, rows=d.rows, nan=d.nan, text=d.text, default_index=d.default_index) for d in both]
    return Seq(same) if same and owner.kind == "frame" else UNKNOWN


def _times(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return elementwise(run, ast.MatMult(), owner, args[0]) if args else UNKNOWN


def _order(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return owner.but(meaning=None, text=False, nan=False, low=0.0)


def _grouped(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`frame.groupby(keys)` with the columns that are not keys."""
    key = args[0] if args else kwargs.get("by", UNKNOWN)
    names = [key.value] if isinstance(key, Const) else key.strings() if isinstance(key, Seq) and key.sure else None
    if names is None or owner.columns is None or owner.open:
        return UNKNOWN
    return Groups({k: c for k, c in owner.columns.items() if k not in names})


def _group_method(run: State, owner: Groups, name: str, kwargs: dict[str, Any]) -> Any:
    if (
        name in ("mean", "median", "std", "var")
        and any(c.dtype == "str" for c in owner.columns.values())
        and not kwargs.get("numeric_only")
    ):
        run.report("shapes.text-reduction", text=f"dtype 'str' does not support operation '{name}'")
    return UNKNOWN


_SPECIAL: dict[str, Callable[[State, Data, list[Any], dict[str, Any]], Any]] = {
    "reshape": lambda run, owner, args, kwargs: reshape(run, owner, args),
    "to_frame": _to_frame,
    "factorize": _factorized,
    "argsort": _order,
    "groupby": _grouped,
    "align": _aligned,
    "dot": _times,
    "apply": lambda run, owner, args, kwargs: UNKNOWN,  # a column, or a table where the function gives rows
    "dropna": lambda run, owner, args, kwargs: owner.but(rows=None, nan=False, default_index=False, dtype=owner.dtype),
    "drop_duplicates": _without_some,
}


def _to_csv(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Any:
    target = args[0] if args else kwargs.get("path_or_buf", UNKNOWN)
    if isinstance(target, Const) and isinstance(target.value, str) and target.value.startswith("$DATA_DIR"):
        run.report("data.read-only", name=target.value)
    elif isinstance(target, Const) and isinstance(target.value, str) and not target.value.startswith(SUBMISSION):
        run.written.add(target.value)
    else:
        if isinstance(target, Const):
            submission.check_frame(run, owner, kwargs)
        run.saved.append(owner)
    return Const(None)


def _some_rows(run: State, owner: Data, name: str, args: list[Any], kwargs: dict[str, Any]) -> Data:
    n = run.count(owner.rows)
    share, given = kwargs.get("frac"), run.plain(args[0] if args else kwargs.get("n", Const(5 if name != "sample" else 1)))
    left = given.value if isinstance(given, Const) else None
    if share is not None:
        known = n is not None and isinstance(share, Const) and isinstance(share.value, (int, float))
        left = round(share.value * n) if known else None
    if n is None or not isinstance(left, int) or left < 0:
        return owner.but(rows=None, default_index=False)
    if left >= n:
        return owner.but(default_index=owner.default_index and name != "sample")
    tag = f"{owner.rows}[{left}]"
    run.rows[tag] = left
    return owner.but(rows=tag, default_index=owner.default_index and name == "head")


def _of_numbers(run: State, owner: Data, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Means, correlations and the like of a frame: its texts have none."""
    chosen = kwargs.get("numeric_only")
    if owner.text is True and (chosen is None or (isinstance(chosen, Const) and chosen.value is False)):
        both = name in ("corr", "cov")
        text = "could not convert string to float" if both else f"Cannot perform reduction '{name}' with string dtype"
        run.report("shapes.text-reduction", "ValueError" if both else "TypeError", text=text)
    if name not in ("corr", "cov"):
        return _reduced(owner, name, args, kwargs)
    left = {k: type(c)(text=False) for k, c in (owner.columns or {}).items() if not c.text}
    return owner.but(columns=left if owner.columns is not None else None, rows=None, text=False, nan=None)


def _reduced(owner: Data, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    axis = kwargs.get("axis", args[0] if args else UNKNOWN)
    if isinstance(axis, Const) and axis.value in (1, -1) and name != "mode" and owner.ndim in (2, None):
        kind = "series" if owner.kind == "frame" else "array"
        meaning = "label" if name == "argmax" else None
        return owner.but(
            kind=kind, columns=None, ndim=1 if owner.ndim == 2 else None, width=1.0, meaning=meaning, text=False, nan=None
        )
    return Data(rows=None, ndim=None, nan=owner.nan if owner.nan is False else None) if owner.kind == "array" else UNKNOWN


def _same_shape(run: State, owner: Data, name: str, args: list[Any], kwargs: dict[str, Any]) -> Data:
    """Methods that leave rows and columns where they are, and what they change."""
    if name == "fillna":
        return frames.fillna(owner, args, kwargs)
    if name == "astype":
        return _astype(run, owner, args[0] if args else kwargs.get("dtype", UNKNOWN))
    if name in _FLAGS:
        flags = {"nan": False, "text": False, "low": 0.0, "mask": True, "meaning": None, "accessor": False}
        return owner.but(columns=frames.with_all(owner.columns, nan=False, text=False), **flags)
    if name in ("where", "mask"):
        name = "where" if len(args) < 2 and "other" not in kwargs else "replace"
    change = _CHANGES.get(name)
    return owner.but(**(change(owner, args, kwargs) if change is not None else {}))


def _clipped(owner: Data, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    lower = kwargs.get("lower", kwargs.get("min", args[0] if args else UNKNOWN))
    known = isinstance(lower, Const) and isinstance(lower.value, (int, float))
    low = float(lower.value) if known else owner.low
    return {"low": low, "columns": frames.with_all(owner.columns, low=low)}


def _to_array(owner: Data, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "array", "sparse": False, "columns": None, "text": None if "dtype" in kwargs else owner.text}


def _flat(owner: Data, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    rows = owner.rows if owner.ndim == 1 or owner.width == 1.0 else None
    return {"kind": "array", "sparse": False, "columns": None, "ndim": 1, "rows": rows}


def _anything(owner: Data, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    columns = frames.with_all(owner.columns, nan=None, text=None, dtype=None, meaning=None, low=None)
    return {"nan": None, "text": None, "low": None, "meaning": None, "columns": columns}


def _with_gaps(owner: Data, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"nan": True, "columns": frames.with_all(owner.columns, nan=True)}


def _bridged(owner: Data, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"nan": None if owner.nan else owner.nan, "columns": frames.with_all(owner.columns, nan=None)}


def _reindexed(owner: Data, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    dropped = isinstance(kwargs.get("drop"), Const) and kwargs["drop"].value is True
    return {"kind": owner.kind if dropped else "frame", "open": not dropped, "default_index": True, "dtype": owner.dtype}


_CHANGES: dict[str, Callable[[Data, list[Any], dict[str, Any]], dict[str, Any]]] = {
    "clip": _clipped,
    **dict.fromkeys(("to_numpy", "toarray", "todense", "tolist"), _to_array),
    **dict.fromkeys(("ravel", "flatten"), _flat),
    "squeeze": lambda o, a, k: _flat(o, a, k) | {"ndim": 1 if o.ndim == 1 else None},
    **dict.fromkeys(("map", "transform", "replace", "applymap"), _anything),
    "rank": lambda o, a, k: (
        _anything(o, a, k) | {"text": False, "columns": frames.with_all(o.columns, text=False, dtype="float")}
    ),
    "round": lambda o, a, k: {"meaning": WHOLE.get(o.meaning or "", o.meaning)},
    **dict.fromkeys(("where", "shift", "diff", "pct_change"), _with_gaps),
    **dict.fromkeys(("interpolate", "ffill", "bfill"), _bridged),
    "reset_index": _reindexed,
    **dict.fromkeys(("cumsum", "len", "count"), lambda o, a, k: {"meaning": None, "text": False}),
}


def _astype(run: State, owner: Data, kind: Any) -> Data:
    name = kind.path.rpartition(".")[2] if isinstance(kind, Ref) else str(kind.value) if isinstance(kind, Const) else ""
    numeric = name.startswith(("int", "float", "uint", "bool", "Int", "Float"))
    if numeric and not name.startswith("bool") and owner.text is True and owner.kind == "series" and not owner.accessor:
        run.report("shapes.text", prefix="")
    dtype = {"str": "str", "category": "category"}.get(
        name, "float" if name.startswith("float") else "int" if name.startswith("int") else None
    )
    text = True if name in ("str", "category") else False if numeric else None
    meaning = WHOLE.get(owner.meaning or "", owner.meaning) if name.startswith("int") else owner.meaning
    nan = False if name == "str" and owner.kind == "array" else owner.nan
    columns = frames.with_all(owner.columns, text=text, dtype=dtype)
    return owner.but(text=text, dtype=dtype, meaning=meaning, nan=nan, columns=columns, dims=owner.dims, low=owner.low)
