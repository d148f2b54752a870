"""Supervised fine-tuning of a VLA on demonstrations: cross-entropy of the action codes."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.vla.actions import ActionNormalizer
from wmrl_train.agents.vla.data.demonstrations import action_statistics
from wmrl_train.agents.vla.data.record import Demonstration
from wmrl_train.agents.vla.model import HashTokenizer, MiniVLA, MiniVLAConfig, small_config
from wmrl_train.agents.vla.policy import VLAPolicy
from wmrl_train.agents.vla.vq import ResidualVQ, VQConfig, fit
from wmrl_train.learn.guard import guarded_step
from wmrl_train.run.fitting import Fitting

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Examples:
    """Every step of every demonstration: what was seen (uint8 pictures, instruction, state) and the codes of the next chunk."""

    pictures: Tensor
    state: Tensor
    instructions: Sequence[str]  # of each demonstration
    source: Tensor  # index into `instructions`
    codes: Tensor

    def __len__(self) -> int:
        return len(self.codes)


def examples(
    demonstrations: Sequence[Demonstration],
    normalizer: ActionNormalizer,
    quantizer: ResidualVQ,
    size: int,
    inverted_gripper: bool = False,
) -> Examples:
    """Encode demonstrations for training, in the policy's gripper convention; pictures are stored at `size` pixels."""
    from wmrl_train.agents.vla.vision import resize

    horizon = quantizer.config.horizon
    pictures, codes = [], []
    for demonstration in demonstrations:
        small = resize(torch.from_numpy(demonstration.images), size)
        pictures.append((small * 255).round().to(torch.uint8).permute(0, 2, 3, 1))
        chunks = demonstration.chunks(horizon)
        if inverted_gripper:
            chunks[..., -1] = (1 - chunks[..., -1]) / 2  # -1 open, +1 close becomes 1 open, 0 closed
        codes.append(quantizer.encode(torch.from_numpy(normalizer.normalize(chunks))))
    return Examples(
        torch.cat(pictures),
        torch.from_numpy(np.concatenate([d.proprioception for d in demonstrations])),
        [d.instruction for d in demonstrations],
        torch.repeat_interleave(torch.arange(len(demonstrations)), torch.tensor([len(d) for d in demonstrations])),
        torch.cat(codes),
    )


def new_policy(
    demonstrations: Sequence[Demonstration],
    config: MiniVLAConfig | None = None,
    *,
    vq: VQConfig | None = None,
    vq_steps: int = 2000,
    seed: int = 0,
) -> VLAPolicy:
    """An untrained policy with a quantizer and a normaliser fitted to the demonstrations' actions."""
    if not demonstrations:
        raise InvalidInput("No demonstrations: expected at least one.")
    if len({d.orientation for d in demonstrations}) > 1:
        raise InvalidInput("Demonstrations in several orientations: load them with one (convert=True).")
    config = config or small_config()
    vq = vq or VQConfig(groups=config.groups, codes=config.codes, latent=64)
    normalizer = ActionNormalizer.of(action_statistics(demonstrations))
    chunks = np.concatenate([normalizer.normalize(d.chunks(vq.horizon)) for d in demonstrations])
    quantizer = fit(chunks, vq, steps=vq_steps, seed=seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = MiniVLA(config)
    words = config.vocabulary - len(HashTokenizer(0))
    return VLAPolicy(model, quantizer, normalizer, HashTokenizer(words), vq.horizon, demonstrations[0].orientation)


def train(
    policy: VLAPolicy,
    demonstrations: Iterable[Demonstration],
    *,
    steps: int = 1000,
    batch: int = 32,
    lr: float = 5e-4,
    seed: int = 0,
    on_step: Callable[[int, float], None] | None = None,
    fitting: Fitting | None = None,
) -> list[float]:
    """Train in place; the loss of each step done here. AdamW, linear warm-up over a twentieth, cosine decay, gradients clipped
    at 1.

    Args:
        policy: what is trained; its quantizer and normaliser stay as they are.
        demonstrations: what is imitated, in the orientation of the policy.
        steps: of the optimiser, in all.
        batch: examples (an observation and a chunk of actions) a step, at most all there are.
        lr: highest learning rate, reached after the warm-up.
        seed: of the choice of the examples.
        on_step: called with the steps done so far and the loss of the last.
        fitting: where to save the training; `policy` must then be that of `fitting.policy`, if there is one.

    Raises:
        NonFiniteLoss: the loss, its gradient or a weight is not finite; the last checkpoint is as it was.
    """
    shown, size = list(demonstrations), policy.model.config.dino.image_size
    for demonstration in shown:
        if demonstration.orientation != policy.orientation:
            raise InvalidInput(
                f"Demonstrations in orientation {demonstration.orientation!r} for a policy that sees {policy.orientation!r}: "
                "load them in its orientation (convert=True, --convert)."
            )
    data = examples(shown, policy.normalizer, policy.quantizer, size, policy.inverted_gripper)
    prompts = [policy.prompt(text) for text in data.instructions]
    optimizer = torch.optim.AdamW([p for p in policy.model.parameters() if p.requires_grad], lr=lr, weight_decay=0.01)
    warm = max(1, steps // 20)
    generator = torch.Generator().manual_seed(seed)
    losses = []
    done = fitting.restore(optimizer, generator) if fitting else 0
    policy.model.train()
    for step in range(done, steps):
        rate = lr * min(1.0, (step + 1) / warm) * 0.5 * (1 + math.cos(math.pi * max(0, step - warm) / max(1, steps - warm)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        rows = torch.randint(len(data), (min(batch, len(data)),), generator=generator)
        state = data.state[rows] if policy.model.config.proprioception else None
        logits = policy.model(data.pictures[rows], [prompts[i] for i in data.source[rows].tolist()], data.codes[rows], state)
        loss = functional.cross_entropy(logits.flatten(0, 1), data.codes[rows].flatten())
        optimizer.zero_grad()
        loss.backward()
        guarded_step(optimizer, max_norm=1.0, what=f"step {step + 1}")
        losses.append(loss.item())
        if on_step:
            on_step(step + 1, losses[-1])
        if fitting:
            fitting.save(step + 1, steps, policy, optimizer, generator)
    policy.model.eval()
    log.info("SFT: %d steps on %d examples", steps, len(data))
    return losses
