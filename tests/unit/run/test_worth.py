"""What a report says of the predictions of a run."""

import numpy as np
import pytest

from wmrl_train.run.worth import compared, verdict, worth

RNG = np.random.default_rng(0)
TRUE = RNG.random(64)
GROUP = np.repeat(np.arange(8), 8).tolist()


def pairs(predicted, calibrated, **more):
    return [
        {"predicted": p, "calibrated": c, "true": t, "group": g} | more
        for p, c, t, g in zip(predicted, calibrated, TRUE, GROUP, strict=True)
    ]


def test_a_constant_bias_is_no_error_of_advantages():
    found = worth(TRUE + 0.1, TRUE, GROUP)
    assert found.bias == pytest.approx(0.1)
    assert found.rmse == pytest.approx(0.1)
    assert found.advantage_rmse == pytest.approx(0.0, abs=1e-12)
    assert found.order == 1.0


def test_a_reversed_order_is_seen():
    assert worth(1 - TRUE, TRUE, GROUP).order == pytest.approx(-1.0)


def test_groups_that_tie_in_truth_have_no_order():
    assert worth([0.1, 0.2], [0.5, 0.5], [0, 0]).order is None


@pytest.mark.parametrize(
    ("calibrated", "words"),
    [(TRUE, "the map helps"), (0.3 + 0.5 * TRUE, "changes next to nothing"), (1 - TRUE, "makes predictions worse")],
)
def test_the_verdict_follows_from_the_error_of_the_advantages(calibrated, words):
    raw, cal = compared(pairs(0.3 + 0.5 * TRUE, calibrated))
    assert words in verdict(raw, cal)


def test_favourites_are_no_sample_and_old_logs_say_nothing():
    assert compared(pairs(TRUE, TRUE, picked="favourite")) is None
    assert compared(pairs(TRUE, [None] * 64)) is None
    assert compared([]) is None
