"""What attributes and subscripts give in the abstract execution, and which of them raise."""

from __future__ import annotations

import difflib
from itertools import accumulate
from typing import Any

from wmrl_envs.world_models.static.index.api import MISSING
from wmrl_envs.world_models.static.rules import language
from wmrl_envs.world_models.static.rules.arrays import concatenate
from wmrl_envs.world_models.static.rules.pipelines import FACTORIES
from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import (
    UNKNOWN,
    Bound,
    Column,
    Const,
    Data,
    Dict,
    Groups,
    Instance,
    Obj,
    Ref,
    Rows,
    Seq,
    Slice,
)

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
        "startswith",
        "endswith",
        "is_month_start",
        "is_month_end",
        "isdigit",
        "isupper",
    ]
)
FRAME_MEMBERS = {"frame": "pandas.DataFrame", "series": "pandas.Series", "array": "numpy.ndarray"}
FITTED_PIPELINE = ("classes_", "n_features_in_", "feature_names_in_")
GONE = frozenset(
    ["append", "iteritems", "ix", "as_matrix", "mad", "lookup", "get_value", "set_value", "weekofyear"]
)  # of older pandas
VARIABLES = frozenset(
    ["DATA_DIR", "SUBMISSION_PATH", "METRIC", "MAX_ROWS", "PATH", "HOME", "TMPDIR", "LANG", "OMP_NUM_THREADS"]
)


def attribute(run: State, owner: Any, name: str) -> Any:
    """`owner.name`."""
    if isinstance(owner, Ref) and owner.path.startswith("dtype."):
        kinds = {"int": "i", "float": "f", "bool": "b", "str": "O", "date": "M", "category": "O"}
        return Const(kinds[owner.path[6:]]) if name == "kind" else UNKNOWN
    if isinstance(owner, Ref):
        path = f"{owner.path}.{name}"
        if run.index.resolve(path) == MISSING and run.index.module_exists(path) is not True:
            guess = difflib.get_close_matches(name, list(run.index._modules.get(owner.path, ())), 1)
            hint = f". Did you mean: '{guess[0]}'?" if guess else ""
            run.report("api.attribute", owner=f"module '{owner.path}'", name=name, hint=hint)
        return Ref(path)
    if isinstance(owner, Data):
        return _data_attribute(run, owner, name)
    if isinstance(owner, Instance):
        return owner.attributes.get(name, Bound(owner, name))
    if isinstance(owner, Obj):
        _check_member(run, owner, name)
        if name in ("best_estimator_", "estimator", "base_estimator") and isinstance(owner.get("estimator", 0), Obj):
            return _inner(owner)
    language.check_none(run, owner, name)
    return Bound(owner, name)


def _inner(search: Obj) -> Obj:
    """The best estimator of a search, fitted where the search is."""
    inner: Obj = search.get("estimator", 0)
    return Obj(inner.path, inner.args, inner.kwargs, inner.complete, inner.problem, search.fitted_on, search.target)


def set_attribute(owner: Any, name: str, value: Any) -> None:
    """`owner.name = value`: the columns of a frame, a new column, or something that is not followed."""
    if isinstance(owner, Instance):
        owner.attributes[name] = value
        return
    if isinstance(owner, Bound) and name in ("name", "names") and isinstance(owner.owner, Data):
        owner.owner.default_index = False  # frame.index.name = "id"
    if not isinstance(owner, Data) or owner.kind != "frame":
        return
    owner.unnamed = False
    names = value.strings() if isinstance(value, Seq) and value.sure else None
    if name == "columns" and names is not None:
        owner.columns, owner.open = {n: Column() for n in names}, False
    elif name == "columns":
        owner.columns, owner.open = None, True
    elif name == "index":
        owner.default_index = False


def _check_member(run: State, owner: Obj, name: str) -> None:
    """An attribute that a scikit-learn object cannot have. Fitted attributes end in "_" and are not judged."""
    path = FACTORIES.get(owner.name, owner.path)
    fitted = name.endswith("_") and not name.startswith("_") and name not in FITTED_PIPELINE
    if path == FACTORIES["make_pipeline"] and fitted:
        run.report("api.attribute", owner="'Pipeline' object", name=name, hint="")
    entry = run.index.resolve(path)
    if not isinstance(entry, dict) or entry["t"] != "class" or not path.startswith("sklearn."):
        return
    signature = entry["sig"] or {"p": [], "k": [], "kw": True}
    known = {*entry["members"], *signature["p"], *signature["k"], "predict_proba", "decision_function"}
    judged = name == "feature_importances_" or (not name.startswith("_") and not name.endswith("_"))
    if name not in known and not signature["kw"] and judged:
        run.report("api.attribute", owner=f"'{path.rpartition('.')[2]}' object", name=name, hint="")


