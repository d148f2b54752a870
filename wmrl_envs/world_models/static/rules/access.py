"""What attributes, subscripts and arithmetic give in the abstract execution, and which of them raise."""

from __future__ import annotations

import ast
import difflib
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from wmrl_envs.world_models.static.index.api import MISSING
from wmrl_envs.world_models.static.rules import language as static_language
from wmrl_envs.world_models.static.values import UNKNOWN, Bound, Column, Const, Data, Dict, Obj, Ref, Rows, Seq, Slice

if TYPE_CHECKING:
    from wmrl_envs.world_models.static.interpreter import Interpreter

NUMERIC_RESULT = frozenset(
    [
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
    ]
)
FACTORIES = {
    "make_pipeline": "sklearn.pipeline.Pipeline",
    "make_union": "sklearn.pipeline.FeatureUnion",
    "make_column_transformer": "sklearn.compose.ColumnTransformer",
}
FRAME_MEMBERS = {"frame": "pandas.DataFrame", "series": "pandas.Series", "array": "numpy.ndarray"}
FITTED_PIPELINE = ("classes_", "n_features_in_", "feature_names_in_")
VARIABLES = frozenset(
    ["DATA_DIR", "SUBMISSION_PATH", "METRIC", "MAX_ROWS", "PATH", "HOME", "TMPDIR", "LANG", "OMP_NUM_THREADS"]
)
NOT_AN_INDEX = (
    "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid indices"
)


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
    static_language.check_none(run, owner, name)
    return Bound(owner, name)


def set_attribute(owner: Any, name: str, value: Any) -> None:
    """`owner.name = value`: the columns of a frame, a new column, or something that is not followed."""
    if not isinstance(owner, Data) or owner.kind != "frame":
        return
    owner.unnamed = False
    names = value.strings() if isinstance(value, Seq) else None
    if name == "columns" and names is not None:
        owner.columns, owner.open = {n: Column() for n in names}, False
    elif name == "columns":
        owner.columns, owner.open = None, True


def _check_member(run: Interpreter, owner: Obj, name: str) -> None:
    """An attribute that a scikit-learn object cannot have. Fitted attributes end in "_" and are not judged."""
    path = FACTORIES.get(owner.name, owner.path)
    fitted = name.endswith("_") and not name.startswith("_") and name not in FITTED_PIPELINE
    if path == FACTORIES["make_pipeline"] and fitted:
        run.report("api.step-attribute", "api", "AttributeError", f"'Pipeline' object has no attribute '{name}'", 0.95)
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
        return Seq([Rows(owner.rows), _columns_known(owner)], sure=owner.ndim == 2) if owner.ndim in (2, None) else UNKNOWN
    if name in ("values", "T", "dt", "str", "sparse"):
        if name == "str" and owner.text is False and owner.kind == "series":
            text = "Can only use .str accessor with string values, not floating or integer"
            run.report("shapes.str-accessor", "shapes", "AttributeError", text, 0.85)
        kind = "array" if name in ("values", "T") else owner.kind
        accessor = owner.accessor or name in ("dt", "str", "sparse")
        return owner.but(kind=kind, rows=None if name == "T" else owner.rows, accessor=accessor)
    members = run.index.resolve(FRAME_MEMBERS[owner.kind])
    if owner.kind == "frame" and owner.columns is not None and name in owner.columns:
        return column_of(owner, name)
    if name in NUMERIC_RESULT and owner.kind == "series":
        return owner.but(text=False, low=None)
    if isinstance(members, dict) and members.get("members") and name not in members["members"] and not name.startswith("_"):
        open_frame = owner.kind == "frame" and (owner.columns is None or owner.open)
        dotted = {"frame": "'DataFrame'", "series": "'Series'", "array": "'numpy.ndarray'"}[owner.kind]
        if not open_frame and not owner.sparse and owner.sparse is not None and not owner.accessor:
            run.report("api.data-attribute", "api", "AttributeError", f"{dotted} object has no attribute '{name}'", 0.9)
    return Bound(owner, name)


def _columns_known(owner: Data) -> Any:
    """The second number of a shape."""
    if owner.kind == "frame":
        return Const(len(owner.columns)) if owner.columns is not None and not owner.open else UNKNOWN
    return Const(int(owner.width)) if owner.kind == "array" and owner.exact and owner.width else UNKNOWN


