"""The fusion rules: small cases enumerated exactly."""

from itertools import product

import numpy as np
import pytest

from wmrl_envs.correction import Corrector, FusionWeight
from wmrl_envs.correction.rules import Batch, centred, control_variate, doubly_robust, frozen

RNG = np.random.default_rng(0)
M, N = 4, 3
TRUE, WRONG = RNG.random((M, N)), RNG.random((M, N))
TARGET = centred(TRUE) / M  # the gradient's coefficients if everything were executed


def group_batch(mask, propensity=None):
    mask = np.array(mask)
    known = np.repeat(mask[:, None], N, axis=1)
    share = None if propensity is None else np.full((M, N), propensity)
    return Batch(WRONG, np.where(known, TRUE, 0.0), mask, known, np.zeros((M, N), bool), share)


def expectation(estimate, p):
    """Over independent draws of every group with probability p, the empty one included."""
    total = np.zeros((M, N))
    for mask in product([False, True], repeat=M):
        total += p ** sum(mask) * (1 - p) ** (M - sum(mask)) * estimate(group_batch(mask, p))
    return total


@pytest.mark.parametrize("p", [1 / 32, 0.125, 0.5])
@pytest.mark.parametrize("lam", [0.0, 0.4, 1.0])
def test_the_control_variate_is_unbiased_though_many_batches_hold_no_anchor(lam, p):
    assert expectation(lambda batch: control_variate(batch, lam), p) == pytest.approx(TARGET)


@pytest.mark.parametrize("p", [0.125, 0.5])
def test_the_doubly_robust_rule_is_unbiased_at_full_weight(p):
    assert expectation(lambda batch: doubly_robust(batch, 1.0), p) == pytest.approx(TARGET)


def test_without_an_anchor_the_control_variate_counts_predictions_by_lam_and_no_more():
    assert control_variate(group_batch([False] * M), 0.0) == pytest.approx(np.zeros((M, N)))
    assert control_variate(group_batch([False] * M, 0.1), 0.3) == pytest.approx(0.3 * centred(WRONG) / M)


@pytest.mark.parametrize("lag", [0, 2, 4, 8])
def test_anchors_that_land_late_do_not_overshoot(lag):
    """The last step of a run with deferred anchors: lag + 1 land at once; equal groups must give one group's advantage in all."""
    corrector = Corrector(min_pairs=8, debias=False, audit=False, fusion="cv")
    rng = np.random.default_rng(0)
    for g in range(40):
        true = rng.random(8)
        corrector.observe(np.clip(0.5 * true + 0.25 + 0.1 * rng.standard_normal(8), 0, 1), true, group=g)
    mask = np.arange(8 + lag) < lag + 1
    true = np.tile(rng.random(8), (8 + lag, 1))
    out = corrector.advantages(true * 0.5 + 0.25, np.where(mask[:, None], true, np.nan), mask)
    a = true[0] - true[0].mean()
    assert out.sum(0) @ a / (a @ a) == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_anchors_that_were_lost_leave_their_share_to_those_that_landed(lam):
    """Two anchors drawn of four, one of them lost at random: the mean over draws and losses is the executed gradient."""
    total, pairs = np.zeros((M, N)), [(a, b) for a in range(M) for b in range(M) if a != b]
    for landed, gone in pairs:
        kept = [k for k in range(M) if k != gone]
        mask = np.array([k == landed for k in kept])
        known = np.repeat(mask[:, None], N, axis=1)
        total[kept] += control_variate(
            Batch(
                WRONG[kept],
                np.where(known, TRUE[kept], 0.0),
                mask,
                known,
                np.zeros_like(known),
                np.full(known.shape, 0.5),
                (0.5,),
            ),
            lam,
        )
    assert total / len(pairs) == pytest.approx(TARGET)


def test_a_remembered_truth_takes_the_place_of_its_prediction_everywhere():
    remembered = np.zeros((M, N), bool)
    remembered[0, 1] = True
    batch = Batch(WRONG, np.where(remembered, TRUE, 0.0), np.zeros(M, bool), remembered, remembered)
    better = np.where(remembered, TRUE, WRONG)
    assert doubly_robust(batch, 0.5) == pytest.approx(centred(better) / M)
    assert control_variate(batch, 0.7) == pytest.approx(0.7 * centred(better) / M)
    assert batch.rewards == pytest.approx(better)


def test_frozen_groups_count_by_what_was_executed_in_them():
    known = np.zeros((M, N), bool)
    known[0, :2] = True
    known[1, 0] = True  # one alone has nothing to be compared with
    out = frozen(Batch(WRONG, np.where(known, TRUE, 0.0), np.zeros(M, bool), known, known))
    half = (TRUE[0, 0] - TRUE[0, 1]) / 2
    assert out[0] == pytest.approx([half, -half, 0.0])
    assert (out[1:] == 0).all()


