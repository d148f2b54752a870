"""`wmrl grpo` on the double of the environment that the tests of GRPO use."""

import json

import gymnasium as gym
import numpy as np
import pytest
from typer.testing import CliRunner

from tests.unit.agents.vla.test_grpo import ColourDouble, small_policy
from wmrl_train.agents.vla.policy import VLAPolicy
from wmrl_train.agents.vla.progress import ProgressModel


def double():
    env = ColourDouble(limit=2)
    env.close = lambda: None
    return env


@pytest.fixture
def made(monkeypatch):
    """What `gymnasium.make` was asked for."""
    asked = []

    def make(env_id, **options):
        asked.append(options)
        return double()

    monkeypatch.setattr(gym, "make", make)
    return asked


def wmrl(*arguments):
    from wmrl_train.cli import app

    return CliRunner().invoke(app, ["grpo", *map(str, arguments)])


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_simulator_s_reward_trains_a_policy_that_is_kept(tmp_path, made):
    start = small_policy().save(tmp_path / "start")
    sizes = ("--steps", 2, "--groups", 2, "--n", 4, "--workers", 2, "--lr", 0.01)
    result = wmrl(tmp_path / "run", "--policy", start, "--task", 7, *sizes)
    assert result.exit_code == 0, result.output
    assert len(made) == 2
    assert made[0]["task"] == 7
    assert made[0]["image_size"] == 16
    assert made[0]["action_chunk"] == 2
    assert [m["step"] for m in lines(tmp_path / "run" / "metrics.jsonl")] == [0, 1]
    before, after = (VLAPolicy.load(folder).model.llm.lm_head.weight for folder in (start, tmp_path / "run" / "policy"))
    assert not np.allclose(before.detach(), after.detach())


def test_a_run_that_was_killed_goes_on_and_ends_the_same(tmp_path, made, monkeypatch):
    from wmrl_train.agents.vla import state

    start, reward = small_policy().save(tmp_path / "start"), ProgressModel("final", size=16).save(tmp_path / "p.safetensors")
    sizes = ("--steps", 5, "--groups", 2, "--n", 4, "--workers", 2, "--lr", 0.01, "--save-every", 2)
    arguments = ("--policy", start, "--task", 7, "--reward", reward, *sizes)
    assert wmrl(tmp_path / "whole", *arguments).exit_code == 0
    save = state.Checkpoints.save

    def die(self, done, *rest):
        save(self, done, *rest)
        if done == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(state.Checkpoints, "save", die)
    assert wmrl(tmp_path / "killed", *arguments).exit_code != 0
    monkeypatch.undo()
    monkeypatch.setattr(gym, "make", lambda *a, **k: double())
    assert wmrl(tmp_path / "killed", *arguments, "--resume").exit_code == 0
    for name in ("policy/model.safetensors", "metrics.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_progress_model_pays_and_anchors_are_counted(tmp_path, made):
    start, reward = small_policy().save(tmp_path / "start"), ProgressModel("final", size=16).save(tmp_path / "p.safetensors")
    sizes = ("--steps", 2, "--groups", 2, "--n", 3, "--anchors", 1)
    result = wmrl(tmp_path / "run", "--policy", start, "--task", "move", "--reward", reward, *sizes)
    assert result.exit_code == 0, result.output
    run = tmp_path / "run"
    assert lines(run / "metrics.jsonl")[-1]["pairs"] == 2 * 3
    episodes, pairs = lines(run / "rollouts.jsonl"), lines(run / "anchors.jsonl")
    assert (len(episodes), len(pairs), sum(e["anchored"] for e in episodes)) == (2 * 2 * 3, 2 * 3, 2 * 3)
    assert {e["group"] for e in episodes} == {0, 1, 2, 3}
    assert all(0 <= e["predicted"] <= 1 for e in episodes)
    page = (run / "report.html").read_text()
    assert "Calibration on the anchors" in page
    assert "Cost ledger" not in page
    assert "p.safetensors" in page


def test_a_reward_model_that_is_down_leaves_the_anchor_groups(tmp_path, made, monkeypatch):
    from wmrl_envs.errors import InfrastructureError
    from wmrl_train.agents.vla import grpo

    def fail(*arguments):
        raise InfrastructureError("no server")

    start, reward = small_policy().save(tmp_path / "start"), ProgressModel("final", size=16).save(tmp_path / "p.safetensors")
    sizes = ("--groups", 3, "--n", 2, "--anchors", 1, "--reward", reward)
    monkeypatch.setattr(ProgressModel, "score", fail)
    result = wmrl(tmp_path / "run", "--policy", start, "--task", "move", "--steps", grpo.PATIENCE - 1, *sizes)
    assert result.exit_code == 0, result.output
    assert [m["dropped_groups"] for m in lines(tmp_path / "run" / "metrics.jsonl")] == [2] * (grpo.PATIENCE - 1)
    assert lines(tmp_path / "run" / "metrics.jsonl")[-1]["pairs"] == 0
    result = wmrl(tmp_path / "other", "--policy", start, "--task", "move", "--steps", 9, *sizes)
    assert "no server" in str(result.exception)
    assert len(lines(tmp_path / "other" / "metrics.jsonl")) == grpo.PATIENCE - 1
