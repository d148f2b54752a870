"""Arithmetic and comparisons on values that are known."""

from __future__ import annotations

import ast
import posixpath
from typing import Any

from wmrl_envs.world_models.static.values import MAX_TEXT, UNKNOWN, Const, Data, Dict, Obj, Seq

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)


def arithmetic(op: ast.operator, left: Any, right: Any) -> Any:
    """Arithmetic on literals, within safe sizes."""
    if isinstance(left, str) and isinstance(right, str):
        if isinstance(op, ast.Add) and len(left) + len(right) <= MAX_TEXT:
            return Const(left + right)
        if isinstance(op, ast.Div):
            return Const(posixpath.join(left, right))
    numbers = isinstance(left, (int, float)) and isinstance(right, (int, float)) and abs(left) < 1e9 and abs(right) < 1e9
    if not numbers or not isinstance(op, _ARITHMETIC):
        return UNKNOWN
    try:
        if isinstance(op, ast.Add):
            return Const(left + right)
        if isinstance(op, ast.Sub):
            return Const(left - right)
        if isinstance(op, ast.Mult):
            return Const(left * right)
        if isinstance(op, ast.Div):
            return Const(left / right)
        return Const(left // right if isinstance(op, ast.FloorDiv) else left % right)
    except ZeroDivisionError:
        return UNKNOWN


def comparison(op: ast.cmpop, left: Any, right: Any) -> bool | None:
    """What a comparison gives, or None if that is not known."""
    if isinstance(op, (ast.In, ast.NotIn)) and isinstance(left, Const):
        found: bool | None = None
        if isinstance(right, Seq) and all(isinstance(i, Const) for i in right.items):
            found = any(i.value == left.value for i in right.items)
        elif isinstance(right, Dict):
            found = left.value in right.items
        elif isinstance(right, Data) and right.kind == "frame" and right.columns is not None and not right.open:
            found = left.value in right.columns
        elif isinstance(right, Const) and isinstance(right.value, str) and isinstance(left.value, str):
            found = left.value in right.value
        return None if found is None else found == isinstance(op, ast.In)
    if isinstance(left, Const) and isinstance(right, Const):
        a, b = left.value, right.value
        if isinstance(op, (ast.Eq, ast.Is)):
            return bool(a == b)
        if isinstance(op, (ast.NotEq, ast.IsNot)):
            return bool(a != b)
        if isinstance(a, (int, float)) and isinstance(b, (int, float)):
            table = {ast.Lt: a < b, ast.LtE: a <= b, ast.Gt: a > b, ast.GtE: a >= b}
            return table.get(type(op))
    if isinstance(left, (Data, Obj, Seq)) and isinstance(right, Const) and right.value is None:
        return isinstance(op, ast.IsNot) if isinstance(op, (ast.Is, ast.IsNot)) else None
    return None