# -- through the corrector ---------------------------------------------------------------------------------------------
def test_members_executed_inside_groups_have_their_truth_as_reward():
    corrector = Corrector()
    executed = np.zeros((M, N), bool)
    executed[:, 0] = True
    out = corrector.advantages(WRONG, np.where(executed, TRUE, np.nan), np.zeros(M, bool), known=executed, executed=executed)
    assert out == pytest.approx(centred(np.where(executed, TRUE, WRONG)) / M)


def test_a_random_member_of_every_group_makes_the_doubly_robust_rule_unbiased(monkeypatch):
    corrector = Corrector(fusion="dr")
    monkeypatch.setattr(corrector, "_shrinkage", lambda batch: 1.0)
    total = np.zeros((M, N))
    for chosen in product(range(N), repeat=M):
        executed = np.eye(N, dtype=bool)[list(chosen)]
        total += corrector.advantages(
            WRONG, np.where(executed, TRUE, np.nan), np.zeros(M, bool), known=executed, executed=executed,
            propensity=np.full((M, N), 1 / N),
        )  # fmt: skip
    assert total / N**M == pytest.approx(TARGET)


def observed(systematic, noise, groups=80):
    corrector = Corrector(min_pairs=48, fusion="dr", debias=False, audit=False)
    rng = np.random.default_rng(0)
    for g in range(groups):
        true = rng.random(8)
        bent = (1 - systematic) * true + systematic * 0.5
        corrector.observe(np.clip(bent + noise * rng.normal(size=8), 0, 1), true, group=g)
    return corrector


def test_the_shrinkage_grows_with_the_systematic_part_of_the_error():
    executed = np.zeros((8, 8), bool)
    executed[:, 0] = True
    batch = Batch(
        np.zeros((8, 8)), np.zeros((8, 8)), np.zeros(8, bool), executed, np.zeros((8, 8), bool), np.full((8, 8), 0.125)
    )
    noisy, bent = observed(0.0, 0.2)._shrinkage(batch), observed(0.7, 0.02)._shrinkage(batch)
    assert 0.125 <= noisy < 0.3 < bent <= 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"known": np.ones((M, N))}, "known of shape"),
        ({"known": np.ones((M, 2), bool)}, "known of shape"),
        ({"known": np.ones((M, N), bool)}, "true score of known members"),
        ({"calibrated": np.full((M, N), 2.0)}, "calibrated"),
        ({"propensity": np.zeros(3)}, "one a member"),
        ({"lost": [1.5]}, "lost"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Corrector().advantages(WRONG, np.full((M, N), np.nan), np.zeros(M, bool), **arguments)


def test_eta2_sees_what_the_gradient_sees():
    """An error that all members of a group share cancels in every advantage."""
    corrector = Corrector(min_pairs=16, debias=False)
    rng = np.random.default_rng(0)
    for g in range(8):
        true = rng.uniform(0.2, 0.8, 8)
        corrector.observe(true + rng.uniform(-0.2, 0.2), true, group=g)
    assert corrector.eta2 == pytest.approx(0.0, abs=1e-12)
    assert corrector.metrics()["eta2_solutions"] > 0.1


def test_the_noise_of_an_episode_is_measured_on_episodes():
    """The best of four noisy predictions is too high though each is right on average."""
    corrector = Corrector(min_pairs=16, debias=False)
    rng = np.random.default_rng(0)
    for g in range(60):
        true = rng.uniform(0.2, 0.7, (8, 4))
        predicted = np.clip(true + 0.15 * rng.normal(size=true.shape), 0, 1)
        corrector.observe(predicted.ravel(), true.ravel(), group=g, episodes=(predicted.max(1), true.max(1)))
    assert corrector.audit.metrics()["bias"] > 0.04
    assert corrector.n_pairs == 60 * 32
    assert corrector.fusion_weight.n_pairs == 60 * 8


def test_episodes_that_do_not_fit_are_refused_and_nothing_is_taken_in():
    corrector = Corrector()
    with pytest.raises(ValueError, match="one of each an episode"):
        corrector.observe([0.1, 0.2], [0.1, 0.2], group=0, episodes=([0.1], [0.1, 0.2]))
    assert corrector.n_pairs == 0


def test_the_control_coefficient_is_still_that_of_the_window():
    assert Corrector(fusion="cv").fusion_weight.control_coefficient == FusionWeight().control_coefficient == 1.0
