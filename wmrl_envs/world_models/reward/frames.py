"""What reward models of pictures share: which frames of an episode they look at, and which scalar their reading becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np

from wmrl_envs.context import Episode
from wmrl_envs.errors import InvalidInput

Form = Literal["potential", "final", "max", "success"]
BINS = 10  # of progress
FRAMES = 8  # of an episode


def check_form(form: str) -> Form:
    """The form, if there is one of this name."""
    if form not in get_args(Form):
        raise InvalidInput(f"form={form!r}: expected one of {', '.join(get_args(Form))}.")
    return form  # type: ignore[return-value]


def subsample(count: int, frames: int = FRAMES) -> np.ndarray:
    """Indices of `frames` frames spread evenly over `count`, first and last included; of too few the last is repeated.

    >>> subsample(15).tolist(), subsample(3, 5).tolist()
    ([0, 2, 4, 6, 8, 10, 12, 14], [0, 1, 2, 2, 2])
    """
    if count < frames:
        return np.minimum(np.arange(frames), count - 1)
    return np.linspace(0, count - 1, frames).round().astype(int)


def episode_frames(episode: Episode, frames: int = FRAMES) -> np.ndarray:
    """`frames` pictures of an episode, (frames, h, w, 3) uint8, evenly spread, first and last included.

    Raises:
        InvalidInput: an episode without observations, an observation without a picture, or pictures that are not all
            uint8 of one shape (h, w, 3).
    """
    if isinstance(episode.observations, (str, bytes, Mapping)) or not hasattr(episode.observations, "__len__"):
        kind = type(episode.observations).__name__
        raise InvalidInput(f"An episode whose observations are of type {kind}: expected a sequence of pictures.")
    if not len(episode.observations):
        raise InvalidInput("An episode without frames cannot be scored: expected at least the observation of its reset.")
    pictures = [_picture(episode.observations[i]) for i in subsample(len(episode.observations), frames)]
    first = pictures[0]
    for picture in pictures:
        if picture.ndim != 3 or picture.shape[-1] != 3 or not picture.size:
            raise InvalidInput(f"A frame of shape {picture.shape}: expected (height, width, 3), a colour picture.")
        if picture.dtype != np.uint8:
            raise InvalidInput(
                f"A frame of {picture.dtype}: expected uint8 from 0 to 255 (multiply pictures in [0, 1] by 255)."
            )
        if picture.shape != first.shape:
            raise InvalidInput(f"Frames of shapes {first.shape} and {picture.shape} in one episode: expected one size.")
    return np.stack(pictures)


def _picture(observation: Any) -> np.ndarray:
    if isinstance(observation, dict):
        if "image" not in observation:
            raise InvalidInput(
                f"An observation with {', '.join(map(str, observation)) or 'nothing'} in it: expected a picture under 'image'."
            )
        observation = observation["image"]
    try:
        return np.asarray(observation)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"A frame that is no array ({error}): expected (height, width, 3), a colour picture.") from None


def dense_reward(progress: np.ndarray, success: np.ndarray, form: Form, k: int = 2) -> np.ndarray:
    """A score in [0, 1] from progress (n, frames) and success probabilities (n,).

    potential: mean of the last k frames minus mean of the first k (not below 0). final: the last frame. max: the best frame.
    success: the probability.
    """
    if form == "success":
        return success
    if form == "final":
        return progress[:, -1]
    if form == "max":
        return progress.max(axis=1)
    return np.clip(progress[:, -k:].mean(axis=1) - progress[:, :k].mean(axis=1), 0.0, 1.0)