def column_of(frame: Data, name: str) -> Data:
    known = (frame.columns or {}).get(name, Column())
    origin = f"{frame.rows.split('[')[0]}:{name}" if frame.rows else None
    return Data("series", rows=frame.rows, nan=known.nan, text=known.text, ndim=1, width=1.0, origin=origin)


def subscript(run: Interpreter, owner: Any, key: Any) -> Any:
    """`owner[key]`."""
    if isinstance(owner, Ref):
        return _ref_subscript(run, owner, key)
    if isinstance(owner, Bound):
        return _located(run, owner, key)
    if isinstance(owner, (Seq, Dict)):
        return _item(run, owner, key)
    static_language.check_none(run, owner, None)
    if not isinstance(owner, Data):
        return UNKNOWN
    if isinstance(key, Slice):
        return owner.but(rows=_sliced(run, owner.rows, key))
    return frame_subscript(run, owner, key) if owner.kind == "frame" else _array_subscript(run, owner, key)


def check_pair(run: Interpreter, owner: Data, key: Seq) -> None:
    """`frame[a, b]`: a pair is one label, which a frame of plain columns does not have."""
    plain = all(isinstance(k, Const) for k in key.items)
    if owner.kind == "frame" and owner.columns is not None and not owner.open and plain:
        run.report("data.column", "data", "KeyError", repr(tuple(k.value for k in key.items)), 0.93)


def _located(run: Interpreter, owner: Bound, key: Any) -> Any:
    """`frame.loc[...]` and `frame.iloc[...]`."""
    inner = owner.owner
    if owner.name not in ("loc", "iloc") or not isinstance(inner, Data):
        return UNKNOWN
    if owner.name == "loc" and isinstance(key, Seq) and len(key.items) == 2 and isinstance(key.items[1], (Const, Seq)):
        return subscript(run, inner.but(rows=None), key.items[1])
    if owner.name == "loc" and isinstance(key, Const) and isinstance(key.value, str) and key.value in (inner.columns or {}):
        run.report("data.row-label", "data", "KeyError", repr(key.value), 0.93)  # a column's name where a row's belongs
    at = static_language.plain(run, key)
    if owner.name == "iloc" and isinstance(at, Const) and isinstance(at.value, int) and not isinstance(at.value, bool):
        n = run.sklearn.count(inner.rows)
        if n is not None and not -n <= at.value < n:
            run.report("runtime.index", "runtime", "IndexError", "single positional indexer is out-of-bounds", 0.95)
        return Data("series", ndim=1) if inner.kind == "frame" else UNKNOWN
    return inner.but(rows=_sliced(run, inner.rows, key) if owner.name == "iloc" and isinstance(key, Slice) else None)


def _item(run: Interpreter, owner: Seq | Dict, key: Any) -> Any:
    key = static_language.plain(run, key)
    if isinstance(key, Const):
        try:
            return owner.items[key.value]
        except (IndexError, KeyError, TypeError):
            if isinstance(owner, Seq) and isinstance(key.value, int):
                if owner.sure:
                    run.report("runtime.index", "runtime", "IndexError", "list index out of range", 0.95)
            elif isinstance(owner, Dict) and not owner.open:
                run.report("runtime.key", "runtime", "KeyError", repr(key.value), 0.93)
    elif isinstance(owner, Seq) and isinstance(key, Slice) and key.known:
        return Seq(owner.items[key.lower : key.upper])
    return UNKNOWN


def _array_subscript(run: Interpreter, owner: Data, key: Any) -> Any:
    text_key = (isinstance(key, Const) and isinstance(key.value, str)) or (
        isinstance(key, Seq) and bool(key.items) and bool(key.strings())
    )
    if text_key and owner.kind == "array":
        run.report("shapes.array-index", "shapes", "IndexError", NOT_AN_INDEX, 0.93)
    if isinstance(key, Seq):
        if not key.items and owner.kind == "array":
            return owner.but(rows="0")
        if owner.kind == "array" and owner.ndim == 1 and len(key.items) > 1 and isinstance(key.items[0], Slice):
            text = "too many indices for array: array is 1-dimensional, but 2 were indexed"
            run.report("shapes.too-many-indices", "shapes", "IndexError", text, 0.94)
        if owner.ndim == 2 and len(key.items) == 2:  # p[:, 1] keeps the rows
            if isinstance(key.items[1], Const) and isinstance(key.items[1].value, int):
                return owner.but(ndim=1, rows=owner.rows if key.items[0] == Slice() else None, width=1.0)
            return owner.but(width=None, exact=False)
    row = isinstance(static_language.plain(run, key), Const) and owner.kind == "array" and owner.ndim == 2
    return owner.but(rows=None, ndim=1 if row else None)


