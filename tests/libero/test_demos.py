import pytest
from typer.testing import CliRunner

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.libero


def run(*arguments):
    import typer

    from wmrl_train.commands import demos

    app = typer.Typer()
    app.callback()(lambda: None)
    demos.register(app)
    return CliRunner().invoke(app, ["demos", *map(str, arguments)])


def test_scripted_demonstrations_are_recorded_and_read_back(tmp_path):
    from wmrl_envs.envs.libero.controllers import stove_task
    from wmrl_train.agents.vla.data.demonstrations import load_demonstrations

    result = run(
        tmp_path / "stove",
        "--suite",
        "libero_90",
        "--task",
        stove_task().index,
        "--episodes",
        1,
        "--image-size",
        32,
        "--texture-size",
        64,
    )
    assert result.exit_code == 0, result.output
    (recorded,) = load_demonstrations(tmp_path / "stove")
    assert recorded.success
    assert recorded.instruction == "turn on the stove"
    assert recorded.images.shape == (len(recorded), 32, 32, 3)
    assert 40 < len(recorded) < 120
