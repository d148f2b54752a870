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


def small(env, **arguments):
    base = env.unwrapped
    return EnsembleDynamics(base.observation_space, base.action_space, hidden=16, gradient_steps=20, **arguments)


def test_it_is_fitted_on_what_the_base_does_whatever_wraps_it():
    class Push(gymnasium.Env):
        observation_space = spaces.Box(-10, 10, (1,), np.float32)
        action_space = spaces.Box(-2, 2, (1,), np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(1, dtype=np.float32), {}

        def step(self, action):
            return np.asarray(action, dtype=np.float32), float(action[0]), False, False, {}

    wrapped = gymnasium.wrappers.TransformReward(
        gymnasium.wrappers.RescaleAction(Push(), np.float32(-1), np.float32(1)), lambda r: 100 * r
    )
    model = small(wrapped).collect(wrapped, 50)
    actions, rewards = model._inputs[:, 1], model._targets[:, -1]
    assert np.abs(actions).max() > 1
    assert rewards.tolist() == pytest.approx(actions.tolist())


def test_a_refit_changes_its_scales_and_nothing_it_says():
    env = gymnasium.make("CartPole-v1")
    model = small(env, sample=False).collect(env, 200)
    x, a = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32), np.ones(20, dtype=int)
    before = model.step(x, a)
    scales = [s.clone() for s in model._scales]
    model.gradient_steps = 0
    rng = np.random.default_rng(1)
    far = rng.normal(size=(300, 4)) * 5 + 3
    model.update(far, rng.integers(2, size=300), rng.normal(size=300), far + rng.normal(size=(300, 4)), np.zeros(300))
    model._rescale([s * 1.7 + 0.1 for s in scales])
    for was, now in zip(before, model.step(x, a), strict=True):
        assert now == pytest.approx(was, abs=1e-3)


def test_known_rewards_and_ends_take_the_place_of_learned_ones():
    env = gymnasium.make("CartPole-v1")
    model = small(env, reward_fn=lambda s, a, n: a * 2.0, termination_fn=lambda s, a, n: n[:, 0] > -1e9).collect(env, 60)
    _, rewards, ends = model.step(np.zeros((3, 4)), np.array([0, 1, 1]))
    assert rewards.tolist() == [0, 2, 2]
    assert ends.all()


def test_an_episode_is_predicted_by_one_member():
    env = gymnasium.make("CartPole-v1")
    model = small(env).collect(env, 60)
    for slot in range(40):
        model.begin(slot, seed=None, options=None, observation=np.zeros(4))
    first = dict(model._member)
    model.step_slots(range(40), np.zeros((40, 4)), np.zeros(40, dtype=int))
    assert model._member == first
    assert len(set(first.values())) == 5


def test_short_rollouts_branch_from_real_states_and_are_cut():
    env = gymnasium.make("CartPole-v1")
    model = small(env, max_predicted_steps=3, termination_fn=lambda s, a, n: np.zeros(len(s), dtype=bool)).collect(env, 300)
    venv = AnchoredVecEnv([lambda: gymnasium.make("CartPole-v1")] * 4, model, anchor_fraction=0.25, min_anchor_groups=1)
    obs, infos = venv.reset(seed=0)
    seen = {tuple(row) for row in model._inputs[:, :4].round(5).tolist()}
    predicted = ~infos["wmrl"]["anchored"]
    assert all(tuple(row) in seen for row in obs[predicted].round(5).tolist())
    assert np.abs(obs[predicted]).max() > 0.05  # beyond where episodes start
    truncated = [venv.step(np.zeros(4, dtype=int))[3][predicted].all() for _ in range(3)]
    assert truncated == [False, False, True]
    assert venv.counts["resets"] == 1


def test_disagreement_can_stop_a_rollout_and_cost_reward():
    env = gymnasium.make("CartPole-v1")
    free, costly = small(env, seed=1).collect(env, 100), small(env, seed=1, penalty=10.0).collect(env, 100)
    far, act = np.full((4, 4), 8.0), np.zeros(4, dtype=int)
    free.seed(0), costly.seed(0)
    spread = free.disagreement(far, act)
    assert costly.step(far, act)[1] == pytest.approx(free.step(far, act)[1] - 10 * spread, abs=1e-4)
    costly.stop_at, costly.termination_fn = float(spread.min()) / 2, lambda s, a, n: np.zeros(len(s), dtype=bool)
    assert costly.step_slots(range(4), far, act)[3].all()


def test_predicted_episodes_start_where_real_ones_did_and_spare_the_reset():
    env = gymnasium.make("CartPole-v1")
    model = small(env).collect(env, 2000)
    starts = {tuple(np.asarray(s).round(5).tolist()) for s in model._starts}
    assert len(starts) >= 64
    venv = AnchoredVecEnv([lambda: gymnasium.make("CartPole-v1")] * 8, model, group_size=2, anchor_fraction=0.25)
    obs, infos = venv.reset(seed=0)
    predicted = ~infos["wmrl"]["anchored"]
    assert venv.counts["resets"] == infos["wmrl"]["anchored"].sum()
    assert all(tuple(row) in starts for row in obs[predicted].round(5).tolist())
    assert (obs[::2] == obs[1::2]).all()  # members of a group start alike
    plain = AnchoredVecEnv([lambda: gymnasium.make("CartPole-v1")] * 2, small(env, own_starts=False).collect(env, 2000))
    plain.reset(seed=0)
    assert plain.counts["resets"] == 2


def test_it_is_saved_with_its_data_and_pickled(tmp_path):
    import pickle

    import torch

    env = gymnasium.make("CartPole-v1")
    model = small(env).collect(env, 100)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    loaded = small(env, seed=5)
    loaded.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    copies = [loaded, pickle.loads(pickle.dumps(model))]
    for copy in copies:
        assert np.array_equal(copy._inputs, model._inputs)
        assert len(copy._starts) == len(model._starts)
        copy.seed(0), model.seed(0)
        assert copy.fit() == pytest.approx(model.fit(), abs=1e-6)
        model.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
