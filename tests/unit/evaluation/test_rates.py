import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_envs.errors import InvalidInput
from wmrl_train.evaluation.folder import robot_episode
from wmrl_train.evaluation.rates import Rate, summarize


@given(st.integers(0, 200), st.integers(0, 200))
def test_intervals_hold_the_rate_and_stay_in_range(a, b):
    rate = Rate(min(a, b), max(a, b))
    low, high = rate.interval
    assert 0 <= low <= high <= 1
    if rate.episodes:
        assert low <= rate.value <= high


@pytest.mark.parametrize(
    ("successes", "episodes", "low", "high"), [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (50, 100, 0.4038, 0.5962)]
)
def test_intervals_are_wilson_s(successes, episodes, low, high):
    np.testing.assert_allclose(Rate(successes, episodes).interval, (low, high), atol=1e-4)


def test_impossible_counts_are_refused():
    with pytest.raises(InvalidInput, match="11 successes in 10"):
        Rate(11, 10)


def episode(task, init_state, repeat, success, steps=8, failure=None):
    return robot_episode(task, init_state, repeat, success=success, steps=steps, failure=failure)


def test_seen_unseen_best_and_all_are_counted_apart_and_lost_episodes_nowhere():
    episodes = [episode("A", 0, r, r == 0) for r in range(2)] + [episode("A", 20, r, True) for r in range(2)]
    episodes += [episode("B", 30, 0, False), episode("B", 30, 1, True, failure="gone")]
    report = summarize(episodes)
    assert (report.rates["overall"].successes, report.rates["overall"].episodes) == (3, 5)
    assert (report.rates["seen"].successes, report.rates["seen"].episodes) == (1, 2)
    assert (report.rates["unseen"].successes, report.rates["unseen"].episodes) == (2, 3)
    assert (report.rates["best@2"].successes, report.rates["best@2"].episodes) == (2, 2)
    assert (report.rates["all@2"].successes, report.rates["all@2"].episodes) == (1, 2)
    assert (report.infra_failures, report.copies) == (1, False)
    assert report.tasks["B"]["overall"].episodes == 1
    assert math.isnan(report.tasks["B"]["seen"].value)
    assert report.as_dict()["tasks"]["B"]["seen"]["value"] is None


def test_repeats_that_differ_in_a_step_are_no_copies():
    same = [episode("A", 0, r, True) for r in range(2)] + [episode("A", 1, 0, False)]
    assert summarize(same).copies
    assert summarize(same).rates["overall"] == Rate(1, 2)
    other = [*same, episode("A", 1, 1, False, steps=9)]
    assert not summarize(other).copies
    assert summarize(other).rates["overall"] == Rate(2, 4)


def test_one_episode_a_start_has_no_copies():
    assert not summarize([episode("A", i, 0, True) for i in range(3)]).copies
