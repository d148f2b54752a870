"""GRPO as pure functions of tensors. Shapes: B trajectories, T positions, G groups.

The paper's estimator (Equation 1) is `g = (1/m) sum_k (1/n) sum_i (r_i - mean_k r) s_i` with `s_i` the sum of the score
functions of trajectory i's tokens. Where the two corrections enter: debiasing changes the rewards, denoising the
weight of a trajectory, so that any of the losses below can carry both.

Signs: everything returned is a *loss* or a divergence to be minimised.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Loss = Literal["grpo", "dr_grpo", "dapo", "cispo", "nll"]


def group_advantages(rewards: Tensor, groups: Tensor, *, scale: Literal["none", "std"] = "none", eps: float = 1e-6) -> Tensor:
    """Rewards (B,) minus the mean of their group (ids in `groups` (B,)); with `scale="std"` divided by its standard deviation.

    The standard deviation is the sample's (n - 1) plus `eps`, so a group of equal rewards has advantages of 0.

    >>> group_advantages(torch.tensor([1.0, 0.0, 0.5, 0.5]), torch.tensor([7, 7, 3, 3]))
    tensor([ 0.5000, -0.5000,  0.0000,  0.0000])
    """
    _, index, count = torch.unique(groups, return_inverse=True, return_counts=True)
    zeros = torch.zeros(len(count), dtype=rewards.dtype, device=rewards.device)
    centred = rewards - (zeros.index_add(0, index, rewards) / count)[index]
    if scale == "none":
        return centred
    variance = zeros.index_add(0, index, centred**2) / (count - 1).clamp(min=1)
    return centred / (variance.sqrt() + eps)[index]


def fusion_weights(is_anchor: Tensor, groups: Tensor, rho: float) -> Tensor:
    """Weight of each trajectory (B,) under Equation 5: `rho / (rho |G_E| + |G_WM|) / n` in an anchor group, `1 / (...) / n`
    elsewhere.

    The weights sum to 1; with rho = 1 and equal groups each is 1/B.
    """
    _, index, size = torch.unique(groups, return_inverse=True, return_counts=True)
    group_weight = torch.ones(len(size), dtype=torch.get_default_dtype(), device=groups.device)
    group_weight[index[is_anchor.bool()]] = rho
    return (group_weight / group_weight.sum() / size)[index]


def truncated_importance_weights(logprobs: Tensor, behaviour: Tensor, cap: float) -> Tensor:
    """`min(pi / mu, cap)` a token, detached: corrects samples of an older policy or another kernel with bounded variance."""
    return torch.exp(logprobs.detach() - behaviour).clamp(max=cap)


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Per-token estimate of KL(pi || reference) on samples of pi: `exp(d) - d - 1` with `d = reference - logprobs` (never
    negative).
    """
    delta = reference - logprobs
    return torch.expm1(delta) - delta


def entropy(logits: Tensor) -> Tensor:
    """Entropy in nats of the distributions with these logits (..., V) -> (...)."""
    logprobs = torch.log_softmax(logits, dim=-1)
    return -(logprobs.exp() * logprobs).sum(-1)


def policy_objective(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    kind: Loss = "grpo",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    importance: Tensor | None = None,
) -> Tensor:
    """Per-token loss (B, T) of log-probabilities (B, T), those before the update (B, T) and advantages (B,).

    grpo, dr_grpo, dapo: `-min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A)` (they differ in `aggregate`).
    cispo: `-sg(min(rho, 1 + clip_high)) A log pi`: a clipped token keeps its gradient.
    nll: `-A log pi`: with A = 1 the cross-entropy of supervised fine-tuning.
    `importance` (B, T) multiplies the result (truncated importance weights).
    """
    ratio = torch.exp(logprobs - old_logprobs)
    advantage = advantages.unsqueeze(-1)
    if kind == "nll":
        loss = -advantage * logprobs
    elif kind == "cispo":
        loss = -ratio.detach().clamp(max=1 + clip_high) * advantage * logprobs
    else:
        loss = -torch.minimum(ratio * advantage, ratio.clamp(1 - clip_low, 1 + clip_high) * advantage)
    return loss if importance is None else loss * importance


def clipped(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """Boolean (B, T): tokens whose gradient the clipping removes."""
    ratio = torch.exp(logprobs - old_logprobs)
    advantage = advantages.unsqueeze(-1)
    return ((ratio > 1 + clip_high) & (advantage > 0)) | ((ratio < 1 - clip_low) & (advantage < 0))


def token_weights(
    mask: Tensor, weights: Tensor, *, kind: Loss, lengths: Tensor | None = None, horizon: int | None = None
) -> Tensor:
    """Weight of each token (B, T), so that a batch's loss is `(per_token * token_weights).sum()`, however it is split.

    `weights` (B,) sum to 1 over the whole batch. With `L_i` the tokens of trajectory i (`lengths`, default: those in `mask`):

    * grpo, cispo: `w_i / L_i`, the mean over a trajectory's tokens.
    * dr_grpo: `w_i / horizon`, the sum of the score functions as in Equation 1, up to one constant.
    * dapo, nll: `w_i / sum_j w_j L_j`, every token of the batch alike (`horizon` is that sum, for a batch that comes in
      pieces).
    """
    mask = mask.to(weights.dtype)
    lengths = mask.sum(-1) if lengths is None else lengths.to(weights.dtype)
    if kind in ("grpo", "cispo"):
        per_row = weights / lengths.clamp(min=1)
    elif kind == "dr_grpo":
        if horizon is None:
            raise ValueError("token_weights(kind='dr_grpo') needs horizon, the constant number of tokens to divide by.")
        per_row = weights / horizon
    else:
        per_row = weights / (horizon if horizon is not None else (weights * lengths).sum().clamp(min=1e-12))
    return mask * per_row.unsqueeze(-1)
