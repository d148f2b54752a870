"""`RobotRoller`: rolls out groups of robot episodes for the one Trainer.

Every episode is simulated to its end. A reward model then scores all of them at once (or there is none, and every group is an
anchor); what the simulator says of success is the true score of the anchor groups and stays unused in the others.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from wmrl_envs.anchoring.graded import Graded
from wmrl_envs.anchoring.rewards import Finished, RewardOracle
from wmrl_envs.correction import Corrector
from wmrl_envs.world_models.protocols import RewardModel
from wmrl_train.agents.vla.play import Played, Simulators, Start, play
from wmrl_train.agents.vla.policy import VLAPolicy
from wmrl_train.config import Config
from wmrl_train.episodes.lanes import Busy, Lane
from wmrl_train.episodes.records import Group, GroupPlan, Row, Trajectory, Turn
from wmrl_train.episodes.seeds import seed_of

log = logging.getLogger(__name__)


class RobotRoller:
    """Rolls groups out, each from one initial state.

    Args:
        policy: who acts.
        simulators: where.
        reward_model: scores finished episodes; None if every group is an anchor.
        starts: task -> numbers of its initial states. Groups go through them in shuffled passes.
        config: of the run. corrector: calibrates the scores.
    """

    def __init__(
        self,
        policy: VLAPolicy,
        simulators: Simulators,
        reward_model: RewardModel | None,
        starts: Mapping[str, Sequence[int]],
        config: Config,
        corrector: Corrector,
    ):
        self._policy, self._simulators, self._starts = policy, simulators, starts
        self._seed, self._rollout = config.run.seed, config.rollout
        self.busy = Busy()
        self.generation = Lane("generate", 1, cpu="process", together=self.busy)
        self.prediction = Lane("predict", 1, cpu="process", together=self.busy)
        self.execution = simulators.lane
        self.execution.share(self.busy)
        self._oracle = RewardOracle(reward_model, corrector, retries=config.rollout.retries, prediction=self.prediction)

    def collect(self, plans: Sequence[GroupPlan]) -> list[Group]:
        """Roll groups out and wait for them; in the order of `plans`."""
        n, version = self._rollout.group_size, self._policy.version
        at = [start_at(self._starts[plan.task], self._seed, plan.id) for plan in plans]
        starts = [
            Start(plan.task, index, seed_of(plan.seed, member))
            for plan, index in zip(plans, at, strict=True)
            for member in range(n)
        ]
        look = partial(self.generation.run, self._policy.act)
        played = play(
            self._policy,
            self._simulators,
            starts,
            temperature=self._rollout.temperature,
            retries=self._rollout.retries,
            look=look,
        )
        groups = [Group(plan, start=index) for plan, index in zip(plans, at, strict=True)]
        members = {group.plan.id: played[i * n : (i + 1) * n] for i, group in enumerate(groups)}
        for group in groups:
            why = next((p.lost for p in members[group.plan.id] if p.lost is not None), None)
            group.failure = None if why is None else f"simulation failed: {why}"
        self._grade([group for group in groups if group.failure is None], members, version)
        for group in groups:
            if group.failure is not None:
                log.warning("Group %d (%s) was dropped: %s", group.plan.id, group.plan.task, group.failure)
        return groups

    def execute(self, chosen: Sequence[tuple[Group, Turn]]) -> None:
        """Let the simulator's success of these episodes count: it is known already."""
        for _, turn in chosen:
            turn.true = turn.raw_score

    def close(self) -> None:
        """End the lanes and the simulators."""
        self._oracle.closing = True
        self.generation.close()
        self.prediction.close()
        self._simulators.close()

    def _grade(self, groups: Sequence[Group], members: Mapping[int, Sequence[Played]], version: int) -> None:
        """Score the episodes and record them. Of a step without a word of the reward model only the anchors are left."""
        finished = [
            Finished(p.episode(), float(p.success) if group.plan.anchored else None, group.plan.id)
            for group in groups
            for p in members[group.plan.id]
        ]
        graded = iter(self._oracle.grade(finished))
        for group in groups:
            for p in members[group.plan.id]:
                one = next(graded)
                if one.failed is not None:
                    group.failure = group.failure or f"prediction failed: {one.failed}"
                group.trajectories.append(trajectory(p, one, version))


def trajectory(played: Played, graded: Graded, version: int = 0) -> Trajectory:
    """The record of an episode: a row of action codes a look, and one turn, the episode itself."""
    rows = [
        Row(codes.tolist(), [True] * len(codes), logprobs.tolist(), context=seen)
        for seen, codes, logprobs in zip(played.seen, played.codes, played.logprobs, strict=False)
    ]
    turn = Turn(
        "", predicted=graded.predicted, calibrated=graded.calibrated, true=graded.true, version=version,
        predicted_status=None if graded.predicted is None else "ok", status="ok", raw_score=float(played.success),
        feedback=f"{'success' if played.success else 'no success'} after {played.steps} steps from start {played.start.index}",
        completion_tokens=sum(row.n_sampled for row in rows), finish="stop" if played.success else "length",
        execution_s=played.wall_s, steps=played.steps,
    )  # fmt: skip
    return Trajectory(rows, [turn])


def start_at(starts: Sequence[int], seed: int, position: int) -> int:
    """The initial state at a position of an endless sequence of shuffled passes over `starts`.

    >>> sorted(start_at([3, 5, 8], 0, i) for i in range(3))
    [3, 5, 8]
    """
    epoch, at = divmod(position, len(starts))
    return int(starts[int(np.random.default_rng(seed_of(seed, 4, epoch)).permutation(len(starts))[at])])
