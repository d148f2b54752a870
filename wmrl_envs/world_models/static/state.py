"""What is known while a program is followed: its names, the rows behind the data, what was found so far. The rules stand on
this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wmrl_envs.context import TaskContext
from wmrl_envs.world_models.static.index.api import ApiIndex
from wmrl_envs.world_models.static.rules.table import RULES, finding
from wmrl_envs.world_models.static.values import Const, Data, Dict, Finding, Fit, Func, Instance, Obj, ProgramEnds, Rows, Seq


class State:
    """One program under review.

    Attributes:
        env: the names of the scope that is followed.
        rows: tag -> number of rows, see `Data.rows`.
        findings: what was predicted to fail, in order.
        fits: the calls of `fit`, in order.
        saved: the submissions written, in order.
        line: where the analysis is.
        certainty: P(the line is reached and its errors are not caught).
        doubts: statements so far of which it is not known whether they run.
        python_s: CPU seconds spent in loops.
        written: files the program has written.
        opened_to_write: a file was opened to write, by a path that may be any.
        targets: what the scaffold calls `y`, if it is there.
    """

    def __init__(self, context: TaskContext, index: ApiIndex, names: Mapping[str, Any], rows: Mapping[str, int]):
        self.context, self.index = context, index
        self.env: dict[str, Any] = dict(names)
        self.rows: dict[str, int] = dict(rows)
        self.findings: list[Finding] = []
        self.fits: list[Fit] = []
        self.saved: list[Any] = []
        self.line, self.certainty = 1, 1.0
        self.doubts = 0
        self.python_s = 0.0
        self.written: set[str] = set()
        self.opened_to_write = False
        self.made: list[Obj] = []  # estimators and the like, in order
        self.folded = False  # a splitter was asked for folds
        self.pandas_output = False  # transformers may give frames
        self.targets: Data | None = names.get("y") if isinstance(names.get("y"), Data) else None

    def report(self, rule: str, error: str | None = None, **values: Any) -> None:
        """Note a failure at the current line; one that is certain ends the program.

        Raises:
            ProgramEnds: the rule is sure and so is it that the line is reached.
        """
        if self.certainty <= 0:
            return
        self.findings.append(finding(rule, self.line, error, self.certainty, **values))
        if self.certainty == 1 and RULES[rule].confidence >= 0.9:
            raise ProgramEnds

    def count(self, tag: str | None) -> int | None:
        """The number of rows behind a tag, if it is known."""
        parts = [self.rows.get(t) for t in tag.split("+")] if tag else [None]
        return sum(p for p in parts if p is not None) if all(p is not None for p in parts) else None

    def shown(self, tag: str | None) -> int | str:
        """The same for a message."""
        n = self.count(tag)
        return "?" if n is None else n

    def tag_of(self, n: int) -> str:
        """A tag for a known number of rows."""
        self.rows[f"#{n}"] = n
        return f"#{n}"

    def plain(self, value: Any) -> Any:
        """The number of rows of known data as a number; any other value as it is."""
        n = self.count(value.tag) if isinstance(value, Rows) else None
        return value if n is None else Const(n)

    def method(self, owner: Instance, name: str, args: list[Any]) -> Any:
        """What a method of an object of the program gives; UNKNOWN if it has none of that name."""
        raise NotImplementedError

    def inline(self, function: Func, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What a function of the program itself gives for these arguments; the interpreter knows how."""
        raise NotImplementedError


def items_of(value: Any) -> list[Any] | None:
    """What iterating over a value gives, if known. Iterating over a frame gives its column names."""
    if isinstance(value, Seq):
        return list(value.items) if value.sure else None
    if isinstance(value, Dict):
        return None if value.open else [Const(k) for k in value.items]
    if isinstance(value, Data) and value.kind == "frame" and value.columns is not None and not value.open:
        return [Const(c) for c in value.columns]
    return None
