"""Syntax and names: does the program compile, and is every name defined where it is used?

pyflakes decides about names. It is only asked when a cheap pass over the tree leaves a doubt, which saves half the time.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Iterable

from wmrl_envs.world_models.static.rules.table import finding
from wmrl_envs.world_models.static.values import Finding

_BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__", "__builtins__"}
_CHECKED_BY_COMPILER = (  # what parses but may not compile
    ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Nonlocal, ast.Global, ast.Break, ast.Continue, ast.Starred, ast.Match,
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.AsyncFor, ast.AsyncWith, ast.NamedExpr, ast.Try,
    ast.Delete,
)  # fmt: skip
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class Names:
    """One pass over a program: lines of the first use and the first binding of each name, and what needs a closer look.

    Attributes:
        used: name -> first line where it is read.
        bound: name -> first line where it is given a value.
        odd: there is something only the compiler can judge.
        stars: there is a `from m import *`.
    """

    def __init__(self, tree: ast.Module):
        self.used: dict[str, int] = {}
        self.bound: dict[str, int] = {}
        self.odd = self.stars = False
        stack: list[ast.AST] = [tree]
        while stack:
            node = stack.pop()
            self._note(node)
            for field in node._fields:
                value = getattr(node, field, None)
                if isinstance(value, list):
                    stack.extend(v for v in value if isinstance(v, ast.AST))
                elif isinstance(value, ast.AST):
                    stack.append(value)

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            table = self.used if isinstance(node.ctx, ast.Load) else self.bound
            table[node.id] = min(table.get(node.id, node.lineno), node.lineno)
            self.odd = self.odd or node.id == "__debug__"
            return
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                name = (alias.asname or alias.name).split(".")[0]
                self.stars = self.stars or name == "*"
                self.bound[name] = min(self.bound.get(name, node.lineno), node.lineno)
        elif isinstance(node, _SCOPES):
            if not isinstance(node, ast.Lambda):
                self.bound[node.name] = min(self.bound.get(node.name, node.lineno), node.lineno)
        elif isinstance(node, ast.arg):
            self.bound.setdefault(node.arg, node.lineno)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self.bound.setdefault(node.name, node.lineno)
        if isinstance(node, _CHECKED_BY_COMPILER):
            self.odd = True

    def doubtful(self, known: Iterable[str]) -> bool:
        """Whether a name may be used without, or at or before the line of, its first binding."""
        if self.odd:  # scopes of their own, `del`, `global`
            return True
        given = _BUILTINS | set(known)
        return any(line < self.bound.get(name, line + 1) for name, line in self.used.items() if name not in given) or any(
            name not in given and self.bound.get(name) == line for name, line in self.used.items()
        )


def compiled(code: str) -> tuple[ast.Module, Names] | Finding | None:
    """The syntax tree and its names, the syntax error as a finding, or None for code too deep to read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
            names = Names(tree)
            if names.odd:
                compile(tree, "solution.py", "exec", dont_inherit=True)
        return tree, names
    except SyntaxError as error:
        return finding("syntax", error.lineno or 1, type(error).__name__, text=error.msg or "invalid syntax")
    except ValueError as error:  # null bytes
        return finding("syntax", 1, text=str(error))
    except (RecursionError, MemoryError):
        return None


def undefined_names(tree: ast.Module, names: Names, known: frozenset[str]) -> list[Finding]:
    """NameErrors. `known`: names that are defined before the program starts."""
    if not names.doubtful(known):
        return []
    from pyflakes import checker, messages

    used = names.used

    class Checker(checker.Checker):
        def addBinding(self, node: ast.AST | None, value: checker.Binding) -> None:
            if node is not None or value.name in used:  # binding all 160 built-ins would cost more than the check itself
                super().addBinding(node, value)

    try:
        found = Checker(tree, filename="solution.py", builtins=known).messages
    except (RecursionError, KeyError, AttributeError):
        return []
    shielded = _shielded_lines(tree)
    result = []
    for message in found:
        if isinstance(message, messages.UndefinedName):
            rule = "imports.name-branch" if message.lineno in shielded else "imports.undefined"
            result.append(finding(rule, message.lineno, name=message.message_args[0]))
    return result


def _shielded_lines(tree: ast.Module) -> set[int]:
    """Lines that may never run or whose errors may be caught: bodies of functions, branches, loops and handlers."""
    lines: set[int] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If, ast.Try, ast.While)):
            lines.update(range(node.lineno + (not isinstance(node, ast.Try)), (node.end_lineno or node.lineno) + 1))
    return lines
