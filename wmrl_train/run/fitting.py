"""Checkpoints of a training that is no run of the trainer, by the same rules: killed at any moment, it goes on bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from wmrl_envs.errors import InvalidInput
from wmrl_train.run import checkpoint
from wmrl_train.run.rundir import RunDirectory


class Fitting:
    """Where a training saves itself every `every` steps, and what it goes on from.

    Args:
        folder: of the training, whose lock is held; checkpoints/step-*/policy are policy folders of their own.
        settings: JSON-able: what a continuation must have the same.
        every: steps between checkpoints. resume: go on from the newest one.

    Raises:
        InvalidInput: there is nothing to resume, something to resume and nobody asked for it, or it had other settings.
    """

    def __init__(self, folder: RunDirectory, settings: Mapping[str, Any], *, every: int = 1, resume: bool = False):
        self.folder, self.settings, self.every = folder, dict(settings), every
        self.last: checkpoint.Checkpoint | None = None
        if resume:
            self.last = checkpoint.latest(folder.checkpoints)
            theirs = self.last.state.get("settings", {})
            for key, value in self.settings.items():
                if theirs.get(key) != value:
                    raise InvalidInput(
                        f"{folder.path} was made with {key}={theirs.get(key)!r}, now {value!r}: resume with the same settings."
                    )
        elif checkpoint.checkpoints(folder.checkpoints):
            raise InvalidInput(f"{folder.path} holds a training already: go on with --resume, or choose another folder.")
        folder.truncate(self.last.state["logs"] if self.last else {})

    @property
    def policy(self) -> Path | None:
        """The folder of the policy to go on with, or None at the beginning."""
        return self.last.path / "policy" if self.last else None

    def restore(self, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> int:
        """Set everything but the policy to where it was; the number of steps that are done."""
        if self.last is None:
            return 0
        tensors = checkpoint.load_optimizer(self.last)
        optimizer.load_state_dict(tensors["optimizer"])
        generator.set_state(tensors["generator"])
        return self.last.step

    def save(self, done: int, steps: int, model: Any, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> None:
        """Save after `done` steps of `steps`, if it is due. `model` has `save_pretrained`."""
        if done % self.every and done != steps:
            return
        state = {"settings": self.settings, "logs": self.folder.sizes()}
        tensors = {"optimizer": optimizer.state_dict(), "generator": generator.get_state()}
        checkpoint.save(self.folder.checkpoints, done, model=model, optimizer=tensors, state=state, keep=2)
