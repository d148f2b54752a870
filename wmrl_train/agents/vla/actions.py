"""Between a robot's actions and a language model's ids: the prompt, the action ids, and normalisation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.errors import InvalidInput

EXTRA_TOKENS = 256  # <|extra_0|> ... are added to the tokenizer; the last `codes` ids of it are the actions
_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."


def prompt_text(instruction: str) -> str:
    """The prompt of MiniVLA, byte for byte.

    >>> prompt_text("Turn on the stove").splitlines()[3]
    'What action should the robot take to turn on the stove?<|im_end|>'
    """
    question = f"What action should the robot take to {instruction.lower()}?".replace("<image>", "").strip()
    return f"<|im_start|>system\n{_SYSTEM}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def action_ids(vocabulary: int, codes: int) -> np.ndarray:
    """The id of each code, shape (codes,): code c has id `vocabulary - 1 - c`, `vocabulary` counting the extra tokens.

    >>> action_ids(1000, 3)
    array([999, 998, 997])
    """
    return vocabulary - 1 - np.arange(codes)


def add_extra_tokens(tokenizer: Any) -> Any:
    """The Qwen2.5 tokenizer with MiniVLA's 256 extra tokens (added once)."""
    names = [f"<|extra_{i}|>" for i in range(EXTRA_TOKENS)]
    if tokenizer.convert_tokens_to_ids(names[0]) in (None, tokenizer.unk_token_id):
        tokenizer.add_tokens(names)
    return tokenizer


@dataclass(frozen=True)
class ActionNormalizer:
    """Actions to [-1, 1] by their 1 % and 99 % quantiles; dimensions outside `mask` (the gripper) stay as they are."""

    q01: np.ndarray
    q99: np.ndarray
    mask: np.ndarray

    def __post_init__(self) -> None:
        if not self.q01.shape == self.q99.shape == self.mask.shape or self.q01.ndim != 1:
            raise InvalidInput(
                f"Action statistics of shapes {self.q01.shape}, {self.q99.shape}, {self.mask.shape}: expected one length."
            )
        if not (self.q99 > self.q01)[self.mask].all():
            raise InvalidInput(
                "Action statistics with q99 <= q01 in a dimension that is normalised: an action that never moves needs "
                "mask false."
            )

    @classmethod
    def of(cls, statistics: Mapping[str, Any]) -> ActionNormalizer:
        """From one data set's entry: q01, q99 and, if present, mask. A dimension that never moves is left out of the mask."""
        try:
            q01, q99 = (np.asarray(statistics[key], np.float64) for key in ("q01", "q99"))
        except KeyError as error:
            raise InvalidInput(f"Action statistics without {error}: expected q01 and q99.") from None
        mask = np.asarray(statistics.get("mask", np.ones(len(q01), bool)), bool)
        return cls(q01, q99, mask & (q99 > q01))

    @classmethod
    def load(cls, path: str | Path, key: str | None = None) -> ActionNormalizer:
        """From Prismatic's `dataset_statistics.json`; `key` names the data set, also without its `_no_noops` ending."""
        try:
            everything = json.loads(Path(path).read_text())
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{path}: not a readable statistics file ({error}).") from None
        if key is None and len(everything) == 1:
            key = next(iter(everything))
        found = next((name for name in (key, f"{key}_no_noops") if name in everything), None)
        if found is None or "action" not in everything[found]:
            raise InvalidInput(f"{path}: no action statistics for {key!r}; it has {', '.join(sorted(everything))}.")
        return cls.of(everything[found]["action"])

    def normalize(self, actions: np.ndarray) -> np.ndarray:
        """(..., d) robot actions to model actions, clipped to [-1, 1]."""
        span = np.where(self.mask, self.q99 - self.q01, 1.0)
        scaled = np.where(self.mask, 2 * (actions - self.q01) / span - 1, actions)
        return np.clip(scaled, -1, 1).astype(np.float32)

    def restore(self, actions: np.ndarray) -> np.ndarray:
        """(..., d) model actions to robot actions."""
        return np.where(self.mask, 0.5 * (actions + 1) * (self.q99 - self.q01) + self.q01, actions).astype(np.float32)


def binary_gripper(actions: np.ndarray, inverted: bool = False) -> np.ndarray:
    """Snap the last dimension to -1 (open) or +1 (close).

    Args:
        actions: (..., 7).
        inverted: the model's gripper is in [0, 1] with 1 open, as in the RLDS data sets MiniVLA and OpenVLA were trained on.
    """
    result = np.array(actions, np.float32)
    grip = 1.0 - 2.0 * result[..., -1] if inverted else result[..., -1]
    result[..., -1] = np.where(grip > 0, 1.0, -1.0)
    return result
