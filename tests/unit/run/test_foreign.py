"""The folder of a run from somebody else is data: no link in it is followed, nothing beside a checkpoint's own files is loaded."""

import os
import shutil

import pytest
import torch

from wmrl_envs.errors import InvalidInput
from wmrl_train.config import Config
from wmrl_train.run import checkpoint
from wmrl_train.run.report import write_report
from wmrl_train.run.rundir import RunDirectory


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(Config().to_yaml())
    (folder / "metrics.jsonl").write_text("")
    return folder


@pytest.fixture
def victim(tmp_path):
    file = tmp_path / "victim"
    file.write_text("precious\n")
    return file


@pytest.mark.parametrize("name", ["rollouts.jsonl", "metrics.jsonl", "anchors.jsonl", ".lock", "report.html", "config.yaml"])
def test_a_link_in_place_of_a_file_is_refused_and_its_target_untouched(run, victim, name):
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(victim)
    directory = RunDirectory(run)
    for attempt in (directory.acquire, lambda: write_report(run)):
        with pytest.raises(InvalidInput, match="is a symbolic link"):
            attempt()
    if name.endswith(".jsonl"):
        with pytest.raises(InvalidInput, match="cannot be read"):
            list(directory.read(name))
    assert victim.read_text() == "precious\n"


@pytest.mark.parametrize("write", [lambda run, log: run.append(log, {"x": 1}), lambda run, log: run.truncate({})])
@pytest.mark.parametrize("log", ["rollouts.jsonl", "metrics.jsonl", "anchors.jsonl"])
def test_writing_to_a_log_replaces_a_link(run, victim, write, log):
    (run / log).unlink(missing_ok=True)
    (run / log).symlink_to(victim)
    write(RunDirectory(run), log)
    assert victim.read_text() == "precious\n"
    assert not (run / log).is_symlink()


def test_what_lies_where_the_report_is_prepared_is_untouched(run, victim):
    (run / "report.tmp").symlink_to(victim)
    write_report(run)
    assert victim.read_text() == "precious\n"
    assert "precious" not in (run / "report.html").read_text()


def test_a_pipe_in_place_of_a_log_is_not_waited_for(run):
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    with pytest.raises(InvalidInput, match="cannot be read"):
        list(RunDirectory(run).read("metrics.jsonl"))


def test_half_characters_in_a_log_are_shown(run):
    with (run / "settings.jsonl").open("w") as log:
        log.write('{"step": 1, "changed": {"train.steps": ["\\ud800", 2]}}\n')
    assert "? -> 2" in write_report(run).read_text(encoding="utf-8").replace("&gt;", ">")


def test_checkpoints_elsewhere_are_refused(run, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (run / "checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput, match="is a symbolic link"):
        RunDirectory(run).acquire()


class Model(torch.nn.Linear):
    def save_pretrained(self, folder):
        from safetensors.torch import save_file

        save_file(dict(self.state_dict()), folder / "model.safetensors")


@pytest.fixture
def saved(run):
    model = Model(2, 1)
    checkpoint.save(run / "checkpoints", 1, model=model, optimizer={}, state={}, keep=2)
    return model, run / "checkpoints"


def test_weights_that_a_checkpoint_does_not_list_are_not_loaded(saved):
    model, folder = saved
    stray = Model(2, 1)
    stray.save_pretrained(folder / "step-000001" / "policy")
    shutil.move(folder / "step-000001" / "policy" / "model.safetensors", folder / "step-000001" / "policy" / "zz.safetensors")
    model.save_pretrained(folder / "step-000001" / "policy")
    other = Model(2, 1)
    checkpoint.load_weights(checkpoint.latest(folder), other)
    assert torch.equal(other.weight, model.weight)
    assert not torch.equal(other.weight, stray.weight)


def test_a_checkpoint_behind_a_link_counts_as_damaged(saved, tmp_path):
    _, folder = saved
    shutil.move(folder / "step-000001" / "policy" / "model.safetensors", tmp_path / "weights")
    (folder / "step-000001" / "policy" / "model.safetensors").symlink_to(tmp_path / "weights")
    with pytest.raises(InvalidInput, match=r"policy/model\.safetensors is missing"):
        checkpoint.latest(folder)
    with pytest.raises(InvalidInput, match="does not list"):
        checkpoint.Checkpoint(folder, 1, {}).file("optimizer.pt")
