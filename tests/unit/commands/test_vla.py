import json
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("pyarrow")
from typer.testing import CliRunner

from tests.unit.agents.vla.data.test_demonstrations import demonstration
from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.vla.data.lerobot import write_lerobot
from wmrl_train.evaluation import libero_folder as eval_run


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


def test_sft_that_was_killed_goes_on_and_ends_the_same(data, tmp_path, monkeypatch):
    from wmrl_train.agents.vla import state

    arguments = ("--data", data, "--steps", 6, "--batch", 4, "--vq-steps", 5, "--save-every", 2)
    assert wmrl("sft", tmp_path / "whole", *arguments).exit_code == 0
    save = state.Checkpoints.save

    def die(self, done, *rest):
        save(self, done, *rest)
        if done == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(state.Checkpoints, "save", die)
    assert wmrl("sft", tmp_path / "killed", *arguments).exit_code != 0
    monkeypatch.undo()
    assert "holds a training already: go on with --resume" in str(wmrl("sft", tmp_path / "killed", *arguments).exception)
    other = wmrl("sft", tmp_path / "killed", *arguments, "--resume", "--lr", 0.1)
    assert "lr=0.0005, now 0.1: resume with the same settings" in str(other.exception)
    assert wmrl("sft", tmp_path / "killed", *arguments, "--resume").exit_code == 0
    for name in ("model.safetensors", "config.json", "metrics.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_train_vq_writes_the_quantizer_and_the_statistics(data, tmp_path):
    from wmrl_train.agents.vla.actions import ActionNormalizer
    from wmrl_train.agents.vla.vq import ResidualVQ

    out = tmp_path / "vq" / "vq.safetensors"
    result = wmrl("train-vq", out, "--data", data, "--steps", 3, "--codes", 8, "--groups", 2, "--latent", 4)
    assert result.exit_code == 0, result.output
    assert ResidualVQ.load(out).config.groups == 2
    assert ActionNormalizer.load(out.with_name("dataset_statistics.json")).mask[:6].all()


@pytest.mark.parametrize(
    ("out", "options", "words"),
    [
        ("folder.safetensors", (), "is a folder"),
        ("file/vq.safetensors", (), "file is no folder"),
        ("vq.pt", (), "expected the name of a .safetensors file"),
        ("vq.safetensors", ("--codes", 10**12), "expected sizes of at most"),
    ],
)
def test_train_vq_says_before_the_training_what_cannot_be_written(data, tmp_path, monkeypatch, out, options, words):
    (tmp_path / "folder.safetensors").mkdir()
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("wmrl_train.agents.vla.vq.fit", lambda *a, **k: pytest.fail("trained"))
    result = wmrl("train-vq", tmp_path / out, "--data", data, *options)
    assert isinstance(result.exception, InvalidInput)
    assert words in str(result.exception)


def test_a_negative_seed_is_refused(data, tmp_path):
    assert "--seed" in wmrl("train-vq", tmp_path / "vq.safetensors", "--data", data, "--seed", -1).output


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("{bad", "settings.json holds no settings"),
        ("[]", "settings.json holds no settings"),
        ("[" * 10**5, "settings.json holds no settings"),
        ('{"agent": "a", "suite": "libero_10", "env": {}, "more": 1}', "with more=1, now more=None"),
    ],
)
def test_settings_that_are_none_continue_nothing(tmp_path, stove, settings, words):
    (tmp_path / "settings.json").write_text(settings)
    (tmp_path / "trials.jsonl").write_text("")
    with pytest.raises(InvalidInput, match=words):
        eval_run.run(still, eval_run.LiberoEval("a", tasks=(0,)), tmp_path)


def test_an_evaluation_into_a_file_is_refused(tmp_path, stove):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidInput, match=r"Cannot write to .* --out"):
            eval_run.run(still, eval_run.LiberoEval("a", tasks=(0,)), out)


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


@pytest.fixture
def stove(monkeypatch):
    env = StoveDouble()
    monkeypatch.setattr("gymnasium.make", lambda *a, **k: env)
    monkeypatch.setattr(eval_run.catalog, "tasks", lambda *a: [0])
    monkeypatch.setattr(eval_run.catalog, "find_task", lambda *a: SimpleNamespace(name="stove", index=0))
    monkeypatch.setattr(eval_run.catalog, "start_states", lambda *a: SimpleNamespace(indices=(0, 1, 20)))
    return env


