"""The functions of `grpo.py` against closed forms and against autograd on problems small enough to enumerate."""

import math

import pytest
import torch

from wmrl_train.learn import grpo


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def test_advantages_are_centred_by_group_in_any_order():
    rewards, groups = torch.rand(12), torch.tensor([5, 1, 5, 1, 9, 9, 5, 1, 9, 5, 1, 9])
    advantages = grpo.group_advantages(rewards, groups)
    for g in (1, 5, 9):
        members = groups == g
        torch.testing.assert_close(advantages[members], rewards[members] - rewards[members].mean())


def test_std_option_is_the_sample_standard_deviation_and_ties_are_zero():
    rewards, groups = torch.tensor([0.0, 1.0, 0.5, 0.3, 0.3, 0.3]), torch.tensor([0, 0, 0, 1, 1, 1])
    advantages = grpo.group_advantages(rewards, groups, scale="std", eps=0.0 + 1e-12)
    torch.testing.assert_close(advantages[:3], torch.tensor([-1.0, 1.0, 0.0]), atol=1e-9, rtol=0)
    assert advantages[3:].abs().max() < 1e-3


def test_unscaled_advantages_are_linear_in_the_rewards():
    a, b, groups = torch.rand(8), torch.rand(8), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    both = grpo.group_advantages(2 * a + 3 * b, groups)
    torch.testing.assert_close(both, 2 * grpo.group_advantages(a, groups) + 3 * grpo.group_advantages(b, groups))


@pytest.mark.parametrize("rho", [1.0, 2.0, 4.0])
def test_fusion_weights_are_equation_5(rho):
    groups = torch.arange(8).repeat_interleave(4)
    anchor = groups < 2
    weights = grpo.fusion_weights(anchor, groups, rho)
    gradients = torch.randn(32, 3)
    sums = [sum(gradients[groups == k].mean(0) for k in range(lo, hi)) for lo, hi in ((0, 2), (2, 8))]
    torch.testing.assert_close((weights[:, None] * gradients).sum(0), (rho * sums[0] + sums[1]) / (rho * 2 + 6))
    assert math.isclose(float(weights.sum()), 1.0)


