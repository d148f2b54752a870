"""`wmrl grpo` and `wmrl train libero` on the double of the environment."""

import json
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from typer.testing import CliRunner

from tests.unit.agents.vla.doubles import ColourDouble, small_policy
from wmrl_train.agents.vla.policy import VLAPolicy
from wmrl_train.agents.vla.progress import ProgressModel
from wmrl_train.training.trainer import Trainer

SIZES = ("--steps", 2, "--groups", 2, "--n", 4, "--workers", 2, "--lr", 0.01)


@pytest.fixture
def made(monkeypatch):
    """What `gymnasium.make` was asked for."""
    asked = []

    def make(env_id, **options):
        asked.append(options)
        return ColourDouble(limit=2)

    monkeypatch.setattr(gym, "make", make)
    return asked


@pytest.fixture
def files(tmp_path):
    """The policy's folder and a progress model's file."""
    return small_policy().save(tmp_path / "start"), ProgressModel("final", size=16).save(tmp_path / "p.safetensors")


def wmrl(*arguments):
    from wmrl_train.cli import app

    return CliRunner().invoke(app, [*map(str, arguments)])


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def steps_of(run):
    return [record for record in lines(run / "metrics.jsonl") if "eval" not in record]


def test_the_simulator_s_reward_trains_a_policy_that_is_kept(tmp_path, made, files):
    result = wmrl("grpo", tmp_path / "run", "--policy", files[0], "--task", 7, *SIZES)
    assert result.exit_code == 0, result.output
    assert len(made) == 2
    assert made[0]["task"] == 7
    assert made[0]["image_size"] == 16
    assert made[0]["action_chunk"] == 2
    assert [m["step"] for m in steps_of(tmp_path / "run")] == [1, 2]
    evaluated = [m["eval"] for m in lines(tmp_path / "run" / "metrics.jsonl") if "eval" in m]
    assert [set(e) for e in evaluated] == [{"train", "held_out", "wall_s"}] * 2, "before and after"
    before, after = (VLAPolicy.load(folder).model.llm.lm_head.weight for folder in (files[0], tmp_path / "run" / "policy"))
    assert not np.allclose(before.detach(), after.detach())


