"""Statements that may not run, or run several times: what holds after branches, caught errors and loops."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from wmrl_envs.context import TaskContext
from wmrl_envs.world_models.static.expressions import Expressions, truth_of
from wmrl_envs.world_models.static.index.api import ApiIndex
from wmrl_envs.world_models.static.joins import join_names, merge, remember, restore
from wmrl_envs.world_models.static.state import items_of
from wmrl_envs.world_models.static.values import UNKNOWN, Const, Dict, Many, Obj, ProgramEnds

MAX_UNROLLED = 24  # items of a loop that are followed one by one
STATEMENT_S = 1.2e-7  # CPU seconds of a short statement in a loop
NEVER_S = 1e6  # estimate for a loop that does not end
_LEAVES = (ast.Break, ast.Return, ast.Raise, ast.Try, ast.Yield, ast.YieldFrom, ast.Await, ast.With)


class Return(Exception):
    """A function ends and gives a value."""

    def __init__(self, value: Any):
        self.value = value


class Leaves(Exception):
    """A `break` or (`again`) a `continue`."""

    def __init__(self, again: bool):
        self.again = again


class Branches(Expressions):
    """The part of the interpreter that decides which statements run.

    `returned`: what statements that may not have run would have returned.
    """

    def __init__(self, context: TaskContext, index: ApiIndex, names: Mapping[str, Any], rows: Mapping[str, int]):
        super().__init__(context, index, names, rows)
        self.returned: list[Any] = []  # by statements that may not have run
        # `continue` or `break` that may not have run, and what held there
        self._left: list[tuple[bool, dict[str, Any], Any]] = []

    def block(self, body: list[ast.stmt]) -> None:
        """Execute statements in order."""
        for statement in body:
            self.line = statement.lineno
            getattr(self, f"s_{type(statement).__name__}", self.s_default)(statement)

    def s_default(self, node: ast.stmt) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.eval(child)

    def s_If(self, node: ast.If) -> None:
        test = truth_of(self.eval(node.test))
        if test is not None:
            self.block(node.body if test else node.orelse)
            return
        main = isinstance(node.test, ast.Compare) and isinstance(node.test.left, ast.Name) and node.test.left.id == "__name__"
        if main:
            self.block(node.body)
            return
        self._either(node.body, node.orelse, 0.4)

    def _either(self, body: list[ast.stmt], orelse: list[ast.stmt], factor: float) -> None:
        """One of two blocks runs: what they agree on holds afterwards, or all of one that leaves no way on."""
        names, memory = dict(self.env), remember(self.env)
        on = self.maybe(body, factor)
        after, now = self.env, restore(memory)
        self.env = names
        on_otherwise = self.maybe(orelse, factor)
        if on and on_otherwise:
            merge(now)
            self.env = join_names(self.env, after)
        elif on:
            restore(now)
            self.env = after

    def maybe(self, body: list[ast.stmt], factor: float) -> bool:
        """Run statements that may not be reached, or whose errors may be caught; whether the program goes on behind them."""
        before, self.certainty = self.certainty, self.certainty * factor
        self.doubts += factor < 1.0
        try:
            self.block(body)
        except ProgramEnds:
            if factor == 1.0:
                raise
            return False
        except Return as result:
            if factor >= 0.9:
                raise
            self.returned.append(result.value)
            return False
        except Leaves as leaves:
            if factor == 1.0 and before < 1.0:
                raise
            self._left.append((leaves.again, dict(self.env), remember(self.env)))
            return False
        finally:
            self.certainty = before
        return True

    def s_Try(self, node: ast.Try) -> None:
        passed_on = bool(node.handlers) and all(isinstance(h.body[-1], ast.Raise) for h in node.handlers)
        names, memory = dict(self.env), remember(self.env)
        on = self.maybe(node.body, 0.0 if node.handlers and not passed_on else 1.0)
        if on:
            self.block(node.orelse)
        if not passed_on:
            self._handlers(node, names, memory, on)
        self.block(node.finalbody)

    def _handlers(self, node: ast.Try, names: dict[str, Any], memory: Any, on: bool) -> None:
        """Each handler may have run, after some of the body."""
        for handler in node.handlers:
            after, now = self.env, restore(memory)
            self.env = dict(names)
            if handler.name:
                self.env[handler.name] = UNKNOWN
            caught = self.maybe(handler.body, 0.0)
            if caught and on:
                merge(now)
                self.env = join_names(self.env, after)
            elif not caught:
                restore(now)
                self.env = after
            on = on or caught

    s_TryStar = s_Try

    def s_With(self, node: ast.With) -> None:
        for item in node.items:
            value = self.eval(item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value if isinstance(value, (Obj, Dict)) else UNKNOWN)
        self.block(node.body)

    def s_Match(self, node: ast.Match) -> None:
        self.eval(node.subject)
        for case in node.cases:
            self._either(case.body, [], 0.3)

    # ---- loops ------------------------------------------------------------------------------------------------------
    def s_For(self, node: ast.For) -> None:
        value = self.eval(node.iter)
        items = items_of(value)
        if items is not None and len(items) <= MAX_UNROLLED:
            self._unroll(node, items)
        else:
            self.assign(node.target, value.item if isinstance(value, Many) else UNKNOWN)
            self._repeat(node.body, self.rounds(value) if items is None else len(items))
        self.block(node.orelse)

    s_AsyncFor = s_For

    def _unroll(self, node: ast.For, items: list[Any]) -> None:
        outer, self._left = self._left, []
        breaks = any(isinstance(n, ast.Break) for s in node.body for n in ast.walk(s))
        try:
            for item in items:
                self.assign(node.target, item)
                doubts = self.doubts
                try:
                    self.block(node.body)
                except Leaves as leaves:
                    if not leaves.again:
                        return
                if self.doubts > doubts and breaks:
                    return  # it may have ended here
                self._join_left(again=True)
        finally:
            self._join_left()
            self._left = outer

    def _join_left(self, again: bool = False) -> None:
        """What holds here or where a `continue` (or, without `again`, a `break` too) may have come from."""
        for went_on, names, memory in self._left:
            if went_on or not again:
                merge(memory)
                self.env = join_names(self.env, names)
        self._left = [one for one in self._left if again and not one[0]]

    def _repeat(self, body: list[ast.stmt], count: int) -> None:
        """The body of a loop of `count` rounds, followed once: its fits and statements cost that many times as much."""
        fits, seconds, before = len(self.fits), self.python_s, dict(self.env)
        outer, self._left = self._left, []
        try:
            self.maybe(body, 0.9 if self.certainty == 1 else 1.0)
        except Leaves:
            pass
        finally:
            self._join_left()
            self._left = outer
        for name, value in self.env.items():  # counters and sums: what they are after one round says nothing
            if isinstance(value, Const) and name in before and before[name] != value and isinstance(before[name], Const):
                self.env[name] = UNKNOWN
        for fit in self.fits[fits:]:
            fit.times *= count
        self.python_s = seconds + count * (self.python_s - seconds + STATEMENT_S * len(body))

    def s_While(self, node: ast.While) -> None:
        endless = self._never_ends(node)
        if endless and self.certainty == 1:
            self.python_s += NEVER_S
            raise ProgramEnds
        if endless is None:
            self._either(node.body, [], 0.7)

    def _never_ends(self, node: ast.While, rounds: int = 200) -> bool | None:
        """Follow a `while` loop of which every decision is known.

        Returns:
            True if it comes back to a state it was in, so that it never ends; False if it has ended; None if it is not known,
            or there is a way out that cannot be followed. In that case names are what they were.
        """
        inside = [n for statement in node.body for n in ast.walk(statement)]
        leaves = any(isinstance(n, _LEAVES) or _is_exit(n) for n in inside)
        test = self.eval(node.test)
        if not isinstance(test, Const):
            return None
        if leaves:
            return None if test.value else False
        if isinstance(node.test, ast.Constant):
            return bool(test.value)
        names = {n.id for n in inside if isinstance(n, ast.Name)} | {
            n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)
        }
        before, fits, saved = dict(self.env), len(self.fits), len(self.saved)
        seen: set[tuple[Any, ...]] = set()
        for _ in range(rounds):
            if not test.value:
                return False
            state = tuple((n, self.env[n].value) for n in sorted(names) if isinstance(self.env.get(n), Const))
            if state in seen:
                return True
            seen.add(state)
            doubts = self.doubts
            self.block(node.body)
            test = self.eval(node.test)
            if self.doubts > doubts or not isinstance(test, Const):
                break
        self.env = before
        del self.fits[fits:], self.saved[saved:]
        return None

    def s_Break(self, node: ast.Break) -> None:
        raise Leaves(again=False)

    def s_Continue(self, node: ast.Continue) -> None:
        raise Leaves(again=True)


def _is_exit(node: ast.AST) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("exit", "quit", "_exit", "abort", "next")
