"""Properties of the corrections that hold for any pairs."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wmrl_envs.correction import Corrector, FusionWeight, Recalibrator, fuse, fusion_weights

SCORE = st.floats(0, 1, allow_nan=False)
PAIRS = st.lists(st.tuples(SCORE, SCORE), min_size=4, max_size=80)
DIRECTION = st.sampled_from(["inverse", "regression"])


@settings(deadline=None, max_examples=150)
@given(PAIRS, DIRECTION, st.booleans())
def test_calibration_is_monotone_and_inside_the_range(pairs, direction, two_stage):
    predicted, true = np.array(pairs).T
    f = Recalibrator(min_pairs=4, direction=direction, two_stage=two_stage)
    f.update(predicted, true, group=0, task="a")
    out = f.transform(np.sort(np.concatenate([predicted, np.linspace(0, 1, 50)])))
    assert (np.diff(out) >= -1e-12).all()
    assert (out >= 0).all()
    assert (out <= 1).all()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(SCORE, SCORE), min_size=1, max_size=199))
def test_identity_before_200_pairs(pairs):
    predicted, true = np.array(pairs).T
    f = Recalibrator()
    f.update(predicted, true)
    assert not f.ready
    assert f.transform(predicted).tolist() == predicted.tolist()


@settings(deadline=None, max_examples=100)
@given(st.lists(st.booleans(), min_size=1, max_size=64), st.floats(1, 4))
def test_weights_sum_to_one_and_anchors_weigh_rho_times_the_others(mask, rho):
    weights = fusion_weights(mask, rho)
    assert weights.sum() == pytest.approx(1)
    mask = np.array(mask)
    if mask.any() and (~mask).any():
        assert weights[mask][0] / weights[~mask][0] == pytest.approx(rho)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.floats(-1, 1), SCORE, st.integers(0, 5)), min_size=1, max_size=60), st.integers(1, 40))
def test_rho_stays_in_1_to_4(rows, min_pairs):
    weight = FusionWeight(min_pairs=min_pairs, window=16)
    for residual, true, group in rows:
        weight.update([residual], [true], group=group)
        assert 1.0 <= weight.rho <= 4.0


@settings(deadline=None, max_examples=50)
@given(PAIRS, st.integers(0, 2**31), DIRECTION)
def test_order_of_groups_does_not_matter(pairs, seed, direction):
    pairs = np.array(pairs)[: len(pairs) // 4 * 4].reshape(-1, 4, 2)
    order = np.random.default_rng(seed).permutation(len(pairs))
    one, other = (Corrector(min_pairs=pairs[..., 0].size, direction=direction) for _ in range(2))
    for g in range(len(pairs)):
        one.observe(pairs[g, :, 0], pairs[g, :, 1], group=g)
    for g in order:
        other.observe(pairs[g, :, 0], pairs[g, :, 1], group=int(g))
    probe = np.linspace(0, 1, 21)
    assert one.calibrate(probe) == pytest.approx(other.calibrate(probe), abs=1e-7)
    assert one.rho == pytest.approx(other.rho, rel=1e-6)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**31), st.integers(2, 6))
def test_order_of_groups_in_a_batch_does_not_matter(seed, m):
    rng = np.random.default_rng(seed)
    predicted, true, mask = rng.random((m, 4)), rng.random((m, 4)), np.arange(m) < 1
    order = rng.permutation(m)
    for fusion in ("ivw", "cv", "none"):
        corrector = Corrector(fusion=fusion)
        assert corrector.advantages(predicted, true, mask)[order] == pytest.approx(
            corrector.advantages(predicted[order], true[order], mask[order])
        )


@settings(deadline=None, max_examples=30)
@given(PAIRS, PAIRS)
def test_state_round_trips_exactly(first, second):
    a, b = (
        Corrector(min_pairs=8, refit_every=4, fusion="auto", per_task=True),
        Corrector(min_pairs=8, refit_every=4, fusion="auto", per_task=True),
    )
    for g, (p, t) in enumerate(first):
        a.observe([p], [t], group=g // 4, task=f"t{g % 2}")
    b.load_state_dict(json.loads(json.dumps(a.state_dict())))
    for g, (p, t) in enumerate(second):
        for c in (a, b):
            c.observe([p], [t], group=1000 + g // 4, task=f"t{g % 2}")
    assert json.dumps(a.state_dict()) == json.dumps(b.state_dict())
    assert a.metrics() == b.metrics()


@pytest.mark.parametrize("lam", [0.0, 0.4, 1.0])
def test_control_variate_is_unbiased_however_wrong_the_world_model_is(lam, monkeypatch):
    """Over all ways to pick 2 anchors of 6 the mean estimate is the all-real gradient, for a world model that is noise."""
    from itertools import combinations

    rng = np.random.default_rng(0)
    true, predicted, scores = rng.random((6, 4)), rng.random((6, 4)), rng.normal(size=(6, 4))
    corrector = Corrector(fusion="cv")
    monkeypatch.setattr(FusionWeight, "control_coefficient", lam)
    estimates = []
    for chosen in combinations(range(6), 2):
        mask = np.isin(np.arange(6), chosen)
        seen = np.where(mask[:, None], true, np.nan)
        plain = (corrector.advantages(predicted, seen, mask) * scores).sum()
        weighted = (corrector.advantages(predicted, seen, mask, propensity=np.full(6, 2 / 6)) * scores).sum()
        assert plain == pytest.approx(weighted)
        estimates.append(plain)
    real = ((true - true.mean(1, keepdims=True)) * scores).sum() / 6
    assert np.mean(estimates) == pytest.approx(real)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 5), st.integers(0, 5), st.floats(1, 4))
def test_fusing_equal_group_gradients_changes_nothing(n_anchor, n_wm, rho):
    if n_anchor + n_wm:
        assert fuse(0.7 * n_anchor, 0.7 * n_wm, n_anchor, n_wm, rho) == pytest.approx(0.7)


@settings(deadline=None, max_examples=50)
@given(st.one_of(st.floats(max_value=-1e-9), st.floats(min_value=1 + 1e-9), st.just(float("nan"))), st.integers(0, 7))
def test_a_bad_score_is_refused_with_its_value_and_origin(bad, where):
    scores = [0.5] * 8
    scores[where] = bad
    corrector = Corrector()
    for predicted, true, name in [(scores, [0.5] * 8, "predicted"), ([0.5] * 8, scores, "true")]:
        with pytest.raises(ValueError, match=rf"{name} of group 'g3'\[{where}\]") as error:
            corrector.observe(predicted, true, group="g3")
        assert repr(float(bad)) in str(error.value)
    assert corrector.n_pairs == 0
