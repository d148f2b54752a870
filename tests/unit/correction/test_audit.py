"""The audit sees what a monotone map cannot: one class of solutions that is always over-scored."""

import json

import numpy as np
import pytest

from wmrl_envs.correction import AnchorAudit


def feed(audit, rng, groups, over_scored=0.0, start=0):
    """Groups of 8; `over_scored`: chance that a member is a bad solution predicted 0.9."""
    for g in range(start, start + groups):
        true = rng.random(8)
        calibrated = np.clip(true + 0.1 * rng.normal(size=8), 0, 1)
        hacked = rng.random(8) < over_scored
        true[hacked], calibrated[hacked] = 0.1, 0.9
        audit.update(calibrated, true, group=g, task=f"t{g % 2}")
        if audit.alarm:
            return g - start + 1
    return None


def test_quiet_while_the_world_model_is_as_good_as_at_first():
    alarms = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        alarms += feed(AnchorAudit(), rng, 400) is not None
    assert alarms <= 3


def test_alarm_soon_after_the_policy_finds_an_over_scored_class():
    for seed in range(20):
        rng, audit = np.random.default_rng(seed), AnchorAudit()
        feed(audit, rng, 40)
        delay = feed(audit, rng, 60, over_scored=0.3, start=100)
        assert delay is not None
        assert delay <= 15


def test_alarm_within_a_few_groups_when_a_class_was_over_scored_all_along():
    delays = [feed(AnchorAudit(), np.random.default_rng(seed), 40, over_scored=0.5) for seed in range(20)]
    assert None not in delays
    assert np.median(delays) <= 10


def test_a_bias_that_the_map_will_take_away_is_no_alarm_during_warm_up():
    rng, audit = np.random.default_rng(0), AnchorAudit()
    for g in range(20):
        true = rng.random(8) / 2
        audit.update(true + 0.4 + 0.05 * rng.normal(size=8), true, group=g, watch=False)
        assert audit.action == "none"


@pytest.mark.parametrize("noise", [0.0, 0.2, 0.5])
def test_a_noisy_world_model_that_says_no_more_than_it_knows_is_not_accused(noise):
    alarms = 0
    for seed in range(20):
        rng, audit = np.random.default_rng(seed), AnchorAudit()
        for g in range(100):
            calibrated = rng.random(8)
            audit.update(calibrated, np.clip(calibrated + noise * rng.normal(size=8), 0, 1), group=g)
            alarms += audit.alarm
    assert alarms <= 20  # of 2,000 groups


def test_predictions_that_know_nothing_are_frozen_out():
    rng, audit = np.random.default_rng(0), AnchorAudit()
    for g in range(60):
        audit.update(rng.random(8), rng.random(8), group=g)
    assert audit.action == "freeze"


def test_trust_comes_back_when_the_favourites_are_worth_their_scores_again():
    rng, audit = np.random.default_rng(0), AnchorAudit()
    feed(audit, rng, 20, over_scored=0.5)
    for g in range(100, 140):
        true = rng.random(8)
        audit.update(true, true, group=g)
    assert audit.action == "none"


def test_actions_escalate():
    rng, audit = np.random.default_rng(0), AnchorAudit()
    feed(audit, rng, 40)
    seen = ["none"]
    for g in range(100, 200):
        audit.update([0.9] * 4, [0.1, 0.2, 0.3, 0.4], group=g)
        if audit.action != seen[-1]:
            seen.append(audit.action)
    assert seen == ["none", "raise", "freeze", "stop"] or seen == ["none", "freeze", "stop"]


def test_predictions_that_rank_backwards_freeze_the_world_model_groups():
    rng, audit = np.random.default_rng(0), AnchorAudit()
    for g in range(40):
        true = rng.random(8)
        audit.update(0.5 + 0.1 * (0.5 - true), true, group=g)
    assert audit.rank_correlation() == pytest.approx(-1)
    assert audit.action == "freeze"


def test_statistics_are_what_they_say():
    audit = AnchorAudit()
    calibrated = np.linspace(0, 1, 100)
    true = np.where(calibrated > 0.9, calibrated - 0.3, calibrated)
    audit.update(calibrated, true, group=np.arange(100) // 10, task=["a"] * 50 + ["b"] * 50)
    deciles = audit.bias_by_decile()
    assert [n for _, _, n in deciles] == [10] * 10
    assert audit.top_decile_residual() == pytest.approx(0.3)
    assert deciles[0][1] == pytest.approx(0)
    assert audit.bias_by_task() == {"a": (pytest.approx(0), 50), "b": (pytest.approx(0.06), 50)}
    assert audit.rank_correlation() == pytest.approx(1)


def test_an_empty_audit_has_nothing_to_say():
    audit = AnchorAudit()
    assert (audit.action, audit.rank_correlation(), audit.top_decile_residual(), audit.bias_by_decile()) == (
        "none",
        None,
        None,
        [],
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AnchorAudit(slack=float("nan")), "slack=nan"),
        (lambda: AnchorAudit(threshold=0), "threshold=0"),
        (lambda: AnchorAudit(threshold="a"), "threshold='a'"),
        (lambda: AnchorAudit().update([0.1, 0.2], [0.1]), "the same shape"),
        (lambda: AnchorAudit().update(np.zeros((2, 2)), np.zeros(4)), "the same shape"),
    ],
)
def test_bad_input_is_one_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_state_round_trip():
    a, b = AnchorAudit(), AnchorAudit()
    feed(a, np.random.default_rng(0), 50)
    b.load_state_dict(json.loads(json.dumps(a.state_dict())))
    for audit in (a, b):
        feed(audit, np.random.default_rng(1), 5, over_scored=0.5, start=100)
    assert a.metrics() == b.metrics()
    assert a.cusum > 0
