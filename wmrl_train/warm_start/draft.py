"""`Draft`: a program while it is being written: its random choices, its imports, its lines."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from wmrl_train.agents.brief import Brief
from wmrl_train.warm_start.estimators import Estimator

Item = TypeVar("Item")


@dataclass
class Draft:
    """What the parts of the grammar share while they write one program.

    Attributes:
        fault: the mistake this program is to contain, or None.
        by_name: columns may be named (`'hour'`); otherwise only by position (`num[2]`), which works on any task.
    """

    brief: Brief
    rng: random.Random
    fault: str | None
    by_name: bool
    estimator: Estimator = field(init=False)
    imports: dict[str, set[str]] = field(default_factory=dict)
    body: list[str] = field(default_factory=list)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def choose(self, items: Sequence[Item]) -> Item:
        return self.rng.choice(items)

    def call(self, module: str, name: str, **keywords: Any) -> str:
        """`name(k=v, ...)` with its import from `sklearn.<module>` noted; values are written as they are."""
        self.imports.setdefault(module, set()).add(name)
        return f"{name}({', '.join(f'{k}={v}' for k, v in keywords.items())})"

    def column(self, kind: str, index: int) -> str:
        """An expression for the index-th column of a kind: `'hour'` or `num[2]`."""
        return f"'{getattr(self.brief, kind)[index]}'" if self.by_name and self.chance(0.6) else f"{kind}[{index}]"

    @property
    def needs_dense(self) -> bool:
        """Whether this program takes care to give its estimator dense input (the fault `sparse` forgets to)."""
        return self.estimator.dense and self.fault != "sparse"
