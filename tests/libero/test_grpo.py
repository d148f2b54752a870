"""GRPO of a small policy on the real simulator: one step, from start states within reach."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from wmrl_envs.envs.libero import controllers

from .conftest import SMALL

pytestmark = pytest.mark.libero


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    file = controllers.near_stove(tmp_path_factory.mktemp("starts") / "near_stove.npz")
    task = controllers.stove_task()
    made = gym.make("LIBERO-Long-v0", suite=task.suite, task=task.index, init_states=file, max_steps=16, **SMALL)
    yield made
    made.close()


@pytest.fixture
def policy():
    """Untrained, with a quantizer of turning and not turning the knob."""
    from wmrl_train.agents.vla.data.record import Demonstration
    from wmrl_train.agents.vla.imitate import new_policy
    from wmrl_train.agents.vla.model import small_config

    yaw = np.repeat([-1.0, 0.0, 1.0, 0.0], 8)
    actions = np.zeros((len(yaw), 7), np.float32)
    actions[:, 5], actions[:, 6] = yaw, 1.0
    pictures = np.zeros((len(yaw), 64, 64, 3), np.uint8)
    turning = Demonstration("turn on the stove", actions, np.zeros((len(yaw), 9), np.float32), pictures)
    return new_policy([turning], small_config(groups=2, codes=16), vq_steps=200)


def test_a_step_of_grpo_pays_what_the_simulator_says_and_moves_the_policy(env, policy):
    from wmrl_train.agents.vla.grpo import VLAGrpoConfig, train_grpo

    before = [p.clone() for p in policy.model.parameters()]
    (record,) = train_grpo(policy, [env], VLAGrpoConfig(steps=1, groups=1, n=4, lr=1e-3))
    assert record["dropped_groups"] == 0
    assert record["steps_an_episode"] <= 16
    moved = any(not torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))
    assert moved == (record["groups_with_spread"] > 0) == (0 < record["success"] < 1)
