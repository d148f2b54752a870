"""Arithmetic, stacking and reshaping of data."""

from __future__ import annotations

import ast
import math
from typing import Any

from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import UNKNOWN, Const, Data, Rows, Seq


def elementwise(run: State, op: ast.operator, left: Any, right: Any) -> Data:
    """Arithmetic with at least one data operand."""
    data = [v for v in (left, right) if isinstance(v, Data)]
    main = next((d for d in data if d.kind == "frame"), next((d for d in data if d.kind == "series"), data[0]))
    if len(data) == 2:
        return _both(run, op, main, data[0], data[1])
    other = right if isinstance(left, Data) else left
    number = isinstance(other, Const) and isinstance(other.value, (int, float))
    if main.text is True and main.kind == "series" and number and not isinstance(op, (ast.Mult, ast.Mod)):
        added = isinstance(op, ast.Add)
        text = 'can only concatenate str (not "int") to str' if added else "unsupported operand type(s) for text"
        run.report("shapes.text-arithmetic", text=text)
    keeps = isinstance(op, (ast.Mult, ast.Div)) and number and other.value >= 0
    meaning = main.meaning if number and main.meaning != "label" else None
    return main.but(low=main.low if keeps else None, meaning=meaning, dtype=None, mask=False, columns=_plain(main))


def _both(run: State, op: ast.operator, main: Data, a: Data, b: Data) -> Data:
    if (
        not isinstance(op, ast.MatMult)
        and a.kind == b.kind == "array"
        and a.rows
        and b.rows
        and a.rows != b.rows
        and a.ndim == b.ndim == 1
    ):
        n, m = run.count(a.rows), run.count(b.rows)
        if n is not None and m is not None and n != m and 1 not in (n, m):
            text = f"operands could not be broadcast together with shapes ({n},) ({m},) "
            run.report("shapes.beside", text=text)
    nan = True if True in (a.nan, b.nan) else (None if None in (a.nan, b.nan) else False)
    text_ = True if True in (a.text, b.text) else (None if None in (a.text, b.text) else False)
    rows = a.rows if a.rows == b.rows else (a.rows or b.rows if None in (a.rows, b.rows) else None)
    if text_ is True and False in (a.text, b.text) and not isinstance(op, ast.Mult) and "frame" not in (a.kind, b.kind):
        run.report("shapes.text-arithmetic", text="unsupported operand type(s): text and numbers")
    if isinstance(op, ast.MatMult) and a.ndim == 2 and a.exact and a.width and b.ndim in (1, 2):
        inner = run.count(b.rows)
        if inner is not None and inner != int(a.width):
            run.report("shapes.matmul", n=inner, m=int(a.width))
    if isinstance(op, ast.MatMult) or None in (a.ndim, b.ndim):
        return Data(
            main.kind if not isinstance(op, ast.MatMult) else "array",
            rows=a.rows,
            nan=nan,
            text=text_,
            open=main.kind == "frame",
        )
    return main.but(
        nan=nan, text=text_, meaning=a.meaning if a.meaning == b.meaning else None, rows=rows, low=None, mask=a.mask and b.mask,
        ndim=max(a.ndim or 1, b.ndim or 1), columns=_plain(main),
    )  # fmt: skip


def _plain(data: Data) -> Any:
    """The columns of the result of arithmetic: as many, but nothing else is said of their contents."""
    return None if data.columns is None else {k: type(c)(c.text, c.nan) for k, c in data.columns.items()}


def concatenate(items: list[Any], rows_add: bool) -> Any:
    """Rows below each other (`rows_add`) or columns side by side."""
    data = [i for i in items if isinstance(i, Data)]
    if not data or len(data) < len(items):
        return UNKNOWN
    rows = ("+".join(d.rows or "?" for d in data) if rows_add else data[0].rows) if all(d.rows for d in data) else None
    nan = True if any(d.nan for d in data) else (None if any(d.nan is None for d in data) else False)
    text = True if any(d.text for d in data) else (None if any(d.text is None for d in data) else False)
    width = data[0].width if rows_add else (sum(d.width or 1.0 for d in data) if all(d.width for d in data) else None)
    exact = all(d.exact or d.ndim == 1 for d in data)
    same = len({d.meaning for d in data}) == 1
    ndim = data[0].ndim if rows_add else 2
    dims = data[0].dims if rows_add and len({d.dims for d in data}) == 1 else None
    low = min((d.low for d in data if d.low is not None), default=None) if all(d.low is not None for d in data) else None
    return Data(
        "array", rows=rows, nan=nan, text=text, width=width, ndim=ndim, exact=exact, meaning=data[0].meaning if same else None,
        low=low, dims=dims,
    )  # fmt: skip


def reshape(run: State, owner: Data, args: list[Any]) -> Data:
    """`owner.reshape(...)`."""
    shape = [run.plain(a) if i else a for i, a in enumerate(args[0].items if args and isinstance(args[0], Seq) else args)]
    first = shape[0] if shape else UNKNOWN
    rows = first.tag if isinstance(first, Rows) else None
    number = run.plain(first)
    if rows is None and isinstance(number, Const) and isinstance(number.value, int):
        rows = run.tag_of(number.value) if number.value > 0 else None
    behind = [s.value for s in shape[1:] if isinstance(s, Const) and isinstance(s.value, int)]
    total = math.prod(owner.dims) if owner.dims is not None else int(owner.width) if owner.exact and owner.width else None
    same_rows = rows is not None and (rows == owner.rows or run.count(rows) == run.count(owner.rows))
    if len(behind) == len(shape) - 1 and -1 in behind and total is not None and same_rows:
        known = -math.prod(behind)
        behind = [total // known if b == -1 else b for b in behind] if known > 0 and behind.count(-1) == 1 else []
    dims = tuple(behind) if shape and len(behind) == len(shape) - 1 and -1 not in behind else None
    width = float(dims[0]) if dims is not None and len(dims) == 1 else None
    ndim = len(shape) if shape else None
    return owner.but(
        kind="array", rows=rows, ndim=ndim, width=width, columns=None, exact=width is not None, dims=dims, meaning=owner.meaning
    )
