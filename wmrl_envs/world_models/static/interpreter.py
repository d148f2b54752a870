"""Abstract execution of a program: follows names, frames, columns and estimators through the statements in order.

Nothing of the program runs. Every value may be unknown, and unknown never fails: a finding needs a value that is known to be wrong.
"""

from __future__ import annotations

import ast
import builtins
import logging
from collections.abc import Mapping
from typing import Any

from wmrl_envs.context import TaskContext
from wmrl_envs.world_models.static.constants import arithmetic, comparison
from wmrl_envs.world_models.static.index.api import MISSING, ApiIndex
from wmrl_envs.world_models.static.rules import access as static_access
from wmrl_envs.world_models.static.rules import calls as static_calls
from wmrl_envs.world_models.static.rules import language as static_language
from wmrl_envs.world_models.static.rules.pipelines import Fit
from wmrl_envs.world_models.static.rules.sklearn import SklearnRules
from wmrl_envs.world_models.static.values import (
    MAX_ITEMS,
    MAX_TEXT,
    UNKNOWN,
    Const,
    Data,
    Dict,
    Finding,
    Func,
    Many,
    Obj,
    ProgramEnds,
    ProgramExits,
    Ref,
    Rows,
    Seq,
    Slice,
)

BUILTINS = frozenset(dir(builtins))
log = logging.getLogger(__name__)

MAX_STEPS = 20_000  # expressions evaluated; beyond that the rest of the program counts as unknown
MAX_UNROLLED = 24  # items of a loop that are followed one by one


class OutOfBudget(Exception):
    """The program is too long to follow."""


class _Return(Exception):
    def __init__(self, value: Any):
        self.value = value


class _Leaves(Exception):
    """A `break` or (`again`) a `continue`."""

    def __init__(self, again: bool):
        self.again = again


