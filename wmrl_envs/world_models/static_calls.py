"""What attributes, subscripts and calls give: the pandas, numpy and built-in part of the abstract execution."""

from __future__ import annotations

import ast
import builtins
import difflib
import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wmrl_envs.world_models import static_submission
from wmrl_envs.world_models.api_index import MISSING
from wmrl_envs.world_models.static_values import UNKNOWN, Bound, Column, Const, Data, Dict, Func, Obj, Ref, Rows, Seq, Slice

if TYPE_CHECKING:
    from wmrl_envs.world_models.static_interp import Interpreter

BUILTINS = frozenset(dir(builtins))
DATA, SUBMISSION = "$DATA_DIR", "$SUBMISSION_PATH"
_ELEMENTWISE = """
    log1p expm1 sqrt abs absolute log log2 log10 exp square maximum minimum clip round rint floor ceil nan_to_num
    sign tanh sin cos power where asarray array ascontiguousarray asfortranarray copy float32 float64 int64 int32
    roll flip fliplr logical_not
"""
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
_SAME_SHAPE = """
    fillna astype clip abs round copy replace apply map applymap transform rank interpolate ffill bfill shift diff
    mask where add sub mul div pow cumsum isna notna isnull notnull infer_objects convert_dtypes to_numpy toarray
    todense to_frame squeeze ravel flatten cat lower upper len count strip contains get year month day dayofweek
    dayofyear hour weekday quarter days total_seconds str dt values T isin extract startswith endswith between lt
    gt le ge eq ne pct_change sort_index reindex set_index reset_index rename tolist swapaxes
"""
SAME_SHAPE = frozenset(_SAME_SHAPE.split())
NUMERIC_RESULT = {
    "len",
    "count",
    "year",
    "month",
    "day",
    "dayofweek",
    "dayofyear",
    "hour",
    "weekday",
    "quarter",
    "days",
    "isna",
    "notna",
    "contains",
    "isin",
}
FACTORIES = {
    "make_pipeline": "sklearn.pipeline.Pipeline",
    "make_union": "sklearn.pipeline.FeatureUnion",
    "make_column_transformer": "sklearn.compose.ColumnTransformer",
}
FRAME_MEMBERS = {"frame": "pandas.DataFrame", "series": "pandas.Series", "array": "numpy.ndarray"}


# ---- attributes ---------------------------------------------------------------------------------------------------
def attribute(run: Interpreter, owner: Any, name: str) -> Any:
    """`owner.name`."""
    if isinstance(owner, Ref):
        path = f"{owner.path}.{name}"
        if run.index.resolve(path) == MISSING and run.index.module_exists(path) is not True:
            guess = difflib.get_close_matches(name, list(run.index._modules.get(owner.path, ())), 1)
            hint = f". Did you mean: '{guess[0]}'?" if guess else ""
            run.report("api.attribute", "api", "AttributeError", f"module '{owner.path}' has no attribute '{name}'{hint}", 0.95)
        return Ref(path)
    if isinstance(owner, Data):
        return _data_attribute(run, owner, name)
    if isinstance(owner, Obj):
        _check_member(run, owner, name)
    return Bound(owner, name)


def _check_member(run: Interpreter, owner: Obj, name: str) -> None:
    """An attribute that a scikit-learn object cannot have. Fitted attributes end in "_" and are not judged."""
    path = FACTORIES.get(owner.name, owner.path)
    entry = run.index.resolve(path)
    if not isinstance(entry, dict) or entry["t"] != "class" or not path.startswith("sklearn."):
        return
    signature = entry["sig"] or {"p": [], "k": [], "kw": True}
    known = {*entry["members"], *signature["p"], *signature["k"], "predict_proba", "decision_function"}
    if name not in known and not signature["kw"] and not name.startswith("_") and not name.endswith("_"):
        text = f"'{path.rpartition('.')[2]}' object has no attribute '{name}'"
        run.report("api.attribute", "api", "AttributeError", text, 0.95)


