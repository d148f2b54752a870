"""Reduced copies: what they hold, and what happens with data that is odd."""

import multiprocessing
import os

import numpy as np
import pandas as pd
import pytest

from tests.unit.tasks.reduced.conftest import put, table
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.outcome import Execution, ExecutionStatus
from wmrl_envs.tasks import grade, load_competition
from wmrl_envs.tasks.reduced import CannotReduce, reduce_competition, why_not_reduced


def read(made, name="train.csv"):
    return pd.read_csv(made.competition.public_dir / name)


def graded(made, submission):
    run = Execution(ExecutionStatus.OK, exit_code=0, submission=submission.to_csv(index=False).encode())
    return grade(made.competition, run)


def test_a_copy_has_the_rows_asked_for_and_its_sample_and_answers_fit(make):
    competition = make(table(900), table(400, 1, 5000))
    made = reduce_competition(competition, 100, 50)
    assert (made.rows, made.test_rows, made.all_rows, made.all_test_rows, made.tested_on) == (100, 50, 900, 400, "answers")
    train, test, sample = read(made), read(made, "test.csv"), read(made, "sample_submission.csv")
    assert len(train) == 100
    assert list(test["id"]) == list(sample["id"])
    assert abs(train["default"].mean() - table(900)["default"].mean()) < 0.02
    whole = table(400, 1, 5000).set_index("id")
    outcome = graded(made, sample.assign(default=whole.loc[sample["id"], "default"].to_numpy()))
    assert outcome.status is ExecutionStatus.OK
    assert (outcome.raw_score, outcome.score) == (1.0, 1.0)  # on the competition's own board


def test_cells_stay_as_they_are_written(make):
    train = table(300).astype(object)
    train["x"] = [f"{i}.50" for i in range(300)]
    train["note"] = ['a "b", c\nd'] * 300
    made = reduce_competition(make(train, table(200, 1, 5000).assign(note="NA")), 60, 40)
    text = (made.competition.public_dir / "train.csv").read_text()
    assert text.count('a ""b"", c\nd') == 60
    assert ".50," in text
    assert ",NA" in (made.competition.public_dir / "test.csv").read_text()


def test_every_class_keeps_rows_and_a_class_with_one_row_keeps_it(make):
    train, test = table(1000), table(500, 1, 5000)
    train["default"], test["default"] = ["common"] * 990 + ["rare"] * 9 + ["single"], ["common"] * 495 + ["rare"] * 5
    made = reduce_competition(make(train, test, "accuracy"), 50, 30)
    counts = read(made)["default"].value_counts()
    assert counts["single"] == 1
    assert counts["rare"] >= 2
    answers = pd.read_csv(made.competition.private.answers)
    assert (answers["default"] == "rare").any()


def test_a_numeric_target_keeps_its_quantiles(make):
    train, test = table(2000), table(500, 1, 5000)
    train["default"], test["default"] = np.exp(train["x"] * 2).round(5), np.exp(test["x"] * 2).round(5)
    made = reduce_competition(make(train, test, "rmse"), 200, 100)
    ours, all_of_it = read(made)["default"], train["default"]
    for q in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert abs((all_of_it < ours.quantile(q)).mean() - q) < 0.03


def test_rows_of_one_id_stay_together(make):
    train, test = table(1200), table(300, 1, 5000)
    train["id"] = [f"g{i // 6}" for i in range(1200)]
    made = reduce_competition(make(train, test), 120, 50)
    sizes = read(made)["id"].value_counts()
    assert set(sizes) == {6}
    assert 100 <= sizes.sum() <= 140


def test_ids_that_are_not_unique_by_accident_are_kept_together(make):
    train = table(600)
    train.loc[:3, "id"] = "twice"
    made = reduce_competition(make(train, table(300, 1, 5000)), 100, 50)
    assert (read(made)["id"] == "twice").sum() in (0, 4)


def test_a_target_with_missing_values_keeps_some(make):
    train = table(800)
    train["default"] = train["default"].astype(float).mask(np.arange(800) % 100 == 0)
    made = reduce_competition(make(train, table(300, 1, 5000)), 100, 50)
    assert 1 <= read(made)["default"].isna().sum() <= 10


def test_what_is_rare_in_a_column_is_kept(make):
    train, test = table(2000), table(800, 1, 5000)
    train.loc[7, "x"] = np.nan  # a program that does not impute must still fail
    train["code"] = ["5"] * 1999 + ["five"]  # and one that takes the column for numbers
    test["code"] = "5"
    test.loc[3, "town"] = "nowhere"  # and an encoder that meets a class it has not seen
    made = reduce_competition(make(train, test), 100, 50)
    assert read(made)["x"].isna().sum() == 1
    assert "five" in set(read(made)["code"].astype(str))
    assert "nowhere" in set(read(made, "test.csv")["town"])


