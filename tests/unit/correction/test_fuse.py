"""Inverse-Variance Denoising and the other fusion rules."""

import json

import numpy as np
import pytest

from wmrl_envs.correction import Corrector, FusionWeight, fuse, fusion_weights

NAN = float("nan")


def test_fuse_is_equation_5_and_the_weights_say_the_same():
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(8, 5))
    anchor = np.arange(8) < 2
    expected = fuse(gradients[anchor].sum(0), gradients[~anchor].sum(0), 2, 6, 3.0)
    assert fusion_weights(anchor, 3.0) @ gradients == pytest.approx(expected)


def test_fuse_takes_tensors():
    torch = pytest.importorskip("torch")
    assert fuse(torch.ones(2), torch.ones(2), 1, 1, 1.0).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "call", [lambda: fuse(0, 0, 0, 0, 1.0), lambda: fusion_weights([], 1.0), lambda: fusion_weights([True], NAN)]
)
def test_nothing_to_fuse_is_refused(call):
    with pytest.raises(ValueError, match=r"expected"):
        call()


def test_eta2_is_the_mean_squared_residual_over_the_mean_within_group_variance():
    weight = FusionWeight(min_pairs=4)
    weight.update([0.1, 0.3], [0.0, 1.0], group="a")
    weight.update([0.2, 0.0], [0.4, 0.6], group="b")
    assert weight.eta2 == pytest.approx(np.mean([0.01, 0.09, 0.04, 0.0]) / np.mean([0.25, 0.01]))


def test_rho_is_1_in_warm_up_2_right_after_and_then_follows_the_noise():
    rng = np.random.default_rng(0)
    weight = FusionWeight(min_pairs=200, window=200)
    for g in range(25):
        assert weight.rho == 1.0
        weight.update(0.1 * rng.normal(size=8), rng.random(8), group=g)
    assert weight.rho == 2.0
    calibrated = weight.eta2_cal
    for g in range(25, 75):
        weight.update(0.2 * rng.normal(size=8), rng.random(8), group=g)
    assert weight.eta2_cal == calibrated
    assert weight.rho == 4.0  # 1 + 4, clipped
    for g in range(75, 125):
        weight.update(np.zeros(8), rng.random(8), group=g)
    assert weight.rho == 1.0


def test_a_perfect_world_model_divides_by_nothing():
    rng = np.random.default_rng(0)
    weight = FusionWeight(min_pairs=8, window=8)
    weight.update(np.zeros(8), rng.random(8), group=0)
    assert weight.rho == 2.0
    weight.update(np.full(8, 0.1), rng.random(8), group=1)
    assert weight.rho == 4.0


def test_groups_without_spread_leave_eta2_as_it_was():
    weight = FusionWeight(min_pairs=4, window=8)
    weight.update([0.1] * 8, [0.3] * 8, group=0)
    assert weight.eta2 is None
    assert weight.rho == 1.0
    weight.update([0.1] * 8, np.linspace(0, 1, 8), group=1)
    known = weight.eta2
    assert weight.eta2_cal == known  # the first moment it could be measured
    weight.update([0.5] * 8, [0.3] * 8, group=2)
    assert weight.eta2 == known


def test_without_groups_the_window_is_the_yardstick():
    weight = FusionWeight(min_pairs=3)
    true = np.array([0.0, 0.5, 1.0])
    weight.update([0.1, 0.1, 0.1], true, group=[1, 2, 3])
    assert weight.eta2 == pytest.approx(0.01 / true.var())


def test_only_the_recent_window_counts():
    weight = FusionWeight(min_pairs=4, window=4)
    weight.update([9.0] * 4, [0.0, 1.0, 0.0, 1.0], group=0)
    weight.update([0.1] * 4, [0.0, 1.0, 0.0, 1.0], group=1)
    assert weight.eta2 == pytest.approx(0.01 / 0.25)


def test_members_of_a_group_may_arrive_one_by_one():
    whole, parts = FusionWeight(min_pairs=4), FusionWeight(min_pairs=4)
    whole.update([0.1, 0.2, 0.3, 0.4], [0.0, 1.0, 0.2, 0.8], group=["a", "a", "b", "b"])
    for e, t, g in [(0.1, 0.0, "a"), (0.3, 0.2, "b"), (0.2, 1.0, "a"), (0.4, 0.8, "b")]:
        parts.update([e], [t], group=g)
    assert parts.eta2 == pytest.approx(whole.eta2)


def test_state_survives_json():
    rng = np.random.default_rng(0)
    a, b = FusionWeight(min_pairs=16, window=32), FusionWeight(min_pairs=16, window=32)
    for g in range(20):
        a.update(rng.normal(size=4), rng.random(4), group=f"g{g}")
    a.update([0.1], [0.4], group="split")
    b.load_state_dict(json.loads(json.dumps(a.state_dict())))
    for weight in (a, b):
        weight.update([0.2], [0.9], group="split")
    assert (a.rho, a.eta2, a.eta2_cal, a.control_coefficient) == (b.rho, b.eta2, b.eta2_cal, b.control_coefficient)


# -- Corrector.advantages: the one function a trainer calls ----------------------------------------------------------
def batch(seed=0, m=8, n=4, anchors=2, bias=0.0, sigma=0.1):
    rng = np.random.default_rng(seed)
    true = rng.random((m, n))
    predicted = np.clip((1 - bias) * true + sigma * rng.normal(size=(m, n)), 0, 1)
    mask = np.zeros(m, dtype=bool)
    mask[rng.choice(m, anchors, replace=False)] = True
    return predicted, np.where(mask[:, None], true, NAN), mask, true


