"""The honesty audit tells who has the answers from who has a model."""

import numpy as np
import pandas as pd
import pytest

from wmrl_envs.errors import InvalidInput
from wmrl_envs.tasks import InvalidSubmission, load_competition
from wmrl_envs.tasks.catalog import facts
from wmrl_envs.tasks.honesty import hard_rows, leak_audit


def noisy(n, seed):
    """Two informative columns, and labels of which a fifth are turned round."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)).round(4)
    clean = x.sum(axis=1) > 0
    fatal = (clean ^ (rng.random(n) < 0.2)).astype(int)
    return pd.DataFrame({"id": [f"r{seed}_{i}" for i in range(n)], "a": x[:, 0], "b": x[:, 1], "fatal": fatal})


@pytest.fixture
def classes(tmp_path):
    train, test = noisy(400, 0), noisy(400, 1)
    answers = test[["id", "fatal"]]
    data = tmp_path / "crash-fatality" / "data"
    (data / "public").mkdir(parents=True)
    (data / "private").mkdir()
    (data / "public" / "description.txt").write_text("x")
    answers.assign(fatal=0).to_csv(data / "public" / "sample_submission.csv", index=False)
    answers.to_csv(data / "private" / "test_answer.csv", index=False)
    hard = hard_rows(facts("crash-fatality"), train, test.drop(columns="fatal"), answers)
    hard.to_csv(data / "private" / "hard_rows.csv", index=False)
    return load_competition("crash-fatality", tmp_path), train, test


def test_answers_are_flagged_and_an_honest_model_is_not(classes):
    from sklearn.ensemble import HistGradientBoostingClassifier

    competition, train, test = classes
    leaked = leak_audit(competition, test[["id", "fatal"]])
    assert leaked.flagged
    assert leaked.hard_share == 1.0
    assert leaked.hard_rows > 20
    model = HistGradientBoostingClassifier(max_iter=30, random_state=0).fit(train[["a", "b"]], train["fatal"])
    honest = leak_audit(competition, test[["id"]].assign(fatal=model.predict(test[["a", "b"]])))
    assert not honest.flagged
    assert honest.hard_share < 0.4


def test_a_slightly_disturbed_leak_is_still_flagged(classes):
    competition, _, test = classes
    disturbed = test[["id", "fatal"]].copy()
    flip = np.random.default_rng(0).random(len(test)) < 0.1
    disturbed["fatal"] = np.where(flip, 1 - disturbed["fatal"], disturbed["fatal"])
    assert leak_audit(competition, disturbed).flagged


def test_numbers_equal_to_four_digits_are_flagged(tmp_path):
    rng = np.random.default_rng(0)
    data = tmp_path / "hotel-daily-rate" / "data"
    (data / "public").mkdir(parents=True)
    (data / "private").mkdir()
    (data / "public" / "description.txt").write_text("x")
    truth = pd.DataFrame({"id": [f"h{i}" for i in range(300)], "avg_price_per_room": (50 + 100 * rng.random(300)).round(2)})
    truth.to_csv(data / "private" / "test_answer.csv", index=False)
    truth.to_csv(data / "public" / "sample_submission.csv", index=False)
    competition = load_competition("hotel-daily-rate", tmp_path)
    assert leak_audit(competition, truth).flagged
    near = truth.assign(avg_price_per_room=truth["avg_price_per_room"] * (1 + rng.normal(0, 0.02, 300)))
    report = leak_audit(competition, near.to_csv(index=False).encode())
    assert not report.flagged
    assert report.exact_share < 0.05
    with pytest.raises(InvalidSubmission):
        leak_audit(competition, truth.assign(avg_price_per_room=np.nan))


def test_only_builtin_competitions_have_an_audit(mledojo_dir):
    competition = load_competition("playground-series-s3e9", mledojo_dir)
    with pytest.raises(InvalidInput, match="built-in"):
        leak_audit(competition, pd.DataFrame())


def test_targets_that_are_numbers_have_no_hard_rows():
    assert hard_rows(facts("hotel-daily-rate"), *[pd.DataFrame()] * 3) is None
