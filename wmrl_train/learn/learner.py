"""The learner: one GRPO update on a step's rows, in micro-batches by token budget.

Log-probabilities are computed on the agent's tokens only and in chunks, so that the logits of a long batch never exist at once
(8 x 4096 tokens of a vocabulary of 152k would be 20 GB; a chunk is `CHUNK_ELEMENTS` numbers, 256 MB in float32). Rows that
begin with the same prompt share its computation (`packing`), and several processes may learn together (`sharded`). What
computes the log-probabilities of other rows than token rows, such as a robot's action codes, is a subclass.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from wmrl_train.config import Config, OptimConfig
from wmrl_train.episodes.records import Row
from wmrl_train.learn import grpo
from wmrl_train.learn.guard import NonFiniteLoss, guarded_step
from wmrl_train.learn.host_optimizer import HostAdamW
from wmrl_train.learn.packing import PACK_TOKENS, Pack, can_pack, pack, packs
from wmrl_train.learn.ranks import Ranks

__all__ = ["Learner", "NonFiniteLoss", "Sample", "Whole", "micro_batches", "token_stats"]
log = logging.getLogger(__name__)
CHUNK_ELEMENTS = 2**26  # logits held at a time
L = TypeVar("L", bound="Learner")


@dataclass(frozen=True)
class Sample:
    """A row with what the learner needs to know about it.

    Attributes:
        advantage: of its trajectory, the anchor weight included.
        weight: of its trajectory; the weights of a batch's trajectories sum to 1.
        length: sampled tokens of the whole trajectory (several rows may share it).
        origin: for error messages, such as "group 12 (titanic), member 3".
    """

    row: Row
    advantage: float
    weight: float
    length: int
    origin: str = ""


@dataclass
class _Batch:
    """Inputs of the model for some rows (token rows are in packs); everything else is flat over the sampled tokens (N,), row
    after row.
    """

    inputs: Any
    counts_by_row: Tensor  # (rows,) sampled tokens
    targets: Tensor
    behaviour: Tensor
    advantages: Tensor
    weights: Tensor
    origins: list[str]
    real: bool  # False: a rank with nothing left to do keeps step with the others
    choices: Tensor | None = None  # (N, A): the ids each was chosen from, -1 beyond, where the policy was restricted


class Whole(torch.nn.Module):
    """A model whose forward is any computation with it: where FSDP's hooks sit, so that it may use every part of the model."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, compute: Any, *arguments: Any) -> Any:
        return compute(self.model, *arguments)


def checkpoint_without_dropout(model: torch.nn.Module) -> None:
    """Let the layers of an evaluating model recompute their activations, and nothing else of what training switches on.

    transformers checkpoints a layer only while it is training, and a training model drops activations: the policy that is
    updated would not be the one that sampled. So only the layers themselves are told, not what is in them, and what they drop
    is nothing.
    """
    for module in model.modules():
        if getattr(module, "gradient_checkpointing", False):
            module.training = True
            for name, value in vars(module).items():
                if "drop" in name and isinstance(value, float):
                    setattr(module, name, 0.0)


