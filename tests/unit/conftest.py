"""Fixtures of several folders: a tiny model, made-up competitions on disk in both layouts, invented tasks."""

import numpy as np
import pandas as pd
import pytest

from tests.doubles import tiny_model
from wmrl_train.agents.brief import Brief


@pytest.fixture(scope="session")
def tiny():
    """A random Llama of about 30 thousand parameters and its character tokenizer; tests that change weights deep-copy it."""
    return tiny_model()


@pytest.fixture(scope="session")
def briefs() -> list[Brief]:
    """Invented tasks of every kind of target and category."""
    table = {"num": ("age", "fare", "hour"), "cat": ("city", "day"), "nan": ("age",)}
    return [
        Brief("alpha-rent", "tabular", "rmsle", "reg", 900, **table, date=("when",)),
        Brief("beta-default", "tabular", "roc_auc", "bin", 3000, **table),
        Brief("gamma-speed", "tabular", "qwk", "ord", 9000, **table),
        Brief("delta-mood", "text", "rmse", "reg", 800, text=("words",)),
        Brief("epsilon-genre", "text", "mean_column_auc", "mlabel", 800, num=("year", "votes"), text=("title", "plot")),
        Brief("zeta-digits", "image", "log_loss", "multi", 700),
    ]


@pytest.fixture
def mledojo_dir(tmp_path):
    """MLE-Dojo's prepared layout with one competition, s3e9 (RMSE): 30 training and 10 test rows."""
    rng = np.random.default_rng(0)
    data = tmp_path / "mledojo" / "playground-series-s3e9" / "data"
    (data / "public").mkdir(parents=True)
    (data / "private").mkdir()
    frame = pd.DataFrame({"id": range(40), "x": rng.random(40).round(3), "note": ["a, b\nc"] * 40})
    frame["Strength"] = (frame["x"] * 10).round(2)
    train, test = frame[:30], frame[30:]
    train.to_csv(data / "public" / "train.csv", index=False)
    test.drop(columns="Strength").to_csv(data / "public" / "test.csv", index=False)
    test[["id"]].assign(Strength=5.0).to_csv(data / "public" / "sample_submission.csv", index=False)
    (data / "public" / "description.txt").write_text("# Concrete\n\n## Evaluation\nRMSE.\n")
    test[["id", "Strength"]].to_csv(data / "private" / "test_answer.csv", index=False)
    for side in ("private", "public"):
        board = pd.DataFrame({"rank": range(1, 11), "score": np.linspace(0, 4.5, 10)})
        board.to_csv(data / "private" / f"{side}_leaderboard.csv", index=False)
    return tmp_path / "mledojo"


@pytest.fixture
def dsbench_dir(tmp_path):
    """DSBench's release with titanic, whose sample has another name; results of GT and baseline beside it."""
    data = tmp_path / "dsbench" / "data"
    public, answers = data / "data_resplit" / "titanic", data / "answers" / "titanic"
    for folder in (public, answers, data / "task"):
        folder.mkdir(parents=True)
    frame = pd.DataFrame({"PassengerId": range(1, 21), "Survived": [0, 1] * 10, "Age": range(20, 40)})
    frame[:12].to_csv(public / "train.csv", index=False)
    frame[12:].drop(columns="Survived").to_csv(public / "test.csv", index=False)
    frame[12:][["PassengerId"]].assign(Survived=0).to_csv(public / "gender_submission.csv", index=False)
    frame[12:][["PassengerId", "Survived"]].to_csv(answers / "test_answer.csv", index=False)
    (data / "task" / "titanic.txt").write_text("Who survives? Evaluation: accuracy.")
    for kind, value in (("GT", 1.0), ("baseline", 0.5)):
        result = tmp_path / "dsbench" / "save_performance" / kind / "titanic"
        result.mkdir(parents=True)
        (result / "result.txt").write_text(f"{value}\n")
    return tmp_path / "dsbench"
