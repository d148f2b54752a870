import errno
import os
import re
import shutil
import sys
import urllib.error
from pathlib import Path

import pytest
import yaml

from wmrl_envs.envs.mle_dojo import MLEDojoEnv
from wmrl_envs.errors import InvalidInput
from wmrl_envs.world_models.static.model import StaticWorldModel
from wmrl_train import cli
from wmrl_train.config import load_config
from wmrl_train.config.options import known_options
from wmrl_train.engines.models import model_path
from wmrl_train.engines.transformers import load_model
from wmrl_train.run.rundir import RunDirectory
from wmrl_train.training.estimate import Durations, parameters, simulate


@pytest.fixture
def wmrl(capsys, monkeypatch, tmp_path):
    """The command line in this process, in an empty folder: arguments -> (exit status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["wmrl", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, *capsys.readouterr()

    return run


def test_dry_run_prints_the_resolved_configuration_memory_and_cost(wmrl, tmp_path):
    status, out, _ = wmrl("train", "laptop", "train.steps=3", "--dry-run", "--run-dir", tmp_path / "x" / "mine")
    assert status == 0
    values = yaml.safe_load(out)
    assert (values["train"]["steps"], values["run"]["name"]) == (3, "mine")
    assert "# memory: 2.1 M weights" in out
    assert "of which 24 are executed and 168 only predicted" in out
    assert not (tmp_path / "x").exists(), "a dry run writes nothing"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "laptop", "train.stepz=3"], "Did you mean 'train.steps'?"),
        (["train", "labtop"], "Did you mean 'laptop'?"),
        (["train", "laptop", "tasks.train=[titanik]"], "titanik"),
        (["train", "laptop", "optim.betas=[1,0.9]"], "optim.betas.0=1: Input should be less than 1"),
        (["train", "laptop", "--resume"], "holds no run to resume"),
        (["train", "laptop", "policy.model=nowhere"], "No model in 'nowhere'"),
        (["train", "laptop", "policy.engine=openai"], "policy.engine='openai'"),
        (["train", "laptop", "policy.model=smollm2"], "wmrl model fetch smollm2"),
        (["train", "laptop", "--like", "dir"], "--like 'dir' is for --dry-run"),
        (["train", "laptop", "--dry-run", "--run-dir", "/"], "--run-dir '/' ends in no name"),
        (["train", "laptop", "--dry-run", "--run-dir", "."], "--run-dir '.' ends in no name"),
        (["train", "laptop", "--dry-run", "--run-dir", ".."], "--run-dir '..' ends in no name"),
        (["train", "laptop", "--resume", "--run-dir", "a/.."], "--run-dir 'a/..' ends in no name"),
        (["train", "laptop", "--dry-run", "--run-dir", "a b"], "--run-dir 'a b' ends in no name"),
        (["train", "laptop", "--dry-run", "run.name=.."], "run.name='..'"),
        (["report", "nowhere"], "holds no run"),
        (["model", "fetch", "gpt9"], "cannot be fetched"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_exit_code_2(wmrl, arguments, message, monkeypatch, tmp_path):
    monkeypatch.setenv("WMRL_HOME", str(tmp_path / "home"))
    status, _, err = wmrl(*arguments)
    assert status == 2
    assert message in " ".join(err.split())
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists(), "a refused command leaves no folder"


@pytest.mark.parametrize(
    ("receiver", "key", "options", "message"),
    [
        (StaticWorldModel, "world_model.options", {"base_vaild": 0.9}, "did you mean 'world_model.options.base_valid'?"),
        (MLEDojoEnv, "tasks.options", {"hide_scores": True}, "did you mean 'tasks.options.hide_score'?"),
        (StaticWorldModel, "world_model.options", {"zzz": 1}, "expected one of sandbox_lock, learn, base_valid, index"),
    ],
)
def test_an_unknown_option_of_a_part_is_refused_by_name(receiver, key, options, message):
    with pytest.raises(InvalidInput, match=re.escape(message)):
        known_options(receiver, key, options)


@pytest.mark.parametrize(
    ("damage", "device", "message"),
    [
        (lambda m: (m / "model.safetensors").write_bytes(b"12345678{"), "cpu", "cannot be loaded"),
        (lambda m: (m / "model.safetensors").unlink(), "cpu", "cannot be loaded"),
        (lambda m: (m / "config.json").write_text("{}"), "cpu", "cannot be loaded"),
        (lambda m: None, "abacus", "Device 'abacus' cannot be used"),
    ],
)
def test_a_damaged_model_or_an_absent_device_is_one_sentence(tmp_path, damage, device, message):
    model = shutil.copytree(model_path("demo"), tmp_path / "model")
    damage(model)
    with pytest.raises(InvalidInput, match=message) as raised:
        load_model(model, device=device)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("folder", ["2024", "null/true", "a: b/.hidden", "\u00e9\u00df/\U0001f600/x", "-1/-2"])
def test_a_run_may_lie_in_a_folder_that_yaml_would_read_otherwise(wmrl, folder):
    status, out, err = wmrl("train", "laptop", "--dry-run", f"--run-dir=./{folder}")
    assert status == 0, err
    run = yaml.safe_load(out)["run"]
    assert (run["dir"], run["name"]) == (str(Path(folder).parent), Path(folder).name)


NUMBERS = ("EISDIR", "ENOTDIR", "EEXIST", "ENOENT", "ENAMETOOLONG", "EPERM", "ENOSPC", "EACCES")


@pytest.mark.parametrize("number", [getattr(errno, name) for name in NUMBERS])
def test_an_error_of_the_system_about_a_file_is_one_sentence(wmrl, monkeypatch, number):
    def failing():
        raise OSError(number, os.strerror(number), "some/[file]")

    monkeypatch.setattr(cli, "app", failing)
    status, out, err = wmrl()
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"'some/[file]': {os.strerror(number)}; " in err


@pytest.mark.parametrize(
    "error", [OSError("a mistake of ours"), ConnectionResetError(104, "reset"), urllib.error.HTTPError("u", 404, "", {}, None), KeyError()]
)  # fmt: skip
def test_an_error_that_is_about_no_file_is_not_hidden(monkeypatch, error):
    def failing():
        raise error

    monkeypatch.setattr(cli, "app", failing)
    with pytest.raises(type(error)):
        cli.main()


def test_a_damaged_log_is_named_with_its_line(wmrl, tmp_path):
    (tmp_path / "config.yaml").write_text("{}")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\nx\n')
    status, _, err = wmrl("report", tmp_path)
    assert status == 2
    assert "line 2 is not JSON" in " ".join(err.split())


def test_an_existing_run_is_not_overwritten(wmrl, tmp_path):
    run = tmp_path / "runs" / "laptop"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.yaml").write_text("{}")
    status, _, err = wmrl("train", "laptop", "--resume")
    assert status == 2
    assert "No checkpoint in" in err
    (run / "checkpoints" / "step-000005").mkdir()
    status, _, err = wmrl("train", "laptop")
    assert status == 2
    assert "--resume" in err
    assert "--again" in err
    status, _, err = wmrl("train", "laptop", "--resume")
    assert status == 2
    assert "damaged" in err


def stored(tmp_path, *overrides):
    """A run that has a configuration and nothing else."""
    config = load_config("laptop", [f"run.dir={tmp_path}", "run.name=mine", *overrides])
    (config.run_dir / "checkpoints").mkdir(parents=True)
    config.run_dir.joinpath("config.yaml").write_text(config.to_yaml())
    return config.run_dir


def test_a_resumed_run_refuses_what_would_make_its_finished_steps_a_lie(wmrl, tmp_path):
    run = stored(tmp_path)
    before = (run / "config.yaml").read_text()
    given = [
        "optim.lr=0.5",
        "rollout.group_size=4",
        "run.seed=3",
        "eval.k=2",
        "train.steps=90",
        "world_model.options.learn=false",
    ]
    status, _, err = wmrl("train", "--resume", "--run-dir", run, *given)
    said = " ".join(err.split())
    assert status == 2
    for change in ("optim.lr 0.001 -> 0.5", "rollout.group_size 8 -> 4", "run.seed 0 -> 3", "eval.k 8 -> 2", "world_model.options.learn null -> false"):  # fmt: skip
        assert change in said
    assert "train.steps" not in said
    assert (run / "config.yaml").read_text() == before
    (tmp_path / "mine.yaml").write_text("extends: laptop\noptim: {lr: 0.5}\n")
    status, _, err = wmrl("train", tmp_path / "mine.yaml", "--resume", "--run-dir", run)
    assert status == 2, "a file that was edited since"
    assert "optim.lr 0.001 -> 0.5" in " ".join(err.split())


def test_what_a_resumed_run_may_change_goes_through(wmrl, tmp_path):
    run = stored(tmp_path)
    given = ["train.steps=90", "train.save_every=3", "tracking.trackers=[tensorboard]", "execution.workers=1", "run.threads=1"]
    _, _, err = wmrl("train", "demo", "--resume", "--run-dir", run, *given)  # the name of a shipped one changes nothing
    assert "No checkpoint in" in err, "it came as far as the checkpoints"


def test_a_run_of_another_version_says_so(wmrl, tmp_path):
    run = stored(tmp_path)
    with (run / "config.yaml").open("a") as file:
        file.write("curiosity: {beta: 1}\n")
    status, _, err = wmrl("train", "--resume", "--run-dir", run)
    assert status == 2
    assert "is none of this version of WMRL (Unknown configuration key 'curiosity'" in " ".join(err.split())


def test_a_run_in_use_is_said_before_anything_else(wmrl, tmp_path):
    run = RunDirectory(tmp_path / "runs" / "laptop")
    run.acquire()
    for arguments in (["train", "laptop"], ["train", "laptop", "--again"]):
        run.config_file.write_text("{}")
        status, _, err = wmrl(*arguments)
        assert status == 2
        assert "in use by another process" in " ".join(err.split())
    run.release()


def test_the_simulator_of_a_step_shows_what_the_lag_buys():
    """Executions of 20 s beside steps of 5 s: synchronous anchors starve the generation lane, four steps of slack do not."""
    durations = Durations(generate_s=0.5, predict_s=0.05, execute_s=20.0, learn_s=1.0)
    base = ["execution.workers=32", "tasks.max_turns=1"]
    synchronous = simulate(load_config("paper-4b", base), durations)
    deferred = simulate(load_config("paper-4b", [*base, "anchors.lag=4"]), durations)
    everything = simulate(load_config("paper-4b", [*base, "anchors.fraction=1"]), durations)
    assert synchronous["generation_busy"] < 0.3
    assert deferred["generation_busy"] > 0.9
    assert deferred["step_s"] < 6 < 20 < synchronous["step_s"] < everything["step_s"]
    assert (synchronous["executions"], everything["executions"]) == (8, 64)


def test_parameter_counts_come_from_the_headers(tmp_path):
    assert parameters(model_path("demo")) == pytest.approx(2.06e6, rel=0.01)
    assert parameters(model_path("nowhere")) is None
    (tmp_path / "model.safetensors").write_bytes(b"1234567")
    with pytest.raises(InvalidInput, match="its header cannot be read"):
        parameters(tmp_path)
