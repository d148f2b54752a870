"""What single competitions ask of their metric, beyond the metric itself; values worked out by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from wmrl_envs.tasks import InvalidSubmission, task_spec

CLASSES = ["winner_model_a", "winner_model_b", "winner_tie"]


def probabilities(rows, columns, key="id"):
    return pd.DataFrame(rows, columns=columns).assign(**{key: range(len(rows))})


def test_a_row_of_zeros_is_an_even_guess_where_probabilities_are_clipped_first():
    columns = ["Acer_Opalus", "Acer_Rubrum", "Quercus_Alnifolia", "Tilia_Oliveri"]
    truth, guess = probabilities([[0, 1, 0, 0]], columns), probabilities([[0.0] * 4], columns)
    assert task_spec("leaf-classification").metric(truth, guess) == pytest.approx(math.log(4))


@pytest.mark.parametrize(
    ("slug", "clip"), [("llm-classification-finetuning", 1e-15), ("lmsys-chatbot-arena", float(np.finfo(float).eps))]
)
def test_a_certain_mistake_costs_the_logarithm_of_the_clip(slug, clip):
    truth, guess = probabilities([[1, 0, 0], [0, 1, 0]], CLASSES), probabilities([[0, 0, 1.0], [0, 1.0, 0]], CLASSES)
    assert task_spec(slug).metric(truth, guess) == pytest.approx(-math.log(clip) / 2)


def test_rows_are_divided_by_their_sum_by_default_and_left_alone_by_mledojo():
    truth, guess = probabilities([[1, 0, 0]], CLASSES), probabilities([[0.2, 0.1, 0.1]], CLASSES)
    for slug in ("llm-classification-finetuning", "lmsys-chatbot-arena"):
        assert task_spec(slug).metric(truth, guess) == pytest.approx(math.log(2))
        assert task_spec(slug, "mledojo").metric(truth, guess) == pytest.approx(math.log(5))


def test_a_constant_column_counts_0_in_the_mean_of_rank_correlations():
    truth = pd.DataFrame({"qa_id": range(4), "helpful": [0.1, 0.2, 0.3, 0.4], "funny": [0.4, 0.1, 0.2, 0.3]})
    assert task_spec("google-quest-challenge").metric(truth, truth.assign(funny=0.5)) == pytest.approx(0.5)


def test_a_blank_text_is_refused_unless_the_true_text_is_blank():
    truth = pd.DataFrame({"textID": ["a", "b"], "selected_text": ["so good", np.nan]})
    spec = task_spec("tweet-sentiment-extraction")
    assert spec.metric(truth, truth) == 1.0
    with pytest.raises(InvalidSubmission, match=r"1 missing predictions .* id a"):
        spec.metric(truth, truth.assign(selected_text=["", "x"]))
    answers = pd.DataFrame({"id": ["a", "b"], "PredictionString": ["so good", "bad"]})
    blank = answers.assign(PredictionString=["", "bad"])
    assert task_spec("chaii-hindi-and-tamil-question-answering").metric(answers, blank) == 0.5


def test_a_word_among_numbered_classes_is_refused_where_it_cannot_be_a_class():
    truth = pd.DataFrame({"id": range(4), "hand": [0, 1, 2, 9]})
    with pytest.raises(InvalidSubmission, match="'flush'"):
        task_spec("poker-rule-induction").metric(truth, truth.assign(hand=[0, 1, 2, "flush"]))


def test_insincere_questions_take_either_name_of_either_column():
    truth = pd.DataFrame({"qid": ["a", "b", "c"], "target": [1, 0, 1]})
    for answers in (truth, truth.rename(columns={"target": "prediction"})):
        guess = pd.DataFrame({"qid": ["c", "b", "a"], "prediction": [1, 1, 1]})
        assert task_spec("quora-insincere-questions-classification").metric(answers, guess) == pytest.approx(0.8)


def test_compat_matches_ratings_by_their_place_and_ours_by_their_value():
    truth, guess = pd.DataFrame({"Id": range(3), "quality": [3, 5, 8]}), pd.DataFrame({"Id": range(3), "quality": [3, 8, 8]})
    # 1 - mean square of the differences (9 or 1, in one row of three) / mean square over all nine pairs (97 or 15 in sum).
    assert task_spec("playground-series-s3e5").metric(truth, guess) == pytest.approx(1 - 3 * 9 / 97)
    assert task_spec("playground-series-s3e5", "mledojo").metric(truth, guess) == pytest.approx(1 - 3 * 1 / 15)


def test_compat_skips_missing_predictions_column_by_column():
    columns = ["Ca", "P", "pH", "SOC", "Sand"]
    truth = probabilities([[0.0] * 5, [0.0] * 5], columns, "PIDN")
    guess = probabilities([[1.0] * 5, [np.nan, 3.0, 3.0, 3.0, 3.0]], columns, "PIDN")
    assert task_spec("afsis-soil-properties", "mledojo").metric(truth, guess) == pytest.approx((1 + 4 * math.sqrt(5)) / 5)
    with pytest.raises(InvalidSubmission, match="id 1"):
        task_spec("afsis-soil-properties").metric(truth, guess)


def test_compat_demands_the_order_of_the_file_where_mledojo_does():
    columns = ["toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate"]
    truth = pd.DataFrame([[0] * 6, [1] * 6], columns=columns).assign(id=["a", "b"])[["id", *columns]]
    shuffled = truth.iloc[::-1]
    assert task_spec("jigsaw-toxic-comment-classification-challenge").metric(truth, shuffled) == 1.0
    with pytest.raises(InvalidSubmission, match="first in data row 1"):
        task_spec("jigsaw-toxic-comment-classification-challenge", "mledojo").metric(truth, shuffled)


def test_an_overflow_is_an_infinite_score_without_a_warning(recwarn):
    truth = pd.DataFrame({"id": [1, 2], "Strength": [2.0, 3.0]})
    assert task_spec("playground-series-s3e9").metric(truth, truth.assign(Strength=[1e200, 3.0])) == math.inf
    assert not recwarn.list
