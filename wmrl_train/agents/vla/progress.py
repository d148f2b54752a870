"""`ProgressModel`: a small reward model of the laptop, in the place of Robometer: pictures to progress and success.

It has Robometer's interface and outputs (ten bins of progress a frame, one success logit, eight frames an episode) and is
trained in a minute on demonstrations, whose progress runs from 0 to 1, and on failures, which never get past where they are
judged to have stopped (0 by default).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from wmrl_envs.context import Episode
from wmrl_envs.correction.scores import check_positive
from wmrl_envs.errors import InvalidInput
from wmrl_envs.world_models.reward.frames import BINS, FRAMES, Form, check_form, dense_reward, episode_frames
from wmrl_train.agents.vla.data.record import Demonstration
from wmrl_train.agents.vla.vision import resize
from wmrl_train.learn.guard import guarded_step

_GROUPS = 4  # of channels that are normalised together


class _Network(nn.Module):
    """A frame and the first frame of its episode (what is to change), three convolutions, two heads."""

    def __init__(self, width: int):
        super().__init__()
        layers: list[nn.Module] = []
        for a, b in ((6, width), (width, 2 * width), (2 * width, 2 * width)):
            layers += [nn.Conv2d(a, b, 3, stride=2, padding=1), nn.GroupNorm(_GROUPS, b), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * width, 64), nn.ReLU())
        self.progress, self.success = nn.Linear(64, BINS), nn.Linear(64, 1)

    def forward(self, frames: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(torch.cat([frames, first], dim=1))
        return self.progress(hidden), self.success(hidden).squeeze(-1)


class ProgressModel:
    """A `RewardModel` for one task. Observations are dicts with `image`, or pictures; any size, one orientation.

    Args:
        form: which scalar the score is, see `dense_reward`. size: pixels the network looks at.
    """

    def __init__(self, form: Form = "potential", *, size: int = 32, width: int = 16, seed: int = 0):
        check_positive(size=size, width=width)
        if width % _GROUPS:
            raise InvalidInput(f"width={width}: expected a multiple of {_GROUPS}.")
        self.form, self.size, self.width = check_form(form), size, width
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.network = _Network(width)
        self._seed = seed

    def fit(
        self,
        demonstrations: Sequence[Demonstration],
        failures: Sequence[Sequence[Any]] = (),
        *,
        steps: int = 500,
        lr: float = 1e-3,
        batch: int = 64,
    ) -> list[float]:
        """Train on successful demonstrations and on the frames of failed episodes; the loss of each step."""
        if not demonstrations:
            raise InvalidInput("A ProgressModel learns from at least one demonstration.")
        episodes = [(self._pixels(d.images), np.linspace(0, 1, len(d)), True) for d in demonstrations if d.success]
        episodes += [(self._pixels(f), np.zeros(len(f)), False) for f in failures]
        frames = torch.cat([p for p, _, _ in episodes])
        first = torch.cat([p[:1].expand(len(p), -1, -1, -1) for p, _, _ in episodes])
        target = two_bins(torch.from_numpy(np.concatenate([t for _, t, _ in episodes])).float())
        done = torch.cat([((torch.arange(len(p)) >= len(p) - 2) & ok).float() for p, _, ok in episodes])
        optimizer = torch.optim.AdamW(self.network.parameters(), lr=lr)
        generator = torch.Generator().manual_seed(self._seed)
        losses = []
        self.network.train()
        for step in range(steps):
            rows = torch.randint(len(frames), (min(batch, len(frames)),), generator=generator)
            logits, success = self.network(frames[rows], first[rows])
            loss = functional.cross_entropy(logits, target[rows]) + functional.binary_cross_entropy_with_logits(
                success, done[rows]
            )
            optimizer.zero_grad()
            loss.backward()
            guarded_step(optimizer, what=f"step {step + 1}")
            losses.append(loss.item())
        self.network.eval()
        return losses

    @torch.no_grad()
    def read(self, episodes: Sequence[Episode]) -> tuple[np.ndarray, np.ndarray]:
        """Progress (n, 8) in [0, 1] of eight frames of each episode, and the probability (n,) that it succeeded."""
        pixels = torch.stack([self._pixels(episode_frames(e)) for e in episodes])
        first = pixels[:, :1].expand_as(pixels)
        logits, success = self.network(pixels.flatten(0, 1), first.flatten(0, 1))
        centres = torch.linspace(0, 1, BINS)
        progress = (logits.softmax(-1) * centres).sum(-1).view(len(episodes), FRAMES)
        return progress.numpy(), success.sigmoid().view(len(episodes), FRAMES)[:, -1].numpy()

    def score(self, episodes: Sequence[Episode]) -> np.ndarray:
        """The dense reward of finished episodes, (n,) in [0, 1]."""
        if not episodes:
            return np.zeros(0)
        return dense_reward(*self.read(episodes), self.form).astype(np.float64).clip(0, 1)

    def save(self, path: str | Path) -> Path:
        """One safetensors file."""
        from safetensors.torch import save_file

        Path(path).parent.mkdir(parents=True, exist_ok=True)
        save_file(self.network.state_dict(), path, {"form": self.form, "size": str(self.size), "width": str(self.width)})
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> ProgressModel:
        from safetensors import safe_open

        try:
            with safe_open(path, "pt") as file:
                header = file.metadata() or {}
                state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            model = cls(check_form(header["form"]), size=int(header["size"]), width=int(header["width"]))
            model.network.load_state_dict(state)
        except Exception as error:  # of the file, its header or its tensors
            problem = f"no {error} in its header" if isinstance(error, KeyError) else str(error)
            raise InvalidInput(f"{path}: not a readable progress model ({problem}): expected what `save` wrote.") from None
        model.network.eval()
        return model

    def _pixels(self, frames: Any) -> Tensor:
        pictures = [f["image"] if isinstance(f, dict) else f for f in frames]
        return resize(torch.from_numpy(np.stack(pictures)), self.size)


def two_bins(values: Tensor) -> Tensor:
    """Values (n,) in [0, 1] as distributions (n, 10) over the bin centres 0, 1/9, ..., 1 with that mean.

    >>> two_bins(torch.tensor([0.5]))[0, 4:6].tolist()
    [0.5, 0.5]
    """
    place = values.clamp(0, 1) * (BINS - 1)
    low = place.floor().long().clamp(max=BINS - 2)
    share = (place - low)[:, None]
    one_hot = functional.one_hot
    return one_hot(low, BINS) * (1 - share) + one_hot(low + 1, BINS) * share
