"""`Demonstration`: one recorded episode of a robot, as it is kept in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.envs.libero_long import Orientation, check_orientation, turn
from wmrl_envs.errors import InvalidInput

FPS = 20  # control steps a second


@dataclass(frozen=True)
class Demonstration:
    """T control steps: what was seen before each and what was done.

    Attributes:
        instruction: as given to policies.
        actions: (T, 7) float32; gripper -1 open, +1 close.
        proprioception: (T, 9) float32: position, quaternion xyzw, two fingers.
        images: (T, h, w, 3) uint8 in `orientation`.
        wrist_images: the same from the gripper, or None.
        success: whether the episode ended in success.
    """

    instruction: str
    actions: np.ndarray
    proprioception: np.ndarray
    images: np.ndarray
    wrist_images: np.ndarray | None = None
    orientation: Orientation = "vertical"
    success: bool = True
    task: str = ""
    init_state: int | None = None

    def __post_init__(self) -> None:
        check_orientation(self.orientation)
        steps = _rows("actions", self.actions, 7)
        found = {"proprioception": _rows("proprioception", self.proprioception, 9), "images": _pictures("images", self.images)}
        if self.wrist_images is not None:
            found["wrist_images"] = _pictures("wrist_images", self.wrist_images)
        for name, count in found.items():
            if count != steps:
                raise InvalidInput(f"A demonstration with {count} {name} and {steps} actions: expected as many.")

    def __len__(self) -> int:
        return len(self.actions)

    def turned(self, orientation: Orientation) -> Demonstration:
        """The same with its pictures in another orientation.

        Pictures in the true view are "vertical" turned by what makes it from "none"; each turn undoes itself.
        """
        if orientation == self.orientation:
            return self

        def convert(pictures: np.ndarray | None) -> np.ndarray | None:
            return None if pictures is None else np.stack([turn(turn(p, self.orientation), orientation) for p in pictures])

        images = convert(self.images)
        assert images is not None
        return replace(self, images=images, wrist_images=convert(self.wrist_images), orientation=orientation)

    def without_idling(self, threshold: float = 1e-4) -> Demonstration:
        """Drop steps that neither move the arm nor change the gripper (policies that imitate them stop for good)."""
        gripper = np.sign(self.actions[:, 6])
        changed = np.concatenate([[True], gripper[1:] != gripper[:-1]])
        keep = changed | (np.abs(self.actions[:, :6]).max(axis=1) > threshold)
        wrist = None if self.wrist_images is None else self.wrist_images[keep]
        return replace(
            self,
            actions=self.actions[keep],
            proprioception=self.proprioception[keep],
            images=self.images[keep],
            wrist_images=wrist,
        )

    def chunks(self, horizon: int = 8) -> np.ndarray:
        """The next `horizon` actions at each step, (T, horizon, 7); the last action is repeated beyond the end."""
        index = np.minimum(np.arange(len(self))[:, None] + np.arange(horizon), len(self) - 1)
        return self.actions[index]


def _rows(name: str, values: Any, width: int) -> int:
    """How many rows of finite numbers these are."""
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[1] != width or not len(array) or array.dtype.kind not in "iuf":
        raise InvalidInput(
            f"A demonstration with {name} of shape {array.shape} ({array.dtype}): expected (T, {width}) numbers, T >= 1."
        )
    if not np.isfinite(array).all():
        raise InvalidInput(f"A demonstration with {name} that are not all finite: expected (T, {width}) finite numbers.")
    return len(array)


def _pictures(name: str, values: Any) -> int:
    """How many pictures these are."""
    array = np.asarray(values)
    if array.ndim != 4 or array.shape[-1] != 3 or not array.size or array.dtype != np.uint8:
        raise InvalidInput(
            f"A demonstration with {name} of shape {array.shape} ({array.dtype}): expected (T, height, width, 3) uint8."
        )
    return len(array)


def require_orientation(demonstration: Demonstration, orientation: Orientation, source: Path, convert: bool) -> Demonstration:
    """The demonstration in the wanted orientation; a different one is an error unless `convert`."""
    if demonstration.orientation != orientation and not convert:
        raise InvalidInput(
            f"{source} holds pictures in orientation {demonstration.orientation!r}, but {orientation!r} was asked for: convert "
            "them (convert=True, --convert) or train and evaluate with the recorded one."
        )
    return demonstration.turned(orientation)
