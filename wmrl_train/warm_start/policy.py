"""The small policy: a Llama of about 2 M parameters, saved and loaded like any other causal language model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

LAYERS, WIDTH, MLP_WIDTH, HEADS = 4, 192, 512, 4
MAX_TOKENS = 1024


def new_policy(tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> LlamaForCausalLM:
    """Random weights (from `seed`), float32, embeddings tied."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=MLP_WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=MAX_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def save_policy(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: str | Path) -> None:
    """Write a model directory with float16 weights (about 4 MB). Its config says float32, which is how it is loaded:
    float16 arithmetic is slow on a CPU.
    """
    from safetensors.torch import save_file

    weights = {name: w.detach().half().contiguous() for name, w in model.state_dict().items()}
    del weights["lm_head.weight"]  # tied to the embeddings
    save_file(weights, Path(out) / "model.safetensors", metadata={"format": "pt"})
    model.config.architectures = [type(model).__name__]
    model.config.dtype = "float32"
    model.config.save_pretrained(out)
    tokenizer.save_pretrained(out)
