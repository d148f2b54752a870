"""Trackers besides the JSONL that is always written: TensorBoard, Weights & Biases, trackio, behind one small interface."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from wmrl_envs.errors import MissingExtra
from wmrl_train.config import Config

log = logging.getLogger(__name__)


class Tracker(Protocol):
    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class _TensorBoard:
    def __init__(self, config: Config, directory: Path):
        _import("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory / "tensorboard"))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _WandbLike:
    """wandb, and trackio, which has the same calls. A resumed run goes on under its name."""

    def __init__(self, module: str, config: Config):
        self._module = _import(module)
        options: dict[str, Any] = {
            "project": config.tracking.project,
            "name": config.run.name,
            "config": config.model_dump(mode="json"),
        }
        if module == "wandb":
            options |= {"id": config.run.name, "resume": "allow"}
        self._module.init(**options)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._module.log(dict(values), step=step)

    def close(self) -> None:
        self._module.finish()


class Trackers:
    """All trackers of `tracking.trackers`. One that fails is reported once and left out: it never ends a run."""

    def __init__(self, config: Config, directory: Path):
        self._trackers: list[tuple[str, Tracker]] = []
        for name in config.tracking.trackers:
            made: Tracker = _TensorBoard(config, directory) if name == "tensorboard" else _WandbLike(name, config)
            self._trackers.append((name, made))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, tracker in list(self._trackers):
            try:
                tracker.log(step, values)
            except Exception as error:
                log.warning(
                    "The tracker %s failed and is left out from here on (metrics.jsonl has everything): %s", name, error
                )
                self._trackers = [entry for entry in self._trackers if entry[0] != name]

    def close(self) -> None:
        while self._trackers:
            self._trackers.pop()[1].close()


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtra(module, "trackers", f"tracking.trackers=[{module}]") from None
