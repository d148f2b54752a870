"""`RobometerModel`: a vision-language reward model that reads progress and success off the frames of an episode.

Robometer-4B (arXiv 2603.02115) is a Qwen3-VL-4B-Instruct fine-tuned on robot episodes, LIBERO's among them. It is shown the
task and eight frames, each followed by a token of its own; two heads read the last hidden state at those tokens: ten bins of
progress, whose mean is the progress, and the logit of success. Its extremes are out of reach (the mean of a soft distribution
is never 0 or 1): a monotone distortion, which is what the corrector's calibration removes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wmrl_envs.context import Episode
from wmrl_envs.errors import DataNotBuilt, InvalidInput
from wmrl_envs.world_models.reward.frames import BINS, FRAMES, Form, check_form, dense_reward, episode_frames
from wmrl_envs.world_models.reward.robometer_checkpoint import RobometerNetwork, load_network

if TYPE_CHECKING:
    from torch import Tensor

# Appendix E.2, verbatim: the checkpoint was trained on exactly this text, so that another wording is another, worse model.
PROMPT = (
    "The task for the robot is '{task}'. Given the trajectory video, predict the task progress at each frame, how far along "
    "the robot is towards completing the task, a float between 0 and 1, where 0 is the starting state and 1 is when the task "
    "is completed. If the robot is not performing the same task, predict 0 progress."
)
TOKENS = (
    "<|split_token|>",
    "<|reward_token|>",
    "<|pref_token|>",
    "<|sim_token|>",
    "<|prog_token|>",
)  # rows of the embedding, in order
IMAGE, READ = "<|image_pad|>", TOKENS[-1]
LONGEST_SIDE = 480  # pixels; larger frames are shrunk


class RobometerModel:
    """A `RewardModel`. Frames must be in the true view (`orientation="vertical"` of `LIBERO-Long-v0`).

    Args:
        checkpoint: folder of a published checkpoint, see `robometer_checkpoint`.
        tokenizer: folder of the tokenizer of Qwen3-VL-4B-Instruct; default: the checkpoint's own.
        form: which scalar the score is, see `frames.dense_reward`.
        dtype: "float32" or "bfloat16"; default: bfloat16 on a GPU.
        device: a torch device; "auto": a GPU if there is one.
        batch_size: episodes a forward pass.
    """

    def __init__(
        self,
        checkpoint: str | Path,
        *,
        tokenizer: str | Path | None = None,
        form: Form = "potential",
        dtype: str | None = None,
        device: str = "auto",
        batch_size: int = 8,
    ):
        self.form = check_form(form)
        if dtype not in (None, "float32", "bfloat16"):
            raise InvalidInput(f"RobometerModel(dtype={dtype!r}): expected 'float32' or 'bfloat16'.")
        if batch_size < 1:
            raise InvalidInput(f"RobometerModel(batch_size={batch_size}): expected at least 1.")
        if device == "auto":
            device = _best_device()
        chosen = dtype or ("bfloat16" if device.startswith("cuda") else "float32")
        self.batch_size = batch_size
        self.network = load_network(checkpoint, dtype=chosen, device=device)
        self.tokenizer = load_tokenizer(tokenizer or checkpoint, self.network)

    def read(self, episodes: Sequence[Episode]) -> tuple[np.ndarray, np.ndarray]:
        """Progress (n, 8) in [0, 1] of eight frames of each episode, and the probability (n,) that it succeeded at the last
        one.
        """
        frames = [episode_frames(e) for e in episodes]  # all are checked before the first is scored
        texts = [e.instruction for e in episodes]
        progress, success = np.zeros((len(frames), FRAMES)), np.zeros((len(frames), FRAMES))
        for begin in range(0, len(frames), self.batch_size):
            part = slice(begin, begin + self.batch_size)
            progress[part], success[part] = self._forward(frames[part], texts[part])
        return progress, success[:, -1]

    def score(self, episodes: Sequence[Episode]) -> np.ndarray:
        """The dense reward of finished episodes, (n,) in [0, 1]."""
        if not episodes:
            return np.zeros(0)
        return dense_reward(*self.read(episodes), self.form).clip(0, 1)

    def _forward(self, frames: Sequence[np.ndarray], instructions: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        import torch

        net = self.network
        vision = net.backbone.config.vision_config
        with torch.inference_mode():
            pictures = [patches(f, vision.patch_size, vision.spatial_merge_size, vision.temporal_patch_size) for f in frames]
            rows = [
                self.tokenizer(prompt_text(text, grid, vision.spatial_merge_size), add_special_tokens=False)["input_ids"]
                for text, (_, grid) in zip(instructions, pictures, strict=True)
            ]
            width, device = max(map(len, rows)), net.backbone.device
            ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)
            real = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device)
            hidden = net.backbone(
                input_ids=ids,
                attention_mask=real,
                mm_token_type_ids=(ids == net.backbone.config.image_token_id).int(),
                pixel_values=torch.cat([p for p, _ in pictures]).to(device),
                image_grid_thw=torch.tensor([grid for _, grid in pictures for _ in range(FRAMES)], device=device),
                use_cache=False,
            ).last_hidden_state
            read = hidden[ids == self.tokenizer.convert_tokens_to_ids(READ)].view(len(rows), FRAMES, -1)
            bins = net.progress_head(read).float().softmax(-1)
            progress = (bins * torch.linspace(0, 1, BINS, device=device)).sum(-1)
            success = net.success_head(read).float().squeeze(-1).sigmoid()
        return progress.cpu().numpy(), success.cpu().numpy()


def prompt_text(instruction: str, grid: Sequence[int], merge: int = 2) -> str:
    """The text of an episode: the user's turn alone, each picture numbered and followed by the token that is read.

    Args:
        instruction: what the robot was told to do.
        grid: (1, rows, columns) of patches a picture.
        merge: `merge` x `merge` patches are one token.
    """
    if not instruction.strip() or "<|" in instruction:
        raise InvalidInput(f"An episode with instruction {instruction!r}: expected the task in words, without special tokens.")
    tokens = IMAGE * (grid[1] * grid[2] // merge**2)
    shown = "".join(f"Picture {i}: <|vision_start|>{tokens}<|vision_end|>{READ}" for i in range(1, FRAMES + 1))
    return f"<|im_start|>user\n{PROMPT.format(task=instruction)}{shown}<|im_end|>\n"


def fit_size(height: int, width: int, factor: int) -> tuple[int, int]:
    """Size a frame is shown in: the longest side at most 480 pixels, both sides a multiple of `factor` and at least two of it.

    >>> fit_size(224, 224, 32), fit_size(720, 1280, 32), fit_size(16, 100, 32)
    ((224, 224), (256, 480), (64, 96))
    """
    scale = min(1.0, LONGEST_SIDE / max(height, width))
    rounded = (max(2, round(side * scale / factor)) * factor for side in (height, width))
    return next(rounded), next(rounded)


def patches(frames: np.ndarray, patch: int, merge: int, repeats: int) -> tuple[Tensor, tuple[int, int, int]]:
    """Frames (n, h, w, 3) uint8 as Qwen3-VL's rows of pixels (n * rows * columns, 3 * repeats * patch * patch), and the grid of
    one.

    A still picture is `repeats` equal pictures in time; the merge x merge patches of one token come one after another.
    """
    import torch

    pixels = torch.from_numpy(np.ascontiguousarray(frames)).permute(0, 3, 1, 2).float()
    size = fit_size(pixels.shape[2], pixels.shape[3], patch * merge)
    if size != tuple(pixels.shape[2:]):
        pixels = torch.nn.functional.interpolate(pixels, size, mode="bicubic", antialias=True).round().clamp(0, 255)
    rows, columns = size[0] // patch, size[1] // patch
    grid = (pixels / 127.5 - 1).reshape(len(pixels), 3, rows // merge, merge, patch, columns // merge, merge, patch)
    ordered = grid.permute(0, 2, 5, 3, 6, 1, 4, 7).unsqueeze(
        6
    )  # picture, token row and column, place in the token, channel, time
    return ordered.expand(-1, -1, -1, -1, -1, -1, repeats, -1, -1).reshape(len(pixels) * rows * columns, -1), (1, rows, columns)


def load_tokenizer(folder: str | Path, network: RobometerNetwork) -> Any:
    """The tokenizer with Robometer's five tokens, which must be the last five rows of the embedding."""
    from transformers import AutoTokenizer

    if not (Path(folder) / "tokenizer_config.json").is_file():
        raise DataNotBuilt(
            f"No tokenizer in {str(folder)!r}: give the folder of the one of Qwen3-VL-4B-Instruct with tokenizer=."
        )
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    for token in TOKENS:
        tokenizer.add_tokens([token], special_tokens=True)
    vocabulary = network.backbone.config.text_config.vocab_size
    found = [tokenizer.convert_tokens_to_ids(t) for t in TOKENS]
    image = tokenizer.convert_tokens_to_ids(IMAGE)
    if found != list(range(vocabulary - len(TOKENS), vocabulary)) or image != network.backbone.config.image_token_id:
        raise InvalidInput(
            f"The tokenizer in {folder} gives {READ} the id {found[-1]} and {IMAGE} {image}; the checkpoint expects "
            f"{vocabulary - 1} and {network.backbone.config.image_token_id}: give the tokenizer of Qwen3-VL-4B-Instruct with "
            "tokenizer=."
        )
    return tokenizer


def _best_device() -> str:
    try:
        import torch
    except ImportError:
        from wmrl_envs.errors import MissingExtra

        raise MissingExtra("torch", "train", "RobometerModel") from None
    return "cuda" if torch.cuda.is_available() else "cpu"
