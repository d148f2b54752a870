"""A Robometer of a few thousand random weights, written in the layouts of the published checkpoints (a double of Robometer-4B)."""

import json

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen3_vl import Qwen3VLConfig, Qwen3VLModel

from wmrl_envs.world_models.reward.robometer import TOKENS

QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")


def tokenizer():
    """Bytes, and Qwen's special tokens after them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    for token in QWEN:
        fast.add_tokens([token], special_tokens=True)
    return fast


def config(tok, hidden=32):
    ids = {
        name: tok.convert_tokens_to_ids(f"<|{name.removesuffix('_token_id')}|>")
        for name in ("vision_start_token_id", "vision_end_token_id")
    }
    ids |= {
        "image_token_id": tok.convert_tokens_to_ids("<|image_pad|>"),
        "video_token_id": tok.convert_tokens_to_ids("<|video_pad|>"),
    }
    rope = {"mrope_interleaved": True, "mrope_section": [4, 2, 2], "rope_type": "default"}
    text = {
        "model_type": "qwen3_vl_text", "vocab_size": len(tok) + len(TOKENS), "hidden_size": hidden, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "rope_scaling": rope,
        "rope_theta": 5_000_000, "max_position_embeddings": 4096,
    }  # fmt: skip
    vision = {
        "model_type": "qwen3_vl", "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": hidden,
        "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1], "patch_size": 16,
    }  # fmt: skip
    return {"model_type": "qwen3_vl", "text_config": text, "vision_config": vision, "tie_word_embeddings": True} | ids


def head(hidden, outputs):
    layers = torch.nn
    return layers.Sequential(
        layers.Linear(hidden, hidden // 2), layers.LayerNorm(hidden // 2), layers.GELU(), layers.Dropout(0.1), layers.Linear(hidden // 2, outputs)
    )  # fmt: skip


def state(raw, seed=0):
    """The original layout."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        hidden = raw["text_config"]["hidden_size"]
        backbone = Qwen3VLModel(Qwen3VLConfig(**{k: v for k, v in raw.items() if k != "model_type"}))
        parts = {"progress_head": head(hidden, 10), "success_head": head(hidden, 1), "preference_head": head(hidden, 1)}
        parts |= {"similarity_head": head(hidden, 1), "frame_pool_attn": torch.nn.Linear(hidden, 1, bias=False)}
        result = {f"model.{name}": _random(name, value) for name, value in backbone.state_dict().items()}
        result |= {
            f"{part}.{name}": torch.randn_like(v) for part, module in parts.items() for name, v in module.state_dict().items()
        }
    return result


def _random(name, value):
    """Weights with which pictures matter: tokens small against what layers add to them."""
    if "norm" in name:
        return torch.ones_like(value)
    return torch.randn_like(value) * (0.02 if "embed_tokens" in name else 0.5)


def write(folder, layout="original", seed=0):
    """Write a checkpoint folder; returns its state dictionary in the original layout."""
    folder.mkdir(parents=True, exist_ok=True)
    tok = tokenizer()
    raw, values = config(tok), None
    values = state(raw, seed)
    tok.save_pretrained(folder)
    if layout == "lerobot":
        saved = {
            (f"model.{k}" if k.startswith("model.") else k): v for k, v in values.items() if not k.startswith("similarity")
        }
        saved["model.lm_head.weight"] = values["model.language_model.embed_tokens.weight"].clone()
        own = {
            "type": "robometer",
            "use_multi_image": True,
            "use_per_frame_progress_token": True,
            "progress_loss_type": "discrete",
        }
        (folder / "config.json").write_text(json.dumps(own | {"progress_discrete_bins": 10, "vlm_config": raw}))
        save_file(saved, folder / "model.safetensors")
        return values
    (folder / "config.json").write_text(json.dumps(raw))
    names = sorted(values)
    shards = {f"model-0000{i + 1}-of-00002.safetensors": names[i::2] for i in range(2)}
    for file, members in shards.items():
        save_file({name: values[name] for name in members}, folder / file)
    index = {"weight_map": {name: file for file, members in shards.items() for name in members}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return values
