"""What `Corrector` refuses: one bad number would bend every later gradient."""

import json

import numpy as np
import pytest

from wmrl_envs.correction import Corrector

PREDICTED, TRUE = np.tile(np.linspace(0.1, 0.8, 8), (4, 1)), np.full((4, 8), np.nan)
TRUE[:2] = np.linspace(0, 1, 8)
MASK = np.array([True, True, False, False])


@pytest.mark.parametrize("fusion", ["ivw", "cv"])
@pytest.mark.parametrize(
    ("propensity", "message"),
    [
        ([0.0, 0.5, 0.5, 0.5], "cannot have had probability 0"),
        ([float("nan")] * 4, "propensity"),
        ([-1, 0.5, 0.5, 0.5], "propensity"),
        ([5, 0.5, 0.5, 0.5], "propensity"),
        ([0.5, 0.5], "one a group"),
        (0.5, "one a group"),
    ],
)
def test_propensities_are_probabilities_one_a_group(fusion, propensity, message):
    with pytest.raises(ValueError, match=message):
        Corrector(fusion=fusion).advantages(PREDICTED, TRUE, MASK, propensity=propensity)


@pytest.mark.parametrize(
    ("true", "mask", "message"),
    [
        (TRUE, ["no"] * 4, "expected True or False"),
        (TRUE, [np.nan] * 4, "expected True or False"),
        (TRUE, [0.3] * 4, "expected True or False"),
        ("abc", MASK, "expected numbers"),
        (TRUE[None], MASK, r"expected \(m, n\)"),
    ],
)
def test_masks_and_scores_are_what_they_should_be(true, mask, message):
    with pytest.raises(ValueError, match=message):
        Corrector().advantages(PREDICTED, true, mask)


def test_a_label_that_is_no_label_is_refused_before_anything_is_taken_in():
    corrector = Corrector()
    with pytest.raises(ValueError, match="label"):
        corrector.observe([0.1, 0.2], [0.3, 0.4], group=[[1, 2], [3, 4]])
    assert corrector.n_pairs == 0


def fitted():
    rng, corrector = np.random.default_rng(0), Corrector(min_pairs=20, refit_every=8)
    for group in range(10):
        true = rng.random(8)
        corrector.observe(0.3 + 0.4 * true, true, group=group)
    return corrector


def test_state_round_trip():
    one, other = fitted(), Corrector(min_pairs=20, refit_every=8)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    scores = np.linspace(0, 1, 11)
    assert other.calibrate(scores).tolist() == one.calibrate(scores).tolist()
    assert other.metrics() == one.metrics()


def edit(state, path, value):
    *parents, last = path
    for key in parents:
        state = state[key]
    if value is None:
        del state[last]
    else:
        state[last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("recalibrator",), None), (("fusion_weight", "eta2"), float("nan")), (("fusion_weight", "pairs", "residual"), [0.1]),
        (("fusion_weight", "pairs", "n_seen"), -1), (("audit", "drift"), float("nan")), (("audit", "drift"), float("inf")),
        (("audit", "rows"), [[float("nan"), 0.1, 0, None]]), (("recalibrator", "pool", "true"), [5.0]),
    ],
)  # fmt: skip
def test_a_damaged_state_is_refused_and_changes_nothing(path, value):
    corrector = fitted()
    before, state = corrector.state_dict(), json.loads(json.dumps(corrector.state_dict()))
    edit(state, path, value)
    with pytest.raises(ValueError, match="No state of a Corrector"):
        corrector.load_state_dict(state)
    assert corrector.state_dict() == before


@pytest.mark.parametrize("vertices", [[-5.0, 9.0], [0.9, 0.1], [float("nan"), 1.0]])
def test_a_map_that_is_no_map_is_refused(vertices):
    corrector = fitted()
    state = json.loads(json.dumps(corrector.state_dict()))
    xy = state["recalibrator"]["maps"]["inverse"]["vertices"]
    xy[1] = list(np.interp(np.linspace(0, 1, len(xy[0])), [0, 1], vertices))
    with pytest.raises(ValueError, match="No state of a Corrector"):
        corrector.load_state_dict(state)
