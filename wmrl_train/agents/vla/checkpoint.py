"""Prismatic's checkpoints, at the level of state dictionaries: {"model": {"vision_backbone", "projector", "llm_backbone"}}.

Files are read with `weights_only`: nothing in them is executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.vla.actions import ActionNormalizer, add_extra_tokens
from wmrl_train.agents.vla.model import MiniVLA, MiniVLAConfig
from wmrl_train.agents.vla.policy import VLAPolicy
from wmrl_train.agents.vla.vq import ResidualVQ

_PARTS = ("vision_backbone", "projector", "llm_backbone")


def load_prismatic(model: MiniVLA, path: str | Path) -> MiniVLA:
    """Load a Prismatic .pt file (`checkpoints/...pt` of a run) into a MiniVLA of the same sizes."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        raise InvalidInput(
            f"{path}: not a readable checkpoint ({type(error).__name__}: {str(error).splitlines()[0]})."
        ) from None
    return load_state(model, state.get("model", state) if isinstance(state, Mapping) else {}, str(path))


def load_minivla(
    checkpoint: str | Path,
    quantizer: str | Path,
    statistics: str | Path,
    tokenizer: str | Path,
    *,
    key: str | None = None,
    config: MiniVLAConfig | None = None,
) -> VLAPolicy:
    """The published MiniVLA as a policy.

    Args:
        checkpoint: Prismatic's .pt file.
        quantizer: the folder (or .pt file) of its VQ-BeT quantizer.
        statistics: the run's `dataset_statistics.json`.
        tokenizer: a folder with Qwen2.5-0.5B's tokenizer, to which the 256 extra tokens are added.
        key: name of the data set in `statistics`; needed where it has several.
        config: sizes other than MiniVLA-1B's.
    """
    from transformers import AutoTokenizer

    try:
        words = add_extra_tokens(AutoTokenizer.from_pretrained(tokenizer, local_files_only=True))
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"{tokenizer}: no tokenizer ({str(error).splitlines()[0]}); expected the files of Qwen2.5-0.5B's."
        ) from None
    actions = ResidualVQ.load(quantizer).eval()
    sizes = replace(config or MiniVLAConfig(), vocabulary=len(words), groups=actions.config.groups, codes=actions.config.codes)
    model = load_prismatic(MiniVLA(sizes), checkpoint).eval()
    return VLAPolicy(model, actions, ActionNormalizer.load(statistics, key), words, inverted_gripper=True)


def load_state(model: MiniVLA, state: Mapping[str, Mapping[str, Tensor]], source: str = "the checkpoint") -> MiniVLA:
    """Load the three parts; every parameter that is built must be there with its shape, and nothing may be left over."""
    missing = [part for part in _PARTS if part not in state]
    if missing:
        raise InvalidInput(
            f"{source}: lacks {', '.join(missing)}; expected Prismatic's {', '.join(_PARTS)} (it has "
            f"{', '.join(state) or 'nothing'})."
        )
    vision = {}
    for name, value in state["vision_backbone"].items():
        tower, _, rest = name.partition(".")
        if not getattr(model.vision_backbone, tower, model.vision_backbone.dino_featurizer).unused(rest):
            vision[name] = value
    language = {name.removeprefix("llm."): value for name, value in state["llm_backbone"].items()}
    # A tied head may or may not have been saved.
    language.setdefault("lm_head.weight", language.get("model.embed_tokens.weight", torch.empty(0)))
    for part, module, values in (
        ("vision_backbone", model.vision_backbone, vision),
        ("projector", model.projector, dict(state["projector"])),
        ("llm_backbone", model.llm, language),
    ):
        _fill(module, values, f"{source}: {part}")
    return model


def _fill(module: torch.nn.Module, values: Mapping[str, Tensor], where: str) -> None:
    wanted = module.state_dict()
    absent, foreign = sorted(set(wanted) - set(values)), sorted(set(values) - set(wanted))
    if absent or foreign:
        what = (
            f"lacks {absent[0]} and {len(absent) - 1} more"
            if absent
            else f"has {foreign[0]} and {len(foreign) - 1} more that this model has not"
        )
        raise InvalidInput(f"{where} {what}; the sizes in MiniVLAConfig must be those of the checkpoint.")
    for name, value in values.items():
        if value.shape != wanted[name].shape:
            raise InvalidInput(f"{where}.{name} has shape {tuple(value.shape)}; this model's is {tuple(wanted[name].shape)}.")
    module.load_state_dict(values)


def prismatic_state(model: MiniVLA) -> dict[str, Any]:
    """The model's parameters in Prismatic's layout (without the layers that are not built)."""
    return {
        "vision_backbone": model.vision_backbone.state_dict(),
        "projector": model.projector.state_dict(),
        "llm_backbone": {f"llm.{name}": value for name, value in model.llm.state_dict().items()},
    }
