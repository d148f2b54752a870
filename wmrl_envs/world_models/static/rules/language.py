"""Errors of the language itself: conversions, arithmetic, unpacking, `None`, the end of the program, memory."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import UNKNOWN, Const, Many, ProgramExits, Rows, Seq

MAX_RANGE = 100
MEMORY_BYTES = 12e9
_DECIDES = (ast.If, ast.IfExp, ast.Try, ast.For, ast.While, ast.BoolOp, ast.Match, ast.comprehension)
_WIDE = re.compile(r"%[^a-zA-Z%]*(\d{4}|\*)")  # a format that pads to thousands of characters
EXITS = ("builtins.exit", "builtins.quit", "sys.exit", "os._exit")


def check_arithmetic(run: State, op: ast.operator, left: Any, right: Any) -> None:
    """Operations on literals that raise: division by zero, text plus a number, a format that does not fit."""
    number = isinstance(right, (int, float))
    if isinstance(left, (int, float)) and number and right == 0 and isinstance(op, (ast.Div, ast.FloorDiv, ast.Mod)):
        run.report("runtime.zero", text="division by zero" if isinstance(op, ast.Div) else "integer division or modulo by zero")
    if isinstance(op, ast.Add) and isinstance(left, str) and not isinstance(right, str):
        run.report("runtime.operands", text=f'can only concatenate str (not "{type(right).__name__}") to str')
    if isinstance(op, ast.Add) and isinstance(right, str) and not isinstance(left, str):
        run.report("runtime.operands", text=f"unsupported operand type(s) for +: '{type(left).__name__}' and 'str'")
    if isinstance(op, ast.Mod) and isinstance(left, str) and len(left) < 1000 and not _WIDE.search(left):
        try:
            _ = left % right
        except (TypeError, ValueError) as error:
            run.report("runtime.operands", type(error).__name__, text=str(error))
        except (OverflowError, MemoryError):
            pass


def convert(kind: type) -> Any:
    """A handler for `int(...)` and `float(...)`."""

    def handler(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
        value = run.plain(args[0]) if args else Const(0)
        if not isinstance(value, Const) or len(args) > 1 or kwargs or not isinstance(value.value, (str, int, float)):
            return UNKNOWN
        try:
            return Const(kind(value.value))
        except (ValueError, OverflowError) as error:
            run.report("runtime.conversion", type(error).__name__, text=str(error))
        return UNKNOWN

    return handler


def reduce(function: Any) -> Any:
    """A handler for `sum`, `min` and `max` of known numbers."""

    def handler(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
        values = args[0].items if len(args) == 1 and isinstance(args[0], Seq) else args if len(args) > 1 else None
        numbers = [v.value for v in (run.plain(item) for item in values or []) if isinstance(v, Const)]
        if values is None or kwargs or len(numbers) < len(values) or not all(isinstance(n, (int, float)) for n in numbers):
            return UNKNOWN
        if len(args) == 1 and not args[0].sure:
            return UNKNOWN
        return Const(function(numbers)) if numbers or function is sum else UNKNOWN

    return handler


def count_up(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`range(...)` of known numbers."""
    numbers = [run.plain(a) for a in args]
    if not 1 <= len(numbers) <= 3 or not all(isinstance(n, Const) and isinstance(n.value, int) for n in numbers):
        return UNKNOWN
    try:
        counted = range(*(n.value for n in numbers))
    except ValueError:
        return UNKNOWN
    return Seq([Const(i) for i in counted]) if len(counted) <= MAX_RANGE else Many(len(counted))


def unpack(run: State, value: Any, wanted: int, starred: bool) -> list[Any]:
    """What `wanted` names get from one value."""
    number = isinstance(value, Rows) or (isinstance(value, Const) and isinstance(value.value, (int, float)))
    if number or (isinstance(value, Const) and value.value is None):
        kind = type(value.value).__name__ if isinstance(value, Const) else "int"
        run.report("runtime.unpack", "TypeError", text=f"cannot unpack non-iterable {kind} object")
    if isinstance(value, Seq) and not starred:
        got = len(value.items)
        if got == wanted:
            return list(value.items)
        if value.sure:
            few = f"not enough values to unpack (expected {wanted}, got {got})"
            run.report("runtime.unpack", text=few if got < wanted else f"too many values to unpack (expected {wanted})")
    return [UNKNOWN] * wanted


def check_memory(run: State, sizes: list[Any]) -> None:
    """An array of eight-byte numbers that no machine of ours could hold."""
    numbers = [run.plain(s) for s in sizes]
    if all(isinstance(n, Const) and isinstance(n.value, int) for n in numbers) and numbers:
        entries = math.prod(n.value for n in numbers)
        if entries * 8 > MEMORY_BYTES:
            run.report("compute.memory", size=entries * 8 / 2**30, shape=tuple(n.value for n in numbers))


def check_none(run: State, owner: Any, name: str | None) -> None:
    """An attribute (or, without a name, an item) of `None`."""
    if isinstance(owner, Const) and owner.value is None:
        text = "'NoneType' object is not subscriptable" if name is None else f"'NoneType' object has no attribute '{name}'"
        run.report("runtime.none", "TypeError" if name is None else "AttributeError", text=text)


def check_exit(run: State, path: str, args: list[Any]) -> None:
    """`sys.exit()` and its kin: a clean end, or a failure if what it is given is certainly something else than 0."""
    if path not in EXITS or run.certainty < 1:
        return
    code = args[0] if args else Const(None)
    if isinstance(code, Const) and code.value not in (None, 0):
        run.report("runtime.exit", text=str(code.value))
    raise ProgramExits


def always_recurses(node: ast.FunctionDef | ast.Lambda) -> bool:
    """A function that calls itself and decides nothing before."""
    if isinstance(node, ast.Lambda):
        return False
    inside = [n for statement in node.body for n in ast.walk(statement)]
    return not any(isinstance(n, _DECIDES) for n in inside) and any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == node.name for n in inside
    )
