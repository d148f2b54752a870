"""Whatever a cell of a submission holds, the metric gives a number or refuses the submission: nothing else, for every metric."""

import math
import os
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wmrl_envs.tasks import InvalidSubmission, task_spec
from wmrl_envs.tasks.catalog import catalog
from wmrl_envs.tasks.grading import text_columns
from wmrl_envs.tasks.metrics import METRICS
from wmrl_envs.tasks.validation import read_table

EXAMPLES_A_METRIC = int(os.environ.get("WMRL_TEST_EXAMPLES", "12"))
CELLS = {  # answers that make sense to the metrics which parse them
    "map_at_k": ["a b c", "b"],
    "span_f1": ["1 5;7 9", ""],
    "set_f1": ["a b", "c"],
    "kendall_tau": ["a b c", "d e"],
    "word_jaccard": ["some words", "other words"],
    "rle_iou_precision": ["1 3 10 2", ""],
    "dice_hausdorff": ["1 3 10 2", "5 5"],
    "box_precision": ["1.0 0 0 10 10", "1.0 5 5 20 20"],
    "point_f1": ["U+0041 1 1 5 5", "U+0042 3 3 6 6"],
    "exact_text": ["some text", "NA"],
    "exact_match": ["12", "123456789012345678901234567890"],
    "weighted_recall": ["1", "2"],
}
HOSTILE = [
    "9" * 309, "9" * 5000, "-" + "9" * 400, "18446744073709551615", "9223372036854775808", "1e400", "-1e400", "1e-400", "0" * 5000 + "1",
    "", " ", "nan", "-nan", "inf", "-Infinity", "NA", "None", "<NA>", "True", "false", "1_000", "0x10", "1e5", "+1", "-0", "1.", ".5", "1,5",
    "١٢", "１２", "½", "²", "𝟏", "1\u00a0", "a\u2028b", "a\nb", "\x0b", "\ufeff1", "\x1b[31m", "💥", "é" * 300, "x" * 30_000, "'; --", '"',
    "[1]", "{}", "1 2", "1 2 3", "5 1", "1 99999999999999999999", "-1 -1", "1 5;9 2", "1 5;;", "a b a b", "0.5 1 1 1", "1 1e308 1e308 1e308 1e308",
    "1 nan nan nan nan", "U+0041 nan 1", "U+0041 1e400 1", "1 1 -5 -5 -5", "2012-02-10", "1+2j", "__import__('os')", "%s%n", "1970-01-01",
]  # fmt: skip
OBJECTS = [
    10**5000, -(10**309), 2**64, 2**63, Decimal("1e500"), Decimal("NaN"), Fraction(1, 3), 1 + 2j, None, float("nan"), pd.NA, pd.NaT, True, b"1", b"\xff",
    pd.Timestamp("2020-01-01"), pd.Timedelta("1D"), [1], (1, 2), {"a": 1}, {1}, object(), np.float32(1.5), np.int8(3), np.array([1, 2]), "\ud800", 1e308,
]  # fmt: skip


def example(metric):
    """(spec, truth): a competition of the metric, with answers of six rows."""
    slug = min(slug for slug, facts in catalog().items() if facts.metric == metric)
    spec = task_spec(slug)
    facts, n = spec.facts, 6
    ids = facts.id_columns or ("id",)
    table = {c: [f"{i}_{c}" if metric != "wmae" else f"1_1_2012-02-{10 + i}" for i in range(n)] for c in ids}
    if metric == "weighted_recall":
        table[ids[0]] = [
            f"Test_{i}_{part}" for i in range(2) for part in ("grapheme_root", "vowel_diacritic", "consonant_diacritic")
        ]
    targets = facts.target_columns or facts.prediction_columns or ("target", "other")
    for j, column in enumerate(targets):
        cells = CELLS.get(metric) or (["1", "0"] if (j + n) % 2 == 0 else ["0", "1"])
        table[column] = [cells[i % len(cells)] for i in range(n)]
    if len(facts.prediction_columns) > len(targets):  # one label a row, a probability for each
        table[targets[0]] = [facts.prediction_columns[i % 2] for i in range(n)]
    return spec, pd.DataFrame(table)


EXAMPLES = {metric: example(metric) for metric in METRICS}


def graded(spec, truth, submission):
    """The score, or None for a refusal, whose message has to be one printable line of reasonable length."""
    try:
        score = spec.metric(truth, submission)
    except InvalidSubmission as error:
        refusal = error
    else:
        assert isinstance(score, float)
        return score
    assert refusal.details.isprintable()
    assert 0 < len(refusal.details) <= 2000
    return None


def answers(metric):
    """(spec, answers as they are read from a file, a submission of the same cells)."""
    spec, truth = EXAMPLES[metric]
    read = read_table(truth.to_csv(index=False).encode(), text_columns(spec))
    ids, targets, predictions = spec.columns(read)
    submission = truth[list(ids)].copy()
    for i, column in enumerate(predictions):
        submission[column] = truth[targets[i]] if len(targets) == len(predictions) else float(i == 0)
    if metric == "point_f1":
        submission[predictions[0]] = ["U+0041 2 2", "U+0042 4 4"] * 3
    return spec, read, submission


@pytest.mark.parametrize("metric", METRICS)
def test_the_answers_themselves_are_a_submission(metric):
    score = graded(
        *(lambda spec, truth, s: (spec, truth, read_table(s.to_csv(index=False).encode(), text_columns(spec))))(
            *answers(metric)
        )
    )
    assert score is not None
    assert math.isfinite(score)


@pytest.mark.parametrize("compat", [None, "mledojo"])
@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=EXAMPLES_A_METRIC, deadline=None)
@given(cells=st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=20)), min_size=1, max_size=6), data=st.data())
def test_no_cell_of_a_file_breaks_a_grader(metric, compat, cells, data):
    spec, truth, submission = answers(metric)
    spec = task_spec(spec.slug, compat)
    column = data.draw(st.sampled_from(list(submission.columns)))
    cells = (cells * 6)[:6] if data.draw(st.booleans()) else [*cells, *submission[column][len(cells) :]]
    file = submission.assign(**{column: cells}).to_csv(index=False).encode("utf-8", "surrogatepass")
    try:
        table = read_table(file, text_columns(spec))
    except InvalidSubmission:
        return
    graded(spec, truth, table)


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=EXAMPLES_A_METRIC // 2, deadline=None)
@given(cells=st.lists(st.sampled_from(OBJECTS), min_size=6, max_size=6), data=st.data())
def test_no_object_in_a_frame_breaks_a_grader(metric, cells, data):
    spec, truth, submission = answers(metric)
    column = data.draw(st.sampled_from(list(submission.columns)))
    mixed = [cell if data.draw(st.booleans()) else old for cell, old in zip(cells, submission[column], strict=True)]
    values = np.empty(6, object)
    values[:] = mixed
    graded(spec, truth, submission.assign(**{column: pd.Series(values, dtype=object)}))


@settings(max_examples=100, deadline=None)
@given(data=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass"))))
def test_any_bytes_are_a_table_or_refused(data):
    try:
        columns = list(read_table(data).columns)
    except InvalidSubmission as error:
        columns = [error.details]
    assert columns
    assert all(isinstance(name, str) for name in columns)