class Learner:
    """Owns the optimizer and the frozen reference policy.

    Args:
        model: the policy, updated in place. With LoRA (a peft model) only the adapters train and the reference is the base.
        config: the section `optim`.
        temperature: of the sampling; log-probabilities are those of the tempered distribution.
        horizon: tokens a trajectory can have at most, the constant of loss "dr_grpo".
        autocast: dtype of the forward pass (None: that of the weights).
        ranks: the processes that learn together (see `ShardedLearner`); each takes its share of the samples.
    """

    def __init__(
        self,
        model: Any,
        config: OptimConfig,
        *,
        temperature: float = 1.0,
        horizon: int = 1,
        autocast: torch.dtype | None = None,
        gradient_checkpointing: bool = False,
        ranks: Ranks | None = None,
    ):
        self.ranks = ranks or Ranks()
        self.model, self.config, self.temperature, self.horizon = model, config, temperature, horizon
        self.autocast = autocast
        self.updates = 0
        self._is_lora = hasattr(model, "disable_adapter")
        keeps_reference = config.kl_coef > 0 and not self._is_lora
        self._policy = Whole(model)
        self._reference = Whole(copy.deepcopy(model).eval().requires_grad_(False)) if keeps_reference else None
        self._gradient_checkpointing = gradient_checkpointing
        if gradient_checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            if self._is_lora:
                model.enable_input_require_grads()
        self._look_at(model)
        for whole in (self._policy, self._reference):
            if whole is not None:
                self._place(whole)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        adamw: type[torch.optim.AdamW] = HostAdamW if config.offload else torch.optim.AdamW
        self.optimizer = adamw(self.parameters, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, fused=True)

    @classmethod
    def from_config(cls: type[L], model: Any, config: Config, **options: Any) -> L:
        """The learner of a run."""
        return cls(
            model, config.optim, temperature=config.rollout.temperature,
            horizon=config.rollout.max_new_tokens * config.tasks.max_turns,
            autocast=torch.bfloat16 if config.policy.dtype == "bfloat16" else None,
            gradient_checkpointing=config.policy.gradient_checkpointing, **options,
        )  # fmt: skip

    def update(self, samples: Sequence[Sample]) -> dict[str, float]:
        """One optimizer step an epoch; returns the scalars to log.

        Raises:
            NonFiniteLoss: names the rows it came from; the weights are as before the call, except that earlier epochs stand.
        """
        config = self.config
        samples = [s for s in samples if s.row.n_sampled]
        if not samples:
            return {"tokens": 0.0}
        self.model.eval()
        if self._gradient_checkpointing:
            checkpoint_without_dropout(self.model)
        batches = [self._batch(chunk, samples) for chunk in self._micro_batches(samples)]
        old = [self._no_grad_logprobs(b) for b in batches] if config.epochs > 1 else [None] * len(batches)
        for group in self.optimizer.param_groups:
            group["lr"] = config.lr * min(1.0, (self.updates + 1) / max(config.warmup_steps, 1))
        totals: dict[str, float] = {}
        for _ in range(config.epochs):
            totals = {}
            problems: list[str] = []
            self.optimizer.zero_grad(set_to_none=True)
            for batch, before in zip(batches, old, strict=True):
                values, problem = self._backward(batch, before)
                problems += [problem] if problem else []
                for key, value in values.items():
                    totals[key] = totals.get(key, 0.0) + value
            what = f"update {self.updates + 1}"
            norm = guarded_step(self.optimizer, max_norm=config.max_grad_norm, problems=problems, what=what, ranks=self.ranks)
            totals = self.ranks.sum(totals) | {"grad_norm": norm}
        self.optimizer.zero_grad(set_to_none=True)
        self.updates += 1
        self.model.eval()
        tokens = totals.pop("tokens")
        means = {
            k: totals.pop(k) / tokens for k in ("entropy", "mismatch_kl", "clip_fraction", "importance", "kl") if k in totals
        }
        return totals | means | {"tokens": tokens, "lr": self.optimizer.param_groups[0]["lr"]}

    @property
    def device(self) -> torch.device:
        """Where the policy is."""
        return next(self.model.parameters()).device

    def logprobs(self, row: Row) -> Tensor:
        """Log-probabilities of a row's sampled tokens under the current policy, (n_sampled,)."""
        return self._no_grad_logprobs(self._batch([Sample(row, 0.0, 1.0, row.n_sampled)], []))

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = int(state["updates"])

    def close(self) -> None:
        """Nothing to release here."""

    # -- what a learner of other rows does otherwise ------------------------------------------------------------------
    def _look_at(self, model: Any) -> None:
        """Find out what the computation can make use of."""
        self._plain_head = _head_is_plain(model)
        if not self._plain_head:
            log.warning(
                "%s does more than a matrix product after its last hidden state; log-probabilities are not chunked.",
                type(model).__name__,
            )
        self._pack_tokens = PACK_TOKENS if self._plain_head and can_pack(_inner(model)) else 0

    def _packs(self, rows: Sequence[Row]) -> list[Pack]:
        """Rows that are computed together."""
        return packs(rows, self._pack_tokens)

    def _inputs(self, rows: Sequence[Row]) -> Any:
        """What `_forward` computes from."""
        return pack(rows, self._packs(rows), self.device)

    # -- what several ranks do otherwise ----------------------------------------------------------------------------
    def _place(self, whole: Whole) -> None:
        """Called with the policy and the reference before the optimizer is made."""

    def _micro_batches(self, samples: Sequence[Sample]) -> list[list[Sample]]:
        """This rank's share, in as many micro-batches as every other rank has: one without weight where there is nothing
        left.
        """
        made = sorted(self._packs([s.row for s in samples]), key=lambda pack: pack.length)
        shares = [made[rank :: self.ranks.size] for rank in range(self.ranks.size)]
        budget = self.config.tokens_per_micro_batch
        batches = [micro_batches([pack.length for pack in share], share, budget) for share in shares]
        idle = max(map(len, batches)) - len(batches[self.ranks.rank])
        mine = [[samples[i] for pack in batch for i in pack.rows] for batch in batches[self.ranks.rank]]
        return mine + [[replace(samples[made[0].rows[0]], weight=0.0, length=0)]] * idle

    # -- one micro-batch ---------------------------------------------------------------------------------------------
    def _backward(self, batch: _Batch, old: Tensor | None) -> tuple[dict[str, float], str | None]:
        """Add to the gradient; returns sums to log, and what is wrong if the loss is not finite."""
        config = self.config
        logprobs, entropies = self._policy(self._forward, batch)
        current = logprobs.detach()
        before = current if old is None else old
        importance = grpo.truncated_importance_weights(before, batch.behaviour, config.is_cap)
        if config.loss == "nll":  # the rows were not sampled by a policy of ours
            importance = torch.ones_like(current)
        per_token = grpo.policy_objective(
            logprobs[:, None], before[:, None], batch.advantages, kind=config.loss, clip_low=config.clip_low,
            clip_high=config.clip_high, importance=importance[:, None],
        ).squeeze(-1)  # fmt: skip
        policy_loss = (batch.weights * per_token).sum()
        loss = policy_loss - config.entropy_coef * (batch.weights * entropies).sum()
        divergence = torch.zeros_like(current)
        if config.kl_coef > 0:
            divergence = grpo.k3(logprobs, self._reference_logprobs(batch))
            loss = loss + config.kl_coef * (batch.weights * divergence).sum()
        problem = None if torch.isfinite(loss) else self._blame(batch, per_token + divergence + entropies)
        (loss * self.ranks.size).backward()  # FSDP divides the sum over the ranks by their number
        if not batch.real:
            return {}, None
        clipped = grpo.clipped(current[:, None], before[:, None], batch.advantages, config.clip_low, config.clip_high)
        return {
            "loss": float(loss.detach()),
            "policy_loss": float(policy_loss.detach()),
            "entropy": float(entropies.detach().sum()),
            "kl": float(divergence.detach().sum()),
            "mismatch_kl": float(grpo.k3(batch.behaviour, before).sum()),
            "importance": float(importance.sum()),
            "clip_fraction": float(clipped.sum()),
            "tokens": float(len(current)),
        }, problem

    def _forward(self, model: Any, batch: _Batch) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy of each sampled position, (N,) and (N,)."""
        packed, device = batch.inputs, self.device
        with torch.autocast(device.type, self.autocast) if self.autocast is not None else contextlib.nullcontext():
            inner = _inner(model)
            inputs = {"input_ids": packed.ids, "attention_mask": packed.mask, "use_cache": False}
            if packed.mask.dim() == 4:
                inputs["position_ids"] = packed.positions
            if not self._plain_head:
                logits = inner(**inputs).logits.flatten(0, 1)[packed.sources]
                return token_stats(logits, batch.targets, self.temperature, batch.choices)
            states = inner.base_model(**inputs).last_hidden_state.flatten(0, 1)[packed.sources]
            head = inner.get_output_embeddings()
            size = max(1, CHUNK_ELEMENTS // head.weight.shape[0])
            pieces = []
            for at in range(0, len(states), size):
                part = slice(at, at + size)
                choices = None if batch.choices is None else batch.choices[part]
                arguments = (head, states[part], batch.targets[part], self.temperature, choices)
                one_chunk = len(states) <= size or not torch.is_grad_enabled()
                pieces.append(
                    _head_stats(*arguments) if one_chunk else checkpoint(_head_stats, *arguments, use_reentrant=False)
                )
        return torch.cat([p[0] for p in pieces]), torch.cat([p[1] for p in pieces])

    @torch.no_grad()
    def _no_grad_logprobs(self, batch: _Batch) -> Tensor:
        return self._policy(self._forward, batch)[0]

    @torch.no_grad()
    def _reference_logprobs(self, batch: _Batch) -> Tensor:
        if self._is_lora:
            with self.model.disable_adapter():
                return self._policy(self._forward, batch)[0]
        assert self._reference is not None
        return self._reference(self._forward, batch)[0]

    def _batch(self, chunk: Sequence[Sample], everything: Sequence[Sample]) -> _Batch:
        device, rows = self.device, [s.row for s in chunk]
        width = max(row.n_needed for row in rows)

        def padded(values: list[list[Any]], dtype: torch.dtype) -> Tensor:
            return torch.tensor([v[:width] + [0] * (width - len(v)) for v in values], dtype=dtype, device=device)

        sampled = padded([row.sampled for row in rows], torch.bool)
        horizon: Any = self.horizon
        if self.config.loss in ("dapo", "nll"):
            horizon = sum(s.weight * s.row.n_sampled for s in everything)
        weights = grpo.token_weights(
            sampled, torch.tensor([s.weight for s in chunk], device=device), kind=self.config.loss,
            lengths=torch.tensor([s.length for s in chunk], device=device), horizon=horizon,
        )  # fmt: skip
        return _Batch(
            inputs=self._inputs(rows),
            counts_by_row=sampled.sum(-1),
            targets=padded([row.ids for row in rows], torch.long)[sampled],
            behaviour=padded([row.logprobs for row in rows], torch.float32)[sampled],
            advantages=torch.tensor([s.advantage for s in chunk], device=device).repeat_interleave(sampled.sum(-1)),
            weights=weights[sampled],
            origins=[s.origin for s in chunk],
            real=any(s.length for s in chunk),
            choices=_padded_choices([c for s in chunk for c in s.row.choices], device),
        )

    def _blame(self, batch: _Batch, per_token: Tensor) -> str:
        rows = torch.arange(len(batch.origins), device=per_token.device).repeat_interleave(batch.counts_by_row)
        bad = sorted(set(rows[~torch.isfinite(per_token)].tolist()))
        names = "; ".join(batch.origins[i] for i in bad[:3]) or "no single rollout"
        return (
            f"The loss is not finite at update {self.updates + 1} because of {names}"
            f"{f' and {len(bad) - 3} more' if len(bad) > 3 else ''}; nothing was changed. Resume from the last checkpoint with "
            "a lower optim.lr."
        )


def micro_batches(lengths: Sequence[int], items: Sequence[Any], budget: int) -> list[list[Any]]:
    """Items in order of length, cut so that rows x longest row stays within `budget` tokens (a longer single row is a batch of
    its own).

    >>> micro_batches([3, 9, 4, 8], "abcd", 16)
    [['a', 'c'], ['d'], ['b']]
    """
    batches: list[list[Any]] = []
    for i in sorted(range(len(items)), key=lambda i: lengths[i]):
        if batches and (len(batches[-1]) + 1) * lengths[i] <= budget:
            batches[-1].append(items[i])
        else:
            batches.append([items[i]])
    return batches


def _padded_choices(choices: list[list[int]], device: Any) -> Tensor | None:
    if not choices:
        return None
    width = max(map(len, choices))
    return torch.tensor([c + [-1] * (width - len(c)) for c in choices], device=device)


def _head_stats(
    head: Any, states: Tensor, targets: Tensor, temperature: float, choices: Tensor | None
) -> tuple[Tensor, Tensor]:
    return token_stats(head(states), targets, temperature, choices)


def token_stats(logits: Tensor, targets: Tensor, temperature: float, choices: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(log-probability of the target, entropy) a row of logits (N, V), in float32; of the logits restricted to `choices` (N,
    A).
    """
    logits = logits.float() / temperature
    if choices is not None:
        targets = (choices == targets[:, None]).int().argmax(-1)
        logits = logits.gather(-1, choices.clamp(min=0)).masked_fill(choices < 0, torch.finfo(torch.float32).min)
    logprobs = torch.log_softmax(logits, dim=-1)
    return logprobs.gather(-1, targets[:, None]).squeeze(-1), -(logprobs.exp() * logprobs).sum(-1)


def _inner(model: Any) -> Any:
    """The model under the adapters."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@torch.no_grad()
def _head_is_plain(model: Any) -> bool:
    """Whether logits are the output embedding applied to the last hidden state (no soft cap, no scale)."""
    inner = _inner(model)
    head = inner.get_output_embeddings()
    if head is None or not hasattr(inner, "base_model") or inner.base_model is inner:
        return False
    ids = torch.arange(4, device=inner.device)[None]
    ours = head(inner.base_model(input_ids=ids, use_cache=False).last_hidden_state)
    return bool(torch.allclose(ours, inner(input_ids=ids, use_cache=False).logits, atol=1e-4))
