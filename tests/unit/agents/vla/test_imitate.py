from dataclasses import replace

import numpy as np
import pytest

from wmrl_envs.errors import InvalidInput

pytest.importorskip("torch")
pytest.importorskip("transformers")

from wmrl_train.agents.vla.data.record import Demonstration
from wmrl_train.agents.vla.imitate import examples, new_policy, train
from wmrl_train.agents.vla.model import small_config


def colourful(n=12, steps=10):
    """The right action depends on the colour of the picture: red go left, green go right."""
    rng = np.random.default_rng(0)
    for i in range(n):
        side = i % 2
        images = np.zeros((steps, 32, 32, 3), np.uint8)
        images[..., side] = rng.integers(150, 255, (steps, 32, 32))
        actions = np.zeros((steps, 7), np.float32)
        actions[:, 0] = 0.8 if side else -0.8
        actions[:, 6] = 1 if side else -1
        yield Demonstration("follow the colour", actions, np.zeros((steps, 9), np.float32), images)


def test_a_small_policy_learns_to_look():
    data = list(colourful())
    config = small_config(layers=1, proprioception=0, groups=2, codes=16)
    policy = new_policy(data, config, vq_steps=100)
    losses = train(policy, data, steps=40, batch=16, lr=2e-3)
    assert np.mean(losses[-5:]) < 0.5 * losses[0]
    for demonstration in data[:2]:
        chunk = policy({"image": demonstration.images[0], "instruction": demonstration.instruction})
        assert np.sign(chunk[:, 0]).tolist() == np.sign(demonstration.actions[:8, 0]).tolist()
        assert chunk[:, 6].tolist() == demonstration.actions[:8, 6].tolist()


def test_a_step_that_is_not_finite_ends_the_training_with_its_number():
    from wmrl_train.learn.guard import NonFiniteLoss

    data = list(colourful(2))
    policy = new_policy(data, small_config(layers=1, proprioception=0, groups=2, codes=16), vq_steps=5)
    with pytest.raises(NonFiniteLoss, match="The gradient is nan at step 2; nothing was changed"):
        train(policy, data, steps=3, lr=1e30)


def test_codes_are_in_the_gripper_convention_of_the_policy():
    data = list(colourful(2))
    policy = new_policy(data, small_config(layers=1, groups=2, codes=16), vq_steps=20)
    theirs = [replace(d, actions=np.c_[d.actions[:, :6], (1 - d.actions[:, 6]) / 2].astype(np.float32)) for d in data]
    encode = (policy.normalizer, policy.quantizer, 16)
    assert examples(data, *encode, inverted_gripper=True).codes.equal(examples(theirs, *encode).codes)


def test_pictures_in_another_orientation_are_refused():
    data = list(colourful(2))
    policy = new_policy(data, small_config(layers=1, groups=2, codes=16), vq_steps=5)
    with pytest.raises(InvalidInput, match="'rot180' for a policy that sees 'vertical'"):
        train(policy, [d.turned("rot180") for d in data], steps=1)
