"""Online Debiasing: what the map of Equation 4 / Lemma 11 does to scores."""

import json
import logging

import numpy as np
import pytest

from wmrl_envs.correction import Recalibrator, recalibrate
from wmrl_envs.correction.maps import inverse_map


def distorted(true, sigma=0.0, rng=None):
    noise = sigma * rng.normal(size=np.shape(true)) if rng is not None else 0.0
    return np.clip(0.3 + 0.5 * np.asarray(true) ** 1.5 + noise, 0, 1)


def test_inverse_map_sends_the_mean_prediction_of_a_level_to_that_level():
    levels = np.linspace(0, 1, 11)
    true = np.repeat(levels, 30)
    f = Recalibrator(levels=10)
    f.update(distorted(true), true)
    assert f.transform(distorted(levels)) == pytest.approx(levels, abs=1e-9)


def test_inverse_map_averages_noise_at_a_level_instead_of_flattening():
    rng = np.random.default_rng(0)
    true = np.repeat([0.0, 0.5, 1.0], 2000)
    predicted = np.clip(0.35 + 0.3 * true + 0.1 * rng.normal(size=true.size), 0, 1)
    probe = [0.35, 0.5, 0.65]
    inverse = recalibrate(predicted, true, probe)
    regression = recalibrate(predicted, true, probe, direction="regression")
    assert inverse == pytest.approx([0.0, 0.5, 1.0], abs=0.03)
    assert regression[0] > 0.05
    assert regression[2] < 0.95  # E[r | r_hat] shrinks towards the mean


def test_levels_the_projection_pools_share_their_vertex_at_the_mean_of_their_scores():
    true = np.repeat([0.0, 0.4, 0.6, 1.0], 10)
    predicted = np.repeat([0.1, 0.5, 0.3, 0.9], 10)  # 0.4 and 0.6 in the wrong order
    xs, ys = inverse_map(predicted, true, 10, (0.0, 1.0))
    assert xs == pytest.approx([0.1, 0.4, 0.9])
    assert ys == pytest.approx([0.0, 0.5, 1.0])


def test_levels_without_pairs_are_skipped():
    rng = np.random.default_rng(1)
    true = np.concatenate([rng.uniform(0, 0.1, 100), rng.uniform(0.9, 1.0, 100)])
    xs, _ = inverse_map(distorted(true), true, 10, (0.0, 1.0))
    assert len(xs) == 2


def test_a_level_seen_once_cannot_bend_its_neighbours():
    true = np.concatenate([np.repeat([0.1, 0.3, 0.5], 100), [0.9]])
    predicted = np.concatenate([np.repeat([0.2, 0.4, 0.6], 100), [0.3]])
    assert recalibrate(predicted, true, [0.4])[0] == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("direction", ["inverse", "regression"])
def test_predictions_beyond_the_outer_vertices_keep_their_order_inside_the_range(direction):
    predicted, true = np.linspace(0.4, 0.6, 40), np.linspace(0.2, 0.8, 40)
    below, above = (
        recalibrate(predicted, true, [0.0, 0.2, 0.3, 0.35], direction),
        recalibrate(predicted, true, [0.65, 0.8, 1.0], direction),
    )
    assert (np.diff(below) > 0).all()
    assert (np.diff(above) > 0).all()
    assert (below[0], above[-1]) == pytest.approx((0.0, 1.0))


def test_beyond_a_plateau_the_slope_of_the_whole_map_goes_on():
    predicted, true = [0.2, 0.4, 0.6, 0.7], [0.1, 0.5, 0.5, 0.5]
    out = recalibrate(predicted, true, [0.7, 0.8, 0.9], "regression")
    assert (np.diff(out) > 0).all()


def test_a_map_without_a_range_goes_on_with_its_last_slope():
    f = Recalibrator(min_pairs=4, score_range=None, direction="regression")
    f.update([0.0, 1.0, 2.0, 3.0], [0.0, 2.0, 4.0, 6.0])
    assert f.transform([5.0, -1.0]).tolist() == pytest.approx([10.0, -2.0])


