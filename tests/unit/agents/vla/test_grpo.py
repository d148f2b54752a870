"""GRPO on action codes, on a double of the environment: the right move depends on the colour of the picture."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from wmrl_envs.correction import Corrector
from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.vla.actions import ActionNormalizer
from wmrl_train.agents.vla.grpo import VLAGrpoConfig, train_grpo, update
from wmrl_train.agents.vla.model import HashTokenizer, MiniVLA, small_config
from wmrl_train.agents.vla.policy import VLAPolicy
from wmrl_train.agents.vla.rollout import rollouts
from wmrl_train.agents.vla.vision import ViTConfig
from wmrl_train.agents.vla.vq import ResidualVQ, VQConfig

HORIZON, GROUPS, CODES = 2, 1, 4


class ColourDouble:
    """Test double of LiberoLongEnv: `limit` looks at most; success when the arm moves left on red (even starts), right on green."""

    orientation = "vertical"
    start_states = SimpleNamespace(indices=(0, 1))
    task = SimpleNamespace(name="colour")

    def __init__(self, crash_at=(), limit=3):
        self.crashes, self.limit = list(crash_at), limit
        self.resets = 0

    @property
    def unwrapped(self):
        return self

    def observation(self):
        image = np.zeros((16, 16, 3), np.uint8)
        image[..., self.index % 2] = 255
        return {"image": image, "proprioception": np.zeros(9, np.float32), "instruction": "move"}

    def reset(self, options):
        self.index, self.looks = options["init_state"], 0
        self.resets += 1
        return self.observation(), {}

    def step(self, action):
        self.looks += 1
        status = "infra_error" if self.resets in self.crashes else "ok"
        success = status == "ok" and bool(np.sign(action[0, 0]) == (1 if self.index % 2 else -1))
        wmrl = {"status": status, "steps": 2 * self.looks}
        return (
            self.observation(),
            float(success),
            success,
            not success and (self.looks == self.limit or status != "ok"),
            {"wmrl": wmrl},
        )


def small_policy(seed=0):
    torch.manual_seed(seed)
    vit = ViTConfig(16, 2, 2, 32, patch=8, image_size=16)
    config = small_config(
        dino=vit, siglip=vit, hidden=32, layers=1, heads=2, kv_heads=1, mlp=32, groups=GROUPS, codes=CODES, proprioception=0
    )
    quantizer = ResidualVQ(VQConfig(HORIZON, 7, GROUPS, CODES, latent=4, hidden=8)).eval()
    moves = torch.tensor([-0.9, -0.3, 0.3, 0.9])  # code c moves the arm by moves[c]
    with torch.no_grad():
        for p in quantizer.decoder.parameters():
            p.zero_()
        quantizer.codebooks[0].copy_(torch.eye(4))
        quantizer.decoder.encoder[0].weight[:4].copy_(torch.eye(4))
        quantizer.decoder.encoder[2].weight[:4, :4].copy_(torch.eye(4))
        quantizer.decoder.fc.weight[0, :4], quantizer.decoder.fc.weight[7, :4] = moves, moves
    normalizer = ActionNormalizer(np.full(7, -1.0), np.full(7, 1.0), np.array([True] * 6 + [False]))
    return VLAPolicy(MiniVLA(config).eval(), quantizer, normalizer, HashTokenizer(512), execute_horizon=HORIZON)


def test_groups_share_a_start_and_log_probabilities_are_the_model_s():
    policy = small_policy()
    batch = rollouts(policy, [ColourDouble(), ColourDouble()], [1, 0, 1], n=2, generator=torch.Generator().manual_seed(0))
    assert [(t.group, t.init_state) for t in batch] == [(0, 1), (0, 1), (1, 0), (1, 0), (2, 1), (2, 1)]
    for t in batch:
        assert len(t.observations) == len(t) + 1 <= 4
        assert t.steps == 2 * len(t)
        inputs = policy.inputs(t.observations[:-1])
        again = policy.model.log_probs(inputs[0], inputs[1], torch.from_numpy(np.stack(t.codes)), inputs[2])
        np.testing.assert_allclose(again.detach(), np.stack(t.logprobs), atol=1e-5)


def test_a_lost_episode_is_run_again_and_a_twice_lost_one_is_marked():
    policy = small_policy()
    once = rollouts(policy, [ColourDouble(crash_at=[1])], [0], n=2)
    assert [t.infra for t in once] == [False, False]
    always = rollouts(policy, [ColourDouble(crash_at=range(100))], [0], n=2)
    assert [t.infra for t in always] == [True, True]


def test_the_update_raises_what_was_rewarded_and_long_failures_weigh_no_more():
    policy = small_policy()
    batch = rollouts(policy, [ColourDouble()], [0, 0], n=4, generator=torch.Generator().manual_seed(1))
    good, bad = next(t for t in batch if t.success), next(t for t in batch if len(t) == 3 or not t.success)

    def likelihood(t):
        inputs = policy.inputs(t.observations[:-1])
        with torch.no_grad():
            return policy.model.log_probs(inputs[0], inputs[1], torch.from_numpy(np.stack(t.codes)), inputs[2]).mean().item()

    before = likelihood(good), likelihood(bad)
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.1)
    stats = update(policy, [good, bad], np.array([0.5, -0.5]), optimizer, VLAGrpoConfig(minibatch=2))
    assert stats["loss"] == pytest.approx(0.0, abs=1e-5)  # ratio 1: the two means cancel, whatever their lengths
    assert stats["max_log_ratio"] < 1e-4
    assert likelihood(good) - likelihood(bad) > before[0] - before[1]
    assert update(policy, [good, bad], np.zeros(2), optimizer, VLAGrpoConfig())["looks"] == 0


@pytest.mark.parametrize("corrected", [False, True])
def test_success_rises(corrected):
    class Biased:
        """Test double of a reward model: right about the order, wrong about the level."""

        def score(self, episodes):
            return np.array([0.3 + 0.3 * e.success for e in episodes])

    policy = small_policy()
    config = VLAGrpoConfig(steps=25, groups=4, n=4, lr=3e-3, anchors=1 if corrected else None)
    model, corrector = (Biased(), Corrector(min_pairs=16, refit_every=16)) if corrected else (None, None)
    records = train_grpo(policy, [ColourDouble(limit=1)], config, world_model=model, corrector=corrector)
    before, after = (np.mean([r["success"] for r in part]) for part in (records[:3], records[-3:]))
    assert before < 0.7
    assert after > 0.8
    if corrected:
        assert records[-1]["pairs"] == 100
        assert corrector.ready


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(InvalidInput, match="n=1"):
        VLAGrpoConfig(n=1)
    with pytest.raises(InvalidInput, match="anchors=9"):
        VLAGrpoConfig(anchors=9)
    with pytest.raises(InvalidInput, match="without a world model"):
        train_grpo(small_policy(), [ColourDouble()], VLAGrpoConfig(anchors=1))
    turned = ColourDouble()
    turned.orientation = "rot180"
    with pytest.raises(InvalidInput, match="draws 'rot180' pictures, the policy was trained on 'vertical'"):
        train_grpo(small_policy(), [turned], VLAGrpoConfig())