def warmed(**arguments):
    corrector = Corrector(min_pairs=64, **arguments)
    rng = np.random.default_rng(1)
    for g in range(16):
        true = rng.random(8)
        corrector.observe(np.clip(0.7 * true + 0.3 * rng.normal(size=8), 0, 1), true, group=g)
    return corrector


def test_ivw_advantages_are_real_on_anchors_calibrated_elsewhere_times_the_weight():
    corrector = warmed()
    predicted, true, mask, _ = batch()
    rewards = np.where(mask[:, None], true, corrector.calibrate(predicted))
    expected = corrector.weights(mask)[:, None] * (rewards - rewards.mean(1, keepdims=True))
    assert corrector.advantages(predicted, true, mask) == pytest.approx(expected)


@pytest.mark.parametrize("fusion", ["ivw", "cv", "auto", "none"])
def test_rows_sum_to_zero_and_nothing_is_nan(fusion):
    predicted, true, mask, _ = batch()
    out = warmed(fusion=fusion).advantages(predicted, true, mask)
    assert np.isfinite(out).all()
    assert out.sum(1) == pytest.approx(np.zeros(8))


def test_without_corrections_it_is_the_plain_mean_over_groups():
    corrector = warmed(debias=False, denoise=False)
    predicted, true, mask, _ = batch()
    rewards = np.where(mask[:, None], true, predicted)
    assert corrector.advantages(predicted, true, mask) == pytest.approx((rewards - rewards.mean(1, keepdims=True)) / 8)


def test_control_variate_is_its_formula():
    corrector = warmed(fusion="cv", debias=False)
    predicted, true, mask, _ = batch()
    lam = corrector.fusion_weight.control_coefficient
    assert 0 < lam < 1
    a_wm = predicted - predicted.mean(1, keepdims=True)
    a_real = true[mask] - true[mask].mean(1, keepdims=True)
    scores = np.random.default_rng(5).normal(size=predicted.shape)
    expected = ((a_real - lam * a_wm[mask]) * scores[mask]).sum(1).mean() + lam * (a_wm * scores).sum(1).mean()
    assert (corrector.advantages(predicted, true, mask) * scores).sum() == pytest.approx(expected)


def test_freeze_leaves_the_world_model_groups_out():
    predicted, true, mask, _ = batch()
    out = warmed().advantages(predicted, true, mask, freeze=True)
    assert (out[~mask] == 0).all()
    assert out[mask] == pytest.approx((true[mask] - true[mask].mean(1, keepdims=True)) / 2)


@pytest.mark.parametrize(("bias", "anchors", "m", "rule"), [(0.0, 1, 8, "ivw"), (0.8, 16, 64, "cv")])
def test_auto_takes_the_rule_with_the_lower_estimated_error(bias, anchors, m, rule):
    sigma = 0.02 if bias else 0.3
    corrector = Corrector(min_pairs=64, fusion="auto", debias=False, noise=sigma)
    rng = np.random.default_rng(1)
    for g in range(64):
        true = rng.random(8)
        corrector.observe(np.clip((1 - bias) * true + sigma * rng.normal(size=8), 0, 1), true, group=g)
    assert corrector._rule(np.arange(m) < anchors, 8) == rule


def test_auto_sees_an_error_of_the_order():
    """A deterministic model that orders solutions wrongly but is right on average at every true score."""
    corrector, noisy = (Corrector(min_pairs=64, fusion="auto", debias=False, noise=noise) for noise in (0.0, 0.3))
    rng = np.random.default_rng(1)
    for g in range(64):
        true = rng.uniform(0.2, 0.8, 8)
        predicted = np.clip(true + 0.3 * rng.choice([-1, 1], 8), 0, 1)
        for one in (corrector, noisy):
            one.observe(predicted, true, group=g)
    mask = np.arange(64) < 16
    assert corrector._rule(mask, 8) == "cv"
    assert noisy._rule(mask, 8) == "ivw"


def test_an_anchor_group_without_its_true_scores_is_refused():
    predicted, true, mask, _ = batch()
    true[np.flatnonzero(mask)[0], 1] = NAN
    with pytest.raises(ValueError, match=r"true score on anchor groups\[0, 1\] = nan"):
        warmed().advantages(predicted, true, mask)


def test_shapes_must_fit():
    with pytest.raises(ValueError, match=r"expected \(m, n\), \(m, n\) and \(m,\)"):
        Corrector().advantages(np.zeros((3, 2)), np.zeros((3, 2)), [True, False])


def test_unknown_fusion_is_refused():
    with pytest.raises(ValueError, match="fusion='best'"):
        Corrector(fusion="best")


def test_corrector_state_survives_json_and_metrics_are_floats():
    a, b = warmed(fusion="auto"), Corrector(min_pairs=64, fusion="auto")
    b.load_state_dict(json.loads(json.dumps(a.state_dict())))
    assert a.metrics() == b.metrics()
    assert all(type(value) is float for value in a.metrics().values())
    json.dumps(a.metrics(), allow_nan=False)
    assert json.dumps(a.state_dict()) == json.dumps(b.state_dict())


def test_corrections_can_be_switched_off_one_by_one():
    assert warmed(denoise=False).rho == 1.0
    off = warmed(debias=False)
    assert off.calibrate([0.3]).tolist() == [0.3]
    assert off.rho > 1
    assert not Corrector(debias=False, denoise=False).enabled
