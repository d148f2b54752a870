import json
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("pyarrow")
from typer.testing import CliRunner

from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.vla import eval_run
from wmrl_train.agents.vla.lerobot import write_lerobot

from .test_demonstrations import demonstration


def wmrl(*arguments):
    from wmrl_train.cli import app

    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def data(tmp_path):
    return write_lerobot(tmp_path / "data", [demonstration(20, i, wrist=False) for i in range(2)])


def test_sft_writes_a_policy_that_acts_and_continues(data, tmp_path):
    from wmrl_train.agents.vla.policy import VLAPolicy

    result = wmrl("sft", tmp_path / "policy", "--data", data, "--steps", 2, "--batch", 4, "--vq-steps", 5)
    assert result.exit_code == 0, result.output
    again = wmrl("sft", tmp_path / "more", "--data", data, "--steps", 1, "--init", tmp_path / "policy")
    assert again.exit_code == 0, again.output
    policy = VLAPolicy.load(tmp_path / "more")
    one = demonstration()
    chunk = policy({"image": one.images[0], "proprioception": one.proprioception[0], "instruction": one.instruction})
    assert chunk.shape == (8, 7)
    other = wmrl("sft", tmp_path / "x", "--data", data, "--orientation", "rot180")
    assert isinstance(other.exception, InvalidInput)
    assert "'vertical', but 'rot180'" in str(other.exception)


def test_train_vq_writes_the_quantizer_and_the_statistics(data, tmp_path):
    from wmrl_train.agents.vla.actions import ActionNormalizer
    from wmrl_train.agents.vla.vq import ResidualVQ

    out = tmp_path / "vq" / "vq.safetensors"
    result = wmrl("train-vq", out, "--data", data, "--steps", 3, "--codes", 8, "--groups", 2, "--latent", 4)
    assert result.exit_code == 0, result.output
    assert ResidualVQ.load(out).config.groups == 2
    assert ActionNormalizer.load(out.with_name("dataset_statistics.json")).mask[:6].all()


class StoveDouble:
    """Test double of LiberoLongEnv: success at once on even initial states; the third episode of all is lost."""

    def __init__(self):
        self.unwrapped, self.task, self.episodes = self, SimpleNamespace(name="stove"), 0

    def reset(self, options):
        self.index, self.episodes = options["init_state"], self.episodes + 1
        return {"image": np.zeros((4, 4, 3), np.uint8)}, {}

    def step(self, action):
        lost = self.episodes == 3
        wmrl = {"status": "infra_error" if lost else "ok", "steps": 8}
        success = not lost and self.index % 2 == 0
        return {"image": np.full((4, 4, 3), 9, np.uint8)}, float(success), success, not success, {"wmrl": wmrl}

    def close(self):
        pass


def test_an_evaluation_is_continued_and_lost_episodes_are_run_again(tmp_path, monkeypatch):
    task = SimpleNamespace(name="stove", index=0)
    env = StoveDouble()
    monkeypatch.setattr("gymnasium.make", lambda *a, **k: env)
    monkeypatch.setattr(eval_run.catalog, "find_task", lambda *a: task)
    monkeypatch.setattr(eval_run.catalog, "start_states", lambda *a: SimpleNamespace(indices=(0, 1, 20)))
    settings = eval_run.LiberoEval(tasks=(0,), repeats=2, videos=1)

    first = eval_run.run(lambda o: np.zeros((8, 7)), settings, tmp_path)
    assert (first.rates["overall"].trials, first.infra_failures) == (5, 1)
    second = eval_run.run(lambda o: np.zeros((8, 7)), settings, tmp_path)
    assert env.episodes == 7  # only the lost one again
    assert (str(second.rates["seen"])[:4], second.rates["unseen"].successes, second.infra_failures) == ("50.0", 2, 0)
    assert (second.rates["best@2"].successes, second.rates["all@2"].trials) == (2, 3)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["rates"]["overall"]["successes"] == 4
    assert {f.name.rsplit("-", 1)[1] for f in tmp_path.glob("*.gif")} == {"success.gif", "failure.gif"}
    assert eval_run.table(second).row_count == 2
