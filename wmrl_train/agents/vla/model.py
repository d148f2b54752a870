"""`MiniVLA`: pictures and an instruction in, seven action codes out, one after another, from a Qwen2 language model.

    <|im_start|> [patches] system ... user ... assistant  code_1 ... code_7

The patches follow the first id of the prompt. Logits are those of the legal ids only, so log-probabilities are those of a
proper distribution over the 128 codes at each position.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.vla.actions import EXTRA_TOKENS, action_ids
from wmrl_train.agents.vla.vision import DINOV2_LARGE, SIGLIP_SO400M, FusedVisionTower, ViTConfig, center_crop


@dataclass(frozen=True)
class MiniVLAConfig:
    """Sizes of the policy; the defaults are MiniVLA-1B's.

    Attributes:
        vocabulary: ids of the tokenizer, extra tokens included; the embedding is padded to a multiple of 64.
        groups, codes: action codes a chunk and their number of values.
        proprioception: length of the state vector given as one more embedding (0: none, as in MiniVLA).
        crop_area: of the picture that is looked at (0.9 for models trained with random crops).
    """

    dino: ViTConfig = DINOV2_LARGE
    siglip: ViTConfig = SIGLIP_SO400M
    vocabulary: int = 151665 + EXTRA_TOKENS
    hidden: int = 896
    layers: int = 24
    heads: int = 14
    kv_heads: int = 2
    mlp: int = 4864
    groups: int = 7
    codes: int = 128
    proprioception: int = 0
    crop_area: float = 1.0
    rope_theta: float = 1e6
    extras: dict[str, Any] = field(default_factory=dict)  # further arguments of transformers' Qwen2Config

    def language(self) -> Any:
        """The configuration of the language model, for transformers."""
        from transformers import Qwen2Config

        return Qwen2Config(
            vocab_size=-(-self.vocabulary // 64) * 64,
            hidden_size=self.hidden,
            intermediate_size=self.mlp,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": self.rope_theta},
            tie_word_embeddings=True,
            **self.extras,
        )


def small_config(**changes: Any) -> MiniVLAConfig:
    """A policy of the same make that a CPU trains in minutes: 64-pixel pictures, 64 patches, three layers (1 M parameters)."""
    dino = ViTConfig(64, 3, 4, 128, patch=8, image_size=64, registers=1, class_token=True)
    siglip = ViTConfig(64, 3, 4, 128, patch=8, image_size=64)
    base = MiniVLAConfig(
        dino, siglip, vocabulary=512 + EXTRA_TOKENS, hidden=128, layers=3, heads=4, kv_heads=2, mlp=256, proprioception=9
    )
    return replace(base, **changes)


class HashTokenizer:
    """Words to ids by a hash, for policies trained from scratch: no files, no training, the same ids everywhere.

    >>> HashTokenizer(512)("turn on the stove") == HashTokenizer(512)("turn on the stove")
    True
    """

    def __init__(self, words: int):
        self.words = words

    def __len__(self) -> int:
        return self.words + EXTRA_TOKENS

    def __call__(self, text: str) -> list[int]:
        import re

        return [zlib.crc32(word.encode()) % self.words for word in re.findall(r"<\|\w+\|>|\w+|[^\w\s]", text)]


class Projector(nn.Module):
    """Prismatic's fused MLP: width -> 4 width -> hidden -> hidden."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.projector = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, hidden), nn.GELU(), nn.Linear(hidden, hidden)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.projector(x)


