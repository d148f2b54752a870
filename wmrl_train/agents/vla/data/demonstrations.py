"""Demonstrations made by the scripted controllers in `LIBERO-Long-v0`, loaded from disk, and their statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.envs.libero_long import Orientation
from wmrl_envs.errors import InfrastructureError
from wmrl_train.agents.vla.data.record import Demonstration, require_orientation


def record(
    env: Any,
    script: Callable[[dict[str, Any]], Any] | None = None,
    *,
    init_state: int | None = None,
    noise: float = 0.0,
    seed: int = 0,
) -> Demonstration:
    """One scripted episode of a `LiberoLongEnv` made with action_chunk=1, from its reset to its end.

    With `noise` the executed action is perturbed and the recorded one is the controller's own, so that what is imitated
    is the correction, not the error.
    """
    from wmrl_envs.envs.libero.controllers import controller

    core, rng = env.unwrapped, np.random.default_rng(seed)
    observation, info = env.reset(seed=seed, options=None if init_state is None else {"init_state": init_state})
    steps = (script or controller)(core.privileged())
    seen, done = [], []
    terminated = truncated = False
    for_next: Any = None
    while not (terminated or truncated):
        try:
            action = next(steps) if for_next is None else steps.send(for_next)
        except StopIteration:
            break
        seen.append(observation)
        done.append(np.clip(action, -1, 1).astype(np.float32))
        if noise:
            action = action + np.r_[noise * rng.standard_normal(6), 0.0]
        observation, _, terminated, truncated, info = env.step(np.clip(action, -1, 1).astype(np.float32))
        if info["wmrl"]["status"] == "infra_error":
            raise InfrastructureError(info["wmrl"]["detail"])
        for_next = core.privileged()
    return Demonstration(
        instruction=core.task.instruction,
        actions=np.stack(done),
        proprioception=np.stack([o["proprioception"] for o in seen]),
        images=np.stack([o["image"] for o in seen]),
        wrist_images=np.stack([o["wrist_image"] for o in seen]) if "wrist_image" in seen[0] else None,
        orientation=core.orientation,
        success=bool(terminated),
        task=core.task.name,
        init_state=core.init_state,
    )


def load_demonstrations(
    path: str | Path, orientation: Orientation = "vertical", *, convert: bool = False
) -> Iterator[Demonstration]:
    """Demonstrations of a LeRobot dataset (a folder) or of a LIBERO .hdf5 file, one at a time."""
    path = Path(path)
    from wmrl_train.agents.vla.data.hdf5 import read_hdf5
    from wmrl_train.agents.vla.data.lerobot import read_lerobot

    read = read_hdf5 if path.suffix in (".hdf5", ".h5") else read_lerobot
    for demonstration in read(path):
        yield require_orientation(demonstration, orientation, path, convert)


def action_statistics(demonstrations: Iterable[Demonstration]) -> dict[str, Any]:
    """q01, q99 and mask of the actions, in the layout of Prismatic's `dataset_statistics.json` (the gripper is not
    normalised).
    """
    actions = np.concatenate([d.actions for d in demonstrations])
    return {
        "q01": np.quantile(actions, 0.01, axis=0).tolist(),
        "q99": np.quantile(actions, 0.99, axis=0).tolist(),
        "min": actions.min(axis=0).tolist(),
        "max": actions.max(axis=0).tolist(),
        "mean": actions.mean(axis=0).tolist(),
        "std": actions.std(axis=0).tolist(),
        "mask": [True] * 6 + [False],
    }