def test_an_encoder_that_knows_every_class_of_the_test_rows_still_does(make):
    train, test = table(3000), table(800, 1, 5000)
    rng = np.random.default_rng(0)
    train["street"] = [f"s{i % 150}" for i in range(3000)]
    test["street"] = [f"s{i}" for i in rng.integers(0, 150, 800)]
    made = reduce_competition(make(train, test), 100, 60)
    assert set(read(made, "test.csv")["street"]) <= set(read(made)["street"])


def test_arrays_go_with_their_tables(make):
    def pictures(public):
        np.savez(public / "images.npz", train=np.arange(500)[:, None] * np.ones(4), test=np.arange(200)[:, None] * np.ones(4))

    train, test = table(500), table(200, 1, 5000)
    made = reduce_competition(make(train, test, also=pictures), 60, 40)
    with np.load(made.competition.public_dir / "images.npz") as arrays:
        assert [f"r{int(i)}" for i in arrays["train"][:, 0]] == list(read(made)["id"])
        assert [f"r{int(i) + 5000}" for i in arrays["test"][:, 0]] == list(read(made, "test.csv")["id"])


def test_pictures_in_folders_go_with_the_rows_that_name_them(make):
    def pictures(public):
        for folder, ids in (("train_images", range(200)), ("test_images", range(5000, 5100))):
            (public / folder).mkdir()
            for i in ids:
                (public / folder / f"r{i}.png").write_bytes(b"picture")

    made = reduce_competition(make(table(200), table(100, 1, 5000), also=pictures), 40, 30)
    public = made.competition.public_dir
    assert {p.stem for p in (public / "train_images").iterdir()} == set(read(made)["id"])
    assert {p.stem for p in (public / "test_images").iterdir()} == set(read(made, "test.csv")["id"])


def test_a_further_table_about_the_same_ids_is_reduced_and_another_is_not(make):
    def more(public):
        visits = pd.DataFrame({"id": np.repeat([f"r{i}" for i in [*range(400), *range(5000, 5200)]], 3), "n": 1})
        visits.to_csv(public / "visits.csv", index=False)
        pd.DataFrame({"town": ["north", "south"], "size": [1, 2]}).to_csv(public / "towns.csv", index=False)

    made = reduce_competition(make(table(400), table(200, 1, 5000), also=more), 60, 40)
    assert set(read(made, "visits.csv")["id"]) == set(read(made)["id"]) | set(read(made, "test.csv")["id"])
    assert len(read(made, "towns.csv")) == 2


def test_the_listing_of_the_folder_is_the_same(make):
    competition = make(table(300), table(200, 1, 5000))
    made = reduce_competition(competition, 60, 40)
    assert sorted(os.listdir(made.competition.public_dir)) == sorted(os.listdir(competition.public_dir))
    assert not (made.competition.public_dir / "test_answer.csv").exists()


def test_where_the_metric_takes_no_part_of_the_answers_rows_are_held_out_of_train(make, monkeypatch):
    from wmrl_envs.tasks import metrics

    competition = make(table(900), table(400, 1, 5000), "accuracy")
    whole = metrics.METRICS["accuracy"]

    class Whole:
        on_text = whole.on_text

        def score(self, case, **params):
            if len(case.truth) != 400 and not str(case.ids[0]).startswith("r0") and int(case.ids[0][1:]) >= 5000:
                raise ValueError("needs every row of the answers")
            return 0.5

    monkeypatch.setitem(metrics.METRICS, "accuracy", Whole())
    made = reduce_competition(competition, 100, 50)
    assert made.tested_on == "train"
    assert "needs every row" in made.notes[0]
    train, test = read(made), read(made, "test.csv")
    assert not set(train["id"]) & set(test["id"])
    assert set(test["id"]) <= set(table(900)["id"])
    assert list(test.columns) == ["id", "x", "town"]
    assert (
        list(pd.read_csv(made.competition.private.answers)["id"])
        == list(test["id"])
        == list(read(made, "sample_submission.csv")["id"])
    )


def test_forty_rows_are_not_reduced(make):
    competition = make(table(40), table(20, 1, 5000))
    made = reduce_competition(competition)
    assert made.whole
    assert made.competition is competition


def test_what_cannot_be_reduced_is_said(make):
    competition = make(table(300), table(100, 1, 5000))
    (competition.public_dir / "train.csv").rename(competition.public_dir / "history.csv")
    with pytest.raises(
        CannotReduce, match=r"credit-default cannot be reduced: no table with 'train' in its name .* history\.csv"
    ):
        reduce_competition(competition, 60, 40)