def _data_attribute(run: State, owner: Data, name: str) -> Any:
    if name in ("loc", "iloc", "at", "iat", "index"):
        return Bound(owner, name)
    if name == "columns" and owner.kind == "frame":
        return Seq([Const(c) for c in owner.columns], index=True) if owner.columns is not None and not owner.open else UNKNOWN
    if name == "shape":
        return _shape(owner)
    if name in ("dtype", "dtypes"):
        return Ref(f"dtype.{owner.dtype}") if owner.dtype and owner.kind == "series" else UNKNOWN
    if name in ("values", "T", "dt", "str", "sparse", "cat"):
        kind = "array" if name in ("values", "T") else owner.kind
        accessor = owner.accessor or name in ("dt", "str", "sparse", "cat")
        if owner.kind == "series" and not owner.accessor:
            _check_accessor(run, owner, name)
        if name == "T" and owner.kind != "array":
            return Data("frame", open=True) if owner.kind == "frame" else owner
        if name == "T":
            return owner.but(kind=kind, rows=None, columns=None, width=None, exact=False)
        changes = {"columns": None} if kind == "array" else {}
        return owner.but(kind=kind, accessor=accessor, **changes)
    if name == "codes" and owner.accessor:
        return owner.but(text=False, nan=False, accessor=False)
    members = run.index.resolve(FRAME_MEMBERS[owner.kind])
    if owner.kind == "frame" and owner.columns is not None and name in owner.columns:
        return column_of(owner, name)
    if name in NUMERIC_RESULT and owner.kind == "series":
        return owner.but(text=False, low=None, meaning=None, accessor=False)
    _check_data_member(run, owner, name, members)
    return Bound(owner, name)


def _check_accessor(run: State, owner: Data, name: str) -> None:
    if name == "str" and (
        owner.dtype in ("int", "float", "bool", "date") or (owner.text is False and owner.dtype != "category")
    ):
        run.report(
            "shapes.accessor", name=name, wanted=f"string values, not {'floating' if owner.dtype == 'float' else 'integer'}"
        )
    if name == "dt" and owner.dtype in ("str", "int", "float"):
        run.report("shapes.accessor", name=name, wanted="datetimelike values")


def _check_data_member(run: State, owner: Data, name: str, members: Any) -> None:
    lacks = isinstance(members, dict) and members.get("members") and name not in members["members"] and not name.startswith("_")
    if not lacks or owner.sparse or owner.sparse is None:
        return
    open_frame = owner.kind == "frame" and (owner.columns is None or owner.open)
    if (not open_frame and not owner.accessor) or (name in GONE and owner.kind != "array"):
        dotted = {"frame": "'DataFrame'", "series": "'Series'", "array": "'numpy.ndarray'"}[owner.kind]
        run.report("api.attribute", owner=f"{dotted} object", name=name, hint="")


def _shape(owner: Data) -> Any:
    if owner.dims is not None and owner.ndim == len(owner.dims) + 1:
        return Seq([Rows(owner.rows), *(Const(d) for d in owner.dims)])
    if owner.ndim not in (2, None):
        return UNKNOWN
    return Seq([Rows(owner.rows), _columns_known(owner)], sure=owner.ndim == 2)


def _columns_known(owner: Data) -> Any:
    """The second number of a shape."""
    if owner.kind == "frame":
        return Const(len(owner.columns)) if owner.columns is not None and not owner.open else UNKNOWN
    return Const(int(owner.width)) if owner.kind == "array" and owner.exact and owner.width else UNKNOWN


def column_of(frame: Data, name: str) -> Data:
    """One column of a frame as a series."""
    known = (frame.columns or {}).get(name, Column())
    origin = known.origin or (f"{frame.rows.split('[')[0]}:{name}" if frame.rows else None)
    return Data(
        "series", rows=frame.rows, nan=known.nan, text=known.text, ndim=1, width=1.0, origin=origin, dtype=known.dtype,
        meaning=known.meaning, low=known.low, default_index=frame.default_index,
    )  # fmt: skip