def test_it_is_wmrl_train_libero_with_options(tmp_path, made, files):
    policy, reward = files
    options = ("--policy", policy, "--task", "move", "--reward", reward, "--texture-size", 64, "--anchors", 1, *SIZES)
    assert wmrl("grpo", tmp_path / "one", *options, "eval.k=0").exit_code == 0
    keys = {"policy.model": policy, "libero.task": "move", "libero.reward": reward, "libero.options.texture_size": 64, "train.steps": 2,
            "rollout.groups": 2, "rollout.group_size": 4, "optim.lr": 0.01, "optim.epochs": 1, "policy.device": "auto", "train.save_every": 1,
            "libero.simulators": 2, "anchors.fraction": 0.5, "eval.k": 0}  # fmt: skip
    result = wmrl("train", "libero", "--run-dir", tmp_path / "two", *(f"{k}={v}" for k, v in keys.items()))
    assert result.exit_code == 0, result.output
    assert made[0]["texture_size"] == 64
    one, two = ((tmp_path / name / "policy" / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two
    configs = [(tmp_path / name / "config.yaml").read_text().replace(f"name: {name}", "") for name in ("one", "two")]
    assert configs[0] == configs[1]


def test_a_run_that_was_killed_goes_on_and_ends_the_same(tmp_path, made, files, monkeypatch):
    sizes = ("--steps", 5, "--groups", 2, "--n", 4, "--workers", 2, "--lr", 0.01, "--save-every", 2)
    arguments = ("--policy", files[0], "--task", 7, "--reward", files[1], *sizes)
    assert wmrl("grpo", tmp_path / "whole", *arguments).exit_code == 0
    step = Trainer._train_step

    def die(self):
        step(self)
        if self.step == 3:
            raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_train_step", die)
        assert wmrl("grpo", tmp_path / "killed", *arguments).exit_code != 0
    assert "holds a run already" in str(wmrl("grpo", tmp_path / "killed", *arguments).exception)
    result = wmrl("grpo", tmp_path / "killed", *arguments, "--resume")
    assert result.exit_code == 0, result.output
    one, two = ((tmp_path / name / "policy" / "model.safetensors").read_bytes() for name in ("whole", "killed"))
    assert one == two
    for name in ("rollouts.jsonl", "anchors.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_what_is_not_said_again_at_a_resume_is_as_it_was(tmp_path, made, files):
    arguments = (tmp_path / "run", "--policy", files[0], "--task", 7, "eval.k=0")
    assert wmrl("grpo", *arguments, *SIZES, "--epochs", 2).exit_code == 0
    assert wmrl("grpo", *arguments, "--resume", "--steps", 3).exit_code == 0
    from wmrl_train.config import load_config

    config = load_config(tmp_path / "run" / "config.yaml")
    assert (config.train.steps, config.optim.epochs, config.rollout.group_size) == (3, 2, 4)
    assert len(steps_of(tmp_path / "run")) == 3


def test_a_progress_model_pays_and_anchors_are_counted(tmp_path, made, files):
    run = tmp_path / "run"
    result = wmrl("grpo", run, "--policy", files[0], "--task", "move", "--reward", files[1], *SIZES, "--anchors", 1)
    assert result.exit_code == 0, result.output
    assert steps_of(run)[-1]["anchor/n_pairs"] == 2 * 4
    episodes, pairs = lines(run / "rollouts.jsonl"), lines(run / "anchors.jsonl")
    assert (len(episodes), len(pairs), sum(e["anchored"] for e in episodes)) == (2 * 2 * 4, 2 * 4, 2 * 4)
    assert {e["group"] for e in episodes} == {0, 1, 2, 3}
    assert {e["propensity"] for e in episodes} == {0.5}
    assert all(0 <= e["turns"][0]["predicted"] <= 1 for e in episodes)
    page = (run / "report.html").read_text()
    assert "Calibration on the anchors" in page
    assert "p.safetensors" in page


def test_what_cannot_work_leaves_nothing_behind(tmp_path, made, files):
    arguments = ("--policy", files[0], "--task", 7, *SIZES)
    for wrong, message in ((("--reward", tmp_path / "no.safetensors"), "not a readable progress model"), (("anchors.lag=1",), "nothing to wait for")):  # fmt: skip
        result = wmrl("grpo", tmp_path / "run", *arguments, *wrong)
        assert message in str(result.exception)
        assert not (tmp_path / "run").exists()
    assert wmrl("grpo", tmp_path / "run", *arguments).exit_code == 0, "the folder can be used"


def test_several_tasks_are_trained_in_one_run(tmp_path, files, monkeypatch):
    class Task(ColourDouble):
        def __init__(self, index):
            super().__init__(limit=2)
            self.task = SimpleNamespace(name=f"task-{index}")

    monkeypatch.setattr(gym, "make", lambda env_id, task, **options: Task(task))
    settings = (f"policy.model={files[0]}", "libero.task=[0, 3]", "libero.reward=null", "policy.device=cpu", "train.steps=2",
                "rollout.groups=4", "rollout.group_size=2")  # fmt: skip
    result = wmrl("train", "libero", "--run-dir", tmp_path / "run", *settings)
    assert result.exit_code == 0, result.output
    by_group = {}
    for record in lines(tmp_path / "run" / "rollouts.jsonl"):
        by_group.setdefault(record["group"], []).append((record["task"], record["start"]))
    assert all(len(set(members)) == 1 for members in by_group.values()), "a group has one task and one start"
    assert sorted(members[0][0] for members in by_group.values()) == ["task-0"] * 4 + ["task-3"] * 4
    assert {"success/task-0", "success/task-3"} <= set(steps_of(tmp_path / "run")[0])
    after = [m["eval"] for m in lines(tmp_path / "run" / "metrics.jsonl") if "eval" in m][-1]
    assert set(after["train"]["by_task"]) == {"task-0", "task-3"}


def test_a_run_of_the_former_trainer_of_robots_is_reported_and_not_resumed(tmp_path, made, files):
    """Its logs counted steps from 0, and had no lanes, no ledger and no turns."""
    from wmrl_train.config import load_config
    from wmrl_train.run import checkpoint

    run = tmp_path / "old"
    (run / "checkpoints").mkdir(parents=True)
    stored = [f"policy.model={files[0]}", f"libero.reward={files[1]}", "train.steps=2", f"run.dir={tmp_path}", "run.name=old"]
    (run / "config.yaml").write_text(load_config("libero", stored).to_yaml())
    step = {"dropped_groups": 0, "loss": 0.1, "success": 0.5, "predicted": 0.4, "rho": 1.0, "pairs": 4, "anchor/rho": 1.0,
            "reward/executed": 0.5, "reward/predicted": 0.4, "reward/calibrated": 0.4}  # fmt: skip
    (run / "metrics.jsonl").write_text("".join(json.dumps({"step": i} | step) + "\n" for i in range(2)))
    pair = {"step": 0, "task": "colour", "group": 0, "predicted": 0.4, "true": 1.0}
    (run / "anchors.jsonl").write_text(json.dumps(pair) + "\n")
    episode = {
        "step": 0,
        "task": "colour",
        "group": 0,
        "init_state": 1,
        "anchored": True,
        "success": True,
        "steps": 4,
        "predicted": 0.4,
    }
    (run / "rollouts.jsonl").write_text(json.dumps(episode) + "\n")
    state = {"settings": {"seed": 0}, "logs": {}, "parts": {}}
    checkpoint.save(run / "checkpoints", 2, model=VLAPolicy.load(files[0]), optimizer={"optimizer": {}}, state=state, keep=2)
    assert wmrl("report", run).exit_code == 0
    assert "Calibration on the anchors" in (run / "report.html").read_text()
    refused = wmrl("grpo", run, "--policy", files[0], "--task", 8, "--resume")
    assert "is not of this trainer" in str(refused.exception)
