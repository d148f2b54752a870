import io
import warnings

import numpy as np
import pandas as pd
import pytest

from wmrl_envs.errors import InvalidInput
from wmrl_envs.tasks import load_competition, scaffold

ROWS, TESTS = 1300, 7


@pytest.fixture
def table():
    """Train and test features of every kind, with a missing number and a missing text."""
    rng = np.random.default_rng(0)

    def rows(n):
        frame = pd.DataFrame(
            {
                "id": [f"r{rng.integers(1 << 40)}" for _ in range(n)],
                "age": rng.integers(1, 90, n).astype(float),
                "vip": rng.random(n) < 0.5,
                "city": rng.choice(["Ulm", "Bonn", "Kiel"], n),
                "note": [f"remark number {i} about it" for i in rng.integers(0, 1 << 30, n)],
                "day": [f"2024-0{m}-11" for m in rng.integers(1, 9, n)],
            }
        )
        frame.loc[frame.index[-2], ["age", "note"]] = np.nan  # beyond max_rows in the training set
        return frame

    return rows(ROWS), rows(TESTS)


@pytest.fixture
def make(tmp_path, table):
    """Write a competition under a built-in slug (which decides its metric) with invented data."""

    def make(slug, targets, sample=None, images=None, full_test=True):
        train, test = table
        train, test = train.copy(), test.copy() if full_test else test.fillna({"age": 1.0})
        public, private = tmp_path / slug / "data" / "public", tmp_path / slug / "data" / "private"
        public.mkdir(parents=True)
        private.mkdir()
        if images is not None:
            train, test = train[["id"]].copy(), test[["id"]]
            np.savez(public / "images.npz", **images)
        for name, values in targets.items():
            train[name] = values
        answers = test[["id"]].assign(**{name: values[:TESTS] for name, values in targets.items()})
        (public / "description.txt").write_text("invented")
        train.to_csv(public / "train.csv", index=False)
        test.to_csv(public / "test.csv", index=False)
        (sample if sample is not None else answers).to_csv(public / "sample_submission.csv", index=False)
        answers.to_csv(private / "test_answer.csv", index=False)
        return load_competition(slug, tmp_path)

    return make


def run(competition, tmp_path, monkeypatch, program, max_rows=None):
    """Execute the prelude and a program as the sandbox does; returns (namespace, submission or None)."""
    out = tmp_path / "submission.csv"
    out.unlink(missing_ok=True)
    monkeypatch.setenv("DATA_DIR", str(competition.public_dir))
    monkeypatch.setenv("SUBMISSION_PATH", str(out))
    monkeypatch.delenv("MAX_ROWS", raising=False)
    for name, value in scaffold.environment(competition, max_rows).items():
        monkeypatch.setenv(name, value)
    namespace: dict = {}
    state = np.random.get_state()
    with warnings.catch_warnings():
        exec(scaffold.PRELUDE, namespace)
        exec(program, namespace)
    np.random.set_state(state)
    return namespace, pd.read_csv(io.BytesIO(out.read_bytes())) if out.exists() else None


@pytest.mark.parametrize("max_rows", [None, 500])
@pytest.mark.parametrize("full_test", [True, False])
def test_the_description_says_what_the_prelude_loads(make, tmp_path, monkeypatch, max_rows, full_test):
    competition = make("credit-default", {"default": np.arange(ROWS) % 2}, full_test=full_test)
    found, _ = run(competition, tmp_path, monkeypatch, "", max_rows)
    said = scaffold.describe(competition, max_rows)
    for kind in ("num", "cat", "text", "date"):
        assert said[kind] == found[kind]
    assert said["num"] == ["age", "vip"]
    assert (said["cat"], said["text"], said["date"]) == (["city"], ["note"], ["day"])
    loaded = pd.concat([found["X"], found["T"]])
    assert said["nan"] == [c for c in loaded if loaded[c].isna().any()]
    assert said["rows"] == len(found["X"]) == len(found["y"]) == (max_rows or ROWS)
    assert said["test_rows"] == len(found["T"]) == TESTS
    assert said["target_kind"] == "bin"
    assert set(said["names"]) == {name for name in found if not name.startswith("_")}


