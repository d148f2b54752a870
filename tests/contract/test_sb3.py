"""Stable-Baselines3 on `Sb3VecEnv`."""

import csv
import math

import gymnasium
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import torch
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize

from tests.unit.wrappers.doubles import Drift, DriftModel, Guess, HalfScores
from wmrl_envs import AnchoredVecEnv
from wmrl_envs.wrappers.sb3 import Sb3VecEnv
from wmrl_train.integrations.sb3 import AnchoredReplayBuffer, AnchoredRolloutBuffer, AnchorLog, FusionWeights


def drift(n=4, end=3, limit=20, **arguments):
    return Sb3VecEnv(AnchoredVecEnv([lambda: Drift(end=end)] * n, DriftModel(end=end), max_episode_steps=limit, **arguments))


class PendulumModel:
    """Test double: nothing moves, the reward is that of standing upright, nearly."""

    def step(self, observations, actions):
        return observations, -np.abs(np.asarray(actions)[:, 0]), np.zeros(len(observations), dtype=bool)


def pendulum(n=2):
    return Sb3VecEnv(AnchoredVecEnv([lambda: gymnasium.make("Pendulum-v1")] * n, PendulumModel(), max_episode_steps=30))


@pytest.mark.parametrize(
    ("algorithm", "make", "arguments"),
    [(PPO, drift, {"n_steps": 16, "batch_size": 32, "n_epochs": 1}), (A2C, drift, {}),
     (DQN, drift, {"learning_starts": 20, "buffer_size": 500}), (SAC, pendulum, {"learning_starts": 20, "buffer_size": 500})],
)  # fmt: skip
def test_algorithms_learn(algorithm, make, arguments):
    model = algorithm("MlpPolicy", make(), device="cpu", policy_kwargs={"net_arch": [8]}, **arguments)
    model.learn(128)
    assert model.num_timesteps >= 128


def test_it_is_an_sb3_vec_env_with_render_mode_before_init_ends():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = drift()
    assert isinstance(env, VecEnv)
    assert env.render_mode is None
    assert env.get_attr("render_mode") == [None] * 4


def test_the_end_of_an_episode_as_sb3_wants_it():
    env = drift(end=2, limit=3)
    obs = env.reset()
    assert obs.shape == (4, 1)
    for step in range(2):
        obs, rewards, dones, infos = env.step(np.ones(4, dtype=int))
        assert rewards.dtype == np.float32
        assert all(info["TimeLimit.truncated"] is False for info in infos)
        assert dones.tolist() == [step == 1] * 4
    assert (obs == 0).all()  # of the next episode already
    assert [info["terminal_observation"].tolist() for info in infos] == [[2.0]] * 4
    assert all("group" in info["wmrl"] for info in env.reset_infos)
    for _ in range(3):
        *_, infos = env.step(np.zeros(4, dtype=int))
    assert [info["TimeLimit.truncated"] for info in infos] == [True] * 4


def test_fully_anchored_it_gives_what_dummy_vec_env_gives():
    from stable_baselines3.common.vec_env import DummyVecEnv

    ours, theirs = drift(2, anchor_fraction=1.0), DummyVecEnv([lambda: Drift(end=3)] * 2)
    ours.seed(3), theirs.seed(3)
    assert np.array_equal(ours.reset(), theirs.reset())
    assert [info["start"] for info in ours.reset_infos] == [info["start"] for info in theirs.reset_infos]
    rng = np.random.default_rng(0)
    for _ in range(20):
        actions = rng.integers(2, size=2)
        a, b = ours.step(actions), theirs.step(actions)
        assert all(np.array_equal(x, y) and x.dtype == y.dtype for x, y in zip(a[:3], b[:3], strict=True))
        for x, y in zip(a[3], b[3], strict=True):
            assert set(y) <= set(x)
            assert np.array_equal(x.get("terminal_observation"), y.get("terminal_observation"))


