"""The program's own functions and classes: arguments, objects, attributes and methods."""

from __future__ import annotations

import ast
from typing import Any

from wmrl_envs.world_models.static.expressions import Expressions
from wmrl_envs.world_models.static.values import UNKNOWN, Bound, Class, Dict, Func, Instance, Ref, Seq


def arguments(run: Expressions, node: ast.FunctionDef | ast.Lambda, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The names a function starts with."""
    names = [a.arg for a in node.args.posonlyargs + node.args.args]
    only = [a.arg for a in node.args.kwonlyargs]
    local = dict(run.env)
    defaults = [run.eval(d) for d in node.args.defaults]
    local.update(dict.fromkeys([*names, *only], UNKNOWN))
    local.update(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    local.update({n: run.eval(d) for n, d in zip(only, node.args.kw_defaults, strict=True) if d is not None})
    local.update(zip(names, args, strict=False))
    local.update({k: v for k, v in kwargs.items() if k in names or k in only})
    if node.args.vararg is not None:
        local[node.args.vararg.arg] = Seq(list(args[len(names) :]))
    if node.args.kwarg is not None:
        local[node.args.kwarg.arg] = Dict({k: v for k, v in kwargs.items() if k not in names and k not in only})
    return local


def check_frozen(run: Expressions, owner: Any, name: str) -> None:
    """An attribute that a frozen data class does not let anyone set."""
    decorators = owner.kind.node.decorator_list if isinstance(owner, Instance) and owner.kind is not None else []
    if any(
        isinstance(d, ast.Call) and any(k.arg == "frozen" and ast.unparse(k.value) == "True" for k in d.keywords)
        for d in decorators
    ):
        run.report("runtime.frozen", name=name)


def make(run: Expressions, kind: Class, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """An object of a class of the program: what `__init__` leaves, or the fields of a data class."""
    made = Instance(kind)
    start = kind.find("__init__")
    if isinstance(start, ast.FunctionDef):
        run.inline(Func(start, made), args, kwargs)
    elif kind.node.decorator_list:
        fields = [s for s in kind.node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
        names = [s.target.id for s in fields if isinstance(s.target, ast.Name)]
        made.attributes = {n: _field(run, s.value) for n, s in zip(names, fields, strict=True)}
        made.attributes |= dict(zip(names, args, strict=False)) | {k: v for k, v in kwargs.items() if k in names}
        after = kind.find("__post_init__")
        if isinstance(after, ast.FunctionDef):
            run.inline(Func(after, made), [], {})
    elif args or kwargs:
        return UNKNOWN
    return made


def _field(run: Expressions, value: ast.expr | None) -> Any:
    if isinstance(value, ast.Call) and ast.unparse(value.func) in ("field", "dataclasses.field"):
        given = {k.arg: k.value for k in value.keywords}
        if "default" in given:
            return run.eval(given["default"])
        factory = run.eval(given["default_factory"]) if "default_factory" in given else UNKNOWN
        return run.inline(factory, [], {}) if isinstance(factory, Func) else UNKNOWN
    return run.eval(value) if value is not None else UNKNOWN


def member(run: Expressions, owner: Instance, name: str) -> Any:
    """An attribute, a method bound to its object, or the value of a property."""
    if name in owner.attributes:
        return owner.attributes[name]
    found = owner.kind.find(name) if owner.kind is not None else None
    if isinstance(found, ast.FunctionDef) and not generates(found):
        decorated = [ast.unparse(d) for d in found.decorator_list]
        if not decorated:
            return Func(found, owner)
        if decorated == ["staticmethod"]:
            return Func(found)
        return run.inline(Func(found, owner), [], {}) if decorated in (["property"], ["cached_property"]) else UNKNOWN
    if isinstance(found, (ast.Assign, ast.AnnAssign)):
        return run.eval(found.value)
    return Bound(owner, name)


def is_estimator(bases: list[Any]) -> bool:
    """Whether a class is made to be used by scikit-learn or another library, which calls its methods in ways of its own."""
    return any((isinstance(b, Ref) and b.path != "builtins.object") or b is UNKNOWN for b in bases)


def generates(node: ast.FunctionDef) -> bool:
    """Whether calling a function runs nothing of it yet."""
    return any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(node))