class Interpreter:
    """Follows one program. After `run`: `findings`, `fits`, `saved` (submissions written), `exited`, `python_s`.

    `doubts` counts the statements of which it is not known whether they run, `python_s` CPU seconds spent in loops.
    """

    def __init__(self, context: TaskContext, index: ApiIndex, names: Mapping[str, Any], rows: Mapping[str, int]):
        self.context, self.index = context, index
        self.env: dict[str, Any] = dict(names)
        self.findings: list[Finding] = []
        self.fits: list[Fit] = []
        self.saved: list[Any] = []
        self.line, self.certainty = 1, 1.0
        self.depth = self.steps = 0
        self.written: set[str] = set()
        self.targets: Data | None = names.get("y") if isinstance(names.get("y"), Data) else None
        self.sklearn = SklearnRules(index, self.report, dict(rows))
        self.ended = self.exited = self.returns_maybe = False
        self.complete = True
        self.opened_to_write = False  # by a path that may be any
        self.doubts = 0
        self.python_s = 0.0

    # ---- reporting ----------------------------------------------------------------------------------------------
    def report(self, rule: str, aspect: str, error_type: str, message: str, confidence: float) -> None:
        """Note a failure at the current line; a failure that is certain ends the program."""
        if self.certainty <= 0:
            return
        if self.certainty < 1:
            rule += ".branch"
        self.findings.append(Finding(rule, aspect, self.line, error_type, message, confidence * self.certainty))
        if self.certainty == 1 and confidence >= 0.9:
            raise ProgramEnds

    # ---- statements ---------------------------------------------------------------------------------------------
    def run(self, tree: ast.Module) -> None:
        """Execute a module; stops quietly at a certain failure or when the budget is used up."""
        try:
            self.block(tree.body)
        except ProgramExits:
            self.exited = True
        except (ProgramEnds, _Return, _Leaves):
            self.ended = True
        except (OutOfBudget, RecursionError):
            self.complete = False
        except Exception:  # a gap in our rules must not end a training run; what was found so far counts
            log.warning("static analysis gave up at line %d of a program", self.line, exc_info=True)
            self.complete = False

    def block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.line = statement.lineno
            getattr(self, f"s_{type(statement).__name__}", self.s_default)(statement)

    def s_default(self, node: ast.stmt) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.eval(child)

    def s_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            first = alias.name.split(".")[0]
            if self.index.module_exists(alias.name) is False:
                known_parent = first if self.index.module_exists(first) is not False else ""
                self.report(
                    "imports.module",
                    "imports",
                    "ModuleNotFoundError",
                    f"No module named '{alias.name if known_parent else first}'",
                    0.96,
                )
            self.env[alias.asname or first] = Ref(alias.name if alias.asname else first)

    def s_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            self.report(
                "imports.relative", "imports", "ImportError", "attempted relative import with no known parent package", 0.96
            )
        elif self.index.module_exists(module) is False:
            first = module.split(".")[0]
            missing = module if self.index.module_exists(first) is not False else first
            self.report("imports.module", "imports", "ModuleNotFoundError", f"No module named '{missing}'", 0.96)
        for alias in node.names:
            path = f"{module}.{alias.name}"
            if self.index.resolve(path) == MISSING and self.index.module_exists(path) is not True and alias.name != "*":
                text = f"cannot import name '{alias.name}' from '{module}'"
                self.report("imports.name", "imports", "ImportError", text, 0.96)
            self.env[alias.asname or alias.name] = Ref(path)

    def s_Assign(self, node: ast.Assign) -> None:
        value = self.eval(node.value)
        for target in node.targets:
            self.assign(target, value)

    def s_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.eval(node.value))

    def s_AugAssign(self, node: ast.AugAssign) -> None:
        value = self.eval(node.value)
        if isinstance(node.target, ast.Name):
            old = self.eval(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
            if isinstance(old, Seq) and isinstance(value, Seq) and isinstance(node.op, ast.Add):
                old.extend(value.items)
                return
            self.assign(node.target, self.binary(node.op, old, value))
        elif isinstance(node.target, ast.Subscript):
            owner, key = self.eval(node.target.value), self.eval(node.target.slice)
            self.assign(node.target, self.binary(node.op, static_access.subscript(self, owner, key), value))
        else:
            self.eval(node.target.value)

    def s_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.env.pop(target.id, None)
            elif isinstance(target, ast.Subscript):
                owner, key = self.eval(target.value), self.eval(target.slice)
                if isinstance(owner, Data) and owner.columns is not None and isinstance(key, Const):
                    owner.columns.pop(key.value, None)

    def s_For(self, node: ast.For) -> None:
        value = self.eval(node.iter)
        items = self.items(value)
        if items is not None and len(items) <= MAX_UNROLLED:
            self._unroll(node, items)
        else:
            self.assign(node.target, UNKNOWN)
            static_language.repeat(self, node.body, self._rounds(value) if items is None else len(items))
        self.block(node.orelse)

    def _unroll(self, node: ast.For, items: list[Any]) -> None:
        for item in items:
            self.assign(node.target, item)
            doubts = self.doubts
            try:
                self.block(node.body)
            except _Leaves as leaves:
                if not leaves.again:
                    return
            if self.doubts > doubts and any(isinstance(n, ast.Break) for s in node.body for n in ast.walk(s)):
                return  # it may have ended here

    def _rounds(self, value: Any) -> int:
        n = static_language.plain(self, Rows(value.rows)) if isinstance(value, Data) else value
        return value.count if isinstance(value, Many) else n.value if isinstance(n, Const) and isinstance(n.value, int) else 1

    s_AsyncFor = s_For

    def s_While(self, node: ast.While) -> None:
        endless = static_language.never_ends(self, node)
        if endless and self.certainty == 1:
            self.python_s += static_language.NEVER_S
            raise ProgramEnds
        if endless is None:
            self.maybe(node.body, 0.7)

    def s_Break(self, node: ast.Break) -> None:
        raise _Leaves(again=False)

    def s_Continue(self, node: ast.Continue) -> None:
        raise _Leaves(again=True)

    def s_Assert(self, node: ast.Assert) -> None:
        test = self.eval(node.test)
        if isinstance(test, Const) and not test.value:
            message = self.eval(node.msg)
            text = str(message.value) if isinstance(message, Const) and message.value is not None else ""
            self.report("runtime.assert", "runtime", "AssertionError", text, 0.95)

    def s_If(self, node: ast.If) -> None:
        test = self.eval(node.test)
        if isinstance(test, Const):
            self.block(node.body if test.value else node.orelse)
            return
        main = isinstance(node.test, ast.Compare) and isinstance(node.test.left, ast.Name) and node.test.left.id == "__name__"
        if main:
            self.block(node.body)
            return
        before = dict(self.env)
        self.maybe(node.body, 0.4)
        after = self.env
        self.env = before
        self.maybe(node.orelse, 0.4)
        self.env = {k: v if self.env.get(k) is v else UNKNOWN for k, v in {**self.env, **after}.items()}

    def s_Try(self, node: ast.Try) -> None:
        self.maybe(node.body, 0.0 if node.handlers else 1.0)
        for handler in node.handlers:
            if handler.name:
                self.env[handler.name] = UNKNOWN
            before = dict(self.env)
            self.maybe(handler.body, 0.0)
            self.env = {k: v if self.env.get(k) is v else UNKNOWN for k, v in {**self.env, **before}.items()}
        self.block(node.orelse)
        self.block(node.finalbody)

    def s_With(self, node: ast.With) -> None:
        for item in node.items:
            value = self.eval(item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value if isinstance(value, Obj) else UNKNOWN)
        self.block(node.body)

    def s_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.env[node.name] = UNKNOWN if node.decorator_list else Func(node)

    def s_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.env[node.name] = UNKNOWN

    def s_ClassDef(self, node: ast.ClassDef) -> None:
        self.env[node.name] = UNKNOWN

    def s_Return(self, node: ast.Return) -> None:
        raise _Return(self.eval(node.value) if node.value is not None else Const(None))

    def s_Raise(self, node: ast.Raise) -> None:
        if self.certainty == 1:
            name = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            kind = name.id if isinstance(name, ast.Name) else "Exception"
            if kind == "SystemExit":
                args = [self.eval(a) for a in node.exc.args] if isinstance(node.exc, ast.Call) else []
                static_language.check_exit(self, "sys.exit", args)
            self.report("runtime.raise", "runtime", kind, "", 0.95)

    def maybe(self, body: list[ast.stmt], factor: float) -> None:
        """Run statements that may not be reached, or whose errors may be caught."""
        before, self.certainty = self.certainty, self.certainty * factor
        self.doubts += factor < 1.0
        try:
            self.block(body)
        except ProgramEnds:
            if factor == 1.0:
                raise
        except _Return:
            if factor >= 0.9:
                raise
            self.returns_maybe = True
        except _Leaves:
            if factor == 1.0 and before < 1.0:
                raise
        finally:
            self.certainty = before

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.env[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            starred = any(isinstance(t, ast.Starred) for t in target.elts)
            items = static_language.unpack(self, value, len(target.elts), starred)
            for one, item in zip(target.elts, items, strict=True):
                self.assign(one.value if isinstance(one, ast.Starred) else one, item)
        elif isinstance(target, ast.Subscript):
            static_access.store(self, self.eval(target.value), self.eval(target.slice), value)
        elif isinstance(target, ast.Attribute):
            static_access.set_attribute(self.eval(target.value), target.attr, value)

    # ---- expressions --------------------------------------------------------------------------------------------
    def eval(self, node: ast.expr | None) -> Any:
        if node is None:
            return Const(None)
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise OutOfBudget
        return getattr(self, f"e_{type(node).__name__}", self.e_default)(node)

    def e_default(self, node: ast.expr) -> Any:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.eval(child)
        return UNKNOWN

    def e_Constant(self, node: ast.Constant) -> Any:
        return Const(node.value) if isinstance(node.value, (str, int, float, bool, type(None))) else UNKNOWN

    def e_Name(self, node: ast.Name) -> Any:
        return self.env.get(node.id, Ref(f"builtins.{node.id}") if node.id in BUILTINS else UNKNOWN)

    def e_Tuple(self, node: ast.Tuple | ast.List) -> Any:
        items: list[Any] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                inner = self.items(self.eval(element.value))
                if inner is None:
                    return UNKNOWN
                items.extend(inner[: max(MAX_ITEMS - len(items) + 1, 0)])
            else:
                items.append(self.eval(element))
        return Seq(items)

    e_List = e_Tuple

    def e_Dict(self, node: ast.Dict) -> Any:
        known: dict[Any, Any] = {}
        complete = True
        for key, value in zip(node.keys, node.values, strict=True):
            item = self.eval(value)
            name = self.eval(key) if key is not None else UNKNOWN
            if isinstance(name, Const):
                known[name.value] = item
            else:
                complete = False
        return Dict(known) if complete else UNKNOWN

    def e_Attribute(self, node: ast.Attribute) -> Any:
        return static_access.attribute(self, self.eval(node.value), node.attr)

    def e_Subscript(self, node: ast.Subscript) -> Any:
        owner, key = self.eval(node.value), self.eval(node.slice)
        if isinstance(node.slice, ast.Tuple) and isinstance(owner, Data) and isinstance(key, Seq):
            static_access.check_pair(self, owner, key)
        result = static_access.subscript(self, owner, key)
        if isinstance(key, Data) and key.mask and isinstance(owner, Data) and isinstance(result, Data) and owner.rows:
            return result.but(rows=f"{owner.rows}[?{ast.unparse(node.slice)}]")  # equal texts leave equal rows
        return result

    def e_Slice(self, node: ast.Slice) -> Any:
        lower, upper, step = (static_language.plain(self, self.eval(p)) for p in (node.lower, node.upper, node.step))
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
                inner = self.items(self.eval(arg.value))
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
            else:
                complete = False
        return static_calls.call(self, function, args, kwargs, complete)

    def inline(self, function: Func, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Run a function of the program with these arguments (at most four calls deep)."""
        if self.depth >= 4:
            return UNKNOWN
        node = function.node
        if static_language.always_recurses(node):
            self.report("runtime.recursion", "runtime", "RecursionError", "maximum recursion depth exceeded", 0.93)
        names = [a.arg for a in node.args.posonlyargs + node.args.args]
        returns_maybe, self.returns_maybe = self.returns_maybe, False
        outer, line = self.env, self.line
        local = dict(outer)
        defaults = [self.eval(d) for d in node.args.defaults]
        local.update(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        local.update(zip(names, args, strict=False))
        local.update({k: v for k, v in kwargs.items() if k in names or any(a.arg == k for a in node.args.kwonlyargs)})
        for extra in (node.args.vararg, node.args.kwarg):
            if extra is not None:
                local[extra.arg] = UNKNOWN
        self.env = local
        self.depth += 1
        try:
            if isinstance(node, ast.Lambda):
                return self.eval(node.body)
            self.block(node.body)
            return UNKNOWN if self.returns_maybe else Const(None)
        except _Return as result:
            return UNKNOWN if self.returns_maybe else result.value
        finally:
            self.returns_maybe = returns_maybe
            self.env, self.line = outer, line
            self.depth -= 1

    def e_Lambda(self, node: ast.Lambda) -> Any:
        return Func(node)

    def e_IfExp(self, node: ast.IfExp) -> Any:
        test = self.eval(node.test)
        if isinstance(test, Const):
            return self.eval(node.body if test.value else node.orelse)
        before, self.certainty = self.certainty, 0.0
        try:
            self.eval(node.body), self.eval(node.orelse)
        finally:
            self.certainty = before
        return UNKNOWN

    def e_BoolOp(self, node: ast.BoolOp) -> Any:
        values = [self.eval(v) for v in node.values]
        if all(isinstance(v, Const) for v in values):
            plain = [v.value for v in values]
            return Const(all(plain) if isinstance(node.op, ast.And) else any(plain))
        return UNKNOWN

    def e_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.eval(node.operand)
        if isinstance(value, Const):
            if isinstance(node.op, ast.Not):
                return Const(not value.value)
            if isinstance(node.op, ast.USub) and isinstance(value.value, (int, float)):
                return Const(-value.value)
        return value.but(low=None, meaning=None) if isinstance(value, Data) else UNKNOWN

    def e_BinOp(self, node: ast.BinOp) -> Any:
        return self.binary(node.op, self.eval(node.left), self.eval(node.right))

    def binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        left, right = static_language.plain(self, left), static_language.plain(self, right)
        if isinstance(left, Const) and isinstance(right, Const):
            static_language.check_arithmetic(self, op, left.value, right.value)
            return arithmetic(op, left.value, right.value)
        if isinstance(left, Seq) and isinstance(right, Seq) and isinstance(op, ast.Add):
            return Seq([*left.items, *right.items])
        if isinstance(left, Const) and isinstance(op, ast.Div) and isinstance(left.value, str):
            return UNKNOWN
        data = [v for v in (left, right) if isinstance(v, Data)]
        if not data:
            return UNKNOWN
        return static_access.elementwise(self, op, left, right)

    def e_Compare(self, node: ast.Compare) -> Any:
        left, *rights = (static_language.plain(self, self.eval(e)) for e in (node.left, *node.comparators))
        if len(rights) == 1:
            decided = comparison(node.ops[0], left, rights[0])
            if decided is not None:
                return Const(decided)
        if isinstance(left, Data):
            if len(rights) == 1 and isinstance(rights[0], Data):
                static_access.elementwise(self, ast.Sub(), left, rights[0])
            return left.but(meaning="label" if left.meaning else None, nan=False, text=False, low=0.0, mask=True)
        return UNKNOWN

    def e_JoinedStr(self, node: ast.JoinedStr) -> Any:
        text = ""
        for part in node.values:
            value = self.eval(part.value if isinstance(part, ast.FormattedValue) else part)
            if not isinstance(value, Const):
                return UNKNOWN
            text += str(value.value)
            if len(text) > MAX_TEXT:
                return UNKNOWN
        return Const(text)

    def _comprehension(self, node: Any, element: ast.expr) -> Any:
        outer = self.env
        self.env = dict(outer)
        try:
            results: list[Any] = []
            return Seq(results) if self._generate(node.generators, element, results) else UNKNOWN
        finally:
            self.env = outer

    def _generate(self, generators: list[ast.comprehension], element: ast.expr, out: list[Any]) -> bool:
        if not generators:
            out.append(self.eval(element))
            return True
        first, rest = generators[0], generators[1:]
        value, fits = self.eval(first.iter), len(self.fits)
        items = self.items(value)
        known = items is not None and len(items) <= 500
        for item in (items or []) if known else [UNKNOWN]:
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
                fit.times *= self._rounds(value)
        return known

    def e_ListComp(self, node: ast.ListComp) -> Any:
        return self._comprehension(node, node.elt)

    e_GeneratorExp = e_SetComp = e_ListComp

    def e_DictComp(self, node: ast.DictComp) -> Any:
        self._comprehension(node, ast.Tuple([node.key, node.value], ast.Load()))
        return UNKNOWN

    def e_NamedExpr(self, node: ast.NamedExpr) -> Any:
        value = self.eval(node.value)
        self.assign(node.target, value)
        return value

    def e_Set(self, node: ast.Set) -> Any:
        return Seq([self.eval(e) for e in node.elts])

    def items(self, value: Any) -> list[Any] | None:
        """What iterating over a value gives, if known. Iterating over a frame gives its column names."""
        if isinstance(value, Seq):
            return list(value.items)
        if isinstance(value, Dict):
            return [Const(k) for k in value.items]
        if isinstance(value, Data) and value.kind == "frame" and value.columns is not None and not value.open:
            return [Const(c) for c in value.columns]
        return None