def subscript(run: State, owner: Any, key: Any) -> Any:
    """`owner[key]`."""
    if isinstance(owner, Ref):
        return _ref_subscript(run, owner, key)
    if isinstance(owner, Bound):
        return _located(run, owner, key)
    if isinstance(owner, (Seq, Dict)):
        return _item(run, owner, key)
    if isinstance(owner, Groups):
        names = [key.value] if isinstance(key, Const) else key.strings() if isinstance(key, Seq) else None
        return UNKNOWN if names is None else Groups({n: owner.columns[n] for n in names if n in owner.columns})
    language.check_none(run, owner, None)
    if not isinstance(owner, Data):
        return UNKNOWN
    if isinstance(key, Slice):
        return owner.but(rows=_sliced(run, owner.rows, key))
    return frame_subscript(run, owner, key) if owner.kind == "frame" else _array_subscript(run, owner, key)


def check_pair(run: State, owner: Data, key: Seq) -> None:
    """`frame[a, b]`: a pair is one label, which a frame of plain columns does not have."""
    plain = all(isinstance(k, Const) for k in key.items)
    if owner.kind == "frame" and owner.columns is not None and not owner.open and plain:
        run.report("data.column", text=repr(tuple(k.value for k in key.items)))


def _located(run: State, owner: Bound, key: Any) -> Any:
    """`frame.loc[...]` and `frame.iloc[...]`."""
    inner = owner.owner
    if owner.name not in ("loc", "iloc") or not isinstance(inner, Data):
        return UNKNOWN
    if isinstance(key, Seq) and len(key.items) == 2 and inner.kind == "frame":
        rows = inner.rows if key.items[0] == Slice() else None
        if owner.name == "loc" and isinstance(key.items[1], (Const, Seq)):
            return subscript(run, inner.but(rows=rows, default_index=False), key.items[1])
        if key.items[1] != Slice():  # columns by position or by a mask
            return Data("frame" if isinstance(key.items[1], (Slice, Seq)) else "series", open=True, rows=rows)
        return inner.but(rows=rows, default_index=False)
    if owner.name == "loc" and isinstance(key, Const) and isinstance(key.value, str):
        if inner.default_index and key.value in (inner.columns or {}):
            run.report("data.row-label", text=repr(key.value))  # a column's name where a row's belongs
        return inner.but(rows=None, default_index=False)
    at = run.plain(key)
    if owner.name == "iloc" and isinstance(at, Const) and isinstance(at.value, int) and not isinstance(at.value, bool):
        n = run.count(inner.rows)
        if n is not None and not -n <= at.value < n:
            run.report("runtime.index", text="single positional indexer is out-of-bounds")
        return Data("series", ndim=1) if inner.kind == "frame" else UNKNOWN
    whole = owner.name == "iloc" and isinstance(key, Slice)
    return inner.but(rows=_sliced(run, inner.rows, key) if whole else None, default_index=False)


def _item(run: State, owner: Seq | Dict, key: Any) -> Any:
    key = run.plain(key)
    if (
        isinstance(owner, Seq)
        and not owner.index
        and (isinstance(key, Seq) or (isinstance(key, Const) and isinstance(key.value, str)))
    ):
        run.report("runtime.index-type", owner="list", kind="tuple" if isinstance(key, Seq) else "str")
    if isinstance(key, Const):
        try:
            return owner.items[key.value]
        except (IndexError, KeyError, TypeError):
            if isinstance(owner, Seq) and isinstance(key.value, int):
                if owner.sure:
                    run.report("runtime.index", text="list index out of range")
            elif isinstance(owner, Dict) and not owner.open:
                run.report("runtime.key", name=key.value)
    elif isinstance(owner, Seq) and isinstance(key, Slice) and key.known:
        return Seq(owner.items[key.lower : key.upper], owner.sure, owner.index)
    return UNKNOWN


def _array_subscript(run: State, owner: Data, key: Any) -> Any:
    key = run.plain(key)
    text_key = (isinstance(key, Const) and isinstance(key.value, str)) or (
        isinstance(key, Seq) and bool(key.items) and bool(key.strings())
    )
    if text_key and owner.kind == "array":
        run.report("shapes.array-index")
    if isinstance(key, Seq):
        return _many_indices(run, owner, key)
    if isinstance(key, Data) and key.ndim == 1:
        return owner.but(rows=None, default_index=False)
    if owner.kind == "series":
        return owner.but(rows=None, default_index=False) if not isinstance(key, Const) else UNKNOWN
    if isinstance(key, Const) and isinstance(key.value, int) and owner.ndim == 2:
        return owner.but(rows=None, ndim=1)
    return owner.but(rows=None, ndim=None, width=None, exact=False)  # one row, or many