def test_an_evaluation_is_continued_and_lost_episodes_are_run_again(tmp_path, stove):
    settings = eval_run.LiberoEval(tasks=(0,), repeats=2, videos=1)

    first = eval_run.run(lambda o: np.zeros((8, 7)), settings, tmp_path)
    assert (first.rates["overall"].trials, first.infra_failures) == (5, 1)
    second = eval_run.run(lambda o: np.zeros((8, 7)), settings, tmp_path)
    assert stove.episodes == 7  # only the lost one again
    assert (str(second.rates["seen"])[:4], second.rates["unseen"].successes, second.infra_failures) == ("50.0", 2, 0)
    assert (second.rates["best@2"].successes, second.rates["all@2"].trials) == (2, 3)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["rates"]["overall"]["successes"] == 4
    assert {f.name.rsplit("-", 1)[1] for f in tmp_path.glob("*.gif")} == {"success.gif", "failure.gif"}
    assert eval_run.table(second).row_count == 2


def still(observation):
    """An agent of the user's: observation -> actions (k, 7)."""
    return np.zeros((8, 7), np.float32)


AGENT = f"python:{__name__}:still"


def test_the_command_evaluates_reports_and_goes_on(stove, tmp_path):
    arguments = ("eval", "--env", "LIBERO-Long-v0", "--agent", AGENT, "--out", tmp_path / "e")
    result = wmrl(*arguments, "--k", 1)
    assert result.exit_code == 0, result.output
    for words in ("overall", "seen", "unseen", "best@1", "all@1", "versions: ", "renderer"):
        assert words in result.output
    log = tmp_path / "e" / "trials.jsonl"
    log.write_text(log.read_text() + '{"task": "sto')  # a kill in the middle of a line
    result = wmrl(*arguments, "--k", 2, "--json")
    report = json.loads(result.output)
    assert (report["rates"]["overall"]["trials"], report["rates"]["best@2"]["successes"], report["infra_failures"]) == (6, 2, 0)
    assert stove.episodes == 3 + 4  # the third one of all was lost
    saved = json.loads((tmp_path / "e" / "report.json").read_text())
    assert saved["settings"]["agent"] == AGENT
    assert {"renderer", "gymnasium", "torch"} <= set(saved["versions"])
    other = wmrl(*arguments, "--k", 2, "--max-steps", 10)
    assert "'max_steps': '10'" in str(other.exception)
    assert "give another folder" in str(other.exception)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--env", "LIBERO-Long-v1"), "--env 'LIBERO-Long-v1': expected one of"),
        (("--env", "LIBERO-Long-v0", "--turns", 3), "--turns says nothing in LIBERO-Long-v0"),
        (("--suite", "libero_90"), "--suite says nothing in MLEDojo-v0"),
        (("--env", "LIBERO-Long-v0", "--k", 0), "--k 0: expected at least 1"),
        (("--env", "LIBERO-Long-v0", "--tasks", ","), "--tasks ',': expected indices or names"),
        (("--env", "LIBERO-Long-v0", "--init-states", "1,x"), "--init-states '1,x': expected"),
        (("--env", "LIBERO-Long-v0", "--init-states", "0,,1"), "--init-states '0,,1': expected"),
        (("--env", "LIBERO-Long-v0", "--init-states", "\u00b2"), "--init-states '\u00b2': expected"),
        (("--env", "LIBERO-Long-v0", "--execute-horizon", 2), "--execute-horizon says nothing for a function"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(stove, arguments, words):
    assert words in str(wmrl("eval", "--agent", AGENT, *arguments).exception)


def test_an_agent_that_is_not_there_is_refused(stove, tmp_path):
    assert "no policy" in str(wmrl("eval", "--env", "LIBERO-Long-v0", "--agent", tmp_path / "nothing").exception)


def test_tasks_are_indices_or_names(stove):
    assert eval_run.parse_tasks(None, "libero_10") == (0,)
    assert eval_run.parse_tasks("7, KITCHEN_SCENE3_x", "libero_10") == (7, "KITCHEN_SCENE3_x")
    assert eval_run.parse_tasks("--5,\u00b2,-1", "libero_10") == ("--5", "\u00b2", -1)  # refused by name, as no such task
