"""What is known after statements that may have run or not: what both ways agree on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wmrl_envs.world_models.static.values import UNKNOWN, Column, Const, Data, Dict, Instance, Obj, Seq

_DEPTH = 4  # how far lists within lists are looked into
Memory = dict[int, tuple[Any, dict[str, Any]]]


def remember(env: Mapping[str, Any]) -> Memory:
    """The present contents of everything in these names that a statement could change in place."""
    memory: Memory = {}
    for value in env.values():
        _remember(value, memory, 0)
    return memory


def _remember(value: Any, memory: Memory, depth: int) -> None:
    if not isinstance(value, (Data, Seq, Dict, Obj, Instance)) or id(value) in memory or depth > _DEPTH:
        return
    memory[id(value)] = value, {k: v.copy() if isinstance(v, (list, dict)) else v for k, v in vars(value).items()}
    for inner in _inside(value):
        _remember(inner, memory, depth + 1)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, Seq):
        return value.items[:200]
    if isinstance(value, Dict):
        return list(value.items.values())
    if isinstance(value, Obj):
        return [*value.args, *value.kwargs.values()]
    return list(value.attributes.values()) if isinstance(value, Instance) else []


def restore(memory: Memory) -> Memory:
    """Put the contents back; gives what they were until now."""
    now: Memory = {}
    for key, (value, fields) in memory.items():
        now[key] = value, dict(vars(value))
        value.__dict__.update({k: v.copy() if isinstance(v, (list, dict)) else v for k, v in fields.items()})
    return now


def merge(memory: Memory) -> None:
    """Keep of every value what it has in common with the contents in `memory`."""
    for value, fields in memory.values():
        if isinstance(value, Data):
            other = Data(**fields)
            joined = join_data(value, other)
            value.__dict__.update(joined.__dict__)
        elif isinstance(value, Seq):
            _merge_lists(value, fields)
        elif isinstance(value, (Dict, Instance)):
            name = "items" if isinstance(value, Dict) else "attributes"
            mine, other_items = getattr(value, name), fields[name]
            if isinstance(value, Dict):
                value.open = value.open or fields["open"] or mine.keys() != other_items.keys()
            setattr(value, name, join_names(mine, other_items))
        elif value.fitted_on is not fields["fitted_on"]:  # perhaps fitted: nothing is said of it
            value.fitted_on, value.target = Data(), None


def _merge_lists(value: Seq, fields: dict[str, Any]) -> None:
    longer, shorter = sorted((value.items, fields["items"]), key=len, reverse=True)
    value.sure = value.sure and fields["sure"] and len(longer) == len(shorter)
    value.items = [join(a, b) for a, b in zip(longer, shorter, strict=False)] + longer[len(shorter) :]


def join_names(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Names after either of two ways; one that only one way defines is unknown."""
    return {k: join(a[k], b[k]) if k in a and k in b else UNKNOWN for k in {**a, **b}}


def join(a: Any, b: Any) -> Any:
    """What two values have in common."""
    if a is b:
        return a
    if isinstance(a, Data) and isinstance(b, Data) and a.kind == b.kind:
        return join_data(a, b)
    if isinstance(a, Const) and isinstance(b, Const) and type(a.value) is type(b.value):
        return a if a.value == b.value else UNKNOWN
    if isinstance(a, Seq) and isinstance(b, Seq) and len(a.items) == len(b.items):
        return Seq([join(x, y) for x, y in zip(a.items, b.items, strict=True)], a.sure and b.sure)
    return UNKNOWN


def join_data(a: Data, b: Data) -> Data:
    """What two frames, series or arrays have in common."""

    def same(name: str) -> Any:
        return getattr(a, name) if getattr(a, name) == getattr(b, name) else None

    columns, extra = None, False
    if a.columns is not None and b.columns is not None:
        columns = {k: _join_columns(a.columns[k], b.columns[k]) for k in a.columns if k in b.columns}
        extra = a.columns.keys() != b.columns.keys()
    flags = {n: getattr(a, n) and getattr(b, n) for n in ("exact", "scaled", "mask", "unnamed", "default_index")}
    kept = ("rows", "nan", "text", "sparse", "width", "ndim", "meaning", "filled", "origin", "dtype", "dims")
    return Data(
        a.kind, columns, a.open or b.open or extra or (columns is None and a.kind == "frame"),
        low=min(a.low, b.low) if a.low is not None and b.low is not None else None,
        accessor=a.accessor or b.accessor, **{n: same(n) for n in kept}, **flags,
    )  # fmt: skip


def _join_columns(a: Column, b: Column) -> Column:
    if a == b:
        return a
    same: dict[str, Any] = {n: getattr(a, n) if getattr(a, n) == getattr(b, n) else None for n in vars(a) if n != "date"}
    return Column(**same)
