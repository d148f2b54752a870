"""LIBERO's own demonstration files (`*_demo.hdf5`, robomimic layout)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.errors import InvalidInput, MissingExtra
from wmrl_train.agents.vla.data.record import Demonstration

_OBSERVATIONS = {
    "images": "agentview_rgb",
    "wrist_images": "eye_in_hand_rgb",
    "position": "ee_pos",
    "rotation": "ee_ori",
    "fingers": "gripper_states",
}


def read_hdf5(path: str | Path) -> Iterator[Demonstration]:
    """The demonstrations of one file, in order. Pictures are raw renders ("none") unless the file says its convention is
    OpenCV's.
    """
    try:
        import h5py
    except ImportError:
        raise MissingExtra("h5py", "libero", "Reading LIBERO's demonstration files") from None
    path = Path(path)
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InvalidInput(f"{path}: not a readable HDF5 file ({error}).") from None
    with file:
        data = file.get("data")
        if not isinstance(data, h5py.Group) or not len(data):
            raise InvalidInput(
                f"{path}: no group 'data' with demonstrations; expected LIBERO's layout data/demo_0/actions, "
                f"data/demo_0/obs/..."
            )
        instruction = _instruction(path, data)
        convention = data.attrs.get("macros_image_convention", "opengl")
        for name in sorted(data, key=lambda key: (len(key), key)):
            try:
                demonstration = _demonstration(path, data[name], instruction, "none" if convention == "opengl" else "vertical")
            except Exception as error:  # whatever h5py, numpy and scipy raise on data of another kind or shape
                raise InvalidInput(f"{path}: {name} cannot be used: {error or type(error).__name__}") from error
            yield demonstration


def _instruction(path: Path, data: Any) -> str:
    try:
        problem = json.loads(data.attrs["problem_info"])
        words = problem["language_instruction"]
        return ("".join(words) if isinstance(words, list) else words).strip().strip('"')
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        raise InvalidInput(
            f"{path}: data.attrs['problem_info'] holds no language_instruction; expected one of LIBERO's own files."
        ) from None


def _demonstration(path: Path, group: Any, instruction: str, orientation: Any) -> Demonstration:
    missing = [key for key in ("actions", "obs") if key not in group]
    missing += [
        f"obs/{key}"
        for key in _OBSERVATIONS.values()
        if "obs" in group and key not in group["obs"] and key != "eye_in_hand_rgb"
    ]
    if missing:
        raise InvalidInput(f"it lacks {', '.join(missing)}.")
    seen = {ours: np.asarray(group["obs"][theirs]) for ours, theirs in _OBSERVATIONS.items() if theirs in group["obs"]}
    wrong = [f"{_OBSERVATIONS[name]} {seen[name].shape}" for name in ("position", "rotation") if seen[name].shape[1:] != (3,)]
    if wrong:
        raise InvalidInput(f"it has {', '.join(wrong)}: expected (T, 3).")
    proprioception = np.concatenate([seen["position"], _quaternion(seen["rotation"]), seen["fingers"]], axis=1)
    return Demonstration(
        instruction=instruction,
        actions=np.asarray(group["actions"], np.float32),
        proprioception=proprioception.astype(np.float32),
        images=seen["images"],
        wrist_images=seen.get("wrist_images"),
        orientation=orientation,
        success=True,  # the files hold successful episodes only
        task=path.stem.removesuffix("_demo"),
    )


def _quaternion(rotation: np.ndarray) -> np.ndarray:
    """Axis-angle (T, 3) to quaternion xyzw (T, 4)."""
    from scipy.spatial.transform import Rotation

    return Rotation.from_rotvec(rotation).as_quat()
