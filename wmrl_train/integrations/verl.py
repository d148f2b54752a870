"""WMRL inside verl: an advantage estimator that weighs anchor groups.

verl hands an estimator the token rewards, the response mask and the group ids, nothing else; so the anchor flag travels in the
id (`group_id`). Put calibrated or true scores in the rewards (a reward manager's business) and set
`algorithm.adv_estimator=wmrl` after `register(rho)`. The estimator is tested as a function; verl itself was not run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, tensor

from wmrl_envs.errors import InvalidInput
from wmrl_train.learn import grpo

ANCHOR = "#anchor"


def group_id(name: str, anchored: bool) -> str:
    """A group id that carries the anchor flag."""
    return f"{name}{ANCHOR}" if anchored else name


def fused_advantages(
    token_level_rewards: Tensor, response_mask: Tensor, index: Sequence[str], rho: float
) -> tuple[Tensor, Tensor]:
    """(advantages, returns), both (B, T): mean-centred by group, times B times the trajectory's fusion weight (1 on average).

    Args:
        token_level_rewards: (B, T); a trajectory's reward is their sum.
        response_mask: (B, T), 1 on the tokens of the answer.
        index: B group ids made by `group_id`.
        rho: anchor weight.
    """
    ids = {name: i for i, name in enumerate(dict.fromkeys(map(str, index)))}
    groups = tensor([ids[str(name)] for name in index], device=token_level_rewards.device)
    anchored = tensor([str(name).endswith(ANCHOR) for name in index], device=token_level_rewards.device)
    rewards = token_level_rewards.sum(-1)
    weights = grpo.fusion_weights(anchored, groups, rho).to(rewards.dtype) * len(rewards)
    advantages = (grpo.group_advantages(rewards, groups) * weights)[:, None] * response_mask
    return advantages, advantages


def register(rho: Callable[[], float], name: str = "wmrl") -> None:
    """Register the estimator with verl; `rho` is asked at every step (such as `lambda: corrector.rho`)."""
    try:
        from verl.trainer.ppo.core_algos import register_adv_est
    except ImportError:
        raise InvalidInput(
            "register() needs verl, which is not installed here: call it in the environment verl runs in."
        ) from None

    @register_adv_est(name)
    def estimator(token_level_rewards: Tensor, response_mask: Tensor, index: Any, **_: Any) -> tuple[Tensor, Tensor]:
        return fused_advantages(token_level_rewards, response_mask, index, rho())
