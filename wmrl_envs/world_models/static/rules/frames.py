"""What the methods of a DataFrame do to its columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from wmrl_envs.world_models.static.rules.access import column_of, frame_subscript
from wmrl_envs.world_models.static.rules.tables import column_from, renamed
from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import UNKNOWN, Bound, Column, Const, Data, Dict, Func, Ref, Seq

_SAME_ROWS = ("merge", "join")  # with how="left"


def call(run: State, owner: Data, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """One of `METHODS`, with what `inplace=True` does."""
    return in_place(owner, METHODS[name](run, owner, args, kwargs), kwargs)


def in_place(owner: Data, result: Any, kwargs: dict[str, Any]) -> Any:
    """The result, or with `inplace=True` nothing, the frame being changed."""
    chosen = kwargs.get("inplace")
    if not isinstance(chosen, Const) or chosen.value is not True:
        return result
    if isinstance(result, Data):
        vars(owner).update(vars(result))
    return Const(None)


def with_all(columns: dict[str, Column] | None, **changes: Any) -> dict[str, Column] | None:
    """Every column changed alike."""
    return None if columns is None else {k: replace(v, **changes) for k, v in columns.items()}


def fillna(owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    """`fillna`: a plain value fills every column, a series of means only those that have one."""
    value = args[0] if args else kwargs.get("value", UNKNOWN)
    if owner.kind != "frame" or owner.columns is None:
        return owner.but(
            nan=False if isinstance(value, Const) or owner.kind != "frame" else None, dtype=owner.dtype, dims=owner.dims
        )
    if isinstance(value, Const):
        result = owner.but(columns=with_all(owner.columns, nan=False)).summarised()
    elif isinstance(value, Dict) and not value.open:
        filled = {k: replace(c, nan=False) if k in value.items else c for k, c in owner.columns.items()}
        result = owner.but(columns=filled).summarised()
    else:
        filled = {k: replace(c, nan=False if c.text is False else c.nan and None) for k, c in owner.columns.items()}
        result = owner.but(columns=filled).summarised()
    result.nan = (
        result.nan
        if not owner.open
        else (False if isinstance(value, Const) else None if result.nan is False and owner.nan is not False else result.nan)
    )
    if not isinstance(value, Const) and owner.text is False and owner.open:
        result.nan = False
    return result


def store(run: State, owner: Any, key: Any, value: Any) -> None:
    """`owner[key] = value`: new columns of a frame, entries of a dictionary."""
    if isinstance(owner, Dict):
        if isinstance(key, Const):
            owner.items[key.value] = value
        else:
            owner.open = True
    if isinstance(owner, Seq):
        owner.items[:] = [UNKNOWN] * len(owner.items)
    if isinstance(owner, Bound) and isinstance(owner.owner, Data) and owner.name in ("loc", "iloc", "at", "iat"):
        _store_located(owner, key, value)
    if not isinstance(owner, Data):
        return
    if owner.kind == "array" and isinstance(key, Const) and isinstance(key.value, str):
        run.report("shapes.array-index")
    if owner.kind != "frame":
        owner.nan, owner.text, owner.meaning, owner.low = (None if owner.nan else owner.nan), None, None, None
        if isinstance(value, Data) and value.nan is not False:
            owner.nan = None
        return
    owner.unnamed = False
    whole = isinstance(key, Const) and isinstance(key.value, str)
    names = [key.value] if whole else key.strings() if isinstance(key, Seq) and key.sure else None
    if owner.columns is None:
        owner.open, owner.nan, owner.text = True, None, None
        return
    if names is None:  # any column may have changed
        owner.columns = with_all(owner.columns, text=None, nan=None, dtype=None, meaning=None, low=None, origin=None)
        owner.open = True
        owner.summarised()
        return
    _store_columns(run, owner, names, value)


def _store_columns(run: State, owner: Data, names: list[str], value: Any) -> None:
    missing = isinstance(value, Ref) and value.path in ("numpy.nan", "numpy.NaN", "pandas.NA", "pandas.NaT")
    column = replace(column_from(value), nan=True) if missing else column_from(value)
    for name in names:
        known = isinstance(value, Data) and value.kind == "frame" and value.columns and name in value.columns
        owner.columns[name] = value.columns[name] if known else column  # type: ignore[index]
    owner.summarised()


def _store_located(owner: Bound, key: Any, value: Any) -> None:
    """`frame.loc[rows, columns] = value`."""
    frame: Data = owner.owner
    missing = isinstance(value, Ref) and value.path in ("numpy.nan", "numpy.NaN", "pandas.NA")
    column = key.items[1] if isinstance(key, Seq) and len(key.items) == 2 else UNKNOWN
    names = [column.value] if isinstance(column, Const) else column.strings() if isinstance(column, Seq) else None
    if frame.columns is None:
        frame.nan = True if missing else None
        return
    forgotten: dict[str, Any] = {"nan": True if missing else None, "text": None, "dtype": None, "meaning": None, "low": None}
    if names is None or owner.name in ("iloc", "iat"):
        frame.columns = with_all(frame.columns, **({"nan": True} if missing else forgotten))
        frame.open = frame.open or not missing
    else:
        for name in names:
            frame.columns[name] = replace(frame.columns.get(name, Column()), **forgotten)
    frame.summarised()


def _drop(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    names = kwargs.get("columns")
    axis = kwargs.get("axis", args[1] if len(args) > 1 else UNKNOWN)
    if names is None and isinstance(axis, Const) and axis.value in (1, "columns"):
        names = args[0] if args else kwargs.get("labels", UNKNOWN)
    if names is None:
        return _drop_rows(run, owner, args, kwargs)
    whole = isinstance(names, Const) and isinstance(names.value, str)
    listed = [names.value] if whole else names.strings() if isinstance(names, Seq) and names.sure else None
    if listed is None or owner.columns is None:
        return owner.but(open=True, columns=with_all(owner.columns, text=None, nan=None), text=None, nan=None, width=None)
    lost = owner.missing(listed)
    ignore = kwargs.get("errors")
    if lost and not (isinstance(ignore, Const) and ignore.value == "ignore"):
        run.report("data.column", text=f'"{lost} not found in axis"')
    return owner.but(columns={k: v for k, v in owner.columns.items() if k not in listed}).summarised()


def _drop_rows(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    label = args[0] if args else kwargs.get("labels", kwargs.get("index", UNKNOWN))
    labels = label.items if isinstance(label, Seq) else [label]
    wrong = [c.value for c in labels if isinstance(c, Const) and isinstance(c.value, str) and c.value in (owner.columns or {})]
    if wrong and not owner.open and owner.default_index:
        run.report("data.row-label", text=f'"{wrong} not found in axis"')
    return owner.but(rows=None, default_index=False)


def _assign(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    result = owner.but()
    for name, value in kwargs.items():
        given = run.inline(value, [result], {}) if isinstance(value, Func) else value
        if result.columns is None:
            result.open = True
        else:
            store(run, result, Const(name), given)
    return result


def _pop(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not args or not isinstance(args[0], Const):
        owner.open = True
        return UNKNOWN
    taken = frame_subscript(run, owner, args[0])
    if owner.columns is not None:
        owner.columns.pop(args[0].value, None)
        owner.summarised()
    return taken


def _insert(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Any:
    name, value = (args[i] if len(args) > i else kwargs.get(k, UNKNOWN) for i, k in ((1, "column"), (2, "value")))
    store(run, owner, name, value)
    return Const(None)


def _select_dtypes(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    include, exclude = args[0] if args else kwargs.get("include"), kwargs.get("exclude")
    wanted, barred = _kinds(include), _kinds(exclude)
    certain = owner.columns is not None and not owner.open and all(c.dtype for c in owner.columns.values())
    if not certain or UNKNOWN in (wanted, barred) or owner.columns is None:
        return Data(
            "frame", open=True, rows=owner.rows, text=False if wanted == _NUMBERS else None, default_index=owner.default_index
        )
    left = [k for k, c in owner.columns.items() if (wanted is None or c.dtype in wanted) and not (barred and c.dtype in barred)]
    return owner.select(left)


_NUMBERS = frozenset(["int", "float"])
_KINDS = {
    "number": _NUMBERS, "int64": {"int"}, "float64": {"float"}, "int": {"int"}, "float": {"float"}, "object": {"str"},
    "str": {"str"},
    "string": {"str"}, "bool": {"bool"}, "category": {"category"}, "datetime64": {"date"}, "datetime": {"date"},
    "numpy.number": _NUMBERS, "builtins.object": {"str"}, "builtins.str": {"str"}, "builtins.int": {"int"},
    "builtins.float": {"float"},
    "numpy.int64": {"int"}, "numpy.float64": {"float"}, "builtins.bool": {"bool"}, "O": {"str"},
}  # fmt: skip


def _kinds(chosen: Any) -> Any:
    """The kinds of column that `select_dtypes` is asked for; None for nothing, UNKNOWN if it cannot be said."""
    if chosen is None:
        return None
    found: set[str] = set()
    for one in chosen.items if isinstance(chosen, Seq) else [chosen]:
        name = one.path if isinstance(one, Ref) else one.value if isinstance(one, Const) else None
        if name not in _KINDS:
            return UNKNOWN
        found |= _KINDS[name]
    return frozenset(found)


def _rename(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    names = kwargs.get("columns")
    if owner.columns is not None and not owner.open and isinstance(names, Dict) and not names.open:
        return owner.but(columns=renamed(owner.columns, names))
    return _reshaped(run, owner, args, kwargs).but(rows=owner.rows)


def _set_index(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    key = args[0] if args else kwargs.get("keys", UNKNOWN)
    names = [key.value] if isinstance(key, Const) else key.strings() if isinstance(key, Seq) else None
    if names is None or owner.columns is None:
        return owner.but(open=True, default_index=False)
    if lost := owner.missing([n for n in names if isinstance(n, str)]):
        run.report("data.column", text=f'"None of {lost} are in the columns"')
    keeps = isinstance(kwargs.get("drop"), Const) and kwargs["drop"].value is False
    left = {k: v for k, v in owner.columns.items() if keeps or k not in names}
    return owner.but(columns=left, default_index=False).summarised()


def _reset_index(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    dropped = isinstance(kwargs.get("drop"), Const) and kwargs["drop"].value is True
    return owner.but(open=owner.open or not dropped, default_index=True)


def _merge(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    other = args[0] if args else kwargs.get("right", UNKNOWN)
    on, how = (
        kwargs.get("on", args[2] if len(args) > 2 else UNKNOWN),
        kwargs.get("how", args[1] if len(args) > 1 else Const("inner")),
    )
    names = [on.value] if isinstance(on, Const) else on.strings() if isinstance(on, Seq) else None
    for side in (owner, other):
        if names and isinstance(side, Data) and side.default_index and (lost := side.missing([str(n) for n in names])):
            run.report("data.column", text=repr(lost[0]))
    left = isinstance(how, Const) and how.value == "left"
    if (
        not isinstance(other, Data)
        or other.columns is None
        or owner.columns is None
        or names is None
        or owner.open
        or other.open
    ):
        return Data("frame", open=True, ndim=2)
    doubled = (owner.columns.keys() & other.columns.keys()) - set(names)
    new = {k: replace(c, nan=c.nan if c.nan else None) for k, c in other.columns.items() if k not in names}
    merged = Data("frame", columns={**owner.columns, **new}, open=bool(doubled), ndim=2, rows=None)
    return merged.but(default_index=left or isinstance(how, Const)).summarised()


def _reshaped(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    return Data("frame", open=True, ndim=2)


def _reindex(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    """With `columns=...` the same rows under other columns, those that are new being filled."""
    if args or set(kwargs) - {"columns", "fill_value"}:
        return Data("frame", open=True, ndim=2)
    filled = isinstance(kwargs.get("fill_value"), Const)
    return owner.but(columns=None, open=True, nan=owner.nan if filled else None, text=owner.text if filled else None)


def _same_columns(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    return owner.but(rows=None, default_index=False)


def _sorted(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    return owner.but(default_index=False)


def _dropna(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    some = set(kwargs) - {"inplace", "ignore_index", "how"} or args or isinstance(kwargs.get("how"), Const)
    nan = None if some else False
    columns = (
        with_all(owner.columns, nan=nan)
        if not some
        else {k: replace(c, nan=c.nan and None) for k, c in (owner.columns or {}).items()}
    )
    return owner.but(rows=None, columns=columns if owner.columns is not None else None, nan=nan, default_index=False)


def _pipe(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return run.inline(args[0], [owner, *args[1:]], kwargs) if args and isinstance(args[0], Func) else UNKNOWN


def _get(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Any:
    known = args and isinstance(args[0], Const) and args[0].value in (owner.columns or {})
    return column_of(owner, args[0].value) if known else UNKNOWN


def _apply(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A column, or a table where the function gives rows."""
    return UNKNOWN


def _filter(run: State, owner: Data, args: list[Any], kwargs: dict[str, Any]) -> Data:
    chosen = kwargs.get("items", args[0] if args else UNKNOWN)
    names = chosen.strings() if isinstance(chosen, Seq) and chosen.sure else None
    if names is None or owner.columns is None or owner.open:
        return Data("frame", open=True, rows=owner.rows, default_index=owner.default_index)
    return owner.select([n for n in names if n in owner.columns])


METHODS: dict[str, Callable[[Any, Data, list[Any], dict[str, Any]], Any]] = {
    "drop": _drop,
    "assign": _assign,
    "pop": _pop,
    "insert": _insert,
    "select_dtypes": _select_dtypes,
    "rename": _rename,
    "set_index": _set_index,
    "reset_index": _reset_index,
    "merge": _merge,
    "dropna": _dropna,
    "pipe": _pipe,
    "get": _get,
    "apply": _apply,
    "filter": _filter,
    "sort_values": _sorted,
    "reindex": _reindex,
    **dict.fromkeys(("drop_duplicates", "query"), _same_columns),
    **dict.fromkeys(
        ("join", "pivot_table", "pivot", "melt", "add_prefix", "add_suffix", "stack", "unstack", "agg"),
        _reshaped,
    ),
}
