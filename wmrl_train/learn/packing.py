"""Rows that begin with the same prompt share its computation: one packed sequence `prompt, rest of row 1, rest of row 2, ...`.

A rest attends to the prompt and to itself, at the positions it has in its own row, so that every hidden state is the row's own.
Eight completions of 64 tokens after a prompt of 128 are 640 tokens in a pack and 1536 in rows. The members of a group share
their prompt, so this is the usual case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wmrl_train.episodes.records import Row

PACK_TOKENS = 1024  # a longer pack would spend more on its dense attention mask than it saves


@dataclass(frozen=True)
class Pack:
    """Rows (numbers) that begin with the same `prompt` tokens; `length` tokens together."""

    rows: list[int]
    prompt: int
    length: int


def packs(rows: Sequence[Row], limit: int) -> list[Pack]:
    """All rows in packs of at most `limit` tokens; a row by itself is a pack of any length.

    >>> row = lambda ids: Row(ids, [False, False, True, True], [0.0] * 4)
    >>> packs([row([5, 6, 7, 8]), row([5, 6, 9, 9]), row([5, 7, 8, 8])], limit=100)
    [Pack(rows=[0, 1], prompt=2, length=6), Pack(rows=[2], prompt=2, length=4)]
    """
    made: list[Pack] = []
    by_prompt: dict[tuple[int, ...], int] = {}  # prompt -> its pack that still has room
    for i, row in enumerate(rows):
        prompt = tuple(row.ids[: row.sampled.index(True)])
        at = by_prompt.get(prompt)
        rest = row.n_needed - len(prompt)
        if at is not None and made[at].length + rest <= limit:
            made[at] = Pack([*made[at].rows, i], len(prompt), made[at].length + rest)
        else:
            by_prompt[prompt] = len(made)
            made.append(Pack([i], len(prompt), row.n_needed))
    return made


@dataclass(frozen=True)
class Packed:
    """Model inputs (B, T) of several packs, right-padded.

    Attributes:
        mask: (B, 1, T, T), True where a query (third) may attend to a key; or (B, T) if every pack is one row.
        sources: (N,) where in the flattened (B * T) hidden states each sampled token is predicted, row after row.
    """

    ids: Tensor
    positions: Tensor
    mask: Tensor
    sources: Tensor


def pack(rows: Sequence[Row], made: Sequence[Pack], device: Any) -> Packed:
    """Tensors of `made`, which hold all of `rows`."""
    width = max(p.length for p in made)
    ids, positions, owners = ([[0] * width for _ in made] for _ in range(3))
    sources: dict[int, list[int]] = {}
    for b, p in enumerate(made):
        at = p.prompt
        ids[b][:at], positions[b][:at] = rows[p.rows[0]].ids[:at], list(range(at))
        for number, i in enumerate(p.rows, 1):
            row, rest = rows[i], rows[i].n_needed - p.prompt
            part = slice(at, at + rest)
            ids[b][part] = row.ids[p.prompt : row.n_needed]
            positions[b][part] = range(p.prompt, row.n_needed)
            owners[b][part] = [number] * rest
            before = [p.prompt - 1, *range(at, at + rest - 1)]  # what each token of the rest follows
            sources[i] = [b * width + s for s, sampled in zip(before, row.sampled[p.prompt :], strict=False) if sampled]
            at += rest
        owners[b][at:] = [-1] * (width - at)
    owner = torch.tensor(owners, device=device)
    mask = owner >= 0
    if any(len(p.rows) > 1 for p in made):
        seen = (owner[:, None, :] == 0) | (owner[:, None, :] == owner[:, :, None])
        mask = (seen & torch.ones(width, width, dtype=torch.bool, device=device).tril())[:, None]
    flat = torch.tensor([s for i in range(len(rows)) for s in sources[i]], device=device)
    return Packed(torch.tensor(ids, device=device), torch.tensor(positions, device=device), mask, flat)


@torch.no_grad()
def can_pack(model: Any) -> bool:
    """Whether two packed rows have the hidden states they have alone (tried out): full attention throughout, by a dense
    mask.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer

    layers = DynamicCache(config=model.config).layers
    if model.config._attn_implementation != "sdpa" or any(type(layer) is not DynamicLayer for layer in layers):
        return False
    rows = [Row([1, 2, 3, *rest], [False] * 3 + [True] * len(rest), [0.0] * (3 + len(rest))) for rest in ([4, 5, 6], [7, 8])]
    packed = pack(rows, packs(rows, PACK_TOKENS), model.device)
    together = model.base_model(
        input_ids=packed.ids, attention_mask=packed.mask, position_ids=packed.positions, use_cache=False
    )
    alone = []
    for row in rows:
        ids = torch.tensor([row.ids], device=model.device)
        alone.append(model.base_model(input_ids=ids, use_cache=False).last_hidden_state[0, 2:-1])
    return torch.allclose(together.last_hidden_state.flatten(0, 1)[packed.sources], torch.cat(alone), atol=1e-3, rtol=1e-3)
