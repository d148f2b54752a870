"""Properties of grading: order never matters, better predictions never lower a position, no missing number is ever scored."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wmrl_envs.tasks import InvalidSubmission, Leaderboard, task_spec

ONE_EACH = {  # one competition of each metric on numbers, probabilities or labels
    "playground-series-s3e9": "number",
    "playground-series-s3e14": "number",
    "playground-series-s3e25": "number",
    "playground-series-s4e4": "number",
    "playground-series-s4e5": "number",
    "nomad2018-predict-transparent-conductors": "number",
    "feedback-prize-english-language-learning": "number",
    "demand-forecasting-kernels-only": "number",
    "us-patent-phrase-to-phrase-matching": "number",
    "novozymes-enzyme-stability-prediction": "number",
    "playground-series-s3e3": "probability",
    "playground-series-s4e3": "probability",
    "porto-seguro-safe-driver-prediction": "probability",
    "playground-series-s3e10": "probability",
    "spooky-author-identification": "probability",
    "titanic": "label",
    "nlp-getting-started": "label",
    "prudential-life-insurance-assessment": "label",
    "liverpool-ion-switching": "label",
    "crash-fatality": "label",
}
SEEDS = st.integers(0, 2**32 - 1)


def made_up(slug, seed, n=30):
    """(spec, truth, submission): random, with ties; at least two classes."""
    rng = np.random.default_rng(seed)
    spec, kind = task_spec(slug), ONE_EACH[slug]
    targets = spec.facts.target_columns
    ids = pd.DataFrame({spec.facts.id_columns[0]: rng.permutation(10 * n)[:n]})
    if kind == "number":
        values = rng.integers(1, 60, (2, n, len(targets))) / 10
    elif kind == "probability":
        values = np.stack([np.eye(2, dtype=int)[np.arange(n) % 2][:, :1].repeat(len(targets), 1), np.zeros((n, len(targets)))])
        if spec.metric_name == "log_loss":
            values = np.stack([np.eye(len(targets))[np.arange(n) % len(targets)], np.zeros((n, len(targets)))])
        values[1] = rng.integers(1, 100, values[1].shape) / 100
    else:
        values = np.stack([np.arange(n) % 2, rng.integers(0, 2, n)])[:, :, None]
        values = values + (1 if slug.startswith("prudential") else 0)
    frames = [pd.concat([ids, pd.DataFrame(v, columns=list(targets))], axis=1) for v in values]
    return spec, *frames


@pytest.mark.parametrize("slug", ONE_EACH)
@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_order_of_rows_and_columns_never_changes_a_score(slug, seed):
    spec, truth, submission = made_up(slug, seed)
    rng = np.random.default_rng(seed)
    score = spec.metric(truth, submission)
    shuffled = submission.sample(frac=1, random_state=seed % 2**31)[list(rng.permutation(submission.columns))]
    assert spec.metric(truth, shuffled) == pytest.approx(score, rel=1e-12, nan_ok=True)
    other_truth = truth.sample(frac=1, random_state=(seed + 1) % 2**31)
    assert spec.metric(other_truth, shuffled) == pytest.approx(score, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("slug", ONE_EACH)
@settings(max_examples=6, deadline=None)
@given(seed=SEEDS, bad=st.sampled_from([np.nan, np.inf, -np.inf, None, "", "abc"]))
def test_any_missing_infinite_or_unreadable_prediction_is_refused(slug, seed, bad):
    spec, truth, submission = made_up(slug, seed)
    if ONE_EACH[slug] == "label" and bad in (np.inf, -np.inf):
        bad = np.nan
    rng = np.random.default_rng(seed)
    row, column = int(rng.integers(len(truth))), str(rng.choice(spec.facts.target_columns))
    broken = submission.astype({column: object})
    broken.loc[row, column] = bad
    with pytest.raises(InvalidSubmission) as caught:
        spec.validate(truth, broken)
    assert column in str(caught.value)


@pytest.mark.parametrize("slug", ONE_EACH)
@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_the_answers_are_never_ranked_below_anything(slug, seed):
    spec, truth, submission = made_up(slug, seed)
    higher = spec.higher_is_better
    scores = [
        spec.metric(truth, made_up(slug, seed + i)[2].assign(**{c: truth[c] for c in spec.facts.id_columns})) for i in range(4)
    ]
    board = Leaderboard(private=np.nan_to_num(scores), higher_is_better=higher)
    best = board.position(spec.metric(truth, truth))
    assert best.score >= board.position(spec.metric(truth, submission)).score
    assert best.private.rank == 1


@settings(max_examples=60, deadline=None)
@given(
    entries=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60),
    scores=st.lists(st.floats(allow_nan=False), min_size=2, max_size=10),
    higher=st.booleans(),
)
def test_a_better_raw_score_never_lowers_the_position(entries, scores, higher):
    board = Leaderboard(private=entries, higher_is_better=higher, compat="mledojo")
    places = [board.position(s).score for s in sorted(scores, reverse=not higher)]
    assert places == sorted(places)
    assert all(0 <= p <= 1 for p in places)


@pytest.mark.parametrize("slug", ["playground-series-s3e9", "playground-series-s3e14", "demand-forecasting-kernels-only"])
@settings(max_examples=8, deadline=None)
@given(seed=SEEDS, share=st.floats(0.01, 1))
def test_moving_every_prediction_towards_the_answer_never_worsens_an_error(slug, seed, share):
    spec, truth, submission = made_up(slug, seed)
    target = spec.facts.target_columns[0]
    nearer = submission.assign(**{target: submission[target] + share * (truth[target] - submission[target])})
    assert spec.metric(truth, nearer) <= spec.metric(truth, submission) + 1e-12


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, ties=st.integers(2, 40))
def test_gini_of_binary_answers_is_twice_auc_minus_one_with_ties(seed, ties):
    from wmrl_envs.tasks.metrics import tabular

    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(40) % 2)[:, None]
    p = rng.integers(0, ties, (40, 1)).astype(float)
    assert tabular.gini(y, p) == pytest.approx(2 * tabular.roc_auc(y, p) - 1, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_our_metrics_agree_with_scikit_learn(seed):
    from sklearn import metrics as sk

    from wmrl_envs.tasks.metrics import tabular

    rng = np.random.default_rng(seed)
    y, p = rng.integers(0, 4, (50, 1)), rng.integers(0, 4, (50, 1))
    y[:4, 0] = range(4)
    assert tabular.qwk(y.astype(float), p.astype(float)) == pytest.approx(
        sk.cohen_kappa_score(y[:, 0], p[:, 0], weights="quadratic")
    )
    labels = y.astype(str).astype(object), p.astype(str).astype(object)
    assert tabular.macro_f1(*labels) == pytest.approx(sk.f1_score(y[:, 0], p[:, 0], average="macro"))
    assert tabular.mcc(*labels) == pytest.approx(sk.matthews_corrcoef(y[:, 0], p[:, 0]))
    assert tabular.macro_recall(labels[0][:, 0], labels[1][:, 0]) == pytest.approx(
        sk.recall_score(y[:, 0], p[:, 0], average="macro", zero_division=0)
    )
    binary, scores = (y > 1).astype(int), rng.random((50, 1)).round(1)
    assert tabular.roc_auc(binary, scores) == pytest.approx(sk.roc_auc_score(binary[:, 0], scores[:, 0]))
    assert tabular.binary_log_loss(binary, np.clip(scores, 0.01, 0.99)) == pytest.approx(
        sk.log_loss(binary[:, 0], np.clip(scores[:, 0], 0.01, 0.99))
    )
