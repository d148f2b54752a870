"""Rescoring a training run: its submissions are found in the execution cache, without running anything."""

import json
from dataclasses import asdict

import pytest

from tests.unit.evaluation.conftest import SLUG
from wmrl_envs.envs.make import make_env
from wmrl_envs.errors import InvalidInput
from wmrl_envs.execution.recorded.store import ExecutionStore
from wmrl_envs.outcome import Execution, ExecutionStatus, Solution
from wmrl_train.config import load_config
from wmrl_train.config.environment import env_kwargs
from wmrl_train.episodes.records import Turn
from wmrl_train.evaluation.rescore import load, rescore
from wmrl_train.evaluation.rescore import run as rescore_command


@pytest.fixture
def run_folder(dojo, box, tmp_path, monkeypatch):
    """A run with three anchored episodes (recorded, recorded with an old score, not recorded) and a predicted one."""
    monkeypatch.setenv("WMRL_HOME", str(tmp_path / "home"))
    config = load_config("paper-4b", [f"tasks.data_dir={dojo[0]}"])
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(config.to_yaml())
    env = make_env(SLUG, **env_kwargs(config) | {"sandbox": box})
    store = ExecutionStore()
    for code, name in (("one", "half"), ("two", "perfect")):
        execution = Execution(ExecutionStatus.OK, 0, submission=dojo[1][SLUG][name].encode(), wall_s=2.0)
        store.put(env.job(Solution(code, SLUG)), "lock", execution)
    store.close()
    half = env.run(Solution("#ok\n" + dojo[1][SLUG]["half"], SLUG))[0].score
    turns = [
        Turn("one", true=half, status="ok", execution_s=2.0, predicted=0.1),
        Turn("two", true=0.1, status="ok", execution_s=2.0),
        Turn("three", true=0.3, status="ok", execution_s=1.0),
        Turn("one", predicted=0.9, predicted_status="ok"),
        Turn("four", true=0.0, status="timeout", execution_s=9.0),
    ]
    with (folder / "rollouts.jsonl").open("w") as file:
        for member, turn in enumerate(turns):
            file.write(json.dumps({"step": 1, "group": 0, "member": member, "task": SLUG, "turns": [asdict(turn)]}) + "\n")
    return folder, half


def test_recorded_submissions_are_graded_again_and_the_others_keep_their_score(run_folder):
    folder, half = run_folder
    stored, settings = load(folder)
    result = rescore(stored, settings.env["data_dir"])
    assert (result.regraded, result.changed, result.kept) == (2, 1, 1)
    assert [t.score for t in result.before.trajectories] == pytest.approx([half, 0.1, 0.3, 0.0])
    assert [t.score for t in result.after.trajectories] == pytest.approx([half, 1.0, 0.3, 0.0])
    assert result.after.cost.execution_s == pytest.approx(14.0)


def test_a_folder_without_config_is_refused(run_folder):
    folder, _ = run_folder
    (folder / "config.yaml").unlink()
    with pytest.raises(InvalidInput, match="neither"):
        load(folder)


@pytest.mark.parametrize(
    "record",
    [
        {"success": True},
        {"turns": 5, "task": SLUG},
        {"turns": [7], "task": SLUG},
        {"turns": [{}], "task": SLUG},
        {"turns": [], "task": None},
        {"turns": [{"true": 1.0, "status": "fine"}], "task": SLUG},
    ],
)
def test_a_run_without_programs_is_refused(run_folder, record):
    folder, _ = run_folder
    (folder / "rollouts.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.raises(InvalidInput, match="without the programs that were executed"):
        load(folder)


@pytest.mark.parametrize("settings", ['{"agent": "a", "tasks": "t", "env": null}', "[]", "[" * 100_000, '{"agent": 1}', "{"])
def test_settings_that_are_none_are_one_sentence(tmp_path, settings):
    (tmp_path / "trajectories.jsonl").write_text("")
    (tmp_path / "settings.json").write_text(settings)
    with pytest.raises(InvalidInput, match=r"settings\.json"):
        load(tmp_path)


def test_where_nothing_was_executed_there_is_nothing_to_grade_again(tmp_path):
    (tmp_path / "trajectories.jsonl").write_text("")
    (tmp_path / "settings.json").write_text('{"agent": "a", "tasks": "t"}')
    with pytest.raises(InvalidInput, match="nothing to grade again"):
        rescore_command(tmp_path)