def _data_attribute(run: Interpreter, owner: Data, name: str) -> Any:
    if name in ("loc", "iloc", "at", "iat"):
        return Bound(owner, name)
    if name == "columns" and owner.kind == "frame":
        return Seq([Const(c) for c in owner.columns]) if owner.columns is not None and not owner.open else UNKNOWN
    if name == "shape":
        return Seq([Rows(owner.rows), UNKNOWN]) if owner.ndim in (2, None) else UNKNOWN
    if name in ("values", "T", "dt", "str", "sparse"):
        if name == "str" and owner.text is False and owner.kind == "series":
            text = "Can only use .str accessor with string values, not floating or integer"
            run.report("shapes.str-accessor", "shapes", "AttributeError", text, 0.85)
        kind = "array" if name in ("values", "T") else owner.kind
        return owner.but(kind=kind, rows=None if name == "T" else owner.rows)
    members = run.index.resolve(FRAME_MEMBERS[owner.kind])
    if owner.kind == "frame" and owner.columns is not None and name in owner.columns:
        return _column(owner, name)
    if name in NUMERIC_RESULT and owner.kind == "series":
        return owner.but(text=False, low=None)
    if isinstance(members, dict) and members.get("members") and name not in members["members"] and not name.startswith("_"):
        open_frame = owner.kind == "frame" and (owner.columns is None or owner.open)
        dotted = {"frame": "'DataFrame'", "series": "'Series'", "array": "'numpy.ndarray'"}[owner.kind]
        if not open_frame and not owner.sparse and owner.sparse is not None and owner.kind != "series":
            run.report("api.data-attribute", "api", "AttributeError", f"{dotted} object has no attribute '{name}'", 0.9)
    return Bound(owner, name)


def _column(frame: Data, name: str) -> Data:
    known = (frame.columns or {}).get(name, Column())
    return Data("series", rows=frame.rows, nan=known.nan, text=known.text, ndim=1, width=1.0)


# ---- subscripts ---------------------------------------------------------------------------------------------------
def subscript(run: Interpreter, owner: Any, key: Any) -> Any:
    """`owner[key]`."""
    if isinstance(owner, Ref):
        return _ref_subscript(run, owner, key)
    if isinstance(owner, Bound) and owner.name in ("loc", "iloc") and isinstance(owner.owner, Data):
        inner = owner.owner
        if owner.name == "loc" and isinstance(key, Seq) and len(key.items) == 2 and isinstance(key.items[1], (Const, Seq)):
            return subscript(run, inner.but(rows=None), key.items[1])
        return inner.but(rows=_sliced(run, inner.rows, key) if owner.name == "iloc" and isinstance(key, Slice) else None)
    if isinstance(owner, (Seq, Dict)) and isinstance(key, Const):
        try:
            return owner.items[key.value]
        except (IndexError, KeyError, TypeError):
            if isinstance(owner, Seq) and isinstance(key.value, int):
                run.report("runtime.index", "runtime", "IndexError", "list index out of range", 0.9)
            return UNKNOWN
    if isinstance(owner, Seq) and isinstance(key, Slice) and key.known:
        return Seq(owner.items[key.lower : key.upper])
    if not isinstance(owner, Data):
        return UNKNOWN
    if isinstance(key, Slice):
        return owner.but(rows=_sliced(run, owner.rows, key))
    if owner.kind == "frame":
        return _frame_subscript(run, owner, key)
    if isinstance(key, Const) and isinstance(key.value, str) and owner.kind == "array":
        text = "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid indices"
        run.report("shapes.array-index", "shapes", "IndexError", text, 0.93)
    if isinstance(key, Seq):
        if not key.items and owner.kind == "array":
            return owner.but(rows="0")
        if owner.ndim == 2 and len(key.items) == 2:  # p[:, 1] keeps the rows
            if isinstance(key.items[1], Const) and isinstance(key.items[1].value, int):
                keeps = key.items[0] == Slice()
                return owner.but(ndim=1, rows=owner.rows if keeps else None, width=1.0)
            return owner.but(width=None, exact=False)
        if key.strings() and owner.kind == "array":
            text = "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid indices"
            run.report("shapes.array-index", "shapes", "IndexError", text, 0.93)
    return owner.but(rows=None, ndim=None)


def _sliced(run: Interpreter, tag: str | None, key: Slice) -> str | None:
    """The rows that `[lower:upper]` leaves, under a tag of their own."""
    if key == Slice():
        return tag
    n = run.sklearn.count(tag)
    if not key.known or tag is None or n is None or "+" in tag:
        return None
    left = len(range(n)[key.lower : key.upper])
    if left == n:
        return tag
    new = f"{tag}[{key.lower}:{key.upper}]"
    run.sklearn.rows[new] = left
    return new


def _frame_subscript(run: Interpreter, owner: Data, key: Any) -> Any:
    if isinstance(key, Const):
        if isinstance(key.value, str) and owner.missing([key.value]):
            run.report("data.column", "data", "KeyError", repr(key.value), 0.97)
        return _column(owner, key.value) if isinstance(key.value, str) else UNKNOWN
    if isinstance(key, Seq):
        names = key.strings()
        if names is None:
            return owner.but(columns=None)
        lost = owner.missing(names)
        if lost:
            message = (
                f"{lost} not in index"
                if len(lost) < len(names)
                else f"None of [Index({lost}, dtype='str')] are in the [columns]"
            )
            run.report("data.column", "data", "KeyError", f'"{message}"', 0.97)
        return owner.select(names)
    if isinstance(key, Data):
        return owner.but(rows=None)
    return UNKNOWN


