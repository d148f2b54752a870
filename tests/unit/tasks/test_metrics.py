"""Metrics on text, masks, boxes and points, by hand."""

import numpy as np
import pandas as pd
import pytest

from wmrl_envs.tasks import InvalidSubmission, task_spec
from wmrl_envs.tasks.metrics import tabular, text, vision


def test_gini_of_a_regression_by_the_cumulative_definition():
    rng = np.random.default_rng(0)
    y, p = rng.integers(1, 9, 50).astype(float), rng.permutation(50).astype(float)

    def area(by):
        ranked = y[np.argsort(-by, kind="stable")]
        return (np.cumsum(ranked) / ranked.sum()).sum() - 25.5

    assert tabular.gini(y[:, None], p[:, None]) == pytest.approx(area(p) / area(y))


def test_gini_and_auc_of_a_constant():
    y = np.array([[0], [1], [1], [0]])
    assert tabular.gini(y, np.ones((4, 1))) == pytest.approx(0)
    assert tabular.roc_auc(y, np.ones((4, 1))) == 0.5
    assert np.isnan(tabular.roc_auc(np.ones((4, 1)), np.ones((4, 1))))


def test_log_loss_divides_rows_by_their_sum_and_charges_a_row_of_zeros():
    y = np.eye(3)
    assert tabular.log_loss(y, np.full((3, 3), 7.0)) == pytest.approx(np.log(3))
    assert tabular.log_loss(y, np.zeros((3, 3))) == pytest.approx(-np.log(1e-15))


def test_wmae_weighs_holidays_and_knows_them_from_the_dates():
    spec = task_spec("walmart-recruiting-store-sales-forecasting")
    truth = pd.DataFrame({"Id": ["1_1_2012-02-10", "1_1_2012-02-17"], "Weekly_Sales": [10.0, 10.0]})
    guess = truth.assign(Weekly_Sales=[11.0, 13.0])
    assert spec.metric(truth, guess) == pytest.approx((5 * 1 + 3) / 6)
    assert spec.metric(truth.assign(IsHoliday=[False, True]), guess) == pytest.approx((1 + 5 * 3) / 6)


def test_smape_counts_two_zeros_as_right():
    assert tabular.smape(np.array([[0.0], [1.0]]), np.array([[0.0], [3.0]])) == pytest.approx(50)


def test_qwk_uses_true_distances():
    y, p = np.array([[1.0], [2.0], [8.0], [8.0]]), np.array([[1.0], [8.0], [8.0], [2.0]])
    observed = np.mean((y - p) ** 2)
    expected = np.mean((y - p.T) ** 2)
    assert tabular.qwk(y, p) == pytest.approx(1 - observed / expected)


def test_map_at_k_repeats_and_surplus():
    assert text.map_at_k([["a"]], [["b", "b", "a"]], 3) == pytest.approx(1 / 3)
    assert text.map_at_k([["a"]], [["b", "c", "d", "a"]], 3) == 0
    assert text.map_at_k([["a"]], [["a", "a", "a"]], 3) == 1
    assert text.map_at_k([["a"]], [[]], 3) == 0


def test_spans_in_both_spellings_overlapping_and_malformed():
    assert text.parse_spans("0 10;5 12") == ((0, 10), (5, 12))
    assert text.parse_spans("['0 10', '5 12;20 21']") == ((0, 10), (5, 12), (20, 21))
    assert text.parse_spans("[]") == ()
    assert text.span_f1([((0, 10),)], [((0, 10), (5, 10), (0, 3))]) == 1.0
    assert text.span_f1([((0, 10),)], [((5, 15),)]) == pytest.approx(0.5)
    for bad in ("abc", "5", "10 5", "1 2 3"):
        with pytest.raises(ValueError, match=r"span"):
            text.parse_spans(bad)


def test_kendall_tau_needs_each_cell_once():
    spec = task_spec("AI4Code")
    truth = pd.DataFrame({"id": ["n"], "cell_order": ["a b c d"]})
    assert spec.metric(truth, truth.assign(cell_order="b a c d")) == pytest.approx(1 - 4 / 12)
    for bad in ("a", "a b c", "a b c c", "a b c e", ""):
        with pytest.raises(InvalidSubmission, match="id n"):
            spec.metric(truth, truth.assign(cell_order=bad))


