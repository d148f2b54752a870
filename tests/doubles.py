"""Test doubles, named as such: a tiny random policy, an environment whose score is a function of the text, a fake world model."""

from __future__ import annotations

import string
from typing import Any


def tiny_model(seed: int = 0) -> tuple[Any, Any]:
    """A random 2-layer Llama on single characters, with a chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    characters = ["<pad>", "<end>", "<user>", "<assistant>", *string.printable]
    tokenizer = Tokenizer(models.WordLevel({c: i for i, c in enumerate(characters)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<pad>", "<end>", "<user>", "<assistant>"])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", clean_up_tokenization_spaces=False)
    fast.chat_template = (
        "{% for m in messages %}{{ '<assistant>' if m.role == 'assistant' else '<user>' }}{{ m.content }}<end>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(characters), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=512, eos_token_id=1, pad_token_id=0, initializer_range=0.2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval(), fast
