"""A policy's weights: loading them, lending them to a frozen judge, handing them to an engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from wmrl_envs.engine import Generation, Prompt, Sampling
from wmrl_envs.errors import InvalidInput
from wmrl_train.config import Config
from wmrl_train.engines.models import check_model


def load_policy(config: Config, device: str) -> tuple[Any, Any]:
    """The policy and its tokenizer; equal on every process, new adapters included."""
    import torch

    from wmrl_train.engines.transformers import load_model

    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    torch.manual_seed(config.run.seed)
    policy = config.policy
    # Weights stay float32 also for dtype bfloat16 (autocast): a learning rate of 1e-6 would vanish in bfloat16 weights.
    model, tokenizer = load_model(check_model(policy.model), device=device)
    if policy.lora is not None:
        from peft import LoraConfig, get_peft_model

        lora = LoraConfig(
            r=policy.lora.r, lora_alpha=policy.lora.alpha, lora_dropout=policy.lora.dropout,
            target_modules=policy.lora.target_modules, task_type="CAUSAL_LM",
        )  # fmt: skip
        model = get_peft_model(model, lora).eval()
    return model, tokenizer


class FrozenBase:
    """The base model under a LoRA policy as an engine: the same weights, with the adapters switched off."""

    def __init__(self, engine: Any, model: Any):
        self._engine, self._model = engine, model
        self.tokenizer, self.version = engine.tokenizer, 0
        self.max_context = engine.max_context

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int] | None = None) -> list[Generation]:
        """As the engine's, without the adapters. Not to be called while the policy itself generates."""
        with self._engine.lock, self._model.disable_adapter():
            return self._engine.generate(prompts, sampling, seeds)

    def update_weights(self, weights: Iterable[tuple[str, Any]] = ()) -> None:
        raise InvalidInput("The base under the adapters is frozen: it takes no weights.")

    def close(self) -> None:
        self._engine.close()


def merged_weights(model: Any) -> Iterator[tuple[str, Any]]:
    """Named weights for an engine of its own. With LoRA each is a copy with the adapters merged in: whoever keeps it keeps
    that.
    """
    if not hasattr(model, "merge_adapter"):
        yield from ((name, p.detach()) for name, p in model.named_parameters())
        return
    model.merge_adapter()
    try:
        for name, p in model.get_base_model().named_parameters():
            if "lora_" not in name:
                yield name.replace(".base_layer", ""), p.detach().clone()  # merging is undone in place
    finally:
        model.unmerge_adapter()


def hand_over(model: Any, sampler: Any) -> None:
    """Give what samples the weights of `model`; one that samples with these very weights is only told that they have
    changed.
    """
    shared = sampler is model or getattr(sampler, "model", None) is model
    sampler.update_weights([] if shared else merged_weights(model))
