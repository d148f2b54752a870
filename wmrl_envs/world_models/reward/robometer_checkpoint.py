"""Robometer's published checkpoints, at the level of state dictionaries.

A folder holds config.json, tokenizer files and *.safetensors with
`model.visual...`, `model.language_model...` (a Qwen3-VL backbone, without or with one more `model.` and an `lm_head`),
`progress_head`, `success_head` (linear, layer norm, GELU, dropout, linear), and what only its training reads.
Both published forms are read: the original one, whose config.json is that of the backbone, and LeRobot's, which has it under
`vlm_config`. Nothing but safetensors and JSON is opened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmrl_envs.errors import DataNotBuilt, InvalidInput, MissingExtra
from wmrl_envs.world_models.reward.frames import BINS

if TYPE_CHECKING:
    from torch import Tensor

_UNUSED = ("preference_head.", "similarity_head.", "frame_pool_attn.", "lm_head.")  # read by its training only
_EMBEDDING = "language_model.embed_tokens.weight"


@dataclass(frozen=True)
class RobometerNetwork:
    """The modules of a Robometer: a `Qwen3VLModel` and two heads on its last hidden state (n, hidden) -> (n, 10) and (n, 1)."""

    backbone: Any
    progress_head: Any
    success_head: Any


def load_network(folder: str | Path, *, dtype: str = "float32", device: str = "cpu") -> RobometerNetwork:
    """The network of a checkpoint folder, for inference.

    Raises:
        DataNotBuilt: no such folder. InvalidInput: not a Robometer checkpoint; the message names the first key that is wrong.
    """
    folder = Path(folder)
    raw = _read_config(folder)
    backbone, heads = split_state(_read_state(folder), str(folder))
    return build_network(raw, backbone, heads, source=str(folder), dtype=dtype, device=device)


def split_state(state: Mapping[str, Tensor], source: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters of the backbone, by their names in `Qwen3VLModel`, and those of the two heads."""
    backbone, heads = {}, {}
    for name, value in state.items():
        bare = name
        while bare.startswith("model."):
            bare = bare.removeprefix("model.")
        if bare.startswith(("visual.", "language_model.")):
            backbone[bare] = value
        elif bare.startswith(("progress_head.", "success_head.")):
            heads[bare] = value
        elif not bare.startswith(_UNUSED):
            raise InvalidInput(
                f"{source} has {name}, which is no part of a Robometer checkpoint: expected model.visual..., "
                "model.language_model..., progress_head... and success_head... (merge the adapters of a LoRA checkpoint first)."
            )
    for part in (_EMBEDDING, "progress_head.0.weight", "success_head.0.weight"):
        if part not in backbone and part not in heads:
            raise InvalidInput(f"{source} lacks {part}: expected a checkpoint of Robometer, a Qwen3-VL with two more heads.")
    return backbone, heads


def build_network(
    config: Mapping[str, Any],
    backbone: dict[str, Tensor],
    heads: dict[str, Tensor],
    *,
    source: str = "the checkpoint",
    dtype: str = "float32",
    device: str = "cpu",
) -> RobometerNetwork:
    """Modules filled with these parameters; every parameter must be there with its shape, and nothing may be left over."""
    torch, qwen = _libraries()
    settings = qwen.Qwen3VLConfig(**config)
    settings.text_config.vocab_size = backbone[_EMBEDDING].shape[0]  # the tokens added in training count, whatever was noted
    kind = getattr(torch, dtype)
    hidden = settings.text_config.hidden_size
    with torch.device("meta"):
        shape_of = {name: tuple(value.shape) for name, value in qwen.Qwen3VLModel(settings).state_dict().items()}
    _compare(shape_of, backbone, source)
    made = {}
    for name, outputs in (("progress_head", BINS), ("success_head", 1)):
        head = torch.nn.Sequential(
            torch.nn.Linear(hidden, hidden // 2),
            torch.nn.LayerNorm(hidden // 2),
            torch.nn.GELU(),
            torch.nn.Dropout(0.1),
            torch.nn.Linear(hidden // 2, outputs),
        )
        own = {key.partition(".")[2]: value for key, value in heads.items() if key.startswith(f"{name}.")}
        _compare({key: tuple(value.shape) for key, value in head.state_dict().items()}, own, f"{source}: {name}")
        head.load_state_dict(own)
        made[name] = head.to(device, kind).eval()
    model = qwen.Qwen3VLModel.from_pretrained(None, config=settings, state_dict=backbone, dtype=kind)
    return RobometerNetwork(model.to(device).eval(), **made)


def _read_config(folder: Path) -> dict[str, Any]:
    """The backbone's part of config.json."""
    path = folder / "config.json"
    if not path.is_file():
        raise DataNotBuilt(
            f"No Robometer checkpoint in {str(folder)!r}: expected a folder with config.json and *.safetensors "
            "(such as a download of Robometer-4B)."
        )
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        config = raw.get("vlm_config") or raw
        if config.get("model_type") != "qwen3_vl":
            raise InvalidInput(
                f"{path} describes a model of type {config.get('model_type')!r}: expected 'qwen3_vl', Robometer's backbone."
            )
    except (ValueError, AttributeError) as error:
        raise InvalidInput(f"{path} is not the configuration of a model ({error}).") from None
    for key, expected in (
        ("use_multi_image", True),
        ("use_per_frame_progress_token", True),
        ("progress_loss_type", "discrete"),
        ("progress_discrete_bins", BINS),
    ):
        if raw.get(key, expected) != expected:
            raise InvalidInput(f"{path} says {key}={raw[key]!r}: this loader reads checkpoints with {key}={expected!r} only.")
    return {key: value for key, value in config.items() if key in _CONFIG_KEYS}


_CONFIG_KEYS = (
    "text_config",
    "vision_config",
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
)


def _read_state(folder: Path) -> dict[str, Tensor]:
    """All tensors of the checkpoint: those of the files its index names, else of model*.safetensors, else of any."""
    _libraries()
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    index = folder / "model.safetensors.index.json"
    if index.is_file():
        files = sorted({folder / Path(name).name for name in json.loads(index.read_text())["weight_map"].values()})
    else:
        files = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("*.safetensors"))
    if not files:
        raise InvalidInput(f"{folder} holds no *.safetensors: save the checkpoint in that format (other formats can run code).")
    state: dict[str, Tensor] = {}
    for file in files:
        try:
            state |= load_file(file)
        except (OSError, SafetensorError) as error:
            raise InvalidInput(f"{file} is not a readable safetensors file ({error}): download it again.") from None
    return state


def _compare(wanted: Mapping[str, tuple[int, ...]], given: Mapping[str, Tensor], source: str) -> None:
    absent, foreign = sorted(set(wanted) - set(given)), sorted(set(given) - set(wanted))
    if absent:
        raise InvalidInput(f"{source} lacks {absent[0]}{_more(absent)}; the sizes in its config.json ask for it.")
    if foreign:
        raise InvalidInput(f"{source} has {foreign[0]}{_more(foreign)}, which a model of the sizes in its config.json has not.")
    for name, shape in wanted.items():
        if tuple(given[name].shape) != shape:
            raise InvalidInput(
                f"{source}: {name} has shape {tuple(given[name].shape)}; the sizes in its config.json ask for {shape}."
            )


def _more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _libraries() -> tuple[Any, Any]:
    try:
        import torch
        from transformers.models import qwen3_vl
        from transformers.utils import logging
    except ImportError as error:
        raise MissingExtra(error.name or "transformers", "train", "RobometerModel") from None
    logging.disable_progress_bar()
    return torch, qwen3_vl