@pytest.mark.parametrize("size", [{"rows": 5}, {"test_rows": 0}, {"rows": True}, {"rows": 2.5}])
def test_a_size_that_is_none_is_refused(make, size):
    with pytest.raises(InvalidInput, match="expected a whole number of rows of at least 10"):
        reduce_competition(make(table(40), table(20, 1, 5000)), **size)


def test_only_the_rows_that_a_scaffold_loads_are_drawn_from(make):
    made = reduce_competition(make(table(900), table(400, 1, 5000)), 100, 50, max_rows=200)
    assert set(read(made)["id"]) <= {f"r{i}" for i in range(200)}


def test_data_that_changed_gives_another_copy(make):
    competition = make(table(300), table(100, 1, 5000))
    before = reduce_competition(competition, 60, 40)
    assert reduce_competition(competition, 60, 40).competition.public_dir == before.competition.public_dir
    table(350, 3).to_csv(competition.public_dir / "train.csv", index=False)
    after = reduce_competition(competition, 60, 40)
    assert after.all_rows == 350
    assert after.competition.public_dir != before.competition.public_dir


def test_data_that_changes_all_the_time_is_our_failure(make, monkeypatch):
    from wmrl_envs.tasks.reduced import copy

    competition, ticks = make(table(300), table(100, 1, 5000)), iter(range(100))
    monkeypatch.setattr(copy, "_signature", lambda c: (("train.csv", next(ticks), 0),))
    with pytest.raises(InfrastructureError, match="changes while it is read"):
        reduce_competition(competition, 60, 40)


def _make_in_process(folder):
    made = reduce_competition(load_competition("credit-default", folder), 60, 40)
    return str(made.competition.public_dir), len(read(made))


def test_several_processes_make_one_copy(tmp_path, home):
    train, test = table(300), table(100, 1, 5000)
    put(tmp_path / "credit-default", train, test.drop(columns="default"), test[["id", "default"]])
    with multiprocessing.get_context("fork").Pool(3) as pool:
        made = pool.map(_make_in_process, [tmp_path] * 6)
    assert len(set(made)) == 1
    assert [p.name for p in (home / "reduced").iterdir() if p.is_dir()] == [os.path.basename(os.path.dirname(made[0][0]))]


def test_another_seed_draws_other_rows(make):
    competition = make(table(900), table(400, 1, 5000))
    ids = [set(read(reduce_competition(competition, 100, 50, seed))["id"]) for seed in (0, 1)]
    assert ids[0] != ids[1]


def test_a_task_of_dsbench_is_reduced(tmp_path):
    train, test = table(300).rename(columns={"default": "y"}), table(120, 1, 5000).rename(columns={"default": "y"})
    slug = "playground-series-s3e2"
    from wmrl_envs.tasks.catalog import facts

    f = facts(slug)
    target, key = (f.target_columns or ("stroke",))[0], f.id_columns[0]
    train, test = (t.rename(columns={"y": target, "id": key}) for t in (train, test))
    public = tmp_path / "data_resplit" / slug
    public.mkdir(parents=True)
    (tmp_path / "answers" / slug).mkdir(parents=True)
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / f"{slug}.txt").write_text("Predict.")
    train.to_csv(public / "train.csv", index=False)
    test.drop(columns=target).to_csv(public / "test.csv", index=False)
    test[[key, target]].assign(**{target: 0.5}).to_csv(public / "sample_submission.csv", index=False)
    test[[key, target]].to_csv(tmp_path / "answers" / slug / "test_answer.csv", index=False)
    made = reduce_competition(load_competition(slug, tmp_path), 60, 40)
    assert (made.rows, made.test_rows) == (60, 40)
    outcome = graded(made, read(made, "sample_submission.csv"))
    assert outcome.status is ExecutionStatus.OK


def test_why_a_task_cannot_be_reduced_can_be_asked_without_making_a_copy(make, home):
    competition = make(table(300), table(100, 1, 5000))
    assert why_not_reduced(competition) is None
    (competition.public_dir / "train.csv").rename(competition.public_dir / "history.csv")
    assert "no table with 'train' in its name" in why_not_reduced(competition)
    assert not (home / "reduced").exists()


def test_bytes_of_another_encoding_stay_as_they_are(make):
    competition = make(table(300).assign(note="cafe"), table(100, 1, 5000).assign(note="cafe"))
    path = competition.public_dir / "train.csv"
    path.write_bytes(path.read_bytes().replace(b"cafe", b"caf\xe9"))
    made = reduce_competition(competition, 60, 40)
    assert (made.competition.public_dir / "train.csv").read_bytes().count(b",caf\xe9") == 60
