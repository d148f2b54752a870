"""What is refused, and that the message names the first offenders and the fix."""

import numpy as np
import pandas as pd
import pytest

from wmrl_envs.tasks import InvalidSubmission, task_spec
from wmrl_envs.tasks.validation import listed, read_table

TRUTH = pd.DataFrame({"id": [11, 12, 13, 14], "price": [1.0, 2.0, 3.0, 4.0]})
SPEC = task_spec("playground-series-s3e8")


def good():
    return pd.DataFrame({"id": [11, 12, 13, 14], "price": [1.0, 2.5, 3.0, 4.0]})


def refusal(submission, spec=SPEC, truth=TRUTH):
    with pytest.raises(InvalidSubmission) as caught:
        spec.validate(truth, submission)
    return str(caught.value)


def test_a_good_submission_gives_none_in_any_row_and_column_order():
    assert SPEC.validate(TRUTH, good()) is None
    shuffled = good().iloc[[2, 0, 3, 1]][["price", "id"]]
    assert SPEC.metric(TRUTH, shuffled) == SPEC.metric(TRUTH, good()) == 0.25


def test_ids_match_as_strings():
    assert SPEC.validate(TRUTH, good().astype({"id": str})) is None
    assert "do not match" in refusal(good().astype({"id": float}))


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda d: d.drop(columns="price"), ["Missing required columns in submission: price", "id, price"]),
        (lambda d: d.rename(columns={"price": "Price"}), ["Missing required columns", "price"]),
        (lambda d: d.assign(extra=1), ["Extra unexpected columns found in submission: extra"]),
        (lambda d: d.rename_axis("Unnamed: 0").reset_index(), ["Unnamed: 0", "index=False"]),
        (lambda d: d.iloc[:3], ["(3) does not match ground truth (4)", "14"]),
        (lambda d: pd.concat([d, d.iloc[:1].assign(id=99)]), ["(5) does not match ground truth (4)", "99"]),
        (lambda d: d.assign(id=[11, 12, 13, 13]), ["1 duplicated ids", "13"]),
        (lambda d: d.assign(id=[11, 12, 13, 15]), ["14", "15"]),
        (lambda d: d.iloc[:0], ["no rows"]),
        (lambda d: d.assign(price=[1, np.nan, 3, np.nan]), ["2 missing predictions", "price", "id 12", "id 14"]),
        (lambda d: d.assign(price=["1", "", "3", "4"]), ["1 missing predictions", "id 12"]),
        (lambda d: d.assign(price=[1, 2, np.inf, 4]), ["1 infinite predictions", "id 13"]),
        (lambda d: d.assign(price=["1", "2", "1e999", "4"]), ["infinite", "id 13"]),
        (lambda d: d.assign(price=["1", "2", "three", "4"]), ["not numbers", "'three' (id 13)"]),
    ],
)
def test_a_refusal_names_the_first_offenders(change, parts):
    message = refusal(change(good()))
    for part in parts:
        assert part in message


def test_long_lists_are_cut_with_a_count():
    truth = pd.DataFrame({"id": range(1000), "price": 1.0})
    message = refusal(truth.assign(price=np.nan), truth=truth)
    assert "1000 missing predictions" in message
    assert "995 more" in message
    assert len(message) < 400


def test_probabilities_outside_the_unit_interval_are_refused_where_the_metric_needs_them():
    spec = task_spec("dogs-vs-cats-redux-kernels-edition")
    truth = pd.DataFrame({"id": [1, 2], "label": [0, 1]})
    assert "'1.2' (id 2)" in refusal(pd.DataFrame({"id": [1, 2], "label": [0.1, 1.2]}), spec, truth)


def test_class_labels_must_be_whole_numbers_where_the_classes_are():
    spec = task_spec("titanic")
    truth = pd.DataFrame({"PassengerId": [1, 2, 3], "Survived": [0, 1, 1]})
    assert spec.metric(truth, truth.assign(Survived=[0.0, 1.0, 0.0])) == pytest.approx(2 / 3)
    for bad in ([0, 1, 0.5], [0, 1, np.nan], ["0", "1", "yes"]):
        assert "(id 3)" in refusal(truth.assign(Survived=bad), spec, truth)


def test_na_is_an_answer_in_text_columns():
    spec = task_spec("text-normalization-challenge-english-language")
    truth = read_table(b"id,after\na,NA\nb,null\n")
    assert spec.metric(truth, read_table(b"id,after\na,NA\nb,nan\n")) == 0.5


def test_integers_of_any_length_are_compared_exactly():
    spec = task_spec("integer-sequence-learning")
    truth = read_table(b"Id,Last\n1,1000000000000000000000000000007\n2,5\n")
    assert spec.metric(truth, read_table(b"Id,Last\n1,1000000000000000000000000000008\n2,5.0\n")) == 0.5


def test_frames_are_not_changed():
    truth, submission = TRUTH.copy(), good().iloc[::-1]
    before = submission.copy()
    SPEC.metric(truth, submission)
    pd.testing.assert_frame_equal(truth, TRUTH)
    pd.testing.assert_frame_equal(submission, before)


@pytest.mark.parametrize(
    "data", [b"", b"  \n", b"\xff\xfe\x00\x01", b"id,price\n1,2,3,4\n", b"\x89PNG\r\n\x1a\n\x00", b'id,price\n"1,2\n']
)
def test_files_that_are_no_csv_are_refused_in_one_line(data):
    with pytest.raises(InvalidSubmission) as caught:
        SPEC.validate(TRUTH, read_table(data))
    assert "\n" not in str(caught.value)


def test_rows_of_a_task_without_ids_must_stay_in_order():
    spec = task_spec("detecting-insults-in-social-commentary")
    truth = pd.DataFrame({"Insult": [0, 1], "Date": ["", ""], "Comment": ["a", "b"]})
    assert spec.metric(truth, truth.assign(Insult=[0.1, 0.9])) == 1.0
    assert "data row 1" in refusal(truth.iloc[::-1], spec, truth)


def test_listed_shows_a_few():
    assert listed(list("abcdefg")) == "a, b, c, d, e and 2 more"