def test_word_jaccard_ignores_case_and_repeats():
    assert text.word_jaccard(["A b b"], ["a B c"]) == pytest.approx(2 / 3)
    assert text.word_jaccard(["a"], [""]) == 0


def test_rle_parses_and_refuses():
    assert vision.parse_rle("", 2, 2).sum() == 0
    assert vision.parse_rle("1 4", 2, 2).all()
    for bad in ("1", "0 2", "1 5", "a b", "1 -1", "1.5 2"):
        with pytest.raises(ValueError, match=r"run|number"):
            vision.parse_rle(bad, 2, 2)


def test_iou_exactly_at_a_threshold_does_not_exceed_it():
    truth, half = vision.parse_rle("1 100", 101, 101), vision.parse_rle("1 60", 101, 101)
    assert vision.rle_iou_precision([truth], [half]) == pytest.approx(0.2)
    assert vision.rle_iou_precision([truth], [half], at_threshold=True) >= 0.2


def test_hausdorff_against_scipy():
    from scipy.spatial.distance import directed_hausdorff

    rng = np.random.default_rng(3)
    a, b = (rng.random((64, 64)) < 0.01 for _ in range(2))
    points = [np.argwhere(m) for m in (a, b)]
    by_hand = max(directed_hausdorff(*points)[0], directed_hausdorff(*points[::-1])[0]) / (64 * np.sqrt(2))
    assert vision._hausdorff(a, b) == pytest.approx(by_hand)


def test_boxes_surest_first_each_true_box_once():
    truth = [np.array([[1, 0, 0, 10, 10.0]])]
    twice = [np.array([[0.4, 0, 0, 10, 10.0], [0.9, 0, 0, 10, 10.0]])]
    assert vision.box_precision(truth, twice) == pytest.approx(0.5)
    assert vision.box_precision([np.zeros((0, 5))], [np.zeros((0, 5))]) == 0
    for bad in ("1 2 3", "0.5 1 1 -2 3", "a 1 1 2 3", "nan 1 1 2 3"):
        with pytest.raises(ValueError, match=r"number|finite|negative"):
            vision.parse_boxes(bad)


def test_points_hit_free_boxes_of_their_label():
    truth = [(["A", "B"], np.array([[0, 0, 10, 10], [0, 0, 10, 10.0]]))]
    assert vision.point_f1(truth, [(["A", "A"], np.array([[5, 5], [6, 6.0]]))]) == pytest.approx(0.5)
    assert vision.point_f1(truth, [(["A"], np.array([[10, 5.0]]))]) == 0


def test_bias_auc_uses_the_nine_identities():
    rng = np.random.default_rng(0)
    n = 200
    truth = pd.DataFrame({"id": range(n), "toxicity": rng.random(n)})
    guess = pd.DataFrame({"id": range(n), "prediction": rng.random(n)})
    spec = task_spec("jigsaw-unintended-bias-in-toxicity-classification")
    nine = truth.assign(**{name: rng.random(n) for name in tabular.IDENTITIES})
    assert len(tabular.IDENTITIES) == 9
    assert spec.metric(nine.assign(buddhist=rng.random(n)), guess) == spec.metric(nine, guess)
    assert spec.metric(nine, guess) != spec.metric(truth, guess)


def test_weighted_recall_by_component():
    spec = task_spec("bengaliai-cv19")
    parts = ("grapheme_root", "vowel_diacritic", "consonant_diacritic")
    truth = pd.DataFrame({"row_id": [f"Test_{i}_{p}" for i in range(2) for p in parts], "target": [0, 0, 0, 1, 1, 1]})
    guess = truth.assign(target=[0, 0, 0, 1, 0, 1])
    assert spec.metric(truth, guess) == pytest.approx((2 * 1 + 0.5 + 1) / 4)


def test_150000_shuffled_rows_of_six_columns_are_matched_by_id():
    spec = task_spec("jigsaw-toxic-comment-classification-challenge")
    rng = np.random.default_rng(0)
    ids = pd.DataFrame({"id": [f"{i:016x}" for i in range(150_000)]})
    truth = pd.concat([ids, pd.DataFrame(rng.integers(0, 2, (150_000, 6)), columns=spec.facts.target_columns)], axis=1)
    guess = pd.concat([ids, pd.DataFrame(rng.random((150_000, 6)), columns=spec.facts.target_columns)], axis=1)
    guess = guess.sample(frac=1, random_state=0)
    assert spec.metric(truth, guess) == pytest.approx(0.5, abs=0.01)
