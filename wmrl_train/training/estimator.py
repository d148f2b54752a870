"""From a step's groups to what the learner is given: rewards, weighted advantages, samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wmrl_envs.correction import Corrector
from wmrl_train.config import Config
from wmrl_train.episodes.records import Group
from wmrl_train.learn.learner import Sample


def correct(
    groups: Sequence[Group], corrector: Corrector, config: Config, *, freeze: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted advantages C (m, n) of the m usable groups, such that the gradient is (1/n) sum C_ki grad log pi, and their
    rewards (m, n).

    Args:
        groups: of a step; those that failed only tell the rules that anchors were lost.
        corrector: holds the rule of fusion and its state.
        config: of the run.
        freeze: leave predicted groups out.
    """
    kept = [g for g in groups if g.failure is None]
    if not kept:
        return np.zeros((0, config.rollout.group_size)), np.zeros((0, config.rollout.group_size))
    mode, deferred = config.tasks.reward_mode, config.anchors.lag > 0
    anchored = np.array([g.plan.anchored for g in kept])
    predicted = np.array([g.scores("calibrated" if g.pairs() or not g.plan.anchored else "true", mode) for g in kept])
    known, executed, propensity = (np.array([marks(g) for g in kept]) for marks in (_known, _executed, _propensity))
    true = np.array([g.scores("true" if g.plan.anchored else "paid", mode) for g in kept])
    true = np.where(known | anchored[:, None], true, np.nan)
    advantages = corrector.advantages(
        predicted, true, anchored, tasks=[g.plan.task for g in kept], calibrated=predicted, known=known, executed=executed,
        propensity=None if deferred else propensity,
        lost=() if deferred else [g.plan.propensity for g in groups if g.failure is not None and g.plan.anchored],
        freeze=freeze,
    )  # fmt: skip
    rewards = np.where(np.isnan(true), predicted, true)
    if config.correction.scale == "std":
        advantages = advantages / (rewards.std(axis=1, ddof=1, keepdims=True) + 1e-6)
    return advantages, rewards


def samples(groups: Sequence[Group], advantages: np.ndarray) -> list[Sample]:
    """One sample a row; trajectories weigh 1/(m n), so an advantage (m, n) carries its group's anchor weight as a factor."""
    m = len(groups)
    found = []
    for group, row_of_advantages in zip(groups, advantages, strict=True):
        weight = 1 / (m * len(group.trajectories))
        for member, (trajectory, advantage) in enumerate(zip(group.trajectories, row_of_advantages, strict=True)):
            length = sum(row.n_sampled for row in trajectory.rows)
            origin = f"group {group.plan.id} ({group.plan.task}), member {member}"
            found += [Sample(row, float(advantage) * m, weight, length, origin) for row in trajectory.rows]
    return found


def episode_scores(group: Group, reward_mode: str) -> tuple[list[float], list[float]] | None:
    """(calibrated, true) scores of a group's executed episodes; None where each has one pair, which says the same."""
    members = group.trajectories
    if not group.plan.anchored:
        members = [t for t in members if any(turn.picked == "random" for turn in t.turns)]
    if len(group.pairs()) == sum(len(t.turns) for t in members) == len(members):
        return None
    truth = "true" if group.plan.anchored else "paid"
    return [t.score("calibrated", reward_mode) for t in members], [t.score(truth, reward_mode) for t in members]


def _known(group: Group) -> list[bool]:
    """Members of which a true score is known, in a group that is no anchor."""
    inside = not group.plan.anchored
    return [inside and any(turn.true is not None for turn in t.turns) for t in group.trajectories]


def _executed(group: Group) -> list[bool]:
    """Members of which this step executed a turn inside their group."""
    return [any(turn.picked is not None for turn in t.turns) for t in group.trajectories]


def _propensity(group: Group) -> list[float]:
    """The probability with which each member was to be executed."""
    picked = [next((turn.propensity for turn in t.turns if turn.picked is not None), None) for t in group.trajectories]
    return [group.plan.propensity if p is None else p for p in picked]
