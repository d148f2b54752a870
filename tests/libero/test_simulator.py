"""The simulator against the upstream wrapper, bit by bit."""

import numpy as np
import pytest

from wmrl_envs.envs.libero import catalog
from wmrl_envs.envs.libero.simulator import Scene, Simulator
from wmrl_envs.errors import InvalidInput

pytestmark = pytest.mark.libero
TASK = ("libero_90", 20)  # has fixtures (stove, cabinet), whose places robosuite samples at each reset


@pytest.fixture(scope="module")
def task():
    return catalog.find_task(TASK[1], TASK[0])


@pytest.fixture(scope="module")
def simulator(task):
    made = Simulator(Scene(str(task.bddl), image_size=32, texture_size=64))
    yield made
    made.close()


def physics(simulator):
    return simulator.save()[0]


def test_soft_resets_equal_hard_ones_and_our_steps_equal_upstream_steps_bit_by_bit(simulator, task):
    state = catalog.initial_states(task)[11]
    moves = np.random.default_rng(0).uniform(-1, 1, (40, 7))
    moves[::3, 3:6] = 0  # no rotation: the target orientation of earlier steps stays in force
    simulator.hard_reset(state)
    start = physics(simulator)
    for move in moves:
        seen, *_ = simulator._upstream.step(move)
    hard = physics(simulator)
    eef = np.concatenate([seen["robot0_eef_pos"], seen["robot0_eef_quat"], seen["robot0_gripper_qpos"]]).astype(np.float32)

    for attempt in range(3):  # built, remembered, and remembered after something else happened
        if attempt == 2:
            simulator.reset(catalog.initial_states(task)[2])
            simulator.run(moves[::-1])
        simulator.reset(state)
        assert np.array_equal(physics(simulator), start)
        observation, taken, success = simulator.run(moves)
        assert (taken, success) == (40, False)
        assert np.array_equal(physics(simulator), hard)
        # upstream reads its sensors some milliseconds before the end of the control step, in full swing here
        np.testing.assert_allclose(observation["proprioception"], eef, atol=5e-3)


def test_the_second_reset_of_a_state_takes_no_step(simulator, task, monkeypatch):
    steps, control = [], simulator._control_step
    monkeypatch.setattr(simulator, "_control_step", lambda action: steps.append(action) or control(action))
    state = catalog.initial_states(task)[31]
    simulator.reset(state)
    assert len(steps) == 10, "the scene settles"
    simulator.reset(state)
    assert len(steps) == 10


def test_one_picture_a_chunk(simulator, task, monkeypatch):
    simulator.reset(catalog.initial_states(task)[0])
    drawn = []
    real = simulator.render
    monkeypatch.setattr(simulator, "render", lambda *a: drawn.append(a) or real(*a))
    simulator.run(np.zeros((8, 7)))
    assert len(drawn) == 1


def test_global_random_numbers_are_left_alone(simulator, task):
    np.random.seed(7)
    expected = np.random.RandomState(7).rand()
    simulator.reset(catalog.initial_states(task)[30])
    assert np.random.rand() == expected


def test_a_state_of_another_task_is_refused(simulator):
    with pytest.raises(InvalidInput, match="another task"):
        simulator.reset(np.zeros(5))


def test_meshes_left_out_change_pictures_and_not_physics(simulator, task):  # the last: it changes the fixture
    state, moves = catalog.initial_states(task)[0], np.random.default_rng(1).uniform(-1, 1, (8, 7))
    simulator.reset(state)
    whole, *_ = simulator.run(moves)
    end = physics(simulator)
    simulator._hide_meshes(5000)
    simulator.reset(state)
    sparse, *_ = simulator.run(moves)
    assert np.array_equal(physics(simulator), end)
    assert not np.array_equal(whole["image"], sparse["image"])