def _many_indices(run: State, owner: Data, key: Seq) -> Any:
    """`array[a, b]`, `array[[...]]`."""
    if not key.items and owner.kind == "array":
        return owner.but(rows="0")
    first, rest = (key.items[0], key.items[1:]) if key.items else (UNKNOWN, [])
    kept = owner.rows if first == Slice() else _sliced(run, owner.rows, first) if isinstance(first, Slice) else None
    if owner.kind == "array" and owner.ndim == 1 and rest and isinstance(first, Slice):
        if any(isinstance(k, Const) and k.value is None for k in rest):  # y[:, None]
            return owner.but(ndim=2, rows=kept, width=1.0, exact=True)
        run.report("shapes.too-many-indices")
    if owner.ndim == 2 and len(rest) == 1 and isinstance(first, Slice):  # p[:, 1] keeps the rows
        if isinstance(run.plain(rest[0]), Const):
            return owner.but(ndim=1, rows=kept, width=1.0, columns=None)
        whole = rest[0] == Slice()
        return owner.but(rows=kept) if whole else owner.but(rows=kept, ndim=None, width=None, exact=False)
    kind = "array" if owner.kind == "array" else owner.kind
    return owner.but(kind=kind, rows=kept, ndim=None, width=None, exact=False)


def _sliced(run: State, tag: str | None, key: Slice) -> str | None:
    """The rows that `[lower:upper]` leaves, under a tag of their own."""
    if key == Slice():
        return tag
    n = run.count(tag)
    if not key.known or tag is None or n is None:
        return None
    if "+" in tag:
        return _part_of(run, tag.split("+"), key)
    left = len(range(n)[key.lower : key.upper : key.step])
    if left == n:
        return tag
    new = f"{tag}[{key.lower}:{key.upper}:{key.step}]"
    run.rows[new] = left
    return new


def _part_of(run: State, parts: list[str], key: Slice) -> str | None:
    """Rows that were put below each other, taken apart where they meet."""
    ends = [0, *accumulate(run.count(p) or 0 for p in parts)]
    lower, upper = key.lower or 0, ends[-1] if key.upper is None else key.upper
    if key.step is not None or lower not in ends or upper not in ends or lower >= upper:
        return None
    return "+".join(parts[ends.index(lower) : ends.index(upper)])


def frame_subscript(run: State, owner: Data, key: Any) -> Any:
    """`frame[key]`."""
    key = run.plain(key)
    if isinstance(key, Const):
        if isinstance(key.value, str) and owner.missing([key.value]):
            run.report("data.column", text=repr(key.value))
        named = owner.columns and not owner.open and all(isinstance(c, str) for c in owner.columns)
        if named and isinstance(key.value, int):
            run.report("data.position", name=key.value)
        return column_of(owner, key.value) if isinstance(key.value, str) else UNKNOWN
    if isinstance(key, Seq):
        names = key.strings() if key.sure else None
        if names is None:
            return owner.but(columns=None, open=True, nan=None, text=None)
        lost = owner.missing(names)
        if lost:
            part = f"{lost} not in index"
            run.report("data.column", text=f'"{part if len(lost) < len(names) else _none_of(lost)}"')
        return owner.select(names)
    if isinstance(key, Data):
        return owner.but(rows=None, default_index=False) if key.mask or key.kind == "series" else Data("frame", open=True)
    return UNKNOWN


def _none_of(names: list[str]) -> str:
    return f"None of [Index({names}, dtype='str')] are in the [columns]"


def _ref_subscript(run: State, owner: Ref, key: Any) -> Any:
    if owner.path == "os.environ" and isinstance(key, Const):
        if key.value in ("DATA_DIR", "SUBMISSION_PATH"):
            return Const(f"${key.value}")
        if isinstance(key.value, str) and key.value not in VARIABLES:
            run.report("data.variable", name=key.value)
        return UNKNOWN
    if owner.path in ("numpy.r_", "numpy.c_") and isinstance(key, Seq):
        counts = {run.count(d.rows) for d in key.items if isinstance(d, Data)}
        if owner.path == "numpy.c_" and None not in counts and len(counts) > 1:
            text = "all the input array dimensions except for the concatenation axis must match exactly"
            run.report("shapes.beside", text=text)
        return concatenate(key.items, rows_add=owner.path == "numpy.r_")
    return UNKNOWN