def _ref_subscript(run: Interpreter, owner: Ref, key: Any) -> Any:
    if owner.path == "os.environ" and isinstance(key, Const):
        if key.value in ("DATA_DIR", "SUBMISSION_PATH"):
            return Const(f"${key.value}")
        return UNKNOWN
    if owner.path in ("numpy.r_", "numpy.c_") and isinstance(key, Seq):
        return _concatenate(key.items, rows_add=owner.path == "numpy.r_")
    return UNKNOWN


def store(run: Interpreter, owner: Any, key: Any, value: Any) -> None:
    """`owner[key] = value`: new columns of a frame, entries of a dictionary."""
    if isinstance(owner, Dict) and isinstance(key, Const):
        owner.items[key.value] = value
    if isinstance(owner, Bound) and owner.name in ("loc", "iloc") and isinstance(owner.owner, Data):
        owner.owner.nan = None
        return
    if not isinstance(owner, Data):
        return
    if owner.kind == "array" and isinstance(key, Const) and isinstance(key.value, str):
        text = "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid indices"
        run.report("shapes.array-index", "shapes", "IndexError", text, 0.93)
    if owner.kind != "frame":
        return
    names = (
        [key.value]
        if isinstance(key, Const) and isinstance(key.value, str)
        else key.strings()
        if isinstance(key, Seq)
        else None
    )
    if names is None or owner.columns is None:
        owner.open = True
        return
    column = Column()
    if isinstance(value, Data):
        if value.kind == "array" and value.rows and owner.rows and value.rows != owner.rows:
            n, m = run.sklearn.count(value.rows), run.sklearn.count(owner.rows)
            text = f"Length of values ({n or '?'}) does not match length of index ({m or '?'})"
            run.report("shapes.assign", "shapes", "ValueError", text, 0.9)
        column = Column(text=value.text, nan=value.nan)
    elif isinstance(value, Const):
        column = Column(text=isinstance(value.value, str), nan=value.value is None)
    for name in names:
        owner.columns[name] = (
            value.columns[name] if isinstance(value, Data) and value.columns and name in value.columns else column
        )
    owner.summarised()


def elementwise(run: Interpreter, op: ast.operator, left: Any, right: Any) -> Data:
    """Arithmetic with at least one data operand."""
    data = [v for v in (left, right) if isinstance(v, Data)]
    main = next((d for d in data if d.kind == "frame"), next((d for d in data if d.kind == "series"), data[0]))
    if len(data) == 2:
        a, b = data
        if a.kind == b.kind == "array" and a.rows and b.rows and a.rows != b.rows and a.ndim == b.ndim == 1:
            n, m = run.sklearn.count(a.rows), run.sklearn.count(b.rows)
            text = f"operands could not be broadcast together with shapes ({n or '?'},) ({m or '?'},) "
            run.report("shapes.broadcast", "shapes", "ValueError", text, 0.92)
        nan = True if True in (a.nan, b.nan) else (None if None in (a.nan, b.nan) else False)
        text_ = True if True in (a.text, b.text) else (None if None in (a.text, b.text) else False)
        meaning = a.meaning if a.meaning == b.meaning else None
        rows = a.rows if a.rows == b.rows else (a.rows or b.rows if None in (a.rows, b.rows) else None)
        if text_ is True and False in (a.text, b.text) and not isinstance(op, ast.Mult):
            run.report("shapes.text-arithmetic", "shapes", "TypeError", "unsupported operand type(s): text and numbers", 0.85)
        return main.but(
            nan=nan, text=text_, meaning=meaning, rows=rows, low=None, columns=main.columns, ndim=max(a.ndim or 1, b.ndim or 1)
        )
    other = right if isinstance(left, Data) else left
    number = isinstance(other, Const) and isinstance(other.value, (int, float))
    if main.text is True and main.kind == "series" and number and not isinstance(op, (ast.Mult, ast.Mod)):
        added = isinstance(op, ast.Add)
        message = 'can only concatenate str (not "int") to str' if added else "unsupported operand type(s) for text"
        run.report("shapes.text-arithmetic", "shapes", "TypeError", message, 0.9)
    keeps = (
        isinstance(op, (ast.Mult, ast.Div))
        and isinstance(other, Const)
        and isinstance(other.value, (int, float))
        and other.value >= 0
    )
    return main.but(low=main.low if keeps else None, meaning=main.meaning if isinstance(other, Const) else None)


