import pytest

pytest.importorskip("pyarrow")
from typer.testing import CliRunner

from tests.unit.agents.vla.data.test_demonstrations import demonstration
from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.vla.data.lerobot import write_lerobot


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
    from wmrl_train.run.fitting import Fitting

    arguments = ("--data", data, "--steps", 6, "--batch", 4, "--vq-steps", 5, "--save-every", 2)
    assert wmrl("sft", tmp_path / "whole", *arguments).exit_code == 0
    save = Fitting.save

    def die(self, done, *rest):
        save(self, done, *rest)
        if done == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(Fitting, "save", die)
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