class MiniVLA(nn.Module):
    """The network. Pictures are uint8 (n, h, w, 3) in the orientation it was trained with; prompts are lists of ids."""

    legal_ids: Tensor

    def __init__(self, config: MiniVLAConfig | None = None):
        super().__init__()
        from transformers import Qwen2ForCausalLM

        c = self.config = config or MiniVLAConfig()
        self.vision_backbone = FusedVisionTower(c.dino, c.siglip)
        self.projector = Projector(self.vision_backbone.width, c.hidden)
        self.llm = Qwen2ForCausalLM(c.language())
        self.state_projector = nn.Linear(c.proprioception, c.hidden) if c.proprioception else None
        self.register_buffer("legal_ids", torch.from_numpy(action_ids(c.vocabulary, c.codes)), persistent=False)

    # -- inputs -------------------------------------------------------------------------------------------------------
    def context(self, pictures: Tensor, prompts: Sequence[Sequence[int]], state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Embeddings (n, t, hidden) of everything before the codes, padded on the left, and their mask (n, t)."""
        if len(pictures) != len(prompts):
            raise InvalidInput(f"{len(pictures)} pictures and {len(prompts)} prompts: expected as many.")
        if (self.state_projector is None) != (state is None):
            raise InvalidInput(
                "This policy takes no proprioception." if self.state_projector is None else "This policy needs proprioception."
            )
        seen = self.projector(self.vision_backbone(center_crop(pictures, self.config.crop_area)))
        if self.state_projector is not None:
            seen = torch.cat([seen, self.state_projector(state)[:, None]], dim=1)
        embed = self.llm.get_input_embeddings()
        longest = max(len(prompt) for prompt in prompts)
        rows, masks = [], []
        for patches, prompt in zip(seen, prompts, strict=True):
            words = embed(torch.as_tensor(prompt, device=patches.device))
            row = torch.cat([words[:1], patches, words[1:]])
            short = longest - len(prompt)
            rows.append(nn.functional.pad(row, (0, 0, short, 0)))
            masks.append(nn.functional.pad(torch.ones(len(row), dtype=torch.long, device=row.device), (short, 0)))
        return torch.stack(rows), torch.stack(masks)

    def code_embeddings(self, codes: Tensor) -> Tensor:
        return self.llm.get_input_embeddings()(self.legal_ids[codes])

    def _head(self, hidden: Tensor) -> Tensor:
        return nn.functional.linear(hidden, self.llm.lm_head.weight[self.legal_ids])

    # -- training -----------------------------------------------------------------------------------------------------
    def forward(self, pictures: Tensor, prompts: Sequence[Sequence[int]], codes: Tensor, state: Tensor | None = None) -> Tensor:
        """Logits (n, groups, codes) of each code given those before it; `codes` (n, groups)."""
        before, mask = self.context(pictures, prompts, state)
        inputs = torch.cat([before, self.code_embeddings(codes[:, :-1])], dim=1)
        mask = torch.cat([mask, mask.new_ones(len(codes), self.config.groups - 1)], dim=1)
        out = self.llm.model(inputs_embeds=inputs, attention_mask=mask, position_ids=_positions(mask), use_cache=False)
        return self._head(out.last_hidden_state[:, -self.config.groups :])

    def log_probs(
        self,
        pictures: Tensor,
        prompts: Sequence[Sequence[int]],
        codes: Tensor,
        state: Tensor | None = None,
        temperature: float = 1.0,
    ) -> Tensor:
        """Log-probability (n, groups) of each code under sampling at `temperature`."""
        logits = self(pictures, prompts, codes, state).float() / temperature
        return logits.log_softmax(-1).gather(-1, codes[..., None]).squeeze(-1)

    # -- acting -------------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def sample(
        self,
        pictures: Tensor,
        prompts: Sequence[Sequence[int]],
        state: Tensor | None = None,
        temperature: float = 1.0,
        uniforms: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Codes (n, groups) and their log-probabilities; `temperature` 0 is greedy (log-probabilities then at 1).

        A code is where its number of `uniforms` (n, groups), each in [0, 1), falls in the cumulated probabilities, so that a
        row is sampled alike in any batch; None draws them from torch's global generator.
        """
        if temperature and uniforms is None:
            uniforms = torch.rand(len(prompts), self.config.groups)
        inputs, mask = self.context(pictures, prompts, state)
        positions, cache, chosen, scores = _positions(mask), None, [], []
        for at in range(self.config.groups):
            out = self.llm.model(
                inputs_embeds=inputs, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
            )
            cache = out.past_key_values
            logits = self._head(out.last_hidden_state[:, -1]).float()
            log_probs = (logits / temperature if temperature else logits).log_softmax(-1)
            if temperature and uniforms is not None:
                cumulated = log_probs.double().exp().cumsum(-1)
                below = cumulated <= uniforms[:, at, None].to(cumulated) * cumulated[:, -1:]
                code = below.sum(-1).clamp(max=self.config.codes - 1)
            else:
                code = logits.argmax(-1)
            chosen.append(code)
            scores.append(log_probs.gather(-1, code[:, None]).squeeze(-1))
            inputs = self.code_embeddings(code)[:, None]
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            positions = positions[:, -1:] + 1
        return torch.stack(chosen, 1), torch.stack(scores, 1)


def _positions(mask: Tensor) -> Tensor:
    return (mask.cumsum(1) - 1).clamp(min=0)
