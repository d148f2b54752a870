"""`LIBERO-Long-v0` on the real simulator (task 7 of LIBERO-Long, small pictures)."""

import os
import signal
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from wmrl_envs.envs import libero_long
from wmrl_envs.envs.libero import controllers
from wmrl_envs.errors import InfrastructureError, InvalidAction, InvalidInput

from .conftest import SMALL

pytestmark = pytest.mark.libero


@pytest.fixture(scope="module")
def env():
    made = gym.make("LIBERO-Long-v0", task=7, wrist_image=True, render_mode="rgb_array", **SMALL)
    yield made
    made.close()


def equal(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def actions(seed, chunks=3, k=8):
    return np.random.default_rng(seed).uniform(-1, 1, (chunks, k, 7)).astype(np.float32)


def test_construction_builds_no_simulator_and_imports_no_libero(env):
    loaded = "robosuite" in sys.modules  # by an earlier test
    made = gym.make("LIBERO-Long-v0", task=8)
    assert made.unwrapped._simulator is None
    assert ("robosuite" in sys.modules) == loaded
    assert made.unwrapped.task.instruction == "put both moka pots on the stove"
    assert made.action_space.shape == (8, 7)
    assert made.observation_space["image"].shape == (224, 224, 3)


def test_a_reset_that_is_closed_meanwhile_starts_no_other_simulator(monkeypatch):
    made = gym.make("LIBERO-Long-v0", task=8).unwrapped
    started = []

    class Closed:
        """Test double of a simulator that another thread ends in the middle of a call."""

        def __init__(self, scene):
            started.append(self)

        def reset(self, *arguments):
            made.close()
            raise InfrastructureError("ended unexpectedly")

        def close(self):
            pass

    monkeypatch.setattr(libero_long, "SimulatorProcess", Closed)
    with pytest.raises(InfrastructureError, match="ended unexpectedly"):
        made.reset(seed=0)
    assert len(started) == 1


@pytest.mark.filterwarnings("ignore:.*A Box observation space (minimum|maximum) value is.*infinity")
def test_check_env_is_clean(env):
    check_env(env.unwrapped, skip_render_check=False)


def test_a_rollout_is_a_function_of_seed_and_actions(env):
    def rollout():
        steps = [env.reset(seed=3)[0]] + [env.step(a)[0] for a in actions(0)]
        return steps, env.unwrapped.save_state()

    (first, end), (second, end_again) = rollout(), rollout()
    assert all(equal(a, b) for a, b in zip(first, second, strict=True))
    assert np.array_equal(end.states, end_again.states)
    assert not np.array_equal(first[0]["image"], first[-1]["image"])


def test_seconds_are_told_and_do_not_tell_episodes_apart(env):
    env.reset(seed=3)
    first = env.step(actions(0)[0])[4]
    env.reset(seed=3)
    second = env.step(actions(0)[0])[4]
    assert isinstance(first["wmrl"]["wall_s"], float)
    assert 0 < float(first["wmrl"]["wall_s"]) != float(second["wmrl"]["wall_s"])
    assert first == second


def test_seeds_draw_from_the_split_and_options_pick_any_state(env):
    drawn = {env.reset(seed=s)[1]["wmrl"]["init_state"] for s in range(6)}
    assert drawn <= set(range(16))
    assert len(drawn) > 1
    assert env.reset(seed=0, options={"init_state": 42})[1]["wmrl"]["init_state"] == 42
    with pytest.raises(InvalidInput, match="init_state=50"):
        env.reset(options={"init_state": 50})


def test_time_limit_cuts_a_chunk_and_truncates(env):
    short = env.unwrapped
    short.max_steps, limit = 10, short.max_steps
    try:
        env.reset(seed=0)
        assert env.step(actions(0)[0])[1:4] == (0.0, False, False)
        *_, terminated, truncated, info = env.step(actions(0)[1])
        assert (terminated, truncated, info["wmrl"]["steps"]) == (False, True, 10)
        with pytest.raises(gym.error.ResetNeeded):
            env.step(actions(0)[2])
    finally:
        short.max_steps = limit


def test_one_action_equals_a_chunk_of_one_and_chunks_concatenate(env):
    chunk = actions(2)[0]
    env.reset(seed=1)
    for action in chunk:
        last, *_ = env.unwrapped.step(action)
    env.reset(seed=1)
    env.unwrapped.step(chunk[:3])
    at_once, *_ = env.unwrapped.step(chunk[3:])
    assert equal(last, at_once)


def test_orientations_are_turns_of_the_same_picture(env):
    core = env.unwrapped
    upright = env.reset(seed=2)[0]["image"]
    seen = {}
    for orientation in ("rot180", "none"):
        core.orientation = orientation
        seen[orientation] = env.reset(seed=2)[0]["image"]
    core.orientation = "vertical"
    assert np.array_equal(seen["none"], upright[::-1])
    assert np.array_equal(seen["rot180"], upright[:, ::-1])
    assert env.render().shape == upright.shape


@pytest.mark.parametrize(
    ("action", "error", "words"),
    [
        (np.zeros(6), InvalidInput, r"shape \(6,\)"),
        (np.zeros((9, 7)), InvalidInput, r"shape \(9, 7\)"),
        (np.zeros((0, 7)), InvalidInput, r"shape \(0, 7\)"),
        (np.full(7, np.nan), InvalidInput, "7 values that are not finite"),
        ("open the drawer", InvalidAction, "type str"),
        (None, InvalidInput, "expected"),
    ],
)
def test_bad_actions_are_refused_in_one_sentence(env, action, error, words):
    with pytest.raises(error, match=words):
        env.unwrapped.propose(action)


def test_a_crash_is_an_infrastructure_failure_and_the_next_reset_recovers(env):
    before, _ = env.reset(seed=4)
    pid = env.unwrapped._simulator.pid
    os.kill(pid, signal.SIGKILL)
    core = env.unwrapped
    attempts = [core.execute(core.propose(actions(0)[0])) for _ in range(2)]
    assert [a.status for a in attempts] == ["infra_error"] * 2  # a retry does not go on in a fresh scene
    last, reward, terminated, truncated, info = env.step(actions(0)[0])
    assert (reward, terminated, truncated, info["wmrl"]["status"]) == (0.0, False, True, "infra_error")
    assert "ended unexpectedly" in info["wmrl"]["detail"]
    assert equal(last, before)
    again, info = env.reset(seed=4)
    assert info["wmrl"]["status"] == "ok"
    assert core._simulator.pid not in (pid, None)
    assert equal(again, before)
    os.kill(core._simulator.pid, signal.SIGKILL)  # between episodes nothing is lost: reset tries again
    assert equal(env.reset(seed=4)[0], before)


def test_close_leaves_no_process(env):
    made = gym.make("LIBERO-Long-v0", suite="libero_90", task=20, image_size=None, max_steps=300)
    made.reset(seed=0)
    pid = made.unwrapped._simulator.pid
    made.close()
    made.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


class TestStove:
    """The shortest task, physics only."""

    @pytest.fixture(scope="class")
    def stove(self):
        task = controllers.stove_task()
        made = gym.make("LIBERO-Long-v0", suite=task.suite, task=task.index, image_size=None, action_chunk=200)
        yield made
        made.close()

    def test_scripted_success_terminates_inside_a_chunk_and_is_paid(self, stove):
        stove.reset(options={"init_state": 0})
        taken = []
        core = stove.unwrapped
        script = controllers.controller(core.privileged())
        action = next(script)
        done = False
        while not done:
            taken.append(action)
            *_, done, truncated, _ = stove.step(action.astype(np.float32))
            assert not truncated
            if not done:
                action = script.send(core.privileged())

        stove.reset(options={"init_state": 0})
        rest = np.zeros((20, 7))
        _, reward, terminated, truncated, info = stove.step(np.concatenate([taken, rest]).astype(np.float32))
        assert (reward, terminated, truncated) == (1.0, True, False)
        assert info["wmrl"]["steps"] == len(taken)
        assert info["wmrl"]["score"] == info["wmrl"]["best_score"] == 1.0

    def test_the_script_copes_with_noise(self, stove):
        stove.reset(options={"init_state": 3})
        assert controllers.drive(stove, noise=0.05, seed=0)


class _PictureBrightness:
    """Test double of a reward model: the mean of the last picture."""

    def score(self, episodes):
        return np.array([e.observations[-1]["image"].mean() / 255 for e in episodes])


def test_a_reward_model_pays_at_the_end_of_an_episode_stepped_for_real(env):
    from wmrl_envs import WorldModelEnv

    core = env.unwrapped
    core.max_steps, limit = 16, core.max_steps
    try:
        judged = WorldModelEnv(env, _PictureBrightness())
        judged.reset(seed=0)
        _, reward, _, truncated, info = judged.step(actions(0)[0])
        assert (reward, truncated) == (0.0, False)
        last, reward, _, truncated, info = judged.step(actions(0)[1])
        assert truncated
        assert reward == info["wmrl"]["predicted"] == pytest.approx(last["image"].mean() / 255)
        assert info["wmrl"]["anchored"] is False
    finally:
        core.max_steps = limit


def test_near_stove_starts_are_within_reach_of_blind_turning(tmp_path, env):
    env.close()
    file = controllers.near_stove(tmp_path / "near_stove.npz")
    near = gym.make(
        "LIBERO-Long-v0",
        suite="libero_90",
        task=controllers.stove_task().index,
        image_size=None,
        init_states=file,
        max_steps=64,
    )
    near.reset(seed=0)
    turn = np.tile([0, 0, 0, 0, 0, 0.4, 1.0], (8, 1)).astype(np.float32)
    done = truncated = False
    while not done and not truncated:
        _, _, done, truncated, _ = near.step(turn)
    near.close()
    assert done


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "task"), [("libero_10", 0), ("libero_10", 1), ("libero_10", 7), ("libero_goal", 7)])
def test_scripted_controllers_solve(suite, task):
    made = gym.make("LIBERO-Long-v0", suite=suite, task=task, image_size=None, init_states="all")
    solved = []
    for index in (0, 25):
        made.reset(options={"init_state": index})
        solved.append(controllers.drive(made))
    made.close()
    assert all(solved)


@pytest.mark.slow
def test_vector_workers_simulate_in_their_own_processes():
    def make():
        import wmrl_envs  # noqa: F401

        return gym.make("LIBERO-Long-v0", suite="libero_90", task=20, process=False, image_size=None, texture_size=64)

    vector = gym.vector.AsyncVectorEnv([make, make], shared_memory=False, context="spawn")
    vector.reset(seed=[0, 1])
    _, rewards, *_ = vector.step(np.zeros((2, 8, 7), np.float32))
    vector.close()
    assert rewards.tolist() == [0.0, 0.0]
