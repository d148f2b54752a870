"""Gymnasium's own vector wrappers around `AnchoredVecEnv`."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers

from tests.unit.wrappers.doubles import Drift, DriftModel
from wmrl_envs import AnchoredVecEnv, CheapEnvModel
from wmrl_envs.wrappers.flat import FlatInfos


def make(mode=AutoresetMode.NEXT_STEP, **arguments):
    return AnchoredVecEnv([lambda: Drift(end=3)] * 4, DriftModel(end=3), max_episode_steps=20, autoreset_mode=mode, **arguments)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_record_episode_statistics(mode):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        venv = wrappers.RecordEpisodeStatistics(make(mode, anchor_fraction=1.0))
        venv.reset(seed=0)
        for _ in range(12):
            *_, infos = venv.step(np.ones(4, dtype=int))
    assert set(venv.length_queue) == {3}
    assert list(venv.return_queue) == pytest.approx([0.1 + 0.2 + 0.3] * len(venv.return_queue))
    assert infos["wmrl"]["anchored"].all()


@pytest.mark.parametrize(
    "wrap",
    [wrappers.NormalizeObservation, wrappers.NormalizeReward, wrappers.DictInfoToList, wrappers.FlattenObservation,
     lambda e: wrappers.ClipReward(e, 0, 0.1), lambda e: wrappers.RescaleObservation(e, -1.0, 1.0),
     lambda e: wrappers.TransformReward(e, lambda r: r * 2), lambda e: wrappers.DtypeObservation(e, np.float64)],
)  # fmt: skip
def test_other_wrappers(wrap):
    venv = wrap(make())
    obs, _ = venv.reset(seed=0)
    for _ in range(10):
        obs, rewards, *_ = venv.step(venv.action_space.sample())
        assert np.isfinite(obs).all()
        assert np.isfinite(rewards).all()
    venv.close()


def test_dict_info_to_list_shows_each_slot_its_own_wmrl():
    venv = wrappers.DictInfoToList(make(min_anchor_groups=1))
    _, infos = venv.reset(seed=0)
    assert sum(info["wmrl"]["anchored"] for info in infos) == 1
    *_, infos = venv.step(np.ones(4, dtype=int))
    for info in infos:
        assert ("true" in info["wmrl"]) == info["wmrl"]["anchored"]


def test_numpy_to_torch():
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    venv = wrappers.NumpyToTorch(make())
    obs, _ = venv.reset(seed=0)
    assert isinstance(obs, torch.Tensor)


def test_environments_made_by_id():
    venv = AnchoredVecEnv([lambda: gymnasium.make("CartPole-v1")] * 2, Still(), max_episode_steps=5)
    venv.reset(seed=0)
    truncated = [venv.step(venv.action_space.sample())[3] for _ in range(12)]
    venv.close()
    assert np.array(truncated).any(), "a world model that never terminates leaves the end to the time limit"


class Still:
    def step(self, observations, actions):
        n = len(observations)
        return observations, np.ones(n), np.zeros(n, dtype=bool)


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_flat_infos_are_numbers_by_name(mode):
    venv = FlatInfos(make(mode, anchor_fraction=0.25))
    assert venv.metadata["autoreset_mode"] is venv.autoreset_mode is AutoresetMode(mode)
    _, infos = venv.reset(seed=0)
    for _ in range(3):
        for key, column in infos.items():
            if key not in ("final_info", "final_obs"):
                assert column.dtype.kind in "biuf", key
                assert not key.startswith("_") or key[1:] in infos
        *_, terminated, _, infos = venv.step(np.ones(4, dtype=int))
    assert terminated.any()
    assert infos["wmrl_anchored"].any()
    assert "wmrl_status" not in infos
    if mode == "SameStep":
        assert infos["final_info"]["wmrl_score"].shape == (4,)


def test_torchrl_runs_on_it():
    torchrl = pytest.importorskip("torchrl.envs")
    from torchrl.envs.utils import check_env_specs

    cartpole = lambda: gymnasium.make("CartPole-v1")  # noqa: E731 - its infos have the same keys in every step and reset, as torchrl needs
    venv = AnchoredVecEnv([cartpole] * 4, CheapEnvModel(cartpole), anchor_fraction=0.25, autoreset_mode="SameStep")
    env = torchrl.GymWrapper(FlatInfos(venv))
    check_env_specs(env)
    assert env.rollout(60, break_when_any_done=False)["next", "done"].sum() > 0