def feed(f, distortion, sigma, groups=120, seed=0):
    rng = np.random.default_rng(seed)
    for g in range(groups):
        true = rng.random(8)
        f.update(np.clip(distortion(true) + sigma * rng.normal(size=8), 0, 1), true, group=g)
    return f


def test_auto_takes_a_map_where_predictions_are_bent():
    f = feed(Recalibrator(min_pairs=48, direction="auto"), lambda r: 0.4 + 0.3 * r**2, 0.01)
    assert f.in_use in ("inverse", "regression")
    assert f.transform([0.4, 0.7]) == pytest.approx([0.0, 1.0], abs=0.12)


def test_auto_takes_no_map_where_predictions_are_right():
    f = feed(Recalibrator(min_pairs=48, direction="auto"), lambda r: r, 0.02)
    assert f.in_use == "none"
    assert f.transform([0.1, 0.9]).tolist() == [0.1, 0.9]


def test_auto_never_inverts_noise():
    """Predictions that are nearly all noise: the inverse map makes their advantages worse, the regression map shrinks them."""
    f = feed(Recalibrator(min_pairs=48, direction="auto"), lambda r: 0.3 + 0.4 * r, 0.3)
    assert f.in_use == "regression"


def test_autos_choice_survives_json_and_goes_on_alike():
    a = feed(Recalibrator(min_pairs=48, direction="auto"), lambda r: 0.4 + 0.3 * r**2, 0.05)
    b = Recalibrator(min_pairs=48, direction="auto")
    b.load_state_dict(json.loads(json.dumps(a.state_dict())))
    for f in (a, b):
        feed(f, lambda r: r, 0.05, groups=40, seed=1)
    assert json.dumps(a.state_dict()) == json.dumps(b.state_dict())
    assert a.in_use == b.in_use


def test_the_state_of_version_0_1_is_still_read():
    f = feed(Recalibrator(min_pairs=48), lambda r: 0.4 + 0.3 * r, 0.02)
    old = f.state_dict()
    old["map"], old["task_maps"] = old.pop("maps")["inverse"], []
    del old["choice"]
    again = Recalibrator(min_pairs=48)
    again.load_state_dict(json.loads(json.dumps(old)))
    assert again.transform([0.3, 0.5]).tolist() == f.transform([0.3, 0.5]).tolist()


@pytest.mark.parametrize("predicted", [np.full(200, 0.5), np.linspace(1, 0, 200)])
def test_an_unusable_slope_keeps_the_last_good_map_and_says_so(predicted, caplog):
    true = np.linspace(0, 1, 200)
    f = Recalibrator(min_pairs=50, refit_every=50, max_pairs=1000)
    f.update(distorted(true[::4]), true[::4])
    before = f.transform(np.linspace(0, 1, 20))
    with caplog.at_level(logging.WARNING):
        f.update(np.tile(predicted, 5), np.tile(true, 5))
    assert f.fell_back
    assert "last good map" in caplog.text
    assert f.transform(np.linspace(0, 1, 20)).tolist() == before.tolist()


def test_a_first_fit_without_slope_leaves_the_identity(caplog):
    f = Recalibrator(min_pairs=10)
    f.update(np.full(10, 0.3), np.linspace(0, 1, 10))
    assert f.ready
    assert f.fell_back
    assert f.transform([0.1, 0.7]).tolist() == [0.1, 0.7]
    assert "identity" in caplog.text


def test_noise_is_not_inverted():
    rng = np.random.default_rng(0)
    unusable = [inverse_map(rng.random(200), rng.random(200), 10, (0.0, 1.0)) is None for _ in range(200)]
    assert np.mean(unusable) > 0.97


def test_identity_until_min_pairs_then_refit_after_every_64_new_pairs():
    rng = np.random.default_rng(0)
    f = Recalibrator()
    fits = []
    for group in range(50):
        true = rng.random(8)
        f.update(distorted(true), true, group=group)
        fits.append(f.n_fits)
        if f.n_pairs < 200:
            assert f.transform(true).tolist() == true.tolist()
    counts = 8 * (1 + np.flatnonzero(np.diff([0, *fits])))
    assert counts.tolist() == [200, 264, 328, 392]


