"""What method calls give: estimators, frames, arrays, lists and strings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wmrl_envs.world_models.static.rules import submission as static_submission
from wmrl_envs.world_models.static.rules.access import frame_subscript, store
from wmrl_envs.world_models.static.rules.language import row_tag
from wmrl_envs.world_models.static.values import UNKNOWN, Column, Const, Data, Dict, Obj, Ref, Rows, Seq

if TYPE_CHECKING:
    from wmrl_envs.world_models.static.interpreter import Interpreter

SUBMISSION = "$SUBMISSION_PATH"
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
        "argsort",
        "nunique",
        "any",
        "all",
    ]
)
NUMBERS_ONLY = frozenset(["mean", "median", "std", "var", "skew", "corr", "cov"])
_SAME_SHAPE = """
    fillna astype clip abs round copy replace apply map applymap transform rank interpolate ffill bfill shift diff
    mask where add sub mul div pow cumsum isna notna isnull notnull infer_objects convert_dtypes to_numpy toarray
    todense to_frame squeeze ravel flatten cat lower upper len count strip contains get year month day dayofweek
    dayofyear hour weekday quarter days total_seconds str dt values T isin extract startswith endswith between lt
    gt le ge eq ne pct_change sort_index reindex set_index reset_index rename tolist swapaxes
"""
SAME_SHAPE = frozenset(_SAME_SHAPE.split())


def call_method(run: Interpreter, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any], complete: bool) -> Any:
    if isinstance(owner, Obj):
        return _estimator_method(run, owner, name, args, kwargs)
    if isinstance(owner, Data):
        return data_method(run, owner, name, args, kwargs)
    if isinstance(owner, Seq):
        return _list_method(owner, name, args)
    if isinstance(owner, Dict) and name in ("update", "setdefault", "pop", "popitem", "clear"):
        owner.open = True
        return UNKNOWN
    if isinstance(owner, Const) and isinstance(owner.value, str):
        return _string_method(owner.value, name, args)
    if isinstance(owner, Dict) and name in ("keys", "values", "items", "get"):
        return {
            "keys": lambda: Seq([Const(k) for k in owner.items]),
            "values": lambda: Seq(list(owner.items.values())),
            "items": lambda: Seq([Seq([Const(k), v]) for k, v in owner.items.items()]),
            "get": lambda: _got(owner, args),
        }[name]()
    return UNKNOWN


def _got(owner: Dict, args: list[Any]) -> Any:
    if not args or not isinstance(args[0], Const):
        return UNKNOWN
    absent = Const(None) if len(args) == 1 and not owner.open else UNKNOWN
    return owner.items.get(args[0].value, absent)


def _estimator_method(run: Interpreter, owner: Obj, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    x = args[0] if args else kwargs.get("X", kwargs.get("raw_documents", UNKNOWN))
    y = args[1] if len(args) > 1 else kwargs.get("y", UNKNOWN)
    if name == "fit":
        run.fits += run.sklearn.fit(owner, x, y)
        return owner
    if name in ("predict", "predict_proba", "decision_function"):
        return run.sklearn.predict(owner, name, x, run.targets)
    if name == "fit_transform":
        run.sklearn.check_lengths(x, y)
        owner.fitted_on = x if isinstance(x, Data) else Data()
        return run.sklearn.transform(owner, x)
    if name == "transform":
        if owner.fitted_on is None:
            text = f"This {owner.name} instance is not fitted yet. Call 'fit' with appropriate arguments before using this estimator."
            run.report("runtime.not-fitted", "runtime", "NotFittedError", text, 0.93)
        return run.sklearn.transform(owner, x)
    if name == "set_params":
        owner.kwargs.update(kwargs)
        return owner
    if name == "fit_predict":
        return Data(rows=x.rows if isinstance(x, Data) else None, ndim=1)
    return UNKNOWN


def data_method(run: Interpreter, owner: Data, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`owner.name(...)` of a frame, series or array."""
    if owner.kind == "frame" and name in FRAME_METHODS:
        return FRAME_METHODS[name](run, owner, args, kwargs)
    if name == "to_csv":
        return _to_csv(run, owner, args, kwargs)
    if name == "reshape":
        return _reshape(run, owner, args)
    if name in ("head", "tail", "sample"):
        return _some_rows(run, owner, name, args, kwargs)
    if owner.kind == "frame" and name in NUMBERS_ONLY:
        return _of_numbers(run, owner, name, args, kwargs)
    if name in REDUCTIONS:
        return _reduced(owner, name, args, kwargs)
    if name in SAME_SHAPE:
        return _same_shape(run, owner, name, args, kwargs)
    return owner.but(rows=None, columns=None, open=True, nan=None, text=None, width=None) if owner.kind == "frame" else UNKNOWN


