"""Small competitions in the layouts, as a user may have them."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from wmrl_envs.tasks import load_competition
from wmrl_envs.tasks.catalog import facts


def table(rows, seed=0, offset=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    town = np.where(rng.random(rows) < 0.5, "north", "south")
    ids = [f"r{offset + i}" for i in range(rows)]
    return pd.DataFrame({"id": ids, "x": x.round(4), "town": town, "default": (x + rng.normal(size=rows) > 1).astype(int)})


def put(folder, train, test, answers, sample=None):
    public, private = folder / "data" / "public", folder / "data" / "private"
    for path in (public, private):
        path.mkdir(parents=True)
    train.to_csv(public / "train.csv", index=False)
    test.to_csv(public / "test.csv", index=False)
    answers.to_csv(private / "test_answer.csv", index=False)
    sample = answers.assign(**dict.fromkeys(answers.columns[1:], 0.5)) if sample is None else sample
    sample.to_csv(public / "sample_submission.csv", index=False)
    (public / "description.txt").write_text("Predict.")
    pd.DataFrame({"rank": range(1, 6), "score": [0.9, 0.8, 0.7, 0.6, 0.5]}).to_csv(
        private / "private_leaderboard.csv", index=False
    )
    return public


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("WMRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def make(tmp_path):
    """(train, test with answers in it) -> a competition with this data; `metric` in place of the catalogue's."""

    def made(train, test, metric=None, sample=None, also=None, targets=("default",)):
        put(tmp_path / "credit-default", train, test.drop(columns=list(targets)), test[["id", *targets]], sample)
        if also is not None:
            also(tmp_path / "credit-default" / "data" / "public")
        competition = load_competition("credit-default", tmp_path)
        if metric is not None or targets != ("default",):
            changed = dataclasses.replace(facts("credit-default"), metric=metric or "roc_auc", target_columns=tuple(targets))
            competition = dataclasses.replace(competition, spec=dataclasses.replace(competition.spec, facts=changed))
        return competition

    return made