def test_residuals_are_those_of_the_map_before_the_pairs():
    true = np.linspace(0, 1, 100)
    f = Recalibrator(min_pairs=100, refit_every=100)
    assert f.update(distorted(true), true) == pytest.approx(distorted(true) - true)  # the identity
    assert np.abs(f.update(distorted(true), true)).max() < 0.05  # the first map, fitted without these


def test_per_task_maps_are_shrunk_to_the_common_one():
    rng = np.random.default_rng(0)
    true = rng.random(4000)
    harsh, kind = 0.5 * true, 0.5 + 0.5 * true
    predicted = np.where(np.arange(4000) % 2, harsh, kind)
    tasks = np.where(np.arange(4000) % 2, "harsh", "kind")
    common, own = Recalibrator(), Recalibrator(per_task=True)
    for f in (common, own):
        f.update(predicted, true, group=None, task=tasks)
    error = {f: np.abs(f.transform(harsh, tasks="harsh") - true).mean() for f in (common, own)}
    assert error[own] < 0.3 * error[common]
    assert own.transform([0.3], tasks="never seen") == pytest.approx(own.transform([0.3]))


def test_two_stage_multiplies_the_chance_of_a_valid_solution():
    rng = np.random.default_rng(0)
    valid = rng.random(20_000) < 0.5
    true = np.where(valid, rng.uniform(0.3, 1.0, 20_000), 0.0)
    predicted = np.clip(np.where(valid, 0.5 * true + 0.4, 0.2) + 0.05 * rng.normal(size=20_000), 0, 1)
    f = Recalibrator(two_stage=True)
    f.update(predicted, true)
    assert f.transform([0.1])[0] < 0.02
    assert f.transform([0.8])[0] == pytest.approx(0.8, abs=0.03)


def test_state_survives_json_and_goes_on_alike():
    rng = np.random.default_rng(0)
    a, b = Recalibrator(min_pairs=30, per_task=True), Recalibrator(min_pairs=30, per_task=True)
    true = rng.random(120)
    a.update(distorted(true), true, group=1, task=["x", "y"] * 60)
    b.load_state_dict(json.loads(json.dumps(a.state_dict())))
    more = rng.random(70)
    for f in (a, b):
        f.update(distorted(more, 0.1, np.random.default_rng(1)), more, group="g", task="x")
    probe = np.linspace(0, 1, 50)
    assert a.transform(probe, tasks="x").tolist() == b.transform(probe, tasks="x").tolist()
    assert a.state_dict() == b.state_dict()


def test_rewards_without_a_range():
    true = np.linspace(-200, 0, 300)
    f = Recalibrator(score_range=None)
    f.update(true / 2 + 30, true)
    assert f.transform([-20.0])[0] == pytest.approx(-100, abs=1)


@pytest.mark.parametrize("bad", [1.7, -0.1, float("nan"), float("inf")])
def test_a_bad_score_is_refused_by_name_and_nothing_is_pooled(bad):
    f = Recalibrator()
    with pytest.raises(ValueError, match=r"predicted of group 'g7'\[1\] = .*expected a finite score in"):
        f.update([0.1, bad], [0.1, 0.2], group="g7")
    with pytest.raises(ValueError, match=r"true of group 'g7'\[0\]"):
        f.update([0.1, 0.2], [bad, 0.2], group="g7")
    with pytest.raises(ValueError, match="predicted"):
        f.transform([bad])
    assert f.n_pairs == 0


@pytest.mark.parametrize(
    "arguments",
    [{"min_pairs": 0}, {"refit_every": 1.5}, {"direction": "sideways"}, {"levels": 0}, {"score_range": (1, 0)},
     {"two_stage": True, "score_range": None}],
)  # fmt: skip
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        Recalibrator(**arguments)


def test_numbers_of_predicted_and_true_scores_must_agree():
    with pytest.raises(ValueError, match="3 predicted and 2 true"):
        Recalibrator().update([0.1, 0.2, 0.3], [0.1, 0.2])