def _to_csv(run: Interpreter, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Any:
    target = args[0] if args else kwargs.get("path_or_buf", UNKNOWN)
    if isinstance(target, Const) and isinstance(target.value, str) and target.value.startswith("$DATA_DIR"):
        run.report("data.read-only", "data", "OSError", f"[Errno 30] Read-only file system: '{target.value}'", 0.93)
    elif isinstance(target, Const) and isinstance(target.value, str) and not target.value.startswith(SUBMISSION):
        run.written.add(target.value)
    else:
        static_submission.check_frame(run, owner, kwargs)
        run.saved.append(owner)
    return Const(None)


def _some_rows(run: Interpreter, owner: Data, name: str, args: list[Any], kwargs: dict[str, Any]) -> Data:
    n = run.sklearn.count(owner.rows)
    share, given = kwargs.get("frac"), args[0] if args else kwargs.get("n", Const(5 if name != "sample" else 1))
    left = given.value if isinstance(given, Const) else None
    if share is not None:
        left = (
            round(share.value * n)
            if n is not None and isinstance(share, Const) and isinstance(share.value, (int, float))
            else None
        )
    if n is None or not isinstance(left, int) or left < 0:
        return owner.but(rows=None)
    if left >= n:
        return owner.but()
    tag = f"{owner.rows}[{left}]"
    run.sklearn.rows[tag] = left
    return owner.but(rows=tag)


def _reshape(run: Interpreter, owner: Data, args: list[Any]) -> Data:
    shape = args[0].items if args and isinstance(args[0], Seq) else args
    first = shape[0] if shape else UNKNOWN
    width = owner.width if len(shape) == 2 and owner.exact else None
    rows = first.tag if isinstance(first, Rows) else row_tag(run, first)
    return owner.but(kind="array", rows=rows, ndim=len(shape), width=width, columns=None)


def _of_numbers(run: Interpreter, owner: Data, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Means, correlations and the like of a frame: its texts have none."""
    chosen = kwargs.get("numeric_only")
    if owner.text is True and (chosen is None or (isinstance(chosen, Const) and chosen.value is False)):
        both = name in ("corr", "cov")
        text = "could not convert string to float" if both else f"Cannot perform reduction '{name}' with string dtype"
        run.report("shapes.text-reduction", "shapes", "ValueError" if both else "TypeError", text, 0.93)
    if name not in ("corr", "cov"):
        return _reduced(owner, name, args, kwargs)
    left = {k: Column(text=False) for k, c in (owner.columns or {}).items() if not c.text}
    return owner.but(columns=left if owner.columns is not None else None, rows=None, text=False, nan=None)


def _reduced(owner: Data, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    axis = kwargs.get("axis", args[0] if args else UNKNOWN)
    if isinstance(axis, Const) and axis.value in (1, -1) and name != "mode":
        kind = "series" if owner.kind == "frame" else "array"
        return owner.but(kind=kind, columns=None, ndim=1, width=1.0, meaning="label" if name == "argmax" else None)
    return Data(rows=None, ndim=None, nan=owner.nan if owner.nan is False else None) if owner.kind == "array" else UNKNOWN


def _same_shape(run: Interpreter, owner: Data, name: str, args: list[Any], kwargs: dict[str, Any]) -> Data:
    changes: dict[str, Any] = {}
    whole = "whole" if owner.meaning == "real" else owner.meaning
    match name:
        case "fillna":
            changes = {"nan": False, "columns": _with(owner.columns, nan=False)}
        case "clip":
            lower = kwargs.get("lower", kwargs.get("min", args[0] if args else UNKNOWN))
            known = isinstance(lower, Const) and isinstance(lower.value, (int, float))
            changes = {"low": float(lower.value) if known else None}
        case "to_numpy" | "toarray" | "todense" | "tolist":
            changes = {"kind": "array", "sparse": False, "columns": None}
        case "ravel" | "flatten":
            rows = None if owner.ndim == 2 else owner.rows
            changes = {"kind": "array", "sparse": False, "columns": None, "ndim": 1, "rows": rows}
        case "apply" | "map" | "transform" | "replace" | "applymap":
            columns = _with(owner.columns, nan=None, text=None)
            changes = {"nan": None, "text": None, "low": None, "meaning": None, "columns": columns}
        case "astype":
            return _astype(run, owner, args[0] if args else kwargs.get("dtype", UNKNOWN))
        case "round":
            changes = {"meaning": whole}
        case "where" | "mask" if len(args) < 2 and "other" not in kwargs:
            changes = {"nan": True, "columns": _with(owner.columns, nan=True)}
        case "shift" | "diff" | "pct_change":
            changes = {"nan": True, "columns": _with(owner.columns, nan=True)}
        case "interpolate":
            changes = {"nan": None, "columns": _with(owner.columns, nan=None)}
        case "reindex" | "reset_index" | "set_index":
            changes = {"open": True}
        case "isna" | "notna" | "isnull" | "notnull" | "isin" | "contains" | "startswith" | "endswith":
            changes = {"nan": False, "text": False, "low": 0.0, "columns": _with(owner.columns, nan=False, text=False)}
    return owner.but(**changes)


def _astype(run: Interpreter, owner: Data, kind: Any) -> Data:
    name = kind.path.rpartition(".")[2] if isinstance(kind, Ref) else str(kind.value) if isinstance(kind, Const) else ""
    text = name in ("str", "object", "category")
    if name and not text and owner.text is True and owner.kind == "series":
        run.report("shapes.astype", "shapes", "ValueError", "could not convert string to float", 0.8)
    meaning = "whole" if name.startswith("int") and owner.meaning == "real" else owner.meaning
    return owner.but(text=text if name else None, meaning=meaning, columns=_with(owner.columns, text=text if name else None))


def _reshaped_frame(run: Interpreter, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    return owner.but(columns=None, open=True, nan=None, text=None)


def _assign(run: Interpreter, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    if owner.columns is None:
        return owner.but(open=True)
    added = {k: Column(v.text, v.nan) if isinstance(v, Data) else Column() for k, v in kwargs.items()}
    return owner.but(columns={**owner.columns, **added}).summarised()


def _pop(run: Interpreter, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not args or not isinstance(args[0], Const):
        owner.open = True
        return UNKNOWN
    taken = frame_subscript(run, owner, args[0])
    if owner.columns is not None:
        owner.columns.pop(args[0].value, None)
        owner.summarised()
    return taken


def _insert(run: Interpreter, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Any:
    name, value = (args[i] if len(args) > i else kwargs.get(k, UNKNOWN) for i, k in ((1, "column"), (2, "value")))
    store(run, owner, name, value)
    return Const(None)


def _with(columns: dict[str, Column] | None, **changes: Any) -> dict[str, Column] | None:

    return None if columns is None else {k: replace(v, **changes) for k, v in columns.items()}


def _drop(run: Interpreter, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    names = kwargs.get("columns")
    axis = kwargs.get("axis", args[1] if len(args) > 1 else UNKNOWN)
    if names is None and isinstance(axis, Const) and axis.value in (1, "columns"):
        names = args[0] if args else kwargs.get("labels", UNKNOWN)
    if names is None:
        label = args[0] if args else kwargs.get("labels", kwargs.get("index", UNKNOWN))
        labels = label.items if isinstance(label, Seq) else [label]
        wrong = [
            c.value for c in labels if isinstance(c, Const) and isinstance(c.value, str) and c.value in (owner.columns or {})
        ]
        if wrong and not owner.open:
            run.report("data.row-label", "data", "KeyError", f'"{wrong} not found in axis"', 0.93)
        return owner.but(rows=None)
    listed = (
        [names.value]
        if isinstance(names, Const) and isinstance(names.value, str)
        else names.strings()
        if isinstance(names, Seq)
        else None
    )
    if listed is None or owner.columns is None:
        return owner.but(open=True)
    lost = owner.missing(listed)
    ignore = kwargs.get("errors")
    if lost and not (isinstance(ignore, Const) and ignore.value == "ignore"):
        run.report("data.column", "data", "KeyError", f'"{lost} not found in axis"', 0.96)
    result = owner.but(columns={k: v for k, v in owner.columns.items() if k not in listed}).summarised()
    if isinstance(kwargs.get("inplace"), Const) and kwargs["inplace"].value is True:
        owner.columns = result.columns
        owner.summarised()
        return Const(None)  # type: ignore[return-value]
    return result


def _list_method(owner: Seq, name: str, args: list[Any]) -> Any:
    if name == "append" and args:
        owner.items.append(args[0])
        return Const(None)
    if name == "extend" and args and isinstance(args[0], Seq):
        owner.extend(args[0].items)
        return Const(None)
    if name in ("tolist", "copy", "to_list"):
        return Seq(list(owner.items))
    if name == "remove" and args:
        owner.items[:] = [i for i in owner.items if i != args[0]]
        return Const(None)
    if name in ("sort", "reverse"):
        return Const(None)
    if name in ("drop", "difference") and args:
        gone = args[0].items if isinstance(args[0], Seq) else [args[0]]
        return Seq([i for i in owner.items if i not in gone])
    if name in ("append", "extend", "insert", "pop", "clear"):
        owner.items.append(UNKNOWN)
    return UNKNOWN


def _string_method(owner: str, name: str, args: list[Any]) -> Any:
    plain = [a.value for a in args if isinstance(a, Const)]
    if name in ("format", "join", "replace", "split") or len(plain) < len(args):
        return UNKNOWN
    if name in ("lower", "upper", "strip", "title", "rstrip", "lstrip"):
        return Const(getattr(owner, name)())
    return UNKNOWN


FRAME_METHODS: dict[str, Callable[[Any, Data, list[Any], dict[str, Any]], Any]] = {
    "drop": _drop,
    "assign": _assign,
    "pop": _pop,
    "insert": _insert,
    **dict.fromkeys(("rename", "pipe", "join", "merge", "pivot_table", "groupby", "select_dtypes"), _reshaped_frame),
}
