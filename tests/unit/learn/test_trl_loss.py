"""Our loss against that of the installed TRL on the same batch (run where TRL is installed; it is no dependency).

Where definitions agree (grpo, dr_grpo, dapo: clipping, KL, normalisation) the values and the gradients are equal. Known differences:
TRL's cispo caps the ratio at epsilon_high itself, ours at 1 + clip_high, and divides by the batch's tokens as dapo does;
TRL's entropy bonus is a mean over tokens, ours is weighted as the loss is.
"""

from collections import defaultdict
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch

from wmrl_train.learn import grpo

pytest.importorskip("trl")
BETA, LOW, HIGH, HORIZON = 0.04, 0.2, 0.28, 9


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def batch():
    lengths = [6, 2, 9, 1, 5, 7]
    mask = torch.arange(9) < torch.tensor(lengths)[:, None]
    logprobs = (-torch.rand(6, 9) * 3).requires_grad_()
    return (
        mask,
        logprobs,
        logprobs.detach() + torch.randn(6, 9) * 0.3,
        logprobs.detach() + torch.randn(6, 9) * 0.2,
        torch.randn(6),
    )


def trl_loss(kind, mask, logprobs, old, reference, advantages):
    from trl import GRPOTrainer

    trainer = MagicMock()
    trainer.configure_mock(
        loss_type=kind, beta=BETA, epsilon_low=LOW, epsilon_high=HIGH, importance_sampling_level="token", top_entropy_quantile=1.0,
        off_policy_mask_threshold=None, use_vllm=False, max_completion_length=HORIZON, _entropy_bonus_enabled=False,
        aux_loss_enabled=False, current_gradient_accumulation_steps=1, _metrics={m: defaultdict(list) for m in ("train", "eval")},
        args=SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1),
        model=SimpleNamespace(training=False), accelerator=SimpleNamespace(gather=lambda x: x, reduce=lambda x, reduction: x, num_processes=1),
    )  # fmt: skip
    trainer._get_per_token_logps_and_entropies.return_value = (logprobs, torch.zeros_like(logprobs), None)
    ids = torch.zeros(6, 9, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1], "prompt_mask": ids[:, :1] + 1, "completion_ids": ids, "completion_mask": mask.long(),
        "advantages": advantages, "old_per_token_logps": old, "ref_per_token_logps": reference, "num_items_in_batch": mask.sum(),
    }  # fmt: skip
    return GRPOTrainer._compute_loss(trainer, None, inputs)


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "dapo"])
def test_equal_to_trl_in_value_and_gradient(kind):
    mask, logprobs, old, reference, advantages = batch()
    theirs = trl_loss(kind, mask, logprobs, old, reference, advantages)
    per_token = grpo.policy_objective(logprobs, old, advantages, kind=kind, clip_low=LOW, clip_high=HIGH)
    weights = grpo.token_weights(mask, torch.full((6,), 1 / 6), kind=kind, horizon=HORIZON if kind == "dr_grpo" else None)
    ours = ((per_token + BETA * grpo.k3(logprobs, reference)) * weights).sum()
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    gradients = [torch.autograd.grad(loss, logprobs, retain_graph=True)[0] for loss in (ours, theirs)]
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=0)
