"""Loading from MLE-Dojo's and DSBench's folders, and checking folders a user has."""

import json

import gymnasium
import pytest

import wmrl_envs  # noqa: F401  (registers the environments)
from tests.doubles import ObedientSandbox
from wmrl_envs.errors import DataNotBuilt, InvalidInput
from wmrl_envs.outcome import Execution, ExecutionStatus
from wmrl_envs.tasks import grade, load_competition, prepared_competitions
from wmrl_envs.tasks.prepare import check_folder, index

SLUG = "playground-series-s3e9"


def test_the_parent_the_folder_and_its_data_folder_are_all_taken(mledojo_dir):
    found = {load_competition(SLUG, mledojo_dir / tail).public_dir for tail in ("", SLUG, f"{SLUG}/data")}
    assert found == {mledojo_dir / SLUG / "data" / "public"}


def test_the_folder_of_another_competition_is_not_taken(mledojo_dir):
    with pytest.raises(DataNotBuilt):
        load_competition("titanic", mledojo_dir / SLUG)


def test_what_a_competition_knows(mledojo_dir):
    c = load_competition(SLUG, str(mledojo_dir))
    assert (c.slug, c.category, c.metric, c.higher_is_better, c.split, c.source) == (
        SLUG,
        "tabular",
        "rmse",
        False,
        "dsbench",
        "dsbench",
    )
    assert (c.id_columns, c.target_columns, c.prediction_columns) == (("id",), ("Strength",), ("Strength",))
    assert c.board.sizes == {"private": 10, "public": 10}
    assert c.description.startswith("# Concrete")
    assert "private" not in repr(c)
    with pytest.raises(AttributeError):
        c.public_dir = "elsewhere"


def test_data_that_is_not_there_names_the_command(tmp_path):
    with pytest.raises(DataNotBuilt, match="wmrl tasks prepare builtin"):
        load_competition("credit-default", tmp_path)
    with pytest.raises(DataNotBuilt, match="wmrl tasks prepare mledojo"):
        load_competition("stumbleupon", tmp_path)
    with pytest.raises(InvalidInput, match="stumbleupon"):
        load_competition("stumble-upon", tmp_path)


@pytest.mark.parametrize("name", ["public/description.txt", "public/sample_submission.csv", "private/test_answer.csv"])
def test_a_missing_file_is_named(mledojo_dir, name):
    (mledojo_dir / SLUG / "data" / name).unlink()
    with pytest.raises(DataNotBuilt, match=name.split("/")[1]):
        load_competition(SLUG, mledojo_dir)


def test_dsbench_release_with_its_own_sample_name_and_values(dsbench_dir):
    for root in (dsbench_dir, dsbench_dir / "data"):
        c = load_competition("titanic", root)
        assert c.sample_submission.name == "gender_submission.csv"
        assert c.submission_columns == ("PassengerId", "Survived")
        assert c.relative_gap(0.75) == pytest.approx(0.5)
    assert c.relative_gap(0.3) == c.relative_gap(None) == c.relative_gap(float("nan")) == 0.0
    outcome = grade(c, Execution(ExecutionStatus.OK, 0, submission=c.private.answers.read_bytes()))
    assert (outcome.score, outcome.raw_score, outcome.relative_gap) == (1.0, 1.0, 1.0)


def test_dsbench_boards_may_lie_beside_the_release(dsbench_dir):
    folder = dsbench_dir / "leaderboards" / "titanic"
    folder.mkdir(parents=True)
    (folder / "private_leaderboard.csv").write_text("rank,score\n1,1.0\n2,0.9\n3,0.8\n")
    c = load_competition("titanic", dsbench_dir)
    data = c.private.answers.read_bytes().replace(b"20,1", b"20,0")
    outcome = grade(c, Execution(ExecutionStatus.OK, 0, submission=data))
    assert (outcome.raw_score, outcome.score) == (0.875, pytest.approx(1 / 3))


def test_dsbench_release_without_leaderboards_is_played_for_the_relative_gap(dsbench_dir):
    env = gymnasium.make("DSBench-v0", competition="titanic", data_dir=dsbench_dir, execution=ObedientSandbox())
    env.reset(seed=0)
    answers = (dsbench_dir / "data" / "answers" / "titanic" / "test_answer.csv").read_text()
    observation, reward, _, _, info = env.step("#ok\n" + answers)
    assert (reward, info["wmrl"]["score"], info["wmrl"]["relative_gap"]) == (1.0, 1.0, 1.0)
    assert "Leaderboard" not in observation


def test_relative_gap_uses_the_catalogue_when_the_release_has_no_values(mledojo_dir):
    c = load_competition(SLUG, mledojo_dir)
    assert c.relative_gap(0.0) == 1.0
    assert c.relative_gap(16.51) == 0.0
    assert c.relative_gap(8.255) == pytest.approx(0.5)


def test_checking_a_folder_names_what_is_missing_and_loads_the_rest(mledojo_dir, tmp_path):
    (mledojo_dir / "stumbleupon").mkdir()
    raw = mledojo_dir / "unimelb" / "raw"
    raw.mkdir(parents=True)
    (raw / "x.zip").write_bytes(b"")
    checked = {c.slug: c for c in check_folder("dsbench", mledojo_dir)}
    assert checked[SLUG].problem is None
    assert "not in this folder" in checked["titanic"].problem
    with pytest.raises(DataNotBuilt, match="holds no competition of mledojo"):
        check_folder("mledojo", mledojo_dir)
    from wmrl_envs.tasks.prepare import check

    assert "rules" in check("stumbleupon", mledojo_dir).problem
    assert "not prepared" in check("unimelb", mledojo_dir).problem


def test_an_index_makes_a_folder_known(mledojo_dir, tmp_path, monkeypatch):
    home = tmp_path / "home"
    path = index(check_folder("dsbench", mledojo_dir), mledojo_dir, home)
    assert json.loads(path.read_text()) == {SLUG: str(mledojo_dir)}
    monkeypatch.setenv("WMRL_DATA_DIR", str(home))
    assert load_competition(SLUG).public_dir == mledojo_dir / SLUG / "data" / "public"


def test_a_sample_that_does_not_fit_the_answers_is_reported(mledojo_dir):
    (mledojo_dir / SLUG / "data" / "public" / "sample_submission.csv").write_text("id\n30\n")
    checked = {c.slug: c for c in check_folder_safely(mledojo_dir)}
    assert "lacks the columns Strength" in checked[SLUG].problem


def check_folder_safely(root):
    from wmrl_envs.tasks.prepare import check

    return [check(SLUG, root)]


def test_prepared_competitions_report_the_broken_ones(mledojo_dir):
    (mledojo_dir / "not-a-competition" / "data" / "public").mkdir(parents=True)
    found = dict(prepared_competitions(mledojo_dir))
    assert found[SLUG].slug == SLUG
    assert "Unknown competition" in found["not-a-competition"]
