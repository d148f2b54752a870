"""What is executed once a step's groups are finished and every prediction is known: anchor groups, or members inside groups.

`anchors.when: after` rolls all groups out in the world model and then executes the anchor groups; `anchors.place: members` and
`favourites` execute some members of every group, of each the turn its predictions like best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wmrl_envs.correction.placement import pick
from wmrl_envs.errors import InvalidInput
from wmrl_train.config import Config
from wmrl_train.episodes.records import Group, GroupPlan, Trajectory, Turn
from wmrl_train.episodes.seeds import seed_of
from wmrl_train.training.parts import Executing


class Afterwards:
    """Chooses and executes.

    Args:
        config: the resolved configuration.
        roller: has finished the groups.
    """

    def __init__(self, config: Config, roller: object):
        self.config, self.anchors = config, config.anchors
        self.inside = self.anchors.place != "groups"
        self.active = self.inside or self.anchors.when == "after"
        if self.active and not isinstance(roller, Executing):
            raise InvalidInput(
                f"anchors.place={self.anchors.place!r}, anchors.when={self.anchors.when!r}: {type(roller).__name__} cannot "
                "execute what it has rolled out; set place to groups and when to during."
            )
        if self.active and self.anchors.lag:
            raise InvalidInput(
                f"anchors.lag={self.anchors.lag} with anchors.place={self.anchors.place!r}, "
                f"anchors.when={self.anchors.when!r}: what is executed after the rollout belongs to its step; set lag to 0."
            )
        self._roller = roller
        share = self.anchors.fraction * config.rollout.group_size  # members a group
        self._always = int(share + 1e-9)
        #: Share of the groups that `schedule` draws: anchors, or groups with one member more than the others.
        self.drawn_fraction = max(share - self._always, 0.0) if self.inside else self.anchors.fraction

    def plans(self, plans: Sequence[GroupPlan]) -> list[GroupPlan]:
        """As the roller is told: nothing is executed during the rollout."""
        return [replace(plan, anchored=False) for plan in plans] if self.active else list(plans)

    def execute(self, groups: Sequence[Group], plans: Sequence[GroupPlan]) -> None:
        """Execute what is to be executed of the finished groups; `plans`: what was drawn for them."""
        if not self.active:
            return
        assert isinstance(self._roller, Executing)
        drawn = {plan.id: plan for plan in plans}
        usable = [group for group in groups if group.failure is None]
        if self.inside:
            self._roller.execute(self._picked(usable, drawn))
            return
        for group in groups:
            group.plan = drawn[group.plan.id]
        anchors = [group for group in usable if group.plan.anchored]
        turns = [(g, turn) for g in anchors for t in g.trajectories for turn in t.turns if turn.problem is None]
        for group in anchors:
            for trajectory in group.trajectories:
                for turn in trajectory.turns:
                    turn.remembered = False
                    if turn.problem is not None:
                        turn.true = 0.0
        self._roller.execute(turns)

    def _picked(self, groups: Sequence[Group], drawn: dict[int, GroupPlan]) -> list[tuple[Group, Turn]]:
        """The best turn of each member that is executed."""
        n = self.config.rollout.group_size
        best = [[_best_turn(trajectory) for trajectory in group.trajectories] for group in groups]
        liked = np.array([[0.0 if t is None else float(t.calibrated or 0.0) for t in row] for row in best]).reshape(-1, n)
        fresh = np.array([[t is not None and t.true is None for t in row] for row in best], dtype=bool).reshape(-1, n)
        plans = [drawn[group.plan.id] for group in groups]
        count = np.array([self._always + int(plan.anchored) for plan in plans], dtype=int)
        step = plans[0].step if plans else 0
        rng = np.random.default_rng(seed_of(self.config.run.seed, 4, step))
        place = self.anchors.place
        picks = pick(liked, fresh, count, place, self.anchors.random_share, rng) if groups else None
        chosen = []
        for k, group in enumerate(groups):
            for i, turn in enumerate(best[k]):
                if picks is not None and turn is not None and picks.executed[k, i]:
                    turn.picked = "random" if picks.random[k, i] else "favourite"
                    extra = 1.0 if self._always else plans[k].propensity  # without it the group would have executed nothing
                    turn.propensity = float(picks.propensity[k, i]) * extra
                    chosen.append((group, turn))
        return chosen


def _best_turn(trajectory: Trajectory) -> Turn | None:
    """The turn with the highest prediction of those with something to execute; the first of equals."""
    written = [turn for turn in trajectory.turns if turn.problem is None and (turn.code or turn.steps)]
    return max(written, key=lambda turn: float(turn.calibrated or 0.0)) if written else None