def _sliced(run: Interpreter, tag: str | None, key: Slice) -> str | None:
    """The rows that `[lower:upper]` leaves, under a tag of their own."""
    if key == Slice():
        return tag
    n = run.sklearn.count(tag)
    if not key.known or tag is None or n is None:
        return None
    if "+" in tag:
        return _part_of(run, tag.split("+"), key)
    left = len(range(n)[key.lower : key.upper : key.step])
    if left == n:
        return tag
    new = f"{tag}[{key.lower}:{key.upper}:{key.step}]"
    run.sklearn.rows[new] = left
    return new


def _part_of(run: Interpreter, parts: list[str], key: Slice) -> str | None:
    """Rows that were put below each other, taken apart where they meet."""
    ends = [0, *accumulate(run.sklearn.count(p) or 0 for p in parts)]
    lower, upper = key.lower or 0, ends[-1] if key.upper is None else key.upper
    if key.step is not None or lower not in ends or upper not in ends or lower >= upper:
        return None
    return "+".join(parts[ends.index(lower) : ends.index(upper)])


def frame_subscript(run: Interpreter, owner: Data, key: Any) -> Any:
    if isinstance(key, Const):
        if isinstance(key.value, str) and owner.missing([key.value]):
            run.report("data.column", "data", "KeyError", repr(key.value), 0.97)
        named = owner.columns and not owner.open and all(isinstance(c, str) for c in owner.columns)
        if named and isinstance(key.value, int):
            run.report("data.position", "data", "KeyError", repr(key.value), 0.95)
        return column_of(owner, key.value) if isinstance(key.value, str) else UNKNOWN
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
        if isinstance(key.value, str) and key.value not in VARIABLES:
            run.report("data.variable", "data", "KeyError", repr(key.value), 0.93)
        return UNKNOWN
    if owner.path in ("numpy.r_", "numpy.c_") and isinstance(key, Seq):
        counts = {run.sklearn.count(d.rows) for d in key.items if isinstance(d, Data)}
        if owner.path == "numpy.c_" and None not in counts and len(counts) > 1:
            text = "all the input array dimensions except for the concatenation axis must match exactly"
            run.report("shapes.beside", "shapes", "ValueError", text, 0.93)
        return concatenate(key.items, rows_add=owner.path == "numpy.r_")
    return UNKNOWN


def store(run: Interpreter, owner: Any, key: Any, value: Any) -> None:
    """`owner[key] = value`: new columns of a frame, entries of a dictionary."""
    if isinstance(owner, Dict):
        if isinstance(key, Const):
            owner.items[key.value] = value
        else:
            owner.open = True
    missing = isinstance(value, Ref) and value.path in ("numpy.nan", "numpy.NaN", "pandas.NA")
    if isinstance(owner, Bound) and owner.name in ("loc", "iloc") and isinstance(owner.owner, Data):
        inner = owner.owner
        inner.nan = True if missing else None
        inner.columns = (
            {k: replace(c, nan=True) for k, c in inner.columns.items()} if missing and inner.columns else inner.columns
        )
        return
    if not isinstance(owner, Data):
        return
    if owner.kind == "array" and isinstance(key, Const) and isinstance(key.value, str):
        run.report("shapes.array-index", "shapes", "IndexError", NOT_AN_INDEX, 0.93)
    if owner.kind != "frame":
        return
    names = (
        [key.value]
        if isinstance(key, Const) and isinstance(key.value, str)
        else key.strings()
        if isinstance(key, Seq)
        else None
    )
    owner.unnamed = False
    if names is None or owner.columns is None:
        owner.open = True
        return
    column = Column(nan=True if missing else None)
    if isinstance(value, Data):
        if value.kind == "array" and value.rows and owner.rows and value.rows != owner.rows:
            n, m = run.sklearn.count(value.rows), run.sklearn.count(owner.rows)
            text = f"Length of values ({n or '?'}) does not match length of index ({m or '?'})"
            run.report("shapes.assign", "shapes", "ValueError", text, 0.9)
        column = Column(text=value.text, nan=value.nan, origin=value.origin)
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


def concatenate(items: list[Any], rows_add: bool) -> Any:
    """Rows below each other (`rows_add`) or columns side by side."""
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
