"""Building the built-in competitions: from made-up archives here, and checks on the real ones where they are built."""

import numpy as np
import pandas as pd
import pytest

from wmrl_envs.errors import DataNotBuilt, InfrastructureError, InvalidInput
from wmrl_envs.outcome import Execution, ExecutionStatus
from wmrl_envs.tasks import grade, list_competitions, load_competition, task_context
from wmrl_envs.tasks.builtin import archives, build, descriptions, recipes
from wmrl_envs.tasks.catalog import facts


class MadeUpSource:
    """Stands in for the archives: a tiny table with the columns one recipe needs."""

    def __init__(self, directory=None):
        pass

    def r_data(self, package, item):
        rng = np.random.default_rng(0)
        n = 200
        numbers = {
            c: rng.integers(1, 1000, n) for c in ("expenses", "income", "assets", "debt", "amount", "price", "Seniority")
        }
        return pd.DataFrame(numbers | {"Status": np.where(np.arange(n) % 4 == 0, "bad", "good")})


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr(build, "Source", MadeUpSource)
    monkeypatch.setattr(build, "fetch", lambda directory, names: None)
    monkeypatch.setenv("WMRL_SALT", "one")


def test_every_builtin_task_has_a_recipe_a_story_and_a_pinned_archive():
    slugs = list_competitions(source="builtin")
    assert set(slugs) == set(recipes.RECIPES) == set(descriptions.stories())
    for _, archive in recipes.RECIPES.values():
        assert len(archives.ARCHIVES[archive].sha256) == 64


def test_build_is_complete_repeatable_and_idempotent(made_up, tmp_path):
    said = []
    folders = build.prepare(tmp_path, ["credit-default"], progress=lambda *a: said.append(a))
    assert said == [("credit-default", "built")]
    data = folders[0] / "data"
    assert {p.name for p in (data / "public").iterdir()} == {
        "train.csv",
        "test.csv",
        "sample_submission.csv",
        "description.txt",
    }
    assert (data / "private").stat().st_mode & 0o777 == 0o700
    first = (data / "private" / "test_answer.csv").read_bytes()
    build.prepare(tmp_path, ["credit-default"], progress=lambda *a: said.append(a))
    assert said[-1] == ("credit-default", "present")
    build.prepare(tmp_path, ["credit-default"], force=True)
    assert (data / "private" / "test_answer.csv").read_bytes() == first
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".building")] == []


def test_another_salt_gives_other_ids_and_another_split(made_up, tmp_path, monkeypatch):
    build.prepare(tmp_path / "a", ["credit-default"])
    monkeypatch.setenv("WMRL_SALT", "two")
    build.prepare(tmp_path / "b", ["credit-default"])
    ids = [set(pd.read_csv(tmp_path / d / "credit-default/data/public/test.csv")["id"]) for d in "ab"]
    assert not ids[0] & ids[1]
    said = []
    build.prepare(tmp_path / "a", ["credit-default"], progress=lambda *a: said.append(a))
    assert said == [("credit-default", "built")]  # built under another salt: not the same data


def test_an_interrupted_build_leaves_nothing_half_done(made_up, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "_mark_hard_rows", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build.prepare(tmp_path, ["credit-default"])
    with pytest.raises(DataNotBuilt):
        load_competition("credit-default", tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(build, "Source", MadeUpSource)
    monkeypatch.setattr(build, "fetch", lambda directory, names: None)
    build.prepare(tmp_path, ["credit-default"])
    assert load_competition("credit-default", tmp_path).submission_columns == ("id", "default")


def test_the_answers_are_not_in_the_public_folder(made_up, tmp_path):
    build.prepare(tmp_path, ["credit-default"])
    data = tmp_path / "credit-default" / "data"
    train, test = (pd.read_csv(data / "public" / f"{part}.csv") for part in ("train", "test"))
    answers = pd.read_csv(data / "private" / "test_answer.csv")
    assert "default" not in test
    assert set(test["id"]) == set(answers["id"])
    assert not set(train["id"]) & set(test["id"])
    assert len(test) == 60
    assert train["default"].mean() == pytest.approx(answers["default"].mean(), abs=0.02)  # stratified


def test_unknown_names_and_wrong_files_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="built-in"):
        build.prepare(tmp_path, ["titanic"])
    (tmp_path / archives.ARCHIVES["mlxtend"].filename).write_bytes(b"not the release")
    with pytest.raises(InfrastructureError, match="sha256"):
        archives.fetch(tmp_path, ["mlxtend"])


def test_only_arrays_come_out_of_the_pickle():
    import io
    import pickle

    with pytest.raises(pickle.UnpicklingError, match="not an array"):
        archives._ArraysOnly(io.BytesIO(pickle.dumps(print))).load()
    array = np.arange(4)
    assert (archives._ArraysOnly(io.BytesIO(pickle.dumps(array))).load() == array).all()


def built(slug):
    try:
        return load_competition(slug)
    except DataNotBuilt:
        pytest.skip("wmrl tasks prepare builtin")


COARSE = ("crash-fatality", "rodent-species", "movie-genres")  # few coarse columns: equal rows are chance
SIZES = {
    "hotel-daily-rate": (9598, 4113),
    "review-polarity": (2685, 1012),
    "noisy-digits": (2100, 900),
    "digit-pair-sum": (3500, 1500),
}


@pytest.mark.parametrize("slug", list_competitions(source="builtin"))
def test_a_built_competition_is_sound(slug):
    competition = built(slug)
    context = task_context(competition)
    train, test = (pd.read_csv(competition.public_dir / f"{part}.csv") for part in ("train", "test"))
    answers = pd.read_csv(competition.private.answers)
    if slug in SIZES:
        assert (len(train), len(test)) == SIZES[slug]
    targets = list(facts(slug).target_columns)
    assert list(context.target_columns) == targets
    assert not set(targets) & set(test.columns)
    assert list(test["id"]) == list(answers["id"])
    assert not set(train["id"]) & set(test["id"])
    features = [c for c in test.columns if c != "id"]
    if features and slug not in COARSE:
        hashes = [pd.util.hash_pandas_object(part[features], index=False) for part in (train, test)]
        same = hashes[1].isin(hashes[0])
        assert same.mean() < 0.02
    if facts(slug).metric not in ("rmse", "rmsle", "mae", "spearman", "mean_column_auc"):
        assert set(answers[targets[0]]) <= set(train[targets[0]])  # no class only in the test set
    if competition.category == "image":
        with np.load(competition.public_dir / "images.npz") as images:
            assert (len(images["train"]), len(images["test"])) == (len(train), len(test))
    assert not competition.public_dir.joinpath("test_answer.csv").exists()
    sample = competition.sample_submission.read_bytes()
    raw = competition.spec.metric(pd.read_csv(competition.private.answers), pd.read_csv(competition.sample_submission))
    if competition.board is not None:
        outcome = grade(competition, Execution(ExecutionStatus.OK, 0, submission=sample))
        assert outcome.status is ExecutionStatus.OK
        assert outcome.score < 0.7  # log loss punishes bold models: class shares are not the worst
        assert outcome.raw_score is None if np.isnan(raw) else outcome.raw_score == pytest.approx(raw)


def test_the_sample_submission_scores_as_a_constant():
    competition = built("credit-default")
    assert competition.spec.metric(pd.read_csv(competition.private.answers), pd.read_csv(competition.sample_submission)) == 0.5
