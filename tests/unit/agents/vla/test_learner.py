import copy
import math

import numpy as np
import pytest
import torch

from tests.unit.agents.vla.doubles import simulators, small_policy
from wmrl_envs.anchoring.graded import Graded
from wmrl_train.agents.vla.learner import RobotLearner
from wmrl_train.agents.vla.play import Start, play
from wmrl_train.agents.vla.roller import trajectory
from wmrl_train.config import load_config
from wmrl_train.learn.guard import NonFiniteLoss
from wmrl_train.learn.learner import Sample


def learner(policy, *overrides):
    return RobotLearner(policy, load_config("libero", ["optim.lr=1e-2", *overrides]))


@pytest.fixture
def episodes():
    """A short success and a long failure."""
    policy = small_policy()
    made = [trajectory(p, Graded()) for p in play(policy, simulators(), [Start("colour", 0, seed) for seed in range(12)])]
    good = next(t for t in made if t.turns[0].raw_score == 1 and len(t.rows) < 3)
    bad = next(t for t in made if len(t.rows) == 3 and t.turns[0].raw_score == 0)
    return policy, good, bad


def samples(*pairs):
    return [
        Sample(row, a, 1 / len(pairs), sum(r.n_sampled for r in t.rows), "group 0, member 0")
        for t, a in pairs
        for row in t.rows
    ]


def likelihood(policy, t):
    inputs = policy.inputs([row.context for row in t.rows])
    with torch.no_grad():
        return policy.model.log_probs(inputs[0], inputs[1], torch.tensor([row.ids for row in t.rows]), inputs[2]).mean().item()


def test_the_update_raises_what_was_rewarded_and_long_failures_weigh_no_more(episodes):
    policy, good, bad = episodes
    before = likelihood(policy, good), likelihood(policy, bad)
    stats = learner(policy).update(samples((good, 0.5), (bad, -0.5)))
    assert stats["loss"] == pytest.approx(0.0, abs=1e-5)  # ratio 1: the two means cancel, whatever their lengths
    assert stats["importance"] == pytest.approx(1.0, abs=1e-4)
    assert stats["mismatch_kl"] < 1e-8
    assert likelihood(policy, good) - likelihood(policy, bad) > before[0] - before[1]


def test_log_probabilities_are_the_policy_s(episodes):
    policy, good, _ = episodes
    work = learner(policy)
    for row in good.rows:
        np.testing.assert_allclose(work.logprobs(row), row.logprobs, atol=1e-5)


@pytest.mark.parametrize("override", ["optim.kl_coef=0.5", "optim.entropy_coef=0.5", "optim.clip_low=0.9", "optim.loss=dapo", "optim.loss=dr_grpo",
                                      "optim.loss=cispo", "optim.max_grad_norm=1e-3", "optim.warmup_steps=9", "optim.epochs=3", "optim.weight_decay=0.5"])  # fmt: skip
def test_every_setting_of_the_optimizer_changes_what_is_learned(episodes, override):
    policy, good, bad = episodes
    plain, other = copy.deepcopy(policy), copy.deepcopy(policy)
    many = ["optim.epochs=2", "optim.clip_high=0.01"]  # in the second pass the ratio is not 1
    for moved, overrides in ((plain, many), (other, [*many, override])):
        work = learner(moved, *overrides)
        for _ in range(2):
            work.update(samples((good, 0.5), (bad, -0.5)))
    pairs = zip(plain.model.parameters(), other.model.parameters(), strict=True)
    assert not all(torch.equal(a, b) for a, b in pairs)


def test_micro_batches_change_nothing(episodes):
    policy, good, bad = episodes
    whole = learner(copy.deepcopy(policy)).update(samples((good, 0.5), (bad, -0.5)))
    split = learner(copy.deepcopy(policy), "optim.tokens_per_micro_batch=64").update(samples((good, 0.5), (bad, -0.5)))
    assert split == pytest.approx(whole, abs=1e-5)


def test_groups_without_spread_are_not_computed_unless_something_is_learned_from_them(episodes):
    policy, good, bad = episodes
    assert learner(policy).update(samples((good, 0.0), (bad, 0.0))) == {"tokens": 0.0}
    assert learner(policy, "optim.entropy_coef=0.1").update(samples((good, 0.0), (bad, 0.0)))["tokens"] > 0


def test_an_advantage_that_is_not_finite_names_its_episode_and_changes_nothing(episodes):
    policy, good, _ = episodes
    before = copy.deepcopy(policy.model.state_dict())
    with pytest.raises(NonFiniteLoss, match="because of group 0, member 0"):
        learner(policy).update(samples((good, math.nan)))
    assert all(torch.equal(a, b) for a, b in zip(before.values(), policy.model.state_dict().values(), strict=True))
