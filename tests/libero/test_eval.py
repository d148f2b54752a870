import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from wmrl_train.cli import app

pytestmark = pytest.mark.libero


def still(observation):
    """An agent that holds the arm where it is."""
    return np.tile(np.r_[np.zeros(6), -1], (8, 1)).astype(np.float32)


def test_the_command_evaluates_in_the_simulator(tmp_path):
    out = tmp_path / "eval"
    options = [
        "--suite",
        "libero_90",
        "--tasks",
        "20",
        "--init-states",
        "0,20",
        "--k",
        "1",
        "--max-steps",
        "16",
        "--texture-size",
        "64",
        "--videos",
        "1",
        "--workers",
        "2",
    ]
    result = CliRunner().invoke(
        app, ["eval", "--env", "LIBERO-Long-v0", "--agent", f"python:{__name__}:still", "--out", str(out), *options]
    )
    assert result.exit_code == 0, result.output
    report = json.loads((out / "table.json").read_text())
    assert (report["rates"]["overall"]["successes"], report["rates"]["overall"]["episodes"]) == (0, 2)
    assert (report["rates"]["seen"]["episodes"], report["rates"]["unseen"]["episodes"], report["infra_failures"]) == (1, 1, 0)
    assert report["versions"]["mujoco"].startswith("3.")
    assert report["versions"]["renderer"] in ("osmesa", "egl", "glfw")
    (animation,) = out.glob("*-failure.gif")
    with Image.open(animation) as pictures:
        assert (pictures.n_frames, pictures.size) == (3, (224, 224))
