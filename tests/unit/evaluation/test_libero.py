import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_envs.errors import InvalidInput
from wmrl_train.evaluation.libero import Trial, summarize, wilson


@given(st.integers(0, 200), st.integers(0, 200))
def test_intervals_hold_the_rate_and_stay_in_range(a, b):
    successes, trials = min(a, b), max(a, b)
    low, high = wilson(successes, trials)
    assert 0 <= low <= high <= 1
    if trials:
        assert low <= successes / trials <= high


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"), [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (50, 100, 0.4038, 0.5962)]
)
def test_intervals_are_wilson_s(successes, trials, low, high):
    np.testing.assert_allclose(wilson(successes, trials), (low, high), atol=1e-4)


def test_impossible_counts_are_refused():
    with pytest.raises(InvalidInput, match="11 successes in 10"):
        wilson(11, 10)


def test_seen_unseen_best_and_all_are_counted_apart_and_lost_episodes_nowhere():
    trials = [Trial("A", 0, r, r == 0) for r in range(2)] + [Trial("A", 20, r, True) for r in range(2)]
    trials += [Trial("B", 30, 0, False), Trial("B", 30, 1, True, infra=True)]
    report = summarize(trials)
    assert (report.rates["overall"].successes, report.rates["overall"].trials) == (3, 5)
    assert (report.rates["seen"].successes, report.rates["seen"].trials) == (1, 2)
    assert (report.rates["unseen"].successes, report.rates["unseen"].trials) == (2, 3)
    assert (report.rates["best@2"].successes, report.rates["best@2"].trials) == (2, 2)
    assert (report.rates["all@2"].successes, report.rates["all@2"].trials) == (1, 2)
    assert report.infra_failures == 1
    assert report.tasks["B"]["overall"].trials == 1
    assert math.isnan(report.tasks["B"]["seen"].value)
    assert report.as_dict()["tasks"]["B"]["seen"]["value"] is None