def test_the_kind_of_a_column_does_not_depend_on_the_number_of_rows(make):
    competition = make("credit-default", {"default": np.arange(ROWS) % 2})
    few, all_rows = (scaffold.describe(competition, n) for n in (40, None))
    assert [few[k] for k in ("num", "cat", "text", "date")] == [all_rows[k] for k in ("num", "cat", "text", "date")]


def test_pictures_come_as_rows_of_pixels(make, tmp_path, monkeypatch):
    images = {"train": np.zeros((ROWS, 6, 4), np.uint8), "test": np.ones((TESTS, 6, 4), np.uint8)}
    competition = make("noisy-digits", {"digit": np.arange(ROWS) % 10}, images=images)
    found, written = run(competition, tmp_path, monkeypatch, "save([3] * len(T))", 200)
    assert (found["X"].shape, found["T"].shape, found["X"].dtype) == ((200, 24), (TESTS, 24), np.float32)
    assert scaffold.describe(competition, 200)["image"] == (6, 4)
    assert scaffold.describe(competition)["target_kind"] == "multi"
    assert (written["digit"] == 3).all()


CLASSES = np.array(["a", "b", "c"])[np.arange(ROWS) % 3]


def test_save_writes_one_column_a_class_for_log_loss(make, tmp_path, monkeypatch):
    sample = pd.DataFrame({"id": ["x"], "a": [0.3], "b": [0.3], "c": [0.3], "d": [0.1]})
    competition = make("review-polarity", {"polarity": CLASSES}, sample=sample)
    _, written = run(competition, tmp_path, monkeypatch, "save(np.tile([.2, .3, .5], (len(T), 1)))")
    assert list(written.columns) == ["id", "a", "b", "c", "d"]
    assert written.iloc[0, 1:].tolist() == [0.2, 0.3, 0.5, 0.0], "a class without a training row gets probability 0"


def test_save_ranks_the_three_likeliest_for_map_at_k(make, tmp_path, monkeypatch):
    competition = make("rodent-species", {"species_id": CLASSES})
    _, written = run(competition, tmp_path, monkeypatch, "save(np.tile([.2, .5, .3], (len(T), 1)))")
    assert set(written["species_id"]) == {"b c a"}
    _, labels = run(competition, tmp_path, monkeypatch, "save(['c'] * len(T))")
    assert set(labels["species_id"]) == {"c"}


def test_save_takes_the_positive_class_for_roc_auc_and_all_targets_of_many(make, tmp_path, monkeypatch):
    two = make("credit-default", {"default": np.arange(ROWS) % 2})
    _, written = run(two, tmp_path, monkeypatch, "save(np.tile([.2, .8], (len(T), 1)))")
    assert set(written["default"]) == {0.8}
    names = ["Action", "Animation", "Comedy", "Drama", "Documentary", "Romance", "Short"]
    many = make("movie-genres", {name: np.arange(ROWS) % 2 for name in names})
    assert scaffold.describe(many)["target_kind"] == "mlabel"
    found, written = run(many, tmp_path, monkeypatch, "save(np.zeros((len(T), 7)))")
    assert list(written.columns) == ["id", *names]
    assert found["y"].shape == (ROWS, 7)


def test_save_refuses_predictions_for_another_number_of_rows(make, tmp_path, monkeypatch):
    competition = make("credit-default", {"default": np.arange(ROWS) % 2})
    with pytest.raises(ValueError, match=f"expected {TESTS} predictions, one for each test row, got 3"):
        run(competition, tmp_path, monkeypatch, "save([1, 2, 3])")


def test_a_competition_of_another_shape_is_refused(make):
    competition = make("credit-default", {"default": np.arange(ROWS) % 2})
    (competition.public_dir / "test.csv").unlink()
    with pytest.raises(InvalidInput, match=r"'credit-default' has no test\.csv"):
        scaffold.describe(competition)


@pytest.mark.parametrize("bad", [0, -5, 2.5, "1000", True])
def test_a_number_of_rows_that_is_none_is_refused(make, bad):
    competition = make("credit-default", {"default": np.arange(ROWS) % 2})
    for function in (scaffold.environment, scaffold.describe):
        with pytest.raises(InvalidInput, match="max_rows"):
            function(competition, bad)
