"""The learned dynamics model."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("torch")

from wmrl_envs import AnchoredVecEnv, WorldModelEnv
from wmrl_envs.world_models.dynamics import EnsembleDynamics
from wmrl_envs.world_models.protocols import DynamicsModel


@pytest.fixture(scope="module")
def cartpole():
    env = gymnasium.make("CartPole-v1")
    return env, EnsembleDynamics(env.observation_space, env.action_space, hidden=64, gradient_steps=300).collect(env, 1500)


def test_it_learns_cartpole_from_random_steps(cartpole):
    env, model = cartpole
    assert isinstance(model, DynamicsModel)
    obs, _ = env.reset(seed=123)
    rows = []
    for _ in range(500):
        action = env.action_space.sample()
        after, _, terminated, truncated, _ = env.step(action)
        rows.append((obs, action, after, terminated))
        obs = env.reset()[0] if terminated or truncated else after
    before, acts, after, ends = (np.array(c) for c in zip(*rows, strict=True))
    predicted, rewards, terminated = model.step(before, acts)
    assert np.abs(predicted - after).mean() < 0.1 * np.abs(after - before).mean()
    assert rewards == pytest.approx(np.ones(500), abs=0.02)
    assert (terminated == ends).mean() > 0.95


def test_members_disagree_where_there_was_no_data(cartpole):
    _, model = cartpole
    near, far = np.zeros((20, 4)), np.full((20, 4), 8.0)
    acts = np.zeros(20, dtype=int)
    assert model.disagreement(far, acts).mean() > 5 * model.disagreement(near, acts).mean()


def test_samples_repeat_with_the_seed_and_vary_otherwise(cartpole):
    _, model = cartpole

    def step():
        return model.step(np.zeros((8, 4)), np.ones(8, dtype=int))[0]

    model.seed(1)
    first = step()
    assert not np.array_equal(first, step())
    model.seed(1)
    assert np.array_equal(first, step())


def test_state_round_trip(cartpole):
    env, model = cartpole
    other = EnsembleDynamics(env.observation_space, env.action_space, hidden=64, seed=9)
    other.load_state_dict(model.state_dict())
    model.seed(0), other.seed(0)
    x, a = np.random.default_rng(0).normal(size=(5, 4)), np.ones(5, dtype=int)
    for ours, theirs in zip(model.step(x, a), other.step(x, a), strict=True):
        assert np.array_equal(ours, theirs)


def test_anchors_feed_it_and_it_refits(cartpole):
    env, _ = cartpole
    model = EnsembleDynamics(env.observation_space, env.action_space, hidden=16, gradient_steps=5, refit_every=40).collect(
        env, 50
    )
    venv = AnchoredVecEnv([lambda: gymnasium.make("CartPole-v1")] * 8, model, anchor_fraction=0.5, min_anchor_groups=2)
    venv.reset(seed=0)
    before = model.state_dict()
    for _ in range(30):
        venv.step(np.zeros(8, dtype=int))
    assert model.n_transitions > 90
    assert model.n_transitions == 50 + venv.corrector.n_pairs
    assert not np.array_equal(before["dynamics"][0], model.state_dict()["dynamics"][0])


def test_continuous_actions_and_shaped_observations():
    obs, act = spaces.Box(-1, 1, (2, 3), np.float32), spaces.Box(-1, 1, (2,), np.float32)
    model = EnsembleDynamics(obs, act, hidden=8, gradient_steps=5)
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=(40, 2, 3)), rng.normal(size=(40, 2))
    model.update(x, a, a[:, 0], x, np.zeros(40, dtype=bool))
    model.fit()
    after, rewards, ends = model.step(x[:5], a[:5])
    assert (after.shape, rewards.shape, ends.shape) == ((5, 2, 3), (5,), (5,))


def test_misuse_is_one_clear_sentence(cartpole):
    env, _ = cartpole
    model = EnsembleDynamics(env.observation_space, env.action_space)
    with pytest.raises(ValueError, match="has seen no transitions"):
        model.step(np.zeros((1, 4)), np.zeros(1, dtype=int))
    with pytest.raises(ValueError, match="0 transitions"):
        model.fit()
    with pytest.raises(ValueError, match="expected Box observations"):
        EnsembleDynamics(spaces.Discrete(3), env.action_space)


def test_world_model_env_with_it_is_a_gymnasium_env(cartpole):
    from gymnasium.utils.env_checker import check_env

    _, model = cartpole
    check_env(WorldModelEnv(gymnasium.make("CartPole-v1").unwrapped, model, max_episode_steps=50), skip_render_check=True)
