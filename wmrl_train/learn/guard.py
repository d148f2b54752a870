"""One optimizer step, or none: what is not finite never becomes part of the weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from wmrl_envs.errors import WmrlError
from wmrl_train.learn.ranks import Ranks


class NonFiniteLoss(WmrlError, FloatingPointError):
    """A loss, a gradient or a weight is NaN or infinite. Checkpoints are as they were."""


def guarded_step(
    optimizer: torch.optim.Optimizer,
    *,
    max_norm: float = math.inf,
    problems: Sequence[str] = (),
    what: str = "this update",
    ranks: Ranks | None = None,
) -> float:
    """Clip the gradients, check them, step; the gradients' norm before clipping, over all parameters and all shards.

    Args:
        optimizer: its parameters hold the gradients; they are cleared where there is a problem.
        max_norm: gradients are scaled down to it.
        problems: what is wrong with the losses behind the gradients, a sentence each.
        what: the update, for messages, such as "update 12".
        ranks: the processes that take this step together; all of them raise, or none.

    Raises:
        NonFiniteLoss: the first problem, or a norm that is not finite; then nothing was changed. Or a weight is not finite
            after the step, which finite gradients bring about only with an absurd learning rate; then these weights are of no
            use.
    """
    ranks = ranks or Ranks()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    problems, norm = ranks.gather(list(problems)), math.nan
    if not problems:
        norm = _whole(torch.nn.utils.clip_grad_norm_(parameters, max_norm))
        if not math.isfinite(norm):
            problems = [
                f"The gradient is {norm} at {what}; nothing was changed. Lower the learning rate, or look at what was "
                f"learned from."
            ]
    if problems:
        optimizer.zero_grad(set_to_none=True)
        raise NonFiniteLoss(problems[0])
    optimizer.step()
    if not all(ranks.gather([_finite(parameters)])):
        raise NonFiniteLoss(f"A weight is not finite after {what}: go on from the last checkpoint with a lower learning rate.")
    return norm


def _finite(tensors: Sequence[Tensor]) -> bool:
    """Whether every number is; looks at the extremes of each tensor, which NaN would be one of, and copies none."""
    local = [(t.to_local() if isinstance(t, DTensor) else t).detach() for t in tensors]
    extremes = [torch.stack(t.aminmax()).float() for t in local if t.numel()]
    return not extremes or bool(torch.isfinite(torch.stack(extremes)).all())


def _whole(norm: Tensor) -> float:
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
