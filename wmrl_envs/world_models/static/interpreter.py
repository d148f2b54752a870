"""Abstract execution of a program: follows names, frames, columns and estimators through the statements in order.

Nothing of the program runs. Every value may be unknown, and unknown never fails: a finding needs a value that is known to be
wrong. After statements that may not have run only that is kept which holds either way.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Mapping
from typing import Any

import wmrl_envs.world_models.static.objects as objects
from wmrl_envs.context import TaskContext
from wmrl_envs.world_models.static.branches import Branches, Leaves, Return
from wmrl_envs.world_models.static.expressions import OutOfBudget
from wmrl_envs.world_models.static.index.api import MISSING, ApiIndex
from wmrl_envs.world_models.static.joins import join
from wmrl_envs.world_models.static.rules import access, frames, language
from wmrl_envs.world_models.static.rules.signatures import check_experimental
from wmrl_envs.world_models.static.values import (
    UNKNOWN,
    Class,
    Const,
    Data,
    Func,
    Instance,
    ProgramEnds,
    ProgramExits,
    Ref,
    Seq,
)

log = logging.getLogger(__name__)
MAX_DEPTH = 7  # calls of the program's own functions within one another
_HELPERS = ("sklearn.base.BaseEstimator", "sklearn.base.TransformerMixin")  # add nothing that is followed
_HOLDS_VALUES = ("dataclass", "dataclasses.dataclass", "attrs.define", "total_ordering")


class Interpreter(Branches):
    """Follows one program. After `run`: `findings`, `fits`, `saved` (submissions written), `exited`, `python_s`."""

    def __init__(self, context: TaskContext, index: ApiIndex, names: Mapping[str, Any], rows: Mapping[str, int]):
        super().__init__(context, index, names, rows)
        self.depth = 0
        self.ended = self.exited = False
        self.complete = True
        self._globals: set[str] = set()

    def run(self, tree: ast.Module) -> None:
        """Execute a module; stops quietly at a certain failure or when the budget is used up."""
        try:
            self.block(tree.body)
        except ProgramExits:
            self.exited = True
        except (ProgramEnds, Return, Leaves):
            self.ended = True
        except (OutOfBudget, RecursionError):
            self.complete = False
        except Exception:  # a gap in our rules must not end a training run; what was found so far counts
            log.warning("static analysis gave up at line %d of a program", self.line, exc_info=True)
            self.complete = False

    # ---- names ------------------------------------------------------------------------------------------------------
    def s_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            first = alias.name.split(".")[0]
            if self.index.module_exists(alias.name) is False:
                self.report("imports.module", name=alias.name if self.index.module_exists(first) is not False else first)
            self.env[alias.asname or first] = Ref(alias.name if alias.asname else first)

    def s_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if not node.level and self.index.module_exists(module) is False:
            first = module.split(".")[0]
            self.report("imports.module", name=module if self.index.module_exists(first) is not False else first)
        for alias in node.names:
            path = f"{module}.{alias.name}"
            if self.index.resolve(path) == MISSING and self.index.module_exists(path) is not True and alias.name != "*":
                self.report("imports.name", name=alias.name, module=module)
            if module.startswith("sklearn"):
                check_experimental(self, alias.name)
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
                old.sure = old.sure and value.sure and self.certainty == 1
                return
            self.assign(node.target, self.binary(node.op, old, value))
        elif isinstance(node.target, ast.Subscript):
            owner, key = self.eval(node.target.value), self.eval(node.target.slice)
            self.assign(node.target, self.binary(node.op, access.subscript(self, owner, key), value))
        else:
            owner = self.eval(node.target.value)
            old = owner.attributes.get(node.target.attr, UNKNOWN) if isinstance(owner, Instance) else UNKNOWN
            objects.check_frozen(self, owner, node.target.attr)
            access.set_attribute(owner, node.target.attr, self.binary(node.op, old, value))

    def assign(self, target: ast.expr, value: Any) -> None:
        """Bind a name, or change what a target stands for."""
        if isinstance(target, ast.Name):
            self.env[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            starred = any(isinstance(t, ast.Starred) for t in target.elts)
            items = language.unpack(self, value, len(target.elts), starred)
            for one, item in zip(target.elts, items, strict=True):
                self.assign(one.value if isinstance(one, ast.Starred) else one, item)
        elif isinstance(target, ast.Subscript):
            frames.store(self, self.eval(target.value), self.eval(target.slice), value)
        elif isinstance(target, ast.Attribute):
            owner = self.eval(target.value)
            objects.check_frozen(self, owner, target.attr)
            access.set_attribute(owner, target.attr, value)

    def s_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.env.pop(target.id, None)
            elif isinstance(target, ast.Subscript):
                owner, key = self.eval(target.value), self.eval(target.slice)
                if isinstance(owner, Data) and owner.columns is not None and isinstance(key, Const):
                    owner.columns.pop(key.value, None)

    def s_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self._globals.update(node.names)

    s_Nonlocal = s_Global

    # ---- the end of the program -------------------------------------------------------------------------------------
    def s_Assert(self, node: ast.Assert) -> None:
        test = self.eval(node.test)
        if isinstance(test, Const) and not test.value:
            message = self.eval(node.msg)
            text = str(message.value) if isinstance(message, Const) and message.value is not None else ""
            self.report("runtime.assert", text=text)

    def s_Raise(self, node: ast.Raise) -> None:
        if self.certainty == 1:
            name = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            kind = name.id if isinstance(name, ast.Name) else "Exception"
            if kind == "SystemExit":
                args = [self.eval(a) for a in node.exc.args] if isinstance(node.exc, ast.Call) else []
                language.check_exit(self, "sys.exit", args)
            self.report("runtime.raise", kind, text="")
        raise ProgramEnds

    # ---- functions and classes of the program -----------------------------------------------------------------------
    def s_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.env[node.name] = UNKNOWN if node.decorator_list or objects.generates(node) else Func(node)

    def s_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.env[node.name] = UNKNOWN

    def s_ClassDef(self, node: ast.ClassDef) -> None:
        bases = [self.eval(b) for b in node.bases]
        parents = [b for b in bases if isinstance(b, Class)]
        bases = [b for b in bases if not (isinstance(b, Ref) and b.path in _HELPERS)]
        plain = all(isinstance(b, Class) or b == Ref("builtins.object") for b in bases) and not node.keywords
        decorated = [ast.unparse(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]
        known = all(d in _HOLDS_VALUES for d in decorated) and not objects.is_estimator(bases)
        self.env[node.name] = Class(node, parents, plain) if known else UNKNOWN

    def s_Return(self, node: ast.Return) -> None:
        raise Return(self.eval(node.value) if node.value is not None else Const(None))

    def inline(self, function: Func, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Run a function of the program with these arguments."""
        if self.depth >= MAX_DEPTH:
            return UNKNOWN
        node = function.node
        if language.always_recurses(node):
            self.report("runtime.recursion")
        outer, line, returned, shared = self.env, self.line, self.returned, self._globals
        self.env = objects.arguments(self, node, args if function.owner is None else [function.owner, *args], kwargs)
        self.returned, self._globals = [], set()
        self.depth += 1
        try:
            if isinstance(node, ast.Lambda):
                return self.eval(node.body)
            try:
                self.block(node.body)
                result: Any = Const(None)
            except Return as ended:
                result = ended.value
            for other in self.returned:
                result = join(result, other)
            return result
        finally:
            outer.update({k: self.env[k] for k in self._globals if k in self.env})
            self.returned, self._globals = returned, shared
            self.env, self.line = outer, line
            self.depth -= 1

    def make(self, kind: Class, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """An object of a class of the program."""
        return objects.make(self, kind, args, kwargs)

    def method(self, owner: Instance, name: str, args: list[Any]) -> Any:
        """What a method of an object of the program gives; UNKNOWN if it has none of that name."""
        found = self.member(owner, name)
        return self.inline(found, args, {}) if isinstance(found, Func) else UNKNOWN

    def member(self, owner: Instance, name: str) -> Any:
        """An attribute or method of an object of the program."""
        return objects.member(self, owner, name)
