"""Anchors inside groups: who is executed, and with which probability."""

import numpy as np
import pytest

from wmrl_envs.correction.placement import pick

SCORES = np.array([[0.1, 0.9, 0.5, 0.5, 0.2]])
ALL = np.ones((1, 5), dtype=bool)


def frequencies(place, share, count, candidates=ALL, scores=SCORES, draws=20_000):
    rng = np.random.default_rng(0)
    executed, at_random = np.zeros(scores.shape), np.zeros(scores.shape)
    for _ in range(draws):
        found = pick(scores, candidates, [count], place, share, rng)
        executed += found.executed
        at_random += found.random
    return executed / draws, at_random / draws, found.propensity


@pytest.mark.parametrize("place", ["members", "favourites"])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_recorded_propensity_is_the_frequency(place, share, count):
    executed, _, propensity = frequencies(place, share, count, draws=3000)
    assert propensity == pytest.approx(executed, abs=0.04)
    assert propensity.sum() == pytest.approx(count)


def test_the_random_part_of_single_picks_is_uniform():
    _, at_random, _ = frequencies("favourites", 0.25, 1)
    assert at_random[0] == pytest.approx(np.full(5, 0.05), abs=0.01)


def test_what_is_known_already_is_not_executed_again():
    candidates = np.array([[True, False, True, True, False]])
    executed, _, propensity = frequencies("favourites", 0.0, 1, candidates, draws=500)
    assert executed[0, [1, 4]].tolist() == [0, 0]
    assert propensity[0] == pytest.approx([0, 0, 0.5, 0.5, 0])  # equal favourites are drawn


def test_a_group_without_candidates_executes_nothing():
    found = pick(SCORES, np.zeros((1, 5), bool), [2], "members", 0.0, np.random.default_rng(0))
    assert not found.executed.any()
    assert found.propensity.sum() == 0


def test_a_group_with_fewer_candidates_than_picks_executes_them_all():
    found = pick(SCORES, ALL & (SCORES > 0.4), [4], "favourites", 0.5, np.random.default_rng(0))
    assert found.executed.tolist() == (SCORES > 0.4).tolist()
    assert found.propensity[0] == pytest.approx([0, 1, 1, 1, 0])


def test_equal_seeds_pick_alike_and_the_stream_moves_by_a_fixed_amount():
    one, other = np.random.default_rng(3), np.random.default_rng(3)
    pick(SCORES, ALL, [1], "favourites", 0.5, one)
    pick(SCORES, np.zeros((1, 5), bool), [0], "members", 0.0, other)
    assert one.random() == other.random()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SCORES, ALL, [1], "groups", 0.0), "expected 'members' or 'favourites'"),
        ((SCORES, ALL, [1], "worst", 0.0), "anchor place 'worst'"),
        ((SCORES, ALL[:, :3], [1], "members", 0.0), "candidates"),
        ((SCORES, ALL, [1, 1], "members", 0.0), "picks"),
        ((SCORES, ALL, [1], "favourites", 1.5), "random_share"),
        ((SCORES * np.nan, ALL, [1], "favourites", 0.5), "predicted"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        pick(*arguments, np.random.default_rng(0))
