"""`CheapEnvModel`: an environment in place of a learned model."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tests.unit.wrappers.doubles import Drift
from wmrl_envs import AnchoredVecEnv, CheapEnvModel, WorldModelEnv
from wmrl_envs.correction import Corrector
from wmrl_envs.world_models.protocols import DynamicsModel, EpisodicModel


def cartpole():
    return gymnasium.make("CartPole-v1")


def put(env, observation):
    env.unwrapped.state, env.unwrapped.steps_beyond_terminated = tuple(np.asarray(observation, dtype=float)), None


OFF = Corrector(debias=False, denoise=False, score_range=None)


def played(env, steps=60):
    obs, _ = env.reset(seed=4)
    rows = [obs.tolist()]
    for action in np.random.default_rng(0).integers(2, size=steps):
        obs, reward, terminated, truncated, _ = env.step(int(action))
        rows.append([*obs.tolist(), reward, terminated, truncated])
        if terminated or truncated:
            return rows
    return rows


@pytest.mark.parametrize("arguments", [{}, {"set_state": put}])
def test_the_same_simulator_gives_the_same_episode(arguments):
    model = CheapEnvModel(cartpole, **arguments)
    assert isinstance(model, DynamicsModel)
    assert isinstance(model, EpisodicModel)
    ours, real = played(WorldModelEnv(cartpole(), model)), played(cartpole())
    assert len(ours) == len(real)
    for a, b in zip(ours, real, strict=True):
        assert a == pytest.approx(b, abs=1e-5)


def test_gymnasium_accepts_it():
    check_env(WorldModelEnv(Drift(), CheapEnvModel(Drift), max_episode_steps=9), skip_render_check=True)


@pytest.mark.parametrize("seed", [3, None])
def test_predicted_episodes_are_played_in_it_and_spare_real_steps_and_resets(seed, caplog):
    venv = AnchoredVecEnv(
        [lambda: Drift(end=3)] * 4, CheapEnvModel(lambda: Drift(end=3)), anchor_fraction=0.25, max_episode_steps=9
    )
    venv.reset(seed=seed)
    for _ in range(40):
        *_, infos = venv.step(np.ones(4, dtype=int))
        wmrl = infos["wmrl"]
        pairs = wmrl["_predicted"] & wmrl["_true"]
        assert wmrl["predicted"][pairs].tolist() == wmrl["true"][pairs].tolist()  # the same seed, the same actions
    anchors = [env.steps for env in venv.envs]
    assert sum(anchors) == venv.counts["real_steps"]
    assert venv.counts["resets"] <= venv.counts["real_episodes"] + 4
    assert 0 < venv.counts["real_episodes"] < venv.counts["predicted_episodes"]
    assert not [r for r in caplog.records if "starts elsewhere" in r.getMessage()]


def test_beside_an_anchor_it_predicts_until_its_own_episode_ends():
    venv = AnchoredVecEnv(
        [lambda: Drift(end=5)] * 2, CheapEnvModel(lambda: Drift(end=3)), anchor_fraction=1.0, max_episode_steps=9
    )
    venv.reset(seed=0)
    predicted = [venv.step(np.ones(2, dtype=int))[4]["wmrl"]["_predicted"].all() for _ in range(5)]
    assert predicted == [True, True, True, False, False]
    assert venv.corrector.n_pairs == 6


def test_a_coarser_simulator_is_put_where_the_real_one_is():
    def coarse():
        env = cartpole()
        env.unwrapped.tau = 0.04
        return env

    venv = AnchoredVecEnv([cartpole] * 2, CheapEnvModel(coarse, set_state=put), anchor_fraction=0.5, corrector=OFF)
    start, infos = venv.reset(seed=0)
    after, *_ = venv.step(np.zeros(2, dtype=int))
    moved = np.abs(after - start)[:, 0] / np.abs(start[:, 1])  # position by velocity: the time step
    assert moved == pytest.approx(np.where(infos["wmrl"]["anchored"], 0.02, 0.04), rel=1e-3)


def test_what_starts_elsewhere_is_said_once(caplog):
    class Elsewhere(Drift):
        def reset(self, **arguments):
            obs, info = super().reset(**arguments)
            return obs + 1, info

    venv = AnchoredVecEnv([lambda: Drift(end=2)] * 2, CheapEnvModel(Elsewhere), anchor_fraction=1.0, max_episode_steps=9)
    venv.reset(seed=0)
    venv.reset(seed=1)
    assert sum("starts elsewhere" in r.getMessage() for r in caplog.records) == 1


def test_an_environment_in_place_of_a_function_is_refused():
    with pytest.raises(ValueError, match="expected a function that makes an environment"):
        CheapEnvModel(Drift())
