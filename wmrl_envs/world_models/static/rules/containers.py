"""What the methods of dictionaries, lists and texts give."""

from __future__ import annotations

from typing import Any

from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import UNKNOWN, Const, Dict, Func, Seq


def dict_method(run: State, owner: Dict, name: str, args: list[Any]) -> Any:
    """`owner.name(...)` of a dictionary; what is not known of it afterwards is left open."""
    match name:
        case "keys":
            return UNKNOWN if owner.open else Seq([Const(k) for k in owner.items])
        case "values":
            return UNKNOWN if owner.open else Seq(list(owner.items.values()))
        case "items":
            return UNKNOWN if owner.open else Seq([Seq([Const(k), v]) for k, v in owner.items.items()])
        case "get":
            if not args or not isinstance(args[0], Const):
                return UNKNOWN
            absent = (Const(None) if len(args) == 1 else args[1]) if not owner.open else UNKNOWN
            return owner.items.get(args[0].value, absent)
        case "copy":
            return Dict(dict(owner.items), owner.open)
        case "setdefault" if len(args) == 2 and isinstance(args[0], Const) and not owner.open:
            return owner.items.setdefault(args[0].value, args[1])
        case "update" if args and isinstance(args[0], Dict) and not args[0].open:
            owner.items.update(args[0].items)
            return Const(None)
    owner.open = True
    return UNKNOWN


def list_method(run: State, owner: Seq, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`owner.name(...)` of a list or tuple."""
    owner.sure = owner.sure and (run.certainty == 1 or name not in ("append", "extend", "insert", "pop", "remove", "clear"))
    if name == "append" and args:
        owner.items.append(args[0])
        return Const(None)
    if name == "extend" and args and isinstance(args[0], Seq):
        owner.extend(args[0].items)
        owner.sure = owner.sure and args[0].sure
        return Const(None)
    if name in ("tolist", "copy", "to_list"):
        return Seq(list(owner.items), owner.sure)
    if name == "remove" and args:
        known = isinstance(args[0], Const) and args[0] in owner.items
        if known:
            owner.items.remove(args[0])
        owner.sure = owner.sure and known
        return Const(None)
    if name == "sort" and isinstance(kwargs.get("key"), Func) and owner.items:
        run.inline(kwargs["key"], [owner.items[0]], {})
    if name in ("sort", "reverse"):
        owner.items[:] = [UNKNOWN] * len(owner.items)
        return Const(None)
    if name in ("drop", "difference", "union", "intersection") and args:
        other = args[0].items if isinstance(args[0], Seq) else [args[0]]
        if (isinstance(args[0], Seq) and not args[0].sure) or UNKNOWN in other or not owner.sure:
            return UNKNOWN
        if name == "union":
            return Seq([*owner.items, *(i for i in other if i not in owner.items)], index=owner.index)
        return Seq([i for i in owner.items if (i in other) == (name == "intersection")], index=owner.index)
    if name in ("append", "extend", "insert", "pop", "clear"):
        owner.items.append(UNKNOWN)
        owner.sure = False
    return UNKNOWN


def string_method(owner: str, name: str, args: list[Any]) -> Any:
    """`owner.name(...)` of a text or a path."""
    plain = [a.value for a in args if isinstance(a, Const)]
    if name == "joinpath" and len(plain) == len(args):
        return Const("/".join([owner, *map(str, plain)]))
    if name in ("startswith", "endswith") and len(plain) == len(args) == 1 and isinstance(plain[0], str):
        return Const(getattr(owner, name)(plain[0]))
    if name in ("format", "join", "replace", "split") or len(plain) < len(args):
        return UNKNOWN
    if name in ("lower", "upper", "strip", "title", "rstrip", "lstrip") and not args:
        return Const(getattr(owner, name)())
    return UNKNOWN
