"""Arithmetic and comparisons on values that are known."""

from __future__ import annotations

import ast
import posixpath
from typing import Any

from wmrl_envs.world_models.static.values import MAX_TEXT, UNKNOWN, Const, Data, Dict, Obj, Ref, Seq

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
    if isinstance(op, (ast.In, ast.NotIn)):
        found = _contains(left, right)
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
    if isinstance(left, (Data, Obj, Seq, Dict)) and isinstance(right, Const) and right.value is None:
        return isinstance(op, ast.IsNot) if isinstance(op, (ast.Is, ast.IsNot)) else None
    if isinstance(op, (ast.Eq, ast.NotEq)):
        same = same_dtype(left, right)
        return None if same is None else same == isinstance(op, ast.Eq)
    return None


def _contains(left: Any, right: Any) -> bool | None:
    """Whether `left` is in `right`."""
    if isinstance(left, Const):
        if isinstance(right, Seq) and right.sure and all(isinstance(i, Const) for i in right.items):
            return any(i.value == left.value for i in right.items)
        if isinstance(right, Dict) and not right.open:
            return left.value in right.items
        if isinstance(right, Data) and right.kind == "frame" and right.columns is not None and not right.open:
            return left.value in right.columns
        if isinstance(right, Const) and isinstance(right.value, str) and isinstance(left.value, str):
            return left.value in right.value
    if isinstance(left, Ref) and isinstance(right, Seq) and right.sure:
        matches = [same_dtype(left, i) for i in right.items]
        return True if True in matches else None if None in matches else False
    return None


_OBJECT = ("object", "O", "builtins.object", "numpy.object_")
_DTYPES = {  # dtype of a column -> what it is equal to
    "int": ("int64", "int", "builtins.int", "numpy.int64"),
    "float": ("float64", "float", "builtins.float", "numpy.float64"),
    "bool": ("bool", "builtins.bool", "numpy.bool_"),
    "str": ("str", "string", "builtins.str"),
    "category": ("category",),
    "date": ("datetime64[ns]", "datetime64[us]"),
}


def same_dtype(left: Any, right: Any) -> bool | None:
    """`column.dtype == "int64"` and the like, or None if that is not known. Texts are of dtype "str" since pandas 3, not
    "object".
    """
    if not isinstance(left, Ref) or not left.path.startswith("dtype."):
        return None
    name = right.value if isinstance(right, Const) else right.path if isinstance(right, Ref) else None
    own = left.path[6:]
    if name in _OBJECT:
        return False
    if own == "date" or not isinstance(name, str):
        return None
    return name in _DTYPES.get(own, ())
