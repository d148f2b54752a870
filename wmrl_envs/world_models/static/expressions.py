"""What expressions are worth in the abstract execution. Every value may be unknown, and unknown never fails."""

from __future__ import annotations

import ast
import builtins
from typing import Any

from wmrl_envs.world_models.static.constants import arithmetic, comparison
from wmrl_envs.world_models.static.rules import access, arrays, calls, language
from wmrl_envs.world_models.static.state import State, items_of
from wmrl_envs.world_models.static.values import (
    MAX_ITEMS,
    MAX_TEXT,
    UNKNOWN,
    Bound,
    Class,
    Const,
    Data,
    Dict,
    Func,
    Instance,
    Many,
    Obj,
    Ref,
    Seq,
    Slice,
)

BUILTINS = frozenset(dir(builtins))
MAX_STEPS = 20_000  # expressions evaluated; beyond that the rest of the program counts as unknown


class OutOfBudget(Exception):
    """The program is too long to follow."""


class Expressions(State):
    """The part of the interpreter that evaluates; what calls the program's own functions is left to `Interpreter`."""

    steps = 0

    def make(self, kind: Class, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """An object of a class of the program."""
        raise NotImplementedError

    def member(self, owner: Instance, name: str) -> Any:
        """An attribute or method of an object of the program."""
        raise NotImplementedError

    def assign(self, target: ast.expr, value: Any) -> None:
        """Bind a name, or change what a target stands for."""
        raise NotImplementedError

    def eval(self, node: ast.expr | None) -> Any:
        """The value of an expression."""
        if node is None:
            return Const(None)
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise OutOfBudget
        return getattr(self, f"e_{type(node).__name__}", self.e_default)(node)

    def doubted(self, node: ast.expr) -> Any:
        """The value of an expression that may not be evaluated at all: nothing in it is held against the program."""
        before, self.certainty = self.certainty, 0.0
        try:
            return self.eval(node)
        finally:
            self.certainty = before

    def e_default(self, node: ast.expr) -> Any:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.eval(child)
        return UNKNOWN

    def e_Constant(self, node: ast.Constant) -> Any:
        return Const(node.value) if isinstance(node.value, (str, int, float, bool, type(None))) else UNKNOWN

    def e_Name(self, node: ast.Name) -> Any:
        return self.env.get(node.id, Ref(f"builtins.{node.id}") if node.id in BUILTINS else UNKNOWN)

    def e_Tuple(self, node: ast.Tuple | ast.List | ast.Set) -> Any:
        items: list[Any] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                inner = items_of(self.eval(element.value))
                if inner is None:
                    return UNKNOWN
                items.extend(inner[: max(MAX_ITEMS - len(items) + 1, 0)])
            else:
                items.append(self.eval(element))
        return Seq(items)

    e_List = e_Set = e_Tuple

    def e_Dict(self, node: ast.Dict) -> Any:
        known = Dict({})
        for key, value in zip(node.keys, node.values, strict=True):
            item = self.eval(value)
            name = self.eval(key) if key is not None else UNKNOWN
            if isinstance(name, Const):
                known.items[name.value] = item
            elif key is None and isinstance(item, Dict):  # {**other}
                known.items.update(item.items)
                known.open = known.open or item.open
            else:
                known.open = True
        return known

    def e_Attribute(self, node: ast.Attribute) -> Any:
        owner = self.eval(node.value)
        return self.member(owner, node.attr) if isinstance(owner, Instance) else access.attribute(self, owner, node.attr)

    def e_Subscript(self, node: ast.Subscript) -> Any:
        owner, key = self.eval(node.value), self.eval(node.slice)
        if isinstance(node.slice, ast.Tuple) and isinstance(owner, Data) and isinstance(key, Seq):
            access.check_pair(self, owner, key)
        result = access.subscript(self, owner, key)
        if isinstance(key, Data) and key.mask and isinstance(owner, Data) and isinstance(result, Data) and owner.rows:
            return result.but(rows=f"{owner.rows}[?{ast.unparse(node.slice)}]")  # equal texts leave equal rows
        return result

    def e_Slice(self, node: ast.Slice) -> Any:
        lower, upper, step = (self.plain(self.eval(p)) for p in (node.lower, node.upper, node.step))
        whole = all(isinstance(v, Const) and (v.value is None or isinstance(v.value, int)) for v in (lower, upper, step))
        if not whole or step.value == 0:
            return Slice(known=False)
        return Slice(lower.value, upper.value, step=None if step.value == 1 else step.value)

    def e_Call(self, node: ast.Call) -> Any:
        function = self.eval(node.func)
        args: list[Any] = []
        complete = True
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                inner = items_of(self.eval(arg.value))
                complete = complete and inner is not None
                args.extend(inner or [])
            else:
                args.append(self.eval(arg))
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.eval(keyword.value)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, Dict) and all(isinstance(k, str) for k in value.items):
                kwargs.update(value.items)
                complete = complete and not value.open
            else:
                complete = False
        if isinstance(function, Func):
            return self.inline(function, args, kwargs)
        if isinstance(function, Class):
            return self.make(function, args, kwargs)
        if isinstance(function, Bound) and isinstance(function.owner, Instance):
            if function.name != "fit_transform" or not args:
                return UNKNOWN
            self.method(function.owner, "fit", args)
            return self.method(function.owner, "transform", args[:1])
        return calls.call(self, function, args, kwargs, complete)

    def e_Lambda(self, node: ast.Lambda) -> Any:
        return Func(node)

    def e_IfExp(self, node: ast.IfExp) -> Any:
        test = self.eval(node.test)
        if isinstance(test, Const):
            return self.eval(node.body if test.value else node.orelse)
        ways = self.doubted(node.body), self.doubted(node.orelse)
        return ways[0] if ways[0] == ways[1] else UNKNOWN

    def e_BoolOp(self, node: ast.BoolOp) -> Any:
        """`and` and `or`: what stands behind an undecided side may never be looked at."""
        ends = isinstance(node.op, ast.Or)  # the truth value that ends it
        decided, value = True, UNKNOWN
        for part in node.values:
            value = self.eval(part) if decided else self.doubted(part)
            truth = truth_of(value)
            if truth is ends and decided:
                return value
            decided = decided and truth is not None
        return value if decided else UNKNOWN

    def e_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.eval(node.operand)
        if isinstance(node.op, ast.Not) and (truth := truth_of(value)) is not None:
            return Const(not truth)
        if isinstance(value, Const) and isinstance(node.op, ast.USub) and isinstance(value.value, (int, float)):
            return Const(-value.value)
        return value.but(low=None, meaning=None) if isinstance(value, Data) else UNKNOWN

    def e_BinOp(self, node: ast.BinOp) -> Any:
        return self.binary(node.op, self.eval(node.left), self.eval(node.right))

    def binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        """`left op right`."""
        left, right = self.plain(left), self.plain(right)
        if isinstance(left, Const) and isinstance(right, Const):
            language.check_arithmetic(self, op, left.value, right.value)
            return arithmetic(op, left.value, right.value)
        if isinstance(left, Seq) and isinstance(right, Seq) and isinstance(op, ast.Add):
            return Seq([*left.items, *right.items], left.sure and right.sure)
        if isinstance(left, Dict) and isinstance(right, Dict) and isinstance(op, ast.BitOr):
            return Dict({**left.items, **right.items}, left.open or right.open)
        if isinstance(left, Const) and isinstance(op, ast.Div) and isinstance(left.value, str):
            return UNKNOWN
        if not any(isinstance(v, Data) for v in (left, right)):
            return UNKNOWN
        return arrays.elementwise(self, op, left, right)

    def e_Compare(self, node: ast.Compare) -> Any:
        left, *rights = (self.plain(self.eval(e)) for e in (node.left, *node.comparators))
        if len(rights) == 1:
            decided = comparison(node.ops[0], left, rights[0])
            if decided is not None:
                return Const(decided)
        if isinstance(left, Data) and not isinstance(node.ops[0], (ast.In, ast.NotIn, ast.Is, ast.IsNot)):
            if len(rights) == 1 and isinstance(rights[0], Data) and rights[0].ndim == left.ndim:
                arrays.elementwise(self, ast.Sub(), left.but(text=None), rights[0].but(text=None))
            whole = left.kind == "frame"
            columns = (
                {k: type(c)(False, False) for k, c in left.columns.items()} if whole and left.columns is not None else None
            )
            return left.but(
                meaning="label" if left.meaning else None, nan=False, text=False, low=0.0, mask=True, columns=columns
            )
        return UNKNOWN

    def e_JoinedStr(self, node: ast.JoinedStr) -> Any:
        text: str | None = ""
        for part in node.values:
            value = self.eval(part.value if isinstance(part, ast.FormattedValue) else part)
            formatted = isinstance(part, ast.FormattedValue) and (part.format_spec is not None or part.conversion != -1)
            if not isinstance(value, Const) or formatted or text is None or len(text) > MAX_TEXT:
                text = None
            else:
                text += str(value.value)
        return UNKNOWN if text is None or len(text) > MAX_TEXT else Const(text)

    def _comprehension(self, node: Any, element: ast.expr) -> list[Any] | None:
        outer = self.env
        self.env = dict(outer)
        try:
            results: list[Any] = []
            return results if self._generate(node.generators, element, results) else None
        finally:
            self.env = outer

    def _generate(self, generators: list[ast.comprehension], element: ast.expr, out: list[Any]) -> bool:
        """Whether `out` holds everything that the comprehension gives."""
        if not generators:
            out.append(self.eval(element))
            return True
        first, rest = generators[0], generators[1:]
        fits = len(self.fits)
        value = self.eval(first.iter)
        items = items_of(value)
        known = items is not None and len(items) <= 500
        for item in (items or []) if known else [value.item if isinstance(value, Many) else UNKNOWN]:
            self.assign(first.target, item)
            tests = [self.eval(t) for t in first.ifs]
            if any(isinstance(t, Const) and not t.value for t in tests):
                continue
            if any(not isinstance(t, Const) for t in tests):
                known = False
            before = self.certainty
            self.certainty = before if known else before * 0.5
            try:
                known = self._generate(rest, element, out) and known
            finally:
                self.certainty = before
        if items is None:
            for fit in self.fits[fits:]:
                fit.times *= self.rounds(value)
        return known

    def rounds(self, value: Any) -> int:
        """How often a loop over a value runs, 1 if that is not known."""
        n = self.count(value.rows) if isinstance(value, Data) else None
        return value.count if isinstance(value, Many) else n if n is not None else 1

    def e_ListComp(self, node: ast.ListComp) -> Any:
        found = self._comprehension(node, node.elt)
        return UNKNOWN if found is None else Seq(found)

    e_GeneratorExp = e_SetComp = e_ListComp

    def e_DictComp(self, node: ast.DictComp) -> Any:
        pairs = self._comprehension(node, ast.Tuple([node.key, node.value], ast.Load()))
        if pairs is None or not all(isinstance(p.items[0], Const) for p in pairs):
            return UNKNOWN
        return Dict({p.items[0].value: p.items[1] for p in pairs})

    def e_NamedExpr(self, node: ast.NamedExpr) -> Any:
        value = self.eval(node.value)
        self.assign(node.target, value)
        return value


def truth_of(value: Any) -> bool | None:
    """Whether a value counts as true, if that is known."""
    if isinstance(value, Const):
        return bool(value.value)
    if isinstance(value, Seq) and value.sure:
        return bool(value.items)
    if isinstance(value, Dict) and not value.open:
        return bool(value.items)
    return True if isinstance(value, (Obj, Instance)) else None
