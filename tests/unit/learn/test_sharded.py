"""Two gloo processes under torchrun against one process."""

from pathlib import Path

import pytest
import torch

from tests.doubles import torchrun
from tests.unit.learn.sharded_worker import CASES, make, outcome, trained, updates
from wmrl_train.learn.ranks import Ranks

pytestmark = pytest.mark.timeout(900)  # two processes that import torch, on a machine that may be busy


def alone(name):
    learner = make(name)
    return outcome(learner, updates(learner, range(3)), learner.model)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    learner = make("kl")
    updates(learner, range(1))
    torch.save({"weights": trained(learner.model), "learner": learner.state_dict()}, folder / "saved.pt")
    done = torchrun(Path(__file__).with_name("sharded_worker.py"), folder / "saved.pt", folder / "results.pt")
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(folder / "results.pt", weights_only=True)


def assert_equal(got, expected):
    assert got["weights"].keys() == expected["weights"].keys()
    for name, weight in expected["weights"].items():
        torch.testing.assert_close(got["weights"][name], weight, atol=1e-5, rtol=0, msg=name)


@pytest.mark.parametrize("name", CASES)
def test_three_updates_of_two_processes_equal_those_of_one(sharded, name):
    expected = alone(name)
    assert_equal(sharded[name], expected)
    assert (
        max((w - v).abs().max() for w, v in zip(expected["weights"].values(), trained(make(name).model).values(), strict=True))
        > 2e-4
    )
    for got, one in zip(sharded[name]["metrics"], expected["metrics"], strict=True):
        assert got == pytest.approx(one, abs=1e-5, rel=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_the_gathered_state_is_that_of_one_process(sharded, name):
    got, expected = sharded[name]["state"], alone(name)["state"]
    assert got["updates"] == expected["updates"] == 3
    assert got["optimizer"]["param_groups"] == expected["optimizer"]["param_groups"]
    moments, one = got["optimizer"]["state"], expected["optimizer"]["state"]
    assert moments.keys() == one.keys()
    for number, values in one.items():
        for key, value in values.items():
            torch.testing.assert_close(moments[number][key], value, atol=1e-5, rtol=1e-4)


def test_two_processes_go_on_from_the_checkpoint_of_one(sharded):
    assert_equal(sharded["resumed"], alone("kl"))


def test_a_loss_that_is_not_finite_stops_all_ranks_and_changes_nothing(sharded):
    assert "rollout 5" in sharded["error"]
    for name, weight in sharded["resumed"]["weights"].items():
        assert torch.equal(sharded["after error"]["weights"][name], weight)


def test_one_process_needs_no_group(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    alone = Ranks.from_torchrun()
    assert (alone.rank, alone.size) == (0, 1)
    assert alone.broadcast("x") == "x"
    assert alone.gather([1]) == [1]
    alone.leave()