def test_vec_monitor_with_keywords_always_finds_them(tmp_path):
    keywords = ("anchored", "wm_reward", "real_reward", "wmrl")
    env = VecMonitor(drift(), str(tmp_path / "log"), info_keywords=keywords)
    env.reset()
    episodes = []
    for _ in range(20):
        *_, infos = env.step(np.ones(4, dtype=int))
        episodes += [info["episode"] for info in infos if "episode" in info]
    assert {e["l"] for e in episodes} == {3}
    for e in episodes:
        assert e["wm_reward"] == pytest.approx(0.8 * 0.6)
        assert e["r"] == pytest.approx(0.6 if e["anchored"] else 0.48)
        assert e["real_reward"] == pytest.approx(0.6) if e["anchored"] else math.isnan(e["real_reward"])
    env.close()
    rows = list(csv.DictReader((tmp_path / "log.monitor.csv").read_text().splitlines()[1:]))
    assert len(rows) == len(episodes)


def test_vec_normalize_and_evaluate_policy_and_save_and_load(tmp_path):
    env = VecNormalize(VecMonitor(drift()))
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=32, n_epochs=1, device="cpu", policy_kwargs={"net_arch": [8]})
    model.learn(64)
    mean, _ = evaluate_policy(model, env, n_eval_episodes=5)
    assert np.isfinite(mean)
    model.save(tmp_path / "model")
    again = PPO.load(tmp_path / "model", env=env, device="cpu")
    obs = env.reset()
    assert np.array_equal(model.predict(obs, deterministic=True)[0], again.predict(obs, deterministic=True)[0])
    again.learn(64)


def test_attributes_methods_and_wrappers_reach_the_environments():
    env = Sb3VecEnv(AnchoredVecEnv([lambda: Monitor(Drift())] * 2, DriftModel(), max_episode_steps=9))
    assert env.env_is_wrapped(Monitor) == [True, True]
    env.set_attr("end", 7, indices=[1])
    assert env.get_attr("end") == [5, 7]
    assert env.has_attr("end")
    env.env_method("reset", seed=3, indices=0)
    env.close()


def test_a_text_space_is_a_type_error_that_says_what_to_do():
    venv = AnchoredVecEnv([lambda: Guess(text=True)] * 2, HalfScores())
    with pytest.raises(TypeError, match=r"has no text spaces; embed the text"):
        Sb3VecEnv(venv)


def test_another_vector_environment_is_refused():
    with pytest.raises(ValueError, match="expected an AnchoredVecEnv"):
        Sb3VecEnv(gymnasium.make_vec("CartPole-v1", num_envs=2))


# -- the weighted loss -----------------------------------------------------------------------------------------------
def ppo(buffer_class=AnchoredRolloutBuffer, **arguments):
    torch.manual_seed(0)
    env = drift(8, end=4, anchor_fraction=0.25)
    env.seed(0)
    return PPO("MlpPolicy", env, n_steps=8, batch_size=64, n_epochs=1, device="cpu", policy_kwargs={"net_arch": [8]}, ent_coef=0.0,
               vf_coef=0.0, normalize_advantage=False, max_grad_norm=1e9, rollout_buffer_class=buffer_class, **arguments)  # fmt: skip


def test_ppo_computes_the_fusion_weighted_loss(monkeypatch):
    model = ppo(rollout_buffer_kwargs={"normalize": False})
    monkeypatch.setattr(type(model.env.venv.corrector), "rho", 3.0)
    before = {name: p.detach().clone() for name, p in model.policy.named_parameters()}
    captured = {}

    def train():  # what PPO.train sees, and the gradient it takes, against the formula
        buffer = model.rollout_buffer
        captured["weights"] = buffer.weights.copy()
        captured["plain"] = buffer.returns - buffer.values  # advantages before weighting
        captured["weighted"] = buffer.advantages.copy()
        captured["obs"], captured["actions"] = buffer.observations.copy(), buffer.actions.copy()
        PPO.train(model)

    monkeypatch.setattr(model, "train", train)
    model.learn(64, callback=FusionWeights())
    weights = captured["weights"]
    assert set(weights.ravel().tolist()) == {1.0, 3.0}
    assert captured["weighted"] == pytest.approx(captured["plain"] * weights / weights.mean(), abs=1e-6)
    assert 0 < (weights == 3.0).mean() < 1

    # The first PPO step has ratio 1, so its gradient is that of -mean(w A log pi) / mean(w).
    fresh = ppo(rollout_buffer_kwargs={"normalize": False})
    fresh.policy.load_state_dict({**fresh.policy.state_dict(), **before})
    obs = torch.as_tensor(captured["obs"].reshape(-1, 1))
    acts = torch.as_tensor(captured["actions"].reshape(-1))
    _, log_prob, _ = fresh.policy.evaluate_actions(obs, acts)
    w, a = torch.as_tensor(weights.reshape(-1)), torch.as_tensor(captured["plain"].reshape(-1))
    (-(w * a * log_prob).mean() / w.mean()).backward()
    for (name, p), (_, q) in zip(fresh.policy.named_parameters(), model.policy.named_parameters(), strict=True):
        if "value" not in name:
            assert q.grad.numpy() == pytest.approx(p.grad.numpy(), abs=1e-5), name


