"""WMRL inside TRL's `GRPOTrainer`, through its public hooks alone: two reward functions that share a corrector.

With `scale_rewards="none"` TRL's advantage is the reward minus its group's mean, so a reward multiplied by a constant of its
group is an advantage multiplied by it. Both functions return scores times m w_k (m groups, w_k the group's weight of Equation
5): the loss then has the fused gradient, as long as it averages over trajectories (`loss_type="grpo"` or `"dr_grpo"`, `beta=0`;
"dapo" divides by the tokens of the batch, which differs where lengths do).

    rewards = WmrlRewards(make_env, world_model, corrector, schedule, group_size=8)
    GRPOTrainer(reward_funcs=[rewards.executed, rewards.predicted], args=GRPOConfig(scale_rewards="none", ...), ...)

The data set needs a column `task`. One process; TRL calls the functions in this order with whole, contiguous groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wmrl_envs.anchoring.outcomes import Asked, OutcomeOracle
from wmrl_envs.correction import AnchorSchedule, Corrector
from wmrl_envs.envs.executable import ExecutableEnv
from wmrl_envs.errors import InvalidInput
from wmrl_envs.world_models.protocols import OutcomeModel


class WmrlRewards:
    """Scores completions as first turns of an executable environment.

    Args:
        make_env: task -> environment.
        world_model: predicts every completion.
        corrector, schedule: shared state; save their `state_dict()` with your checkpoints.
        group_size: TRL's `num_generations`.
        act: the action in a completion's text (default: the text).
    """

    def __init__(
        self,
        make_env: Callable[[str], ExecutableEnv],
        world_model: OutcomeModel,
        corrector: Corrector,
        schedule: AnchorSchedule,
        *,
        group_size: int,
        act: Callable[[str], str] = str,
    ):
        corrector.require_weights("WmrlRewards")
        self.corrector, self.schedule = corrector, schedule
        self.oracle = OutcomeOracle(world_model, corrector)
        self._make_env, self._n, self._act = make_env, group_size, act
        self._envs: dict[str, ExecutableEnv] = {}
        self._predicted: list[float | None] = []
        self._groups = 0
        self.__name__ = "wmrl"

    def executed(self, prompts: Sequence[Any], completions: Sequence[Any], task: Sequence[str], **_: Any) -> list[float | None]:
        """Weighted true scores of the anchor groups; None elsewhere. Decides the anchors and predicts everything first.

        A group that fails for reasons of ours gets equal rewards, hence no gradient, and enters no pool.
        """
        n = self._n
        if len(completions) % n:
            raise InvalidInput(
                f"{len(completions)} completions are no whole number of groups of {n}: set group_size to num_generations."
            )
        tasks = [task[i] for i in range(0, len(task), n)]
        anchored = self.schedule.draw(len(tasks), tasks)[0]
        asked = []
        for i, (name, completion) in enumerate(zip(task, completions, strict=True)):
            env = self._env(name)
            env.reset(seed=0)
            solution = env.propose(self._act(_text(completion)))
            asked.append(Asked(solution, env.context(), env.execute, bool(anchored[i // n]), self._groups + i // n))
        graded = self.oracle.grade(asked)
        lost = {g.group for g in graded if g.failed is not None}
        paid = np.array([0.0 if g.group in lost else g.score or 0.0 for g in graded])
        paid *= (self.corrector.weights(anchored) * len(tasks)).repeat(n)
        self.oracle.learn([g for g in graded if g.group not in lost])
        self._groups += len(tasks)
        mask = anchored.repeat(n)
        self._predicted = _masked(paid, ~mask)
        return _masked(paid, mask)

    def predicted(self, prompts: Sequence[Any], completions: Sequence[Any], **_: Any) -> list[float | None]:
        """Weighted calibrated scores of the other groups; None on anchors. Belongs to the last call of `executed`."""
        if len(self._predicted) != len(completions):
            raise InvalidInput(
                "predicted() needs a call of executed() for the same batch first: reward_funcs=[r.executed, r.predicted]."
            )
        made, self._predicted = self._predicted, []
        return made

    def _env(self, task: str) -> ExecutableEnv:
        if task not in self._envs:
            self._envs[task] = self._make_env(task)
        return self._envs[task]


def _masked(values: np.ndarray, mask: np.ndarray) -> list[float | None]:
    return [float(v) if m else None for v, m in zip(values, mask, strict=True)]


def _text(completion: Any) -> str:
    """The text of a completion, plain or conversational."""
    return completion if isinstance(completion, str) else str(completion[-1]["content"])