# ---- calls --------------------------------------------------------------------------------------------------------
def call(run: Interpreter, function: Any, args: list[Any], kwargs: dict[str, Any], complete: bool) -> Any:
    """`function(*args, **kwargs)`."""
    if isinstance(function, Func):
        return run.inline(function, args, kwargs)
    if isinstance(function, Bound):
        return _method(run, function.owner, function.name, args, kwargs, complete)
    if isinstance(function, Data):  # a pandas method that `attribute` already turned into data, e.g. `.str.len()`
        return function
    if not isinstance(function, Ref):
        return UNKNOWN
    path = function.path
    if path == "scaffold.save":
        static_submission.check_saved(run, args[0] if args else kwargs.get("p", UNKNOWN))
        run.saved.append(args[0] if args else UNKNOWN)
        return Const(None)
    entry = run.index.resolve(path)
    if isinstance(entry, dict) and entry.get("sig") and not path.startswith("numpy.random"):
        _check_signature(run, entry, args, kwargs, complete)
    if (
        isinstance(entry, dict)
        and entry["t"] == "class"
        and path.startswith(("sklearn.", "xgboost.", "lightgbm.", "catboost."))
    ):
        made = Obj(path, args, kwargs, complete)
        made.problem = _bad_value(entry, made)
        return made
    handler = HANDLERS.get(path)
    if handler is not None:
        return handler(run, args, kwargs)
    name = path.rpartition(".")[2]
    if path.startswith("numpy.") and (name in ELEMENTWISE):
        return _elementwise_function(run, name, args, kwargs)
    if name in ("make_pipeline", "make_column_transformer", "make_union"):
        return Obj(path, args, kwargs, complete)
    return UNKNOWN


def _check_signature(run: Interpreter, entry: dict, args: list[Any], kwargs: dict[str, Any], complete: bool) -> None:
    signature = entry["sig"]
    label = f"{entry['name']}.__init__()" if entry["t"] == "class" else f"{entry['name']}()"
    known = set(signature["p"]) | set(signature["k"])
    for name in kwargs:
        if not signature["kw"] and name not in known:
            text = f"{label} got an unexpected keyword argument '{name}'"
            run.report("api.keyword", "api", "TypeError", text, 0.97)
    extra = 1 if entry["t"] == "class" else 0
    most = len(signature["p"])
    if not signature["a"] and len(args) > most:
        takes = f"{most + extra} positional argument{'s' if most + extra != 1 else ''}"
        text = f"{label} takes {takes} but {len(args) + extra} were given"
        run.report("api.positional", "api", "TypeError", text, 0.95)
    if complete:
        given = set(signature["p"][: len(args)]) | set(kwargs)
        lost = [n for n in signature["r"] if n not in given]
        if lost:
            names = " and ".join(repr(n) for n in lost)
            text = f"{label} missing {len(lost)} required positional argument{'s' if len(lost) > 1 else ''}: {names}"
            run.report("api.required", "api", "TypeError", text, 0.93)


def _bad_value(entry: dict, made: Obj) -> tuple[str, str] | None:
    """A literal parameter value that scikit-learn's own validation refuses at `fit`."""
    for name, spec in (entry.get("constraints") or {}).items():
        value = made.kwargs.get(name)
        if not isinstance(value, Const) or ("other" in spec["kinds"] and not isinstance(value.value, (str, int, float))):
            continue
        v = value.value
        if isinstance(v, bool):
            bad = not spec["kinds"] and not spec["ranges"]
        elif v is None:
            bad = "none" not in spec["kinds"] and "other" not in spec["kinds"] and None not in spec["options"]
        elif isinstance(v, str):
            bad = v not in spec["options"] and "other" not in spec["kinds"]
        else:
            bad = "other" not in spec["kinds"] and v not in spec["options"] and not any(_within(v, r) for r in spec["ranges"])
            bad = bad and not (v in (0, 1) and "bool" in spec["kinds"])
        if bad:
            return (
                "InvalidParameterError",
                f"The '{name}' parameter of {made.name} must be {_describe(spec)}. Got {v!r} instead.",
            )
    return None


def _within(value: float, bounds: list[Any]) -> bool:
    kind, low, high, closed = bounds
    if kind == "Integral" and not isinstance(value, int):
        return False
    if kind == "RealNotInt" and isinstance(value, int):
        return False
    above = low is None or value > low or (value == low and closed in ("left", "both"))
    below = high is None or value < high or (value == high and closed in ("right", "both"))
    return above and below


def _describe(spec: dict) -> str:
    parts = [f"a str among {{{', '.join(repr(o) for o in spec['options'])}}}"] if spec["options"] else []
    for kind, low, high, closed in spec["ranges"]:
        left, right = "[" if closed in ("left", "both") else "(", "]" if closed in ("right", "both") else ")"
        word = "an int" if kind == "Integral" else "a float"
        parts.append(f"{word} in the range {left}{'-inf' if low is None else low}, {'inf' if high is None else high}{right}")
    parts += ["None"] if "none" in spec["kinds"] else []
    return " or ".join(parts) or "valid"


