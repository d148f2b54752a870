"""`RobotLearner`: the one learner on a robot's rows, whose tokens are the action codes of a look and whose prompt is what was
seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from wmrl_train.agents.vla.policy import VLAPolicy
from wmrl_train.config import Config
from wmrl_train.episodes.records import Row
from wmrl_train.learn.learner import Learner, Sample, token_stats
from wmrl_train.learn.packing import Pack


class RobotLearner(Learner):
    """A `Learner` of a `VLAPolicy`'s network: same losses, corrections of the sampler, KL, entropy, schedules and guard.

    Args:
        policy: trained in place.
        config: of the run.
    """

    def __init__(self, policy: VLAPolicy, config: Config):
        self._vla = policy
        self._lengths: dict[str, int] = {}  # instruction -> tokens of a look
        looks = -(-config.libero.max_steps // policy.execute_horizon)
        super().__init__(
            policy.model,
            config.optim,
            temperature=config.rollout.temperature,
            horizon=looks * policy.model.config.groups,
        )

    def update(self, samples: Sequence[Sample]) -> dict[str, float]:
        """As `Learner.update`. Without KL and entropy the rows of a group without spread teach nothing: they are not
        computed.
        """
        if self.config.kl_coef == 0 and self.config.entropy_coef == 0:
            samples = [s for s in samples if s.advantage != 0]
        return super().update(samples)

    # -- what is computed ----------------------------------------------------------------------------------------------
    def _look_at(self, model: Any) -> None:
        """Nothing to find out: codes have a head of their own."""

    def _packs(self, rows: Sequence[Row]) -> list[Pack]:
        """Every look by itself: no two have the same picture."""
        return [Pack([i], 0, self._length(row)) for i, row in enumerate(rows)]

    def _inputs(self, rows: Sequence[Row]) -> Any:
        return self._vla.inputs([row.context for row in rows])

    def _forward(self, model: Any, batch: Any) -> tuple[Tensor, Tensor]:
        pictures, prompts, state = batch.inputs
        logits = model(pictures, prompts, batch.targets.view(len(prompts), -1), state)
        return token_stats(logits.flatten(0, 1), batch.targets, self.temperature)

    def _length(self, row: Row) -> int:
        instruction = row.context["instruction"]
        if instruction not in self._lengths:
            sizes = self._vla.model.config
            self._lengths[instruction] = (
                sizes.dino.patches + len(self._vla.prompt(instruction)) + bool(sizes.proprioception) + sizes.groups
            )
        return self._lengths[instruction]
