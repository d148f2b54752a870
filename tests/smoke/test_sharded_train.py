"""`wmrl train` on two processes under torchrun: rank 0 rolls out, both learn, and the run goes on with one process."""

import json

import pytest
import torch
from typer.testing import CliRunner

from tests.doubles import torchrun
from wmrl_envs.errors import WmrlError
from wmrl_train.cli import app
from wmrl_train.config import load_config
from wmrl_train.training.build import build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_two_processes_train_and_one_goes_on(tmp_path):
    common = [
        "tasks.train=[credit-default]", "rollout.groups=2", "rollout.group_size=2", "eval.k=1", "eval.held_out=false",
        "execution.timeout_s=20", "run.min_free_disk_mb=0", "run.threads=1",
    ]  # fmt: skip
    try:
        parts = build(load_config("demo", common))
    except WmrlError as error:  # neither data nor sandbox is built by a test
        pytest.skip(f"needs `make setup`: {error}")
    for close in parts.close:
        close()

    def train(name, *arguments):
        return [
            "train",
            "demo",
            *common,
            "train.steps=2",
            "train.save_every=1",
            f"run.dir={tmp_path}",
            f"run.name={name}",
            *arguments,
        ]

    done = torchrun("-m", "wmrl_train.cli", *train("two"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "two" / "report.html").is_file()
    CliRunner().invoke(app, train("one"), catch_exceptions=False)
    steps = [
        [r for r in map(json.loads, (tmp_path / name / "metrics.jsonl").open()) if "eval" not in r] for name in ("two", "one")
    ]
    assert [r["step"] for r in steps[0]] == [1, 2]
    for key in ("policy/loss", "policy/grad_norm", "policy/entropy", "policy/tokens", "reward/mean"):
        assert steps[0][0][key] == pytest.approx(steps[1][0][key], abs=1e-5, rel=1e-4), key
    finished = torchrun("-m", "wmrl_train.cli", *train("two", "--resume"))
    assert finished.returncode == 0
    assert "finished" in finished.stdout
    more = torchrun("-m", "wmrl_train.cli", "train", "--run-dir", tmp_path / "two", "--resume", "train.steps=3")
    assert more.returncode == 0, more.stderr[-3000:]
    alone = CliRunner().invoke(app, ["train", "--run-dir", str(tmp_path / "two"), "--resume", "train.steps=4"])
    assert alone.exit_code == 0, alone.output
    records = [r for r in map(json.loads, (tmp_path / "two" / "metrics.jsonl").open()) if "eval" not in r]
    assert [r["step"] for r in records] == [1, 2, 3, 4]
    assert not torch.distributed.is_initialized()
