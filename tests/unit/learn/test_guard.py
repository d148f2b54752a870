import math

import pytest
import torch

from wmrl_train.learn.guard import NonFiniteLoss, guarded_step


def weights(*gradient, lr=0.1):
    parameter = torch.nn.Parameter(torch.ones(len(gradient)))
    parameter.grad = torch.tensor(gradient)
    return parameter, torch.optim.SGD([parameter], lr=lr)


def test_a_finite_step_is_taken_and_clipped():
    parameter, optimizer = weights(3.0, 4.0)
    assert guarded_step(optimizer, max_norm=1.0) == pytest.approx(5.0)
    torch.testing.assert_close(parameter.detach(), torch.tensor([1 - 0.06, 1 - 0.08]))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(bad):
    parameter, optimizer = weights(1.0, bad)
    with pytest.raises(NonFiniteLoss, match=r"The gradient is .* at update 3; nothing was changed"):
        guarded_step(optimizer, max_norm=1.0, what="update 3")
    assert parameter.tolist() == [1.0, 1.0]
    assert parameter.grad is None


def test_a_problem_of_the_loss_is_told_as_it_is_and_changes_nothing():
    parameter, optimizer = weights(1.0)
    with pytest.raises(NonFiniteLoss, match="because of group 3"):
        guarded_step(optimizer, problems=["because of group 3", "because of group 4"])
    assert parameter.tolist() == [1.0]


def test_a_weight_that_overflows_is_told():
    _, optimizer = weights(2.0, lr=3e38)
    with pytest.raises(NonFiniteLoss, match="A weight is not finite after this update"):
        guarded_step(optimizer)
