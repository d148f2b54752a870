import copy

import pytest
import torch

from wmrl_train.learn import host_optimizer
from wmrl_train.learn.host_optimizer import HostAdamW

OPTIONS = {"lr": 1e-2, "betas": (0.8, 0.95), "weight_decay": 0.1}


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3), torch.nn.Linear(3, 3))


def train(model, optimizer, steps):
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        optimizer.zero_grad(set_to_none=True)
        model[:3](torch.randn(4, 5, generator=generator)).square().mean().backward()  # the last layer gets no gradient
        optimizer.step()


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("chunk", [1, 40, 2**27])
def test_equal_to_adamw_bit_by_bit(chunk, fused, monkeypatch):
    monkeypatch.setattr(host_optimizer, "CHUNK_ELEMENTS", chunk)
    one, other = net(), net()
    plain = torch.optim.AdamW(one.parameters(), **OPTIONS, fused=fused)
    host = HostAdamW(other.parameters(), **OPTIONS, fused=fused)
    train(one, plain, 4)
    train(other, host, 4)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert [p.grad is None for p in other.parameters()] == [p.grad is None for p in one.parameters()]
    assert plain.state_dict()["state"].keys() == host.state_dict()["state"].keys()


def test_states_are_interchangeable_with_adamw():
    one = net()
    plain = torch.optim.AdamW(one.parameters(), **OPTIONS)
    train(one, plain, 2)
    other = copy.deepcopy(one)
    host = HostAdamW(other.parameters(), **OPTIONS)
    host.load_state_dict(copy.deepcopy(plain.state_dict()))
    train(one, plain, 2)
    train(other, host, 2)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_moments_are_brought_in_a_chunk_at_a_time_and_leave_again(monkeypatch):
    monkeypatch.setattr(host_optimizer, "CHUNK_ELEMENTS", 30)
    model, inside, most = net(), set(), []

    class Watched(HostAdamW):  # records what a GPU would hold
        def _move(self, parameter, device):
            super()._move(parameter, device)
            arrives = parameter.grad is not None
            (inside.add if arrives else inside.discard)(parameter)
            most.append(len(inside))

    train(model, Watched(model.parameters(), **OPTIONS), 1)
    assert max(most) == 3  # the first weight (35) fills a chunk; its bias (7), the next weight (21) and bias (3) are the second
    assert not inside


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_moments_are_in_pinned_host_memory_between_steps():
    model = net().cuda()
    optimizer = HostAdamW(model.parameters(), **OPTIONS)
    model[:3](torch.randn(4, 5, device="cuda")).square().mean().backward()
    optimizer.step()
    moments = [v for state in optimizer.state.values() for v in state.values() if v.dim()]
    assert moments
    assert all(v.device.type == "cpu" and v.is_pinned() for v in moments)