# ---- methods ------------------------------------------------------------------------------------------------------
def _method(run: Interpreter, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any], complete: bool) -> Any:
    if isinstance(owner, Obj):
        return _estimator_method(run, owner, name, args, kwargs)
    if isinstance(owner, Data):
        return _data_method(run, owner, name, args, kwargs)
    if isinstance(owner, Seq):
        return _list_method(owner, name, args)
    if isinstance(owner, Const) and isinstance(owner.value, str):
        return _string_method(owner.value, name, args)
    if isinstance(owner, Dict) and name in ("keys", "values", "items", "get"):
        return {
            "keys": lambda: Seq([Const(k) for k in owner.items]),
            "values": lambda: Seq(list(owner.items.values())),
            "items": lambda: Seq([Seq([Const(k), v]) for k, v in owner.items.items()]),
            "get": lambda: owner.items.get(args[0].value, UNKNOWN) if args and isinstance(args[0], Const) else UNKNOWN,
        }[name]()
    return UNKNOWN


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


def _data_method(run: Interpreter, owner: Data, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if name == "to_csv":
        target = args[0] if args else kwargs.get("path_or_buf", UNKNOWN)
        if not (isinstance(target, Const) and isinstance(target.value, str) and not target.value.startswith(SUBMISSION)):
            static_submission.check_frame(run, owner)
            run.saved.append(owner)
        elif isinstance(target, Const):
            run.written.add(target.value)
        return Const(None)
    if name == "drop" and owner.kind == "frame":
        return _drop(run, owner, args, kwargs)
    if name in ("reshape",):
        first = args[0].items[0] if args and isinstance(args[0], Seq) and args[0].items else args[0] if args else UNKNOWN
        n = len(args[0].items) if args and isinstance(args[0], Seq) else len(args)
        width = owner.width if n == 2 and owner.exact else None
        return owner.but(kind="array", rows=first.tag if isinstance(first, Rows) else None, ndim=n, width=width, columns=None)
    if name in ("rename", "assign", "pipe", "join", "merge", "pivot_table", "groupby", "select_dtypes"):
        if name == "assign" and owner.columns is not None:
            added = {k: Column(v.text, v.nan) if isinstance(v, Data) else Column() for k, v in kwargs.items()}
            return owner.but(columns={**owner.columns, **added}).summarised()
        return owner.but(columns=None, open=True, nan=None, text=None) if owner.kind == "frame" else UNKNOWN
    if name == "pop" and owner.kind == "frame" and args and isinstance(args[0], Const):
        taken = _frame_subscript(run, owner, args[0])
        if owner.columns is not None:
            owner.columns.pop(args[0].value, None)
            owner.summarised()
        return taken
    if name in ("insert",) and owner.kind == "frame" and len(args) > 2:
        store(run, owner, args[1], args[2])
        return Const(None)
    if name in (
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
    ):
        axis = kwargs.get("axis", args[0] if args else UNKNOWN)
        if isinstance(axis, Const) and axis.value in (1, -1) and name != "mode":
            label = "label" if name == "argmax" else None
            return owner.but(
                kind="series" if owner.kind == "frame" else "array", columns=None, ndim=1, width=1.0, meaning=label
            )
        return Data(rows=None, ndim=None, nan=owner.nan if owner.nan is False else None) if owner.kind == "array" else UNKNOWN
    if name in SAME_SHAPE:
        changes: dict[str, Any] = {}
        if name == "fillna":
            changes = {"nan": False, "columns": _with(owner.columns, nan=False)}
        elif name in ("clip",):
            lower = kwargs.get("lower", kwargs.get("min", args[0] if args else UNKNOWN))
            changes = {
                "low": float(lower.value) if isinstance(lower, Const) and isinstance(lower.value, (int, float)) else None
            }
        elif name in ("to_numpy", "toarray", "todense", "ravel", "flatten", "tolist"):
            changes = {"kind": "array", "sparse": False, "ndim": 1 if name in ("ravel", "flatten") else owner.ndim}
            if name in ("ravel", "flatten") and owner.ndim == 2:
                changes["rows"] = None
            changes["columns"] = None
        elif name in ("apply", "map", "transform", "replace", "applymap"):
            changes = {
                "nan": None,
                "text": None,
                "low": None,
                "meaning": None,
                "columns": _with(owner.columns, nan=None, text=None),
            }
        elif name == "astype":
            kind = args[0] if args else kwargs.get("dtype", UNKNOWN)
            as_text = (isinstance(kind, Ref) and kind.path == "builtins.str") or (
                isinstance(kind, Const) and kind.value in ("str", "object", "category")
            )
            whole = (isinstance(kind, Ref) and kind.path.endswith("int")) or (
                isinstance(kind, Const) and str(kind.value).startswith("int")
            )
            changes = {
                "text": as_text,
                "meaning": "whole" if whole and owner.meaning == "real" else owner.meaning,
            }
            changes["columns"] = _with(owner.columns, text=as_text)
            if not as_text and owner.text is True and owner.kind == "series" and not isinstance(kind, (type(UNKNOWN), Bound)):
                run.report("shapes.astype", "shapes", "ValueError", "could not convert string to float", 0.8)
        elif name == "round":
            changes = {"meaning": "whole" if owner.meaning == "real" else owner.meaning}
        elif name in ("shift", "diff", "pct_change", "interpolate"):
            changes = {"nan": True if name != "interpolate" else None, "columns": _with(owner.columns, nan=True)}
        elif name in ("reindex", "reset_index", "set_index"):
            changes = {"open": True}
        elif name in ("isna", "notna", "isnull", "notnull", "isin", "contains", "startswith", "endswith"):
            changes = {"nan": False, "text": False, "low": 0.0, "columns": _with(owner.columns, nan=False, text=False)}
        return owner.but(**changes)
    if name in ("get",):
        return UNKNOWN
    return owner.but(rows=None, columns=None, open=True, nan=None, text=None, width=None) if owner.kind == "frame" else UNKNOWN


def _with(columns: dict[str, Column] | None, **changes: Any) -> dict[str, Column] | None:
    from dataclasses import replace

    return None if columns is None else {k: replace(v, **changes) for k, v in columns.items()}


def _drop(run: Interpreter, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    names = kwargs.get("columns")
    axis = kwargs.get("axis", args[1] if len(args) > 1 else UNKNOWN)
    if names is None and isinstance(axis, Const) and axis.value in (1, "columns"):
        names = args[0] if args else kwargs.get("labels", UNKNOWN)
    if names is None:
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
        owner.items.extend(args[0].items)
        return Const(None)
    if name in ("tolist", "copy", "to_list"):
        return Seq(list(owner.items))
    if name == "remove" and args:
        owner.items[:] = [i for i in owner.items if i != args[0]]
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


# ---- functions ----------------------------------------------------------------------------------------------------
def _elementwise_function(run: Interpreter, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    data = [a for a in args if isinstance(a, Data)]
    if not data:
        return UNKNOWN
    main = data[0] if name != "where" or len(data) == 1 else data[-1]
    constants = [a.value for a in args if isinstance(a, Const) and isinstance(a.value, (int, float))]
    if main.text is True and name not in ("where", "asarray", "array", "copy", "roll", "flip"):
        text = f"loop of ufunc does not support argument 0 of type str which has no callable {name} method"
        run.report("shapes.text-arithmetic", "shapes", "TypeError", text, 0.9)
    if name in ("log1p", "log", "log10", "log2"):
        meaning = "log" if main.meaning == "target" or main is run.targets else None
        lost = main.nan if main.low is not None and main.low >= 0 else (main.nan or None)
        return main.but(low=0.0 if name == "log1p" and main.low == 0.0 else None, meaning=meaning or main.meaning, nan=lost)
    if name in ("expm1", "exp"):
        return main.but(low=0.0 if name == "exp" or (main.low or -1.0) >= 0 else -0.05)
    if name in ("maximum", "clip"):
        lower = kwargs.get("a_min", kwargs.get("min"))
        value = lower.value if isinstance(lower, Const) else (constants[0] if constants else None)
        return main.but(low=float(value) if isinstance(value, (int, float)) else main.low)
    if name in ("abs", "absolute", "square", "sqrt"):
        return main.but(low=0.0)
    if name in ("round", "rint", "floor", "ceil"):
        return main.but(meaning="whole" if main.meaning == "real" else main.meaning)
    if name == "nan_to_num":
        return main.but(nan=False)
    if name in ("asarray", "array", "ascontiguousarray"):
        return main.but(kind="array", columns=None)
    if name == "where":
        return main.but(meaning=None, low=None)
    return main.but(low=None) if name not in ("roll", "flip", "fliplr") else main


def _concatenate(items: list[Any], rows_add: bool) -> Any:
    data = [i for i in items if isinstance(i, Data)]
    if not data or len(data) < len(items):
        return UNKNOWN
    rows = ("+".join(d.rows or "?" for d in data) if rows_add else data[0].rows) if all(d.rows for d in data) else None
    nan = True if any(d.nan for d in data) else (None if any(d.nan is None for d in data) else False)
    text = True if any(d.text for d in data) else (None if any(d.text is None for d in data) else False)
    width = data[0].width if rows_add else (sum(d.width or 1.0 for d in data) if all(d.width for d in data) else None)
    ndim = data[0].ndim if rows_add else 2
    return Data(
        "array",
        rows=rows,
        nan=nan,
        text=text,
        width=width,
        ndim=ndim,
        exact=data[0].exact,
        meaning=data[0].meaning,
        low=data[0].low,
    )


def _read_csv(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    path = args[0] if args else kwargs.get("filepath_or_buffer", UNKNOWN)
    unknown = Data("frame", open=True)
    if not isinstance(path, Const) or not isinstance(path.value, str):
        return unknown
    name = path.value
    if name in run.written or "://" in name:
        return unknown
    if not name.startswith((DATA, SUBMISSION)) and run.context.files:
        run.report("data.file", "data", "FileNotFoundError", f"[Errno 2] No such file or directory: '{name}'", 0.92)
        return unknown
    relative = posixpath.normpath(name[len(DATA) :].lstrip("/")) if name.startswith(DATA) else ""
    info = next((f for f in run.context.files if f.name == relative), None)
    if info is None:
        if run.context.files and relative:
            run.report("data.file", "data", "FileNotFoundError", f"[Errno 2] No such file or directory: '{name}'", 0.96)
        return unknown
    if not info.columns or any(
        k in kwargs for k in ("names", "header", "usecols", "index_col", "sep", "delimiter", "skiprows")
    ):
        return unknown
    columns = {c: Column(text=kind == "str", nan=None) for c, kind in info.columns.items()}
    whole = not ({"nrows", "chunksize", "iterator"} & set(kwargs))
    tag = {"train.csv": "train", "test.csv": "test", "sample_submission.csv": "test"}.get(relative, relative)
    return Data("frame", columns=columns, rows=tag if whole else None, ndim=2).summarised()


def _data_frame(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    source = args[0] if args else kwargs.get("data", UNKNOWN)
    columns = kwargs.get("columns", args[2] if len(args) > 2 else None)
    if isinstance(source, Dict):
        values = [v for v in source.items.values() if isinstance(v, Data) and v.rows]
        arrays = {v.rows for v in values if v.kind == "array"}
        indexes = {v.rows for v in values if v.kind == "series"}
        if len(arrays) > 1:
            run.report("shapes.frame", "shapes", "ValueError", "All arrays must be of the same length", 0.93)
        elif len(arrays) == len(indexes) == 1 and arrays != indexes:
            n, m = (run.sklearn.count(next(iter(rows))) for rows in (arrays, indexes))
            text = f"array length {n or '?'} does not match index length {m or '?'}"
            run.report("shapes.frame", "shapes", "ValueError", text, 0.93)
        rows = next((v.rows for v in source.items.values() if isinstance(v, Data) and v.rows), None)
        known = {str(k): Column(v.text, v.nan) if isinstance(v, Data) else Column() for k, v in source.items.items()}
        return Data("frame", columns=known, rows=rows, ndim=2).summarised()
    names = columns.strings() if isinstance(columns, Seq) else None
    rows = source.rows if isinstance(source, Data) else None
    if names is not None:
        return Data("frame", columns={n: Column() for n in names}, rows=rows, ndim=2).summarised()
    if isinstance(source, Data) and source.kind == "frame":
        return source.but()
    return Data("frame", open=True, rows=rows, ndim=2)


def _concat(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    listed = args[0] if args else kwargs.get("objs", UNKNOWN)
    axis = kwargs.get("axis")
    if not isinstance(listed, Seq):
        return Data("frame", open=True)
    result = _concatenate(listed.items, rows_add=not (isinstance(axis, Const) and axis.value in (1, "columns")))
    frames = [i for i in listed.items if isinstance(i, Data)]
    if not isinstance(result, Data):
        return Data("frame", open=True)
    closed = all(f.kind == "frame" and f.columns is not None and not f.open for f in frames)
    columns = {k: v for f in frames for k, v in (f.columns or {}).items()} if closed else None
    return result.but(
        kind="frame" if any(f.kind == "frame" for f in frames) else "series",
        columns=columns,
        open=not closed,
        nan=None,
        rows=None,
    )


def _join(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args and all(isinstance(a, Const) and isinstance(a.value, str) for a in args):
        return Const(posixpath.join(*[a.value for a in args]))
    return UNKNOWN


def _path(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return _join(run, args, kwargs)


def _environment(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args and isinstance(args[0], Const) and args[0].value in ("DATA_DIR", "SUBMISSION_PATH"):
        return Const(f"${args[0].value}")
    return UNKNOWN


def _split(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not all(isinstance(a, Data) for a in args):
        return UNKNOWN
    run.sklearn.check_lengths(args[0], args[1] if len(args) > 1 else UNKNOWN)
    halves = []
    for a in args:
        halves += [a.but(rows=f"{a.rows}|fit" if a.rows else None), a.but(rows=f"{a.rows}|held" if a.rows else None)]
    return Seq(halves)


def _cross_val(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args and isinstance(args[0], Obj):
        x = args[1] if len(args) > 1 else kwargs.get("X", UNKNOWN)
        y = args[2] if len(args) > 2 else kwargs.get("y", UNKNOWN)
        before = args[0].fitted_on
        fits = run.sklearn.fit(args[0], x, y)
        args[0].fitted_on = before
        folds = kwargs.get("cv")
        for f in fits:
            f.times *= folds.value if isinstance(folds, Const) and isinstance(folds.value, int) else 5
        run.fits = [*fits, *run.fits]  # the last fit stays the one that predicts
    return UNKNOWN


def _length(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args and isinstance(args[0], Data):
        return Rows(args[0].rows)
    if args and isinstance(args[0], Seq):
        return Const(len(args[0].items))
    return UNKNOWN


def _listing(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    items = run.items(args[0]) if args else []
    return Seq(items) if items is not None else UNKNOWN


def _zip(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    columns = [run.items(a) for a in args]
    if not columns or any(c is None for c in columns):
        return UNKNOWN
    return Seq([Seq(list(row)) for row in zip(*columns, strict=False)])


def _enumerate(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    items = run.items(args[0]) if args else None
    return UNKNOWN if items is None else Seq([Seq([Const(i), v]) for i, v in enumerate(items)])


def _filled(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    size = args[0] if args else kwargs.get("shape", UNKNOWN)
    first = size.items[0] if isinstance(size, Seq) and size.items else size
    ndim = len(size.items) if isinstance(size, Seq) else 1
    return Data("array", rows=first.tag if isinstance(first, Rows) else None, nan=False, text=False, ndim=ndim, low=None)


def _argmax(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return _data_method(run, args[0], "argmax", args[1:], kwargs) if args and isinstance(args[0], Data) else UNKNOWN


def _reduce(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    axis = kwargs.get("axis")
    if args and isinstance(args[0], Seq) and isinstance(axis, Const) and axis.value == 0 and args[0].items:
        return args[0].items[0] if isinstance(args[0].items[0], Data) else UNKNOWN
    return _data_method(run, args[0], "mean", args[1:], kwargs) if args and isinstance(args[0], Data) else UNKNOWN


def _stacked(rows_add: bool) -> Callable[..., Any]:
    def handler(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
        axis = kwargs.get("axis")
        add = rows_add and not (isinstance(axis, Const) and axis.value in (1, -1))
        return _concatenate(args[0].items, add) if args and isinstance(args[0], Seq) else UNKNOWN

    return handler


def _diff(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    axis = kwargs.get("axis")
    if args and isinstance(args[0], Data):
        keeps = isinstance(axis, Const) and axis.value in (1, -1, 2)
        return args[0].but(rows=args[0].rows if keeps else None, width=None, exact=False)
    return UNKNOWN


def _to_datetime(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return (
        args[0].but(text=False, nan=None if args[0].nan is None else args[0].nan)
        if args and isinstance(args[0], Data)
        else UNKNOWN
    )


def _dummies(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    rows = args[0].rows if args and isinstance(args[0], Data) else None
    return Data("frame", open=True, rows=rows, text=False, nan=None, ndim=2)


def _clone(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args and isinstance(args[0], Obj):
        o = args[0]
        return Obj(o.path, o.args, o.kwargs, o.complete, o.problem)
    return UNKNOWN


HANDLERS: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "pandas.read_csv": _read_csv,
    "pandas.DataFrame": _data_frame,
    "pandas.concat": _concat,
    "pandas.to_datetime": _to_datetime,
    "pandas.get_dummies": _dummies,
    "os.path.join": _join,
    "pathlib.Path": _path,
    "os.environ.get": _environment,
    "os.getenv": _environment,
    "sklearn.model_selection.train_test_split": _split,
    "sklearn.model_selection.cross_val_score": _cross_val,
    "sklearn.model_selection.cross_val_predict": _cross_val,
    "sklearn.model_selection.cross_validate": _cross_val,
    "sklearn.base.clone": _clone,
    "builtins.len": _length,
    "builtins.list": _listing,
    "builtins.tuple": _listing,
    "builtins.sorted": _listing,
    "builtins.set": _listing,
    "builtins.zip": _zip,
    "builtins.enumerate": _enumerate,
    "numpy.zeros": _filled,
    "numpy.ones": _filled,
    "numpy.full": _filled,
    "numpy.argmax": _argmax,
    "numpy.mean": _reduce,
    "numpy.average": _reduce,
    "numpy.concatenate": _stacked(True),
    "numpy.vstack": _stacked(True),
    "numpy.hstack": _stacked(False),
    "numpy.column_stack": _stacked(False),
    "numpy.diff": _diff,
}
