"""Errors and loops of the language itself: conversions, arithmetic, unpacking, `None`, recursion, loops that never end."""

from __future__ import annotations

import ast
import math
import re
from typing import TYPE_CHECKING, Any

from wmrl_envs.world_models.static.values import UNKNOWN, Const, Many, ProgramExits, Rows, Seq

if TYPE_CHECKING:
    from wmrl_envs.world_models.static.interpreter import Interpreter

STATEMENT_S = 1.2e-7  # CPU seconds of a short statement in a loop
NEVER_S = 1e6  # estimate for a loop that does not end
MAX_RANGE = 100
MEMORY_BYTES = 12e9
_LEAVES = (ast.Break, ast.Return, ast.Raise, ast.Try, ast.Yield, ast.YieldFrom, ast.Await, ast.With)
_DECIDES = (ast.If, ast.IfExp, ast.Try, ast.For, ast.While, ast.BoolOp, ast.Match, ast.comprehension)
_WIDE = re.compile(r"%[^a-zA-Z%]*(\d{4}|\*)")  # a format that pads to thousands of characters
EXITS = ("builtins.exit", "builtins.quit", "sys.exit", "os._exit")


def plain(run: Interpreter, value: Any) -> Any:
    """The number of rows of known data as a number; any other value as it is."""
    n = run.sklearn.count(value.tag) if isinstance(value, Rows) else None
    return value if n is None else Const(n)


def check_arithmetic(run: Interpreter, op: ast.operator, left: Any, right: Any) -> None:
    """Operations on literals that raise: division by zero, text plus a number, a format that does not fit."""
    number = isinstance(right, (int, float))
    if isinstance(left, (int, float)) and number and right == 0 and isinstance(op, (ast.Div, ast.FloorDiv, ast.Mod)):
        words = "division by zero" if isinstance(op, ast.Div) else "integer division or modulo by zero"
        run.report("runtime.zero", "runtime", "ZeroDivisionError", words, 0.95)
    if isinstance(op, ast.Add) and isinstance(left, str) and not isinstance(right, str):
        text = f'can only concatenate str (not "{type(right).__name__}") to str'
        run.report("runtime.operands", "runtime", "TypeError", text, 0.95)
    if isinstance(op, ast.Add) and isinstance(right, str) and not isinstance(left, str):
        text = f"unsupported operand type(s) for +: '{type(left).__name__}' and 'str'"
        run.report("runtime.operands", "runtime", "TypeError", text, 0.95)
    if isinstance(op, ast.Mod) and isinstance(left, str) and len(left) < 1000 and not _WIDE.search(left):
        try:
            _ = left % right
        except (TypeError, ValueError) as error:
            run.report("runtime.operands", "runtime", type(error).__name__, str(error), 0.9)
        except (OverflowError, MemoryError):
            pass


