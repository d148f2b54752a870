import numpy as np
import pytest
from safetensors.torch import save_file

from wmrl_envs.context import Episode
from wmrl_envs.errors import InvalidInput
from wmrl_envs.world_models.protocols import RewardModel
from wmrl_envs.world_models.reward.frames import dense_reward
from wmrl_train.agents.vla.data.record import Demonstration
from wmrl_train.agents.vla.progress import ProgressModel


def bars(fill, seed):
    """Frames in which a bar is filled to the given fractions, at a random height, on noise."""
    rng = np.random.default_rng(seed)
    row = rng.integers(2, 12)
    frames = rng.integers(0, 60, (len(fill), 16, 16, 3), dtype=np.uint8)
    for frame, share in zip(frames, fill, strict=True):
        frame[row : row + 3, : round(16 * share)] = 255
    return frames


def demonstration(seed, steps=20):
    return Demonstration(
        "fill", np.zeros((steps, 7), np.float32), np.zeros((steps, 9), np.float32), bars(np.linspace(0, 1, steps), seed)
    )


@pytest.fixture(scope="module")
def model():
    made = ProgressModel("final", size=16, width=8)
    made.fit([demonstration(s) for s in range(12)], [bars(np.full(15, 0.05), 100 + s) for s in range(6)], steps=250, lr=3e-3)
    return made


def episodes():
    shares = [1.0, 0.5, 0.05]
    return [Episode([{"image": f} for f in bars(np.linspace(0, share, 25), 50 + i)]) for i, share in enumerate(shares)]


def test_it_is_a_reward_model_that_orders_unseen_episodes_by_progress(model):
    assert isinstance(model, RewardModel)
    full, half, none = model.score(episodes())
    assert 1 >= full > half + 0.15 > none + 0.3
    progress, success = model.read(episodes())
    assert progress.shape == (3, 8)
    assert success[0] > success[1]
    assert np.corrcoef(progress[0], np.arange(8))[0, 1] > 0.8


def test_forms_of_the_dense_reward():
    progress, success = np.array([[0.1, 0.1, 0.3, 0.9, 0.5, 0.5]]), np.array([0.7])
    got = {form: dense_reward(progress, success, form)[0] for form in ("potential", "final", "max", "success")}
    assert got == pytest.approx({"potential": 0.4, "final": 0.5, "max": 0.9, "success": 0.7})
    assert dense_reward(progress[:, ::-1], success, "potential")[0] == 0
    with pytest.raises(InvalidInput, match="form='sum'"):
        ProgressModel("sum")


@pytest.mark.parametrize(
    "header", [None, {"form": "final"}, {"form": "x"}, {"size": "x"}, {"size": "0"}, {"width": "16"}, {"width": "5"}]
)
def test_a_file_of_something_else_is_no_progress_model(model, tmp_path, header):
    state = model.network.state_dict()
    good = {"form": "final", "size": "16", "width": "8"}
    save_file(state, tmp_path / "p.safetensors", header if header in (None, {"form": "final"}) else good | header)
    with pytest.raises(InvalidInput, match="not a readable progress model"):
        ProgressModel.load(tmp_path / "p.safetensors")
    save_file({"other": state["progress.bias"]}, tmp_path / "p.safetensors", good)
    with pytest.raises(InvalidInput, match="not a readable progress model"):
        ProgressModel.load(tmp_path / "p.safetensors")


def test_files_round_trip(model, tmp_path):
    loaded = ProgressModel.load(model.save(tmp_path / "progress.safetensors"))
    assert np.array_equal(loaded.score(episodes()), model.score(episodes()))
    assert model.score([]).shape == (0,)
    with pytest.raises(InvalidInput, match="not a readable progress model"):
        ProgressModel.load(tmp_path / "absent")