def test_dropped_groups_weigh_nothing_and_normalisation_ignores_them():
    buffer = AnchoredRolloutBuffer(3, Drift.observation_space, Drift.action_space, "cpu", gae_lambda=1.0, gamma=1.0, n_envs=2)
    for step, (reward, weight) in enumerate([([1.0, 9.0], [2.0, 0.0]), ([2.0, 9.0], [1.0, 0.0]), ([4.0, 0.0], [1.0, 1.0])]):
        buffer.set_weights(step, np.array(weight))
        buffer.add(np.zeros((2, 1)), np.zeros(2), np.array(reward), np.ones(2), torch.zeros(2), torch.zeros(2))
    buffer.compute_returns_and_advantage(torch.zeros(2), np.ones(2))
    kept = np.array([1.0, 2.0, 4.0, 0.0])
    expected = (kept - kept.mean()) / kept.std() * [2, 1, 1, 1] / (5 / 6)
    assert buffer.advantages[[0, 1, 2, 2], [0, 0, 0, 1]] == pytest.approx(expected, abs=1e-5)
    assert (buffer.advantages[:2, 1] == 0).all()
    assert buffer.returns[:, 0].tolist() == [1, 2, 4]  # the value function learns from unweighted returns


def test_a_buffer_that_is_told_no_weights_says_so():
    with pytest.raises(ValueError, match="told no fusion weights"):
        ppo().learn(64)


def test_the_callback_wants_the_buffer_and_the_environment():
    from stable_baselines3.common.buffers import RolloutBuffer

    with pytest.raises(ValueError, match="rollout_buffer_class=AnchoredRolloutBuffer"):
        ppo(RolloutBuffer).learn(64, callback=FusionWeights())
    model = PPO("MlpPolicy", Drift(), n_steps=16, batch_size=16, rollout_buffer_class=AnchoredRolloutBuffer, device="cpu")
    with pytest.raises(ValueError, match="expected an Sb3VecEnv"):
        model.learn(16, callback=FusionWeights())


def test_off_policy_transitions_are_drawn_by_their_weights_and_the_bill_is_in_the_log(tmp_path):
    env = drift(4, anchor_fraction=0.5)
    model = DQN("MlpPolicy", env, device="cpu", policy_kwargs={"net_arch": [8]}, learning_starts=20, buffer_size=500,
                replay_buffer_class=AnchoredReplayBuffer)  # fmt: skip
    logged = {}
    model.learn(200, callback=AnchorLog())
    logged |= model.logger.name_to_value
    assert logged["wmrl/real_steps"] + logged["wmrl/predicted_steps"] > 100
    buffer = model.replay_buffer
    buffer.weights[:] = 0
    buffer.weights[3, 1], buffer.weights[5, 2] = 1.0, 3.0
    buffer.rewards[3, 1], buffer.rewards[5, 2] = -7.0, -8.0
    drawn = buffer.sample(4000).rewards.numpy().ravel()
    assert set(drawn.tolist()) == {-7.0, -8.0}
    assert (drawn == -8.0).mean() == pytest.approx(0.75, abs=0.03)
    buffer.weights[:] = 0
    with pytest.raises(ValueError, match="no transition with a weight above 0"):
        buffer.sample(4)


def test_sb3s_monitor_inside_counts_predicted_episodes():
    env = Sb3VecEnv(
        AnchoredVecEnv([lambda: Monitor(Drift(end=3))] * 4, DriftModel(end=3), max_episode_steps=20, anchor_fraction=0.25)
    )
    model = PPO("MlpPolicy", env, device="cpu", policy_kwargs={"net_arch": [8]}, n_steps=32, batch_size=32, n_epochs=1)
    model.learn(256)
    returns = {round(info["r"], 2) for info in model.ep_info_buffer}
    assert len(model.ep_info_buffer) > 4
    assert len(returns) > 1
