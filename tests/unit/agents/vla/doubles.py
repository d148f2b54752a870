"""Doubles of the robots' tests: an environment in which the right move depends on the colour of the picture, a policy, a reward model."""

from types import SimpleNamespace

import numpy as np
import torch

from wmrl_envs.errors import InfrastructureError
from wmrl_train.agents.vla.actions import ActionNormalizer
from wmrl_train.agents.vla.model import HashTokenizer, MiniVLA, small_config
from wmrl_train.agents.vla.play import Simulators
from wmrl_train.agents.vla.policy import VLAPolicy
from wmrl_train.agents.vla.vision import ViTConfig
from wmrl_train.agents.vla.vq import ResidualVQ, VQConfig

HORIZON, GROUPS, CODES = 2, 1, 4


class ColourDouble:
    """Test double of LiberoLongEnv: `limit` looks at most; success when the arm moves left on red (even starts), right on green."""

    orientation = "vertical"
    start_states = SimpleNamespace(indices=(0, 1), states=(None,) * 4)
    task = SimpleNamespace(name="colour")

    def __init__(self, crash_at=(), limit=3):
        self.crashes, self.limit = crash_at, limit
        self.resets = self.closed = 0

    def close(self):
        self.closed += 1

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


class Biased:
    """Test double of a reward model: right about the order, wrong about the level; out of order at the calls of `broken`."""

    def __init__(self, broken=()):
        self.calls, self.broken = 0, broken

    def score(self, episodes):
        self.calls += 1
        if self.calls in self.broken:
            raise InfrastructureError("no server")
        return np.array([0.3 + 0.3 * e.success for e in episodes])


def simulators(count=2, **options):
    return Simulators(lambda task: ColourDouble(**options), count)
