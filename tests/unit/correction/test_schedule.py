"""Which groups are anchored: exact fraction, at random, with the propensity that was used."""

import json

import numpy as np
import pytest

from wmrl_envs.correction import AnchorSchedule


@pytest.mark.parametrize(("fraction", "n"), [(0.125, 8), (0.125, 12), (0.3, 7), (0.3, 1), (0.9, 5), (0.0, 4), (1.0, 3)])
def test_the_long_run_fraction_is_exact(fraction, n):
    schedule = AnchorSchedule(fraction, min_groups=0, seed=3)
    drawn = [int(schedule.draw(n)[0].sum()) for _ in range(500)]
    assert abs(sum(drawn) - fraction * 500 * n) <= 2.001
    assert max(drawn) - min(drawn) <= 2 or n == 1


def test_at_least_min_groups_of_every_batch():
    schedule = AnchorSchedule(0.01, min_groups=2)
    assert all(schedule.draw(8)[0].sum() == 2 for _ in range(20))
    assert schedule.draw(1)[0].sum() == 1  # never more than there are


def test_the_propensity_is_the_frequency():
    for options, tasks, priority in [({}, None, None), ({"stratify": True}, list("aaabbbbb"), None),
                                     ({"adaptive": True}, None, [9, 3, 1, 1, 1, 1, 0, 0])]:  # fmt: skip
        hits, expected = np.zeros(8), np.zeros(8)
        schedule = AnchorSchedule(0.3, seed=0, **options)
        for _ in range(4000):
            mask, propensity = schedule.draw(8, tasks, priority=priority)
            hits += mask
            expected += propensity
        assert hits / 4000 == pytest.approx(expected / 4000, abs=0.03)
        assert (propensity > 0.1).all()  # half of it stays uniform


def test_single_draws_stay_random_and_say_how_likely_they_were():
    schedule = AnchorSchedule(0.25, min_groups=0, seed=0)
    draws = [schedule.draw(1) for _ in range(4000)]
    anchored = np.array([mask[0] for mask, _ in draws])
    propensity = np.array([p[0] for _, p in draws])
    gaps = np.diff(np.flatnonzero(anchored))
    assert len(set(gaps.tolist())) > 3
    # Inverse-propensity weighting is unbiased: the weights of the drawn groups add up to the number of groups.
    assert (anchored / propensity).sum() == pytest.approx(4000, rel=0.05)


def test_stratified_anchors_spread_over_tasks():
    tasks = ["a"] * 8 + ["b"] * 8
    schedule = AnchorSchedule(0.25, stratify=True)
    for _ in range(50):
        mask, _ = schedule.draw(16, tasks)
        assert (mask[:8].sum(), mask[8:].sum()) == (2, 2)


def test_adaptive_raises_the_fraction_on_an_alarm_and_lets_it_decay():
    schedule = AnchorSchedule(0.125, adaptive=True)
    for _ in range(5):
        schedule.adapt(True)
    assert schedule.fraction == 0.5
    assert schedule.draw(8)[0].sum() == 4
    for _ in range(50):
        schedule.adapt(False)
    assert schedule.fraction == 0.125
    fixed = AnchorSchedule(0.125)
    fixed.adapt(True)
    assert fixed.fraction == 0.125


def test_adaptive_prefers_tasks_with_few_anchors():
    schedule = AnchorSchedule(0.25, adaptive=True)
    for _ in range(30):
        schedule.draw(4, ["old"] * 4)
    _, propensity = schedule.draw(4, ["old", "old", "old", "new"])
    assert propensity[3] > propensity[0]
    assert propensity.min() >= 0.125


def test_state_round_trip_continues_the_same_draws():
    a, b = AnchorSchedule(0.3, seed=5, stratify=True), AnchorSchedule(0.3, seed=99, stratify=True)
    for _ in range(7):
        a.draw(6, list("aabbcc"))
    b.load_state_dict(json.loads(json.dumps(a.state_dict())))
    for _ in range(20):
        assert a.draw(6, list("aabbcc"))[0].tolist() == b.draw(6, list("aabbcc"))[0].tolist()


@pytest.mark.parametrize("tasks", [np.array([1, 1, 2, 2]), np.array(["a", "b", "c", "d"])])
def test_tasks_may_be_an_array_and_the_state_stays_plain(tasks):
    schedule = AnchorSchedule(0.5, seed=1, stratify=True, adaptive=True)
    schedule.draw(4, tasks)
    state = schedule.state_dict()
    assert json.loads(json.dumps(state)) == state


@pytest.mark.parametrize("arguments", [{"fraction": -0.1}, {"fraction": 1.1}, {"fraction": float("nan")}, {"min_groups": -1}])
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match="expected"):
        AnchorSchedule(**arguments)


def test_tasks_and_priorities_must_fit_the_groups():
    with pytest.raises(ValueError, match="2 tasks for 3 groups"):
        AnchorSchedule().draw(3, ["a", "b"])
    with pytest.raises(ValueError, match="priority"):
        AnchorSchedule(adaptive=True).draw(2, priority=[1, -1])