def convert(kind: type) -> Any:
    """A handler for `int(...)` and `float(...)`."""

    def handler(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
        value = plain(run, args[0]) if args else Const(0)
        if not isinstance(value, Const) or len(args) > 1 or kwargs or not isinstance(value.value, (str, int, float)):
            return UNKNOWN
        try:
            return Const(kind(value.value))
        except (ValueError, OverflowError) as error:
            run.report("runtime.conversion", "runtime", type(error).__name__, str(error), 0.95)
        return UNKNOWN

    return handler


def reduce(function: Any) -> Any:
    """A handler for `sum`, `min` and `max` of known numbers."""

    def handler(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
        values = args[0].items if len(args) == 1 and isinstance(args[0], Seq) else args if len(args) > 1 else None
        numbers = [v.value for v in (plain(run, item) for item in values or []) if isinstance(v, Const)]
        if values is None or kwargs or len(numbers) < len(values) or not all(isinstance(n, (int, float)) for n in numbers):
            return UNKNOWN
        return Const(function(numbers)) if numbers or function is sum else UNKNOWN

    return handler


def count_up(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`range(...)` of known numbers."""
    numbers = [plain(run, a) for a in args]
    if not 1 <= len(numbers) <= 3 or not all(isinstance(n, Const) and isinstance(n.value, int) for n in numbers):
        return UNKNOWN
    try:
        counted = range(*(n.value for n in numbers))
    except ValueError:
        return UNKNOWN
    return Seq([Const(i) for i in counted]) if len(counted) <= MAX_RANGE else Many(len(counted))


def unpack(run: Interpreter, value: Any, wanted: int, starred: bool) -> list[Any]:
    """What `wanted` names get from one value."""
    number = isinstance(value, Rows) or (isinstance(value, Const) and isinstance(value.value, (int, float)))
    if number or (isinstance(value, Const) and value.value is None):
        kind = type(value.value).__name__ if isinstance(value, Const) else "int"
        run.report("runtime.unpack", "runtime", "TypeError", f"cannot unpack non-iterable {kind} object", 0.93)
    if isinstance(value, Seq) and not starred:
        got = len(value.items)
        if got == wanted:
            return list(value.items)
        if value.sure:
            few = f"not enough values to unpack (expected {wanted}, got {got})"
            text = few if got < wanted else f"too many values to unpack (expected {wanted})"
            run.report("runtime.unpack", "runtime", "ValueError", text, 0.93)
    return [UNKNOWN] * wanted


def row_tag(run: Interpreter, size: Any) -> str | None:
    """A tag for a known number of rows."""
    if not isinstance(size, Const) or not isinstance(size.value, int) or size.value < 1:
        return None
    run.sklearn.rows[f"#{size.value}"] = size.value
    return f"#{size.value}"


def check_memory(run: Interpreter, sizes: list[Any]) -> None:
    """An array of eight-byte numbers that no machine of ours could hold."""
    numbers = [plain(run, s) for s in sizes]
    if all(isinstance(n, Const) and isinstance(n.value, int) for n in numbers) and numbers:
        entries = math.prod(n.value for n in numbers)
        if entries * 8 > MEMORY_BYTES:
            shape = tuple(n.value for n in numbers)
            text = f"Unable to allocate {entries * 8 / 2**30:.3g} GiB for an array with shape {shape} and data type float64"
            run.report("compute.memory", "compute", "MemoryError", text, 0.93)


def check_none(run: Interpreter, owner: Any, name: str | None) -> None:
    """An attribute (or, without a name, an item) of `None`."""
    if isinstance(owner, Const) and owner.value is None:
        text = "'NoneType' object is not subscriptable" if name is None else f"'NoneType' object has no attribute '{name}'"
        run.report("runtime.none", "runtime", "TypeError" if name is None else "AttributeError", text, 0.9)


def check_exit(run: Interpreter, path: str, args: list[Any]) -> None:
    """`sys.exit()` and its kin: a clean end, or a failure if it is given something else than 0."""
    if path not in EXITS or run.certainty < 1:
        return
    code = args[0] if args else Const(None)
    if isinstance(code, Const) and code.value in (None, 0):
        raise ProgramExits
    run.report("runtime.exit", "runtime", "SystemExit", str(getattr(code, "value", "")), 0.9)


def always_recurses(node: ast.FunctionDef | ast.Lambda) -> bool:
    """A function that calls itself and decides nothing before."""
    if isinstance(node, ast.Lambda):
        return False
    inside = [n for statement in node.body for n in ast.walk(statement)]
    return not any(isinstance(n, _DECIDES) for n in inside) and any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == node.name for n in inside
    )


def repeat(run: Interpreter, body: list[ast.stmt], count: int) -> None:
    """The body of a loop of `count` rounds, followed once: its fits and statements cost that many times as much."""
    fits, seconds = len(run.fits), run.python_s
    run.maybe(body, 0.9 if run.certainty == 1 else 1.0)
    for fit in run.fits[fits:]:
        fit.times *= count
    run.python_s = seconds + count * (run.python_s - seconds + STATEMENT_S * len(body))


def never_ends(run: Interpreter, node: ast.While, rounds: int = 200) -> bool | None:
    """Follow a `while` loop of which every decision is known.

    Returns:
        True if it comes back to a state it was in, so that it never ends; False if it has ended; None if it is not known, or
        there is a way out that cannot be followed. In that case names are what they were.
    """
    inside = [n for statement in node.body for n in ast.walk(statement)]
    leaves = any(isinstance(n, _LEAVES) or _is_exit(n) for n in inside)
    test = run.eval(node.test)
    if not isinstance(test, Const):
        return None
    if leaves:
        return None if test.value else False
    if isinstance(node.test, ast.Constant):
        return bool(test.value)
    names = {n.id for n in inside if isinstance(n, ast.Name)} | {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
    before, fits, saved = dict(run.env), len(run.fits), len(run.saved)
    seen: set[tuple[Any, ...]] = set()
    for _ in range(rounds):
        if not test.value:
            return False
        state = tuple((n, run.env[n].value) for n in sorted(names) if isinstance(run.env.get(n), Const))
        if state in seen:
            return True
        seen.add(state)
        doubts = run.doubts
        run.block(node.body)
        test = run.eval(node.test)
        if run.doubts > doubts or not isinstance(test, Const):
            break
    run.env = before
    del run.fits[fits:], run.saved[saved:]
    return None


def _is_exit(node: ast.AST) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("exit", "quit", "_exit", "abort", "next")
