"""An in-process engine on Hugging Face models: batched sampling with a key-value cache, seeded by sequence.

The trainer and this engine may hold the same model object (then a weight update costs nothing), and with LoRA the same
weights can also serve the reference policy and the world model.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import DynamicCache, DynamicLayer

from wmrl_envs.engine import Generation, Prompt, Sampling
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_train.engines.encode import encode
from wmrl_train.engines.models import check_model
from wmrl_train.engines.template import template_of
from wmrl_train.episodes.trie import Node, Trie, tail

SHARE_FROM = 32  # a common beginning of fewer tokens is not worth a pass of its own
COMPACT_BELOW = 0.75  # finished rows leave the batch once fewer than this share of its rows is still sampling


class TransformersEngine:
    """Samples from `model`; `version` counts the weight updates.

    A sample is a function of (prompt, seed, sampling, weights): it does not depend on the batch it is in, up to the
    rounding of matrix products, because each sequence has its own stream of uniform numbers. `statistics` counts the tokens of
    prompts, and how many of them needed no computation of their own.

    Args:
        model: a causal language model (used in eval mode; never trained here).
        tokenizer: its tokenizer; a pad token is not needed.
        batch_size: sequences generated together.
        max_context: tokens of prompt and completion together; None takes what the model allows.
        seed: of the samples that come without a seed of their own.
    """

    def __init__(self, model: Any, tokenizer: Any, *, batch_size: int = 64, max_context: int | None = None, seed: int = 0):
        if batch_size < 1:
            raise InvalidInput(f"TransformersEngine(batch_size={batch_size}): expected at least 1.")
        limit = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None) or 2**31
        self.model, self.tokenizer = model, tokenizer
        self.batch_size, self.max_context = batch_size, min(max_context or limit, limit)
        self.version = 0
        self.statistics: Counter[str] = Counter()
        self._seeds = np.random.default_rng(seed)
        self._closed = threading.Event()
        self.lock = threading.RLock()  # the weights are read (or switched to those of the base) by one call at a time

    @classmethod
    def from_pretrained(
        cls, path: str | Path, *, dtype: str = "float32", device: str = "auto", **options: Any
    ) -> TransformersEngine:
        """The model and tokenizer saved in a directory (never downloaded)."""
        model, tokenizer = load_model(path, dtype=dtype, device=device)
        return cls(model, tokenizer, **options)

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        seeds: Sequence[int] | None = None,
        tries: Sequence[Trie] | None = None,
    ) -> list[Generation]:
        """One completion a prompt, in order. A prompt is a list of ids, or of chat messages for the chat template.

        `tries`: for each prompt, the completions it may have; the logits are masked to them, and what nothing is left to choose
        of is not computed.
        """
        if seeds is not None and len(seeds) != len(prompts):
            raise InvalidInput(f"generate() got {len(prompts)} prompts and {len(seeds)} seeds; expected one seed a prompt.")
        if seeds is None:
            one = None if sampling.seed is None else [sampling.seed] * len(prompts)
            seeds = one or [int(s) for s in self._seeds.integers(2**63, size=len(prompts))]
        ids = [encode(prompt, self.tokenizer, self.max_context) for prompt in prompts]
        if not sampling.stop_ids:
            talk = any(len(prompt) and isinstance(prompt[0], dict) for prompt in prompts)
            sampling = replace(sampling, stop_ids=self._stops(talk))
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))  # little padding
        done: dict[int, Generation] = {}
        for start in range(0, len(order), self.batch_size):
            chunk = order[start : start + self.batch_size]
            try:
                with self.lock:
                    within = None if tries is None else [tries[i] for i in chunk]
                    made = self._generate([ids[i] for i in chunk], sampling, [seeds[i] for i in chunk], within)
            except torch.OutOfMemoryError as error:
                raise InfrastructureError(f"Generation of {len(chunk)} sequences failed: {error}") from error
            done.update(zip(chunk, made, strict=True))
        return [done[i] for i in range(len(ids))]

    def update_weights(self, weights: Iterable[tuple[str, Any]] = ()) -> None:
        """Copy named tensors into the model; nothing to copy when it is the learner's own. Counts one version."""
        state = dict(weights)
        if state:
            unexpected = self.model.load_state_dict(state, strict=False).unexpected_keys
            if unexpected:
                raise InvalidInput(f"update_weights() got weights this model does not have, such as {unexpected[0]!r}.")
        self.version += 1

    def close(self) -> None:
        """End a running generation as soon as its next token is due."""
        self._closed.set()

    @torch.inference_mode()
    def _generate(
        self, prompts: list[list[int]], sampling: Sampling, seeds: list[int], tries: list[Trie] | None
    ) -> list[Generation]:
        model, device = self.model.eval(), self.model.device
        budget = [min(sampling.max_new_tokens, self.max_context - len(p)) for p in prompts]
        uniform = torch.from_numpy(np.stack([np.random.default_rng(s).random(max(budget)) for s in seeds])).to(device)
        stops = torch.tensor(sampling.stop_ids, dtype=torch.long, device=device)

        cache, logits, mask, position = self._prefill(prompts)
        rows = torch.arange(len(prompts), device=device)  # which sequence each row of the batch is
        limit = torch.tensor(budget, device=device)
        tokens = torch.zeros(len(prompts), max(budget), dtype=torch.long, device=device)
        logprobs = torch.zeros(tokens.shape, device=device)
        lengths = torch.zeros(len(prompts), dtype=torch.long, device=device)
        alive = torch.ones(len(prompts), dtype=torch.bool, device=device)  # a row of the batch that is still sampling
        nodes = None if tries is None else [trie.root for trie in tries]
        for t in range(max(budget)):
            if self._closed.is_set():
                raise InfrastructureError("The engine was closed during a generation.")
            if nodes is not None:
                logits = _masked(logits, [nodes[row] for row in rows.tolist()])
            token, logprob = sample(logits, uniform[rows, t], sampling.temperature, sampling.top_p)
            live = rows[alive]
            tokens[live, t], logprobs[live, t], lengths[live] = token[alive], logprob[alive], t + 1
            if nodes is not None:
                self._advance(nodes, rows[alive].tolist(), token[alive].tolist(), tokens, lengths, budget)
                alive = alive & (lengths[rows] == t + 1)
            alive = alive & ~torch.isin(token, stops) & (t + 1 < limit[rows])
            n_alive = int(alive.sum())
            if n_alive == 0:
                break
            if n_alive < COMPACT_BELOW * len(rows):
                keep = alive.nonzero().squeeze(-1)
                cache.reorder_cache(keep)  # type: ignore[arg-type]
                rows, token, mask, position, alive = rows[keep], token[keep], mask[keep], position[keep], alive[keep]
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
            position = position + 1
            output = model(
                input_ids=token[:, None],
                attention_mask=mask,
                position_ids=position[:, None],
                past_key_values=cache,
                use_cache=True,
            )
            logits = output.logits[:, -1]
        return self._finish(tokens.tolist(), logprobs.tolist(), lengths.tolist(), set(stops.tolist()), tries)

    @staticmethod
    def _advance(
        nodes: list[Node], rows: list[int], chosen: list[int], tokens: Tensor, lengths: Tensor, budget: list[int]
    ) -> None:
        """Follow the chosen tokens; a sequence with nothing left to choose is completed at once (with log-probability 0)."""
        for row, token in zip(rows, chosen, strict=True):
            nodes[row] = nodes[row].get(token, {})
            rest = tail(nodes[row])
            if rest:
                at = int(lengths[row])
                rest = rest[: budget[row] - at]
                tokens[row, at : at + len(rest)] = torch.tensor(rest, device=tokens.device)
                lengths[row] = at + len(rest)

    def _prefill(self, prompts: list[list[int]]) -> tuple[DynamicCache, Tensor, Tensor, Tensor]:
        """Cache, logits of the next token (B, V), attention mask (B, T) and last position (B,).

        Equal prompts are computed once, and so is what all of them begin with: eight checks of one case pay for the case once.
        """
        device = self.model.device
        unique = list(dict.fromkeys(tuple(p) for p in prompts))
        index = {p: i for i, p in enumerate(unique)}
        cache = DynamicCache(config=self.model.config)
        # Padding between prefix and rest would count in a sliding window, and stay in a recurrent state.
        shared = _common_prefix(unique) if all(type(layer) is DynamicLayer for layer in cache.layers) else 0
        cache.layers = [_PreallocatedLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
        if shared:
            prefix = torch.tensor([unique[0][:shared]], device=device)
            self.model(input_ids=prefix, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache.reorder_cache(torch.zeros(len(unique), dtype=torch.long, device=device))  # type: ignore[arg-type]
        width = max(len(p) for p in unique)
        ids = torch.tensor([[0] * (width - len(p)) + list(p[shared:]) for p in unique], device=device)
        mask = torch.tensor([[1] * shared + [0] * (width - len(p)) + [1] * (len(p) - shared) for p in unique], device=device)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, shared:]
        logits = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1
        ).logits[:, -1]
        self.statistics["prompt_tokens"] += sum(map(len, prompts))
        self.statistics["cached_tokens"] += sum(map(len, prompts)) - sum(map(len, unique)) + shared * (len(unique) - 1)
        expand = torch.tensor([index[tuple(p)] for p in prompts], device=device)
        if len(unique) < len(prompts):
            cache.reorder_cache(expand)  # type: ignore[arg-type]
        return cache, logits[expand], mask[expand], positions[expand, -1]

    def _stops(self, talk: bool) -> tuple[int, ...]:
        """What ends a completion by default: for messages what ends an answer of the template, and the model's own ends."""
        own = getattr(self.model.generation_config, "eos_token_id", None)
        ends = [self.tokenizer.eos_token_id, *(own if isinstance(own, (list, tuple)) else [own])]
        ends += template_of(self.tokenizer).stop_ids if talk else ()
        return tuple(dict.fromkeys(int(i) for i in ends if i is not None))

    def _finish(
        self,
        tokens: list[list[int]],
        logprobs: list[list[float]],
        lengths: list[int],
        stops: set[int],
        tries: list[Trie] | None,
    ) -> list[Generation]:
        made = []
        for i, (row, logprob, length) in enumerate(zip(tokens, logprobs, lengths, strict=True)):
            ids = tuple(row[:length])
            choices = None if tries is None else tuple(tries[i].choices(ids))
            stopped = ids[-1] in stops
            text = self.tokenizer.decode(
                ids[:-1] if stopped else ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
            made.append(Generation(ids, tuple(logprob[:length]), text, "stop" if stopped else "length", choices))
        return made


def _common_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens that all prompts begin with, if they are worth a pass of their own; at least one of each is left over."""
    if len(prompts) < 2:
        return 0
    ordered = sorted(map(tuple, prompts))
    first, last = ordered[0], ordered[-1]  # what these two share, all share
    longest = min(map(len, prompts)) - 1
    length = next((i for i in range(longest) if first[i] != last[i]), longest)
    return length if length >= SHARE_FROM else 0


def _masked(logits: Tensor, nodes: Sequence[Node]) -> Tensor:
    """Logits (B, V) with everything but what may follow each row's node at minus infinity; rows that have ended stay as they
    are.
    """
    rows_at: dict[int, list[int]] = {}
    for row, node in enumerate(nodes):
        rows_at.setdefault(id(node), []).append(row)
    forbidden = torch.ones_like(logits, dtype=torch.bool)
    for rows in rows_at.values():
        allowed = list(nodes[rows[0]])
        if allowed:
            forbidden[torch.tensor(rows)[:, None], torch.tensor(allowed)] = False
        else:
            forbidden[rows] = False
    return logits.masked_fill(forbidden, float("-inf"))


def sample(logits: Tensor, uniform: Tensor, temperature: float, top_p: float = 1.0) -> tuple[Tensor, Tensor]:
    """Inverse-CDF sampling of logits (B, V) by uniform numbers (B,): ids (B,) and their log-probabilities (B,).

    The log-probabilities are those of the distribution sampled from: temperature applied, `top_p` renormalised.
    `temperature=0` takes the most probable token and gives its log-probability at temperature 1.
    """
    logits = logits.float()
    if temperature == 0:
        token = logits.argmax(-1)
        return token, logits.log_softmax(-1).gather(-1, token[:, None]).squeeze(-1)
    logprobs = (logits / temperature).log_softmax(-1)
    if top_p < 1:
        ordered, order = logprobs.exp().sort(-1, descending=True)
        outside = torch.zeros_like(ordered, dtype=torch.bool).scatter(-1, order, ordered.cumsum(-1) - ordered >= top_p)
        logprobs = logprobs.masked_fill(outside, float("-inf")).log_softmax(-1)
    cumulative = logprobs.exp().double().cumsum(-1)
    total = cumulative[:, -1]
    threshold = torch.minimum(
        uniform.double() * total, torch.nextafter(total, torch.zeros_like(total))
    )  # below the total, always
    token = torch.searchsorted(cumulative, threshold[:, None], right=True).squeeze(-1)
    return token, logprobs.gather(-1, token[:, None]).squeeze(-1)


class _PreallocatedLayer(DynamicLayer):
    """A cache layer that writes into a buffer with room to grow; concatenation would copy the whole cache every token."""

    _buffers: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        length = self.get_seq_length()
        end = length + key_states.shape[-2]
        stale = self._buffers is None or self.keys.data_ptr() != self._buffers[0].data_ptr()  # rows were selected since
        if self._buffers is None or stale or end > self._buffers[0].shape[-2]:
            self._buffers = (_room(self.keys, key_states, length, end), _room(self.values, value_states, length, end))
        keys, values = self._buffers
        keys[:, :, length:end], values[:, :, length:end] = key_states, value_states
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]
        return self.keys, self.values


def _room(old: Tensor, new: Tensor, length: int, end: int) -> Tensor:
    batch, heads, _, width = new.shape
    buffer = new.new_empty(batch, heads, end + max(64, end // 2), width)
    if length:
        buffer[:, :, :length] = old
    return buffer


def resolve_device(name: str) -> str:
    """A device that works; "auto" is the GPU if there is one.

    Raises:
        InvalidInput: this machine has no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise InvalidInput(
            f"Device {name!r} cannot be used ({_first_line(error)}): expected auto, cpu, or a device torch sees."
        ) from None
    return name


def load_model(path: str | Path, *, dtype: str = "float32", device: str = "auto") -> tuple[Any, Any]:
    """Model and tokenizer from a local directory.

    Raises:
        DataNotBuilt: there is no model in that directory.
        InvalidInput: what is there cannot be loaded, or this machine has no such device.
    """
    check_model(str(path))
    device = resolve_device(device)
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype), local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise InvalidInput(
            f"The model in {path} cannot be loaded ({_first_line(error)}): expected what save_pretrained writes of a causal "
            "language model and of its tokenizer."
        ) from error
    return model.to(device).eval(), tokenizer


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
