"""`AnchorSchedule`: which groups are executed for real, decided before their rollout, at random, with recorded propensity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wmrl_envs.correction.scores import per_pair
from wmrl_envs.errors import InvalidInput

_MAX_FRACTION = 0.5  # ceiling of the raised fraction
_MOST_AHEAD = 4096  # decisions
_LEAST_SHARE = 0.1  # of the fraction: the least propensity after anchors were drawn ahead


class AnchorSchedule:
    """Draws the anchor groups of a batch.

    The fraction is exact in the long run: what a batch rounds away is carried to the next. `min_groups` groups of
    every batch are anchored whatever the fraction (the excess is made up for, as far as one batch's minimum).

    Args:
        fraction: share of groups to anchor, in [0, 1].
        min_groups: anchors a batch at least.
        seed: of its own random stream.
        stratify: spread the anchors of a batch over its tasks.
        adaptive: half of the propensity stays uniform, half follows `priority` (default: tasks with few anchors so
            far); `adapt` may raise the fraction.

    >>> schedule = AnchorSchedule(fraction=0.125, seed=1)
    >>> mask, propensity = schedule.draw(8)
    >>> int(mask.sum()), propensity.tolist() == [0.125] * 8
    (1, True)
    """

    def __init__(
        self, fraction: float = 0.125, min_groups: int = 1, seed: int = 0, *, stratify: bool = False, adaptive: bool = False
    ):
        if not isinstance(fraction, (int, float, np.number)) or not 0 <= fraction <= 1:
            raise InvalidInput(f"anchor fraction {fraction!r}: expected a number in [0, 1].")
        if isinstance(min_groups, bool) or not isinstance(min_groups, (int, np.integer)) or min_groups < 0:
            raise InvalidInput(f"min_groups={min_groups!r}: expected a whole number of at least 0.")
        self.base_fraction, self.fraction, self.min_groups = float(fraction), float(fraction), int(min_groups)
        self.stratify, self.adaptive = stratify, adaptive
        self._rng = np.random.default_rng(seed)
        self._credit = 0.0  # anchors owed (or, below 0, drawn ahead)
        self._ahead: list[tuple[bool, float]] = []  # decisions drawn ahead for groups that come one by one
        self._drawn: dict[Any, int] = {}  # task -> anchors so far

    def draw(
        self,
        n_groups: int,
        tasks: Sequence[Any] | None = None,
        *,
        min_groups: int | None = None,
        priority: Any = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Decide for `n_groups` groups.

        Args:
            n_groups: number of groups in the batch.
            tasks: task of each group, for `stratify` and `adaptive`.
            min_groups: overrides the minimum for this batch.
            priority: weights of at least 0, one a group, used when `adaptive`.

        Returns:
            (anchored, propensity), both of shape (n_groups,). The propensity is the probability with
            which each group was drawn.
        """
        if tasks is not None:
            if len(tasks) != n_groups:
                raise InvalidInput(f"{len(tasks)} tasks for {n_groups} groups: expected one a group.")
            tasks = per_pair(tasks, (n_groups,))  # plain labels, also from an array: they go into the state
        for name, value in (("n_groups", n_groups), ("min_groups", self.min_groups if min_groups is None else min_groups)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
                raise InvalidInput(f"{name}={value!r}: expected a whole number of at least 0.")
        if n_groups == 0:
            return np.zeros(0, dtype=bool), np.zeros(0)
        least = min(self.min_groups if min_groups is None else min_groups, n_groups)
        if n_groups == 1:
            mask, propensity = self._draw_one(bool(least))
        else:
            mask, propensity = self._draw_batch(n_groups, least, tasks, priority)
        for task, anchored in zip(tasks or (), mask, strict=tasks is not None):
            self._drawn[task] = self._drawn.get(task, 0) + int(anchored)
        return mask, propensity

    def _draw_one(self, forced: bool) -> tuple[np.ndarray, np.ndarray]:
        """A group on its own takes the next decision of a block drawn ahead, so that it stays random at an exact fraction.

        One that has to be an anchor takes an anchor away from those that come after it: the minimum is not paid on top.
        """
        if not self._ahead:
            self._draw_ahead()
        if not forced:
            anchored, propensity_of_it = self._ahead.pop() if self._ahead else (False, 0.0)
            return np.array([anchored]), np.array([propensity_of_it])
        owed = [i for i, (anchored, _) in enumerate(self._ahead) if anchored]
        if not owed and len(self._ahead) < _MOST_AHEAD:
            self._draw_ahead()
            owed = [i for i, (anchored, _) in enumerate(self._ahead) if anchored]
        if owed:
            del self._ahead[owed[int(self._rng.integers(len(owed)))]]
        else:
            self._credit = max(self._credit - 1, -1.0)
        return np.ones(1, dtype=bool), np.ones(1)

    def _draw_ahead(self) -> None:
        """Another block of decisions, to be taken after those that are there."""
        if self.fraction:
            mask, propensity = self._draw_batch(min(int(np.ceil(2 / self.fraction)), 1024), 0, None, None)
            self._ahead = [*zip(mask.tolist(), propensity.tolist(), strict=True), *self._ahead]

    def _draw_batch(
        self, n_groups: int, least: int, tasks: Sequence[Any] | None, priority: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        self._credit += self.fraction * n_groups
        owed = max(self._credit, _LEAST_SHARE * self.fraction * n_groups)  # never 0: any group might have been anchored
        expected = float(np.clip(owed, least, n_groups))
        propensity = self._propensities(n_groups, expected, tasks, priority)
        order = self._rng.permutation(n_groups)
        if self.stratify and tasks is not None:  # neighbours share a task, so evenly spaced picks spread over tasks
            rank = {task: i for i, task in enumerate(self._rng.permutation(list(dict.fromkeys(map(repr, tasks)))))}
            order = order[np.argsort([rank[repr(tasks[i])] for i in order], kind="stable")]
        # Systematic sampling: picks where the running sum of propensities crosses u, u + 1, u + 2, ...; it draws each
        # group with exactly its propensity, and the count is the expected one, rounded up or down at random.
        edges = np.concatenate([[0.0], np.cumsum(propensity[order])])
        edges[-1] = round(edges[-1], 9)
        crossed = np.floor(edges + self._rng.random())
        mask = np.zeros(n_groups, dtype=bool)
        mask[order[np.diff(crossed) > 0]] = True
        self._credit -= float(mask.sum())
        if owed < least:  # a minimum above the fraction would pile up a debt that later batches could never repay
            self._credit = max(self._credit, -float(least))
        return mask, propensity

    def _propensities(self, n: int, expected: float, tasks: Sequence[Any] | None, priority: Any) -> np.ndarray:
        uniform = np.full(n, expected / n)
        if not self.adaptive or (priority is None and tasks is None):
            return uniform
        if priority is None:
            priority = [1.0 / (1 + self._drawn.get(task, 0)) for task in tasks or ()]
        weights = np.asarray(priority, dtype=float)
        if weights.shape != (n,) or not np.isfinite(weights).all() or (weights < 0).any() or weights.sum() == 0:
            raise InvalidInput(f"priority={priority!r}: expected {n} finite weights of at least 0, not all 0.")
        skewed = uniform / 2 + expected / 2 * weights / weights.sum()
        for _ in range(n):  # a propensity above 1 gives its excess to the others
            excess = float(np.maximum(skewed - 1, 0).sum())
            if excess < 1e-12:
                break
            skewed = np.minimum(skewed, 1)
            free = skewed < 1
            skewed[free] += excess * skewed[free] / skewed[free].sum()
        return np.minimum(skewed, 1)

    def adapt(self, alarmed: bool) -> None:
        """With `adaptive`: double the fraction (to at most one half) on an alarm, let it decay to its base without one."""
        if self.adaptive:
            ceiling = max(_MAX_FRACTION, self.base_fraction)
            self.fraction = min(2 * self.fraction, ceiling) if alarmed else max(self.base_fraction, 0.9 * self.fraction)

    def reseed(self, seed: int) -> None:
        """Start the random stream over; what is owed and the raised fraction are forgotten."""
        self._rng, self._credit, self.fraction = np.random.default_rng(seed), 0.0, self.base_fraction
        self._ahead = []

    def state_dict(self) -> dict[str, Any]:
        return {"fraction": self.fraction, "credit": self._credit, "ahead": [list(x) for x in self._ahead],
        "drawn": [list(item) for item in self._drawn.items()],
                "rng": self._rng.bit_generator.state}  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.fraction, self._credit = state["fraction"], state["credit"]
        self._ahead = [(anchored, propensity) for anchored, propensity in state["ahead"]]
        self._drawn = dict(state["drawn"])
        self._rng.bit_generator.state = state["rng"]
