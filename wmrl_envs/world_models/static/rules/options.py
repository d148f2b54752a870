"""Command lines: what `argparse` gives a program that is run without arguments."""

from __future__ import annotations

from typing import Any

from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import UNKNOWN, Const, Instance, Obj

PARSER = "argparse.ArgumentParser"


def parser(run: State, args: list[Any], kwargs: dict[str, Any]) -> Obj:
    """`ArgumentParser(...)`."""
    return Obj(PARSER)


def namespace(run: State, args: list[Any], kwargs: dict[str, Any]) -> Instance:
    """`Namespace(a=1)`."""
    return Instance(None, dict(kwargs))


def parser_method(run: State, owner: Obj, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`add_argument`, `parse_args`; a required argument ends the program, because nobody gives it."""
    if name == "add_argument":
        flags = [a.value for a in args if isinstance(a, Const) and isinstance(a.value, str)]
        if len(flags) < len(args) or not flags:
            owner.complete = False
            return UNKNOWN
        long = next((f for f in flags if f.startswith("--")), flags[0])
        given = kwargs.get("dest")
        target = str(given.value) if isinstance(given, Const) else long.lstrip("-").replace("-", "_")
        owner.kwargs[target] = _default(long, kwargs)
        required = kwargs.get("required")
        if isinstance(required, Const) and required.value is True:
            owner.args.append(Const(long))
        elif not long.startswith("-") and "nargs" not in kwargs:
            owner.args.append(Const(target))
        return UNKNOWN
    if name in ("parse_args", "parse_known_args"):
        given = args[0] if args else kwargs.get("args", Const(None))
        if owner.args and isinstance(given, Const) and given.value is None:
            names = ", ".join(str(a.value) for a in owner.args if isinstance(a, Const))
            run.report("runtime.exit", text=f"2\nerror: the following arguments are required: {names}")
        if not owner.complete or name == "parse_known_args":
            return UNKNOWN
        return Instance(None, dict(owner.kwargs))
    owner.complete = False
    return UNKNOWN


def _default(flag: str, kwargs: dict[str, Any]) -> Any:
    action = kwargs.get("action")
    if isinstance(action, Const) and action.value in ("store_true", "store_false"):
        return Const(action.value == "store_false")
    return UNKNOWN if action is not None else kwargs.get("default", Const(None))
