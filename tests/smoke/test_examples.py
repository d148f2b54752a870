"""The example that post-trains a research agent runs, at its smallest."""

import importlib.util
import sys
from pathlib import Path

import pytest

from wmrl_envs.errors import WmrlError


def load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / "examples" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_post_train_agent_trains_with_its_own_world_model(tmp_path):
    small = ["tasks.train=[credit-default]", "rollout.groups=2", "rollout.group_size=2", "eval.k=0", "correction.min_pairs=4",
             "execution.timeout_s=20", "run.min_free_disk_mb=0"]  # fmt: skip
    try:
        executed = load("post_train_agent").main(2, tmp_path, small)
    except WmrlError as error:  # neither data nor sandbox is built by a test
        pytest.skip(f"needs `make setup`: {error}")
    assert len(executed) == 2
    assert all(0 <= score <= 1 for score in executed)
    assert (tmp_path / "post-train-agent" / "report.html").is_file()
