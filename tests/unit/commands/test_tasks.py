"""`wmrl tasks list|show|prepare` on the command line."""

import json

import pytest
from typer.testing import CliRunner

from wmrl_envs.errors import DataNotBuilt, InvalidInput
from wmrl_train.cli import app


def wmrl(*args):
    result = CliRunner().invoke(app, ["tasks", *map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_list_as_json_and_as_a_table(tmp_path):
    rows = json.loads(wmrl("list", "--split", "train", "--source", "mledojo", "--json", "--data-dir", tmp_path).stdout)
    assert len(rows) == 45
    assert rows[0]["slug"] == "mercedes-benz-greener-manufacturing"
    assert not any(r["prepared"] for r in rows)
    assert (
        "45 competitions, 0 prepared" in wmrl("list", "--split", "train", "--source", "mledojo", "--data-dir", tmp_path).stdout
    )
    excluded = json.loads(wmrl("list", "--split", "dsbench", "--excluded", "--json", "--data-dir", tmp_path).stdout)
    assert sum(bool(r["excluded_because"]) for r in excluded) == 15


def test_list_only_prepared(mledojo_dir):
    rows = json.loads(wmrl("list", "--prepared", "--json", "--data-dir", mledojo_dir).stdout)
    assert [r["slug"] for r in rows] == ["playground-series-s3e9"]


def test_show(mledojo_dir):
    info = json.loads(wmrl("show", "playground-series-s3e9", "--json", "--data-dir", mledojo_dir).stdout)
    assert (info["metric"], info["higher_is_better"], info["boards"]) == ("rmse", False, {"private": 10, "public": 10})
    assert "Data inventory" in wmrl("show", "playground-series-s3e9", "--overview", "--data-dir", mledojo_dir).stdout
    assert "accuracy" in wmrl("show", "titanic", "--data-dir", mledojo_dir).stdout


def test_show_tells_what_makes_a_score_doubtful(tmp_path):
    assert "gives the target away" in wmrl("show", "random-acts-of-pizza", "--data-dir", tmp_path).stdout


def test_prepare_checks_a_folder(dsbench_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("WMRL_DATA_DIR", str(tmp_path / "home"))
    out = wmrl("prepare", "dsbench", "--data-dir", dsbench_dir).stdout
    assert "titanic: ready" in out
    assert "1 of 75 competitions are ready" in out
    rows = json.loads(wmrl("list", "--prepared", "--excluded", "--json").stdout)
    assert [r["slug"] for r in rows] == ["titanic"]


@pytest.mark.parametrize(
    ("args", "error", "word"),
    [
        (("list", "--split", "test"), InvalidInput, "train, held_out, dsbench"),
        (("show", "titanik"), InvalidInput, "titanic"),
        (("prepare", "kaggle"), InvalidInput, "builtin, mledojo or dsbench"),
        (("prepare", "mledojo"), InvalidInput, "--data-dir"),
        (("prepare", "mledojo", "--data-dir", "/nowhere/at/all"), DataNotBuilt, "not a folder"),
        (("prepare", "builtin", "--only", "titanic"), InvalidInput, "built-in"),
    ],
)
def test_a_users_mistake_is_one_sentence(args, error, word):
    with pytest.raises(error, match=word) as caught:
        wmrl(*args)
    assert "\n" not in str(caught.value)