def test_ratio_is_one_on_policy_and_the_gradient_is_the_policy_gradient():
    logits = torch.randn(3, 5, 7, requires_grad=True)
    actions, advantages, mask = torch.randint(0, 7, (3, 5)), torch.tensor([1.0, -2.0, 0.5]), torch.ones(3, 5)
    logprobs = torch.log_softmax(logits, -1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    expected = torch.autograd.grad(-(advantages[:, None] * logprobs).sum() / 3 / 5, logits, retain_graph=True)[0]
    weights = torch.full((3,), 1 / 3)
    for kind in ("grpo", "dr_grpo", "dapo", "cispo"):
        per_token = grpo.policy_objective(logprobs, logprobs.detach(), advantages, kind=kind)
        loss = (per_token * grpo.token_weights(mask, weights, kind=kind, horizon=5 if kind != "dapo" else None)).sum()
        torch.testing.assert_close(torch.autograd.grad(loss, logits, retain_graph=True)[0], expected)


@pytest.mark.parametrize(("ratio", "advantage", "value", "has_gradient"), [
    (1.5, 1.0, -1.28, False),  # pushed up far enough
    (1.5, -1.0, 1.5, True),
    (0.5, 1.0, -0.5, True),
    (0.5, -1.0, 0.8, False),  # pushed down far enough
    (1.1, 1.0, -1.1, True),
])  # fmt: skip
def test_clipping_low_and_high(ratio, advantage, value, has_gradient):
    logprobs = torch.tensor([[math.log(ratio)]], requires_grad=True)
    loss = grpo.policy_objective(logprobs, torch.zeros(1, 1), torch.tensor([advantage]), clip_low=0.2, clip_high=0.28)
    loss.sum().backward()
    assert float(loss) == pytest.approx(value)
    assert (abs(float(logprobs.grad)) > 0) == has_gradient
    was_clipped = grpo.clipped(logprobs.detach(), torch.zeros(1, 1), torch.tensor([advantage]), 0.2, 0.28)
    assert bool(was_clipped) != has_gradient


def test_cispo_keeps_the_gradient_of_a_clipped_token():
    logprobs = torch.tensor([[math.log(3.0)]], requires_grad=True)
    grpo.policy_objective(logprobs, torch.zeros(1, 1), torch.tensor([2.0]), kind="cispo", clip_high=0.28).sum().backward()
    assert float(logprobs.grad) == pytest.approx(-1.28 * 2.0)


def test_token_weights_of_ragged_trajectories():
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
    weights = torch.tensor([0.5, 0.3, 0.2])
    ones = torch.ones(3, 4)
    torch.testing.assert_close((ones * grpo.token_weights(mask, weights, kind="grpo")).sum(-1), torch.tensor([0.5, 0.3, 0.0]))
    torch.testing.assert_close(grpo.token_weights(mask, weights, kind="dr_grpo", horizon=10)[1], torch.full((4,), 0.03))
    dapo = grpo.token_weights(mask, torch.full((3,), 1 / 3), kind="dapo")
    torch.testing.assert_close(dapo[mask.bool()], torch.full((6,), 1 / 6))
    with pytest.raises(ValueError, match="horizon"):
        grpo.token_weights(mask, weights, kind="dr_grpo")


def test_k3_is_unbiased_and_never_negative():
    policy, reference = torch.randn(6).softmax(-1), torch.randn(6).softmax(-1)
    estimate = grpo.k3(policy.log(), reference.log())
    exact = (policy * (policy.log() - reference.log())).sum()
    torch.testing.assert_close((policy * estimate).sum(), exact)
    assert (estimate >= 0).all()
    assert grpo.k3(policy.log(), policy.log()).abs().max() == 0


def test_entropy_closed_forms_and_gradient():
    assert float(grpo.entropy(torch.zeros(8))) == pytest.approx(math.log(8))
    assert float(grpo.entropy(torch.tensor([50.0, 0.0]))) == pytest.approx(0, abs=1e-12)
    assert torch.autograd.gradcheck(grpo.entropy, (torch.randn(2, 5, requires_grad=True),))


def test_truncated_importance_weights_are_capped_and_carry_no_gradient():
    logprobs = torch.tensor([math.log(0.5), math.log(0.1)], requires_grad=True)
    weights = grpo.truncated_importance_weights(logprobs, torch.tensor([math.log(0.05), math.log(0.2)]), cap=2.0)
    torch.testing.assert_close(weights, torch.tensor([2.0, 0.5]))
    assert not weights.requires_grad


def test_expected_gradient_is_the_gradient_of_the_expected_reward():
    """Exact enumeration: the mean over all pairs of samples of the group gradient is (n-1)/n times the true gradient."""
    theta, reward = torch.randn(4, requires_grad=True), torch.rand(4)
    probs = theta.softmax(-1)
    truth = torch.autograd.grad((probs * reward).sum(), theta, retain_graph=True)[0]
    total = torch.zeros(4)
    for i in range(4):
        for j in range(4):
            sample = torch.tensor([i, j])
            advantages = grpo.group_advantages(reward[sample], torch.zeros(2, dtype=torch.long))
            logprobs = theta.log_softmax(-1)[sample].unsqueeze(-1)
            per_token = grpo.policy_objective(logprobs, logprobs.detach(), advantages)
            loss = (per_token * grpo.token_weights(torch.ones(2, 1), torch.full((2,), 0.5), kind="grpo")).sum()
            total += (probs[i] * probs[j]).detach() * torch.autograd.grad(-loss, theta, retain_graph=True)[0]
    torch.testing.assert_close(total, truth / 2)
