"""Checkpoints of a VLA's training, by the same rules as everyone's (`wmrl_train.run.checkpoint`): killed at any moment, it goes on bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch

from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.vla.policy import VLAPolicy
from wmrl_train.run import checkpoint
from wmrl_train.run.rundir import RunDirectory


class Stateful(Protocol):
    """Something with a state that JSON can hold."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Checkpoints:
    """Where a training saves itself every `every` steps, and what it goes on from.

    Args:
        folder: of the run, whose lock is held; checkpoints/step-*/policy are policy folders of their own.
        settings: JSON-able: what a continuation must have the same.
        resume: go on from the newest checkpoint.

    Raises:
        InvalidInput: there is nothing to resume, something to resume and nobody asked for it, or it had other settings.
    """

    def __init__(self, folder: RunDirectory, settings: Mapping[str, Any], *, every: int = 1, resume: bool = False):
        self.folder, self.settings, self.every = folder, dict(settings), every
        self.last: checkpoint.Checkpoint | None = None
        if resume:
            self.last = checkpoint.latest(folder.checkpoints)
            theirs = self.last.state["settings"]
            for key, value in self.settings.items():
                if theirs.get(key) != value:
                    raise InvalidInput(
                        f"{folder.path} was made with {key}={theirs.get(key)!r}, now {value!r}: resume with the same settings."
                    )
        elif checkpoint.checkpoints(folder.checkpoints):
            raise InvalidInput(f"{folder.path} holds a training already: go on with --resume, or choose another folder.")
        folder.truncate(self.last.state["logs"] if self.last else {})

    def policy(self, otherwise: Callable[[], VLAPolicy]) -> VLAPolicy:
        """The saved policy, or a new one."""
        return VLAPolicy.load(self.last.path / "policy") if self.last else otherwise()

    def restore(self, optimizer: Any, generator: torch.Generator, parts: Mapping[str, Stateful]) -> int:
        """Set everything but the policy to where it was; the number of steps that are done."""
        if self.last is None:
            return 0
        tensors = checkpoint.load_optimizer(self.last)
        optimizer.load_state_dict(tensors["optimizer"])
        generator.set_state(tensors["generator"])
        for name, part in parts.items():
            part.load_state_dict(self.last.state["parts"][name])
        return self.last.step

    def save(self, done: int, steps: int, policy: VLAPolicy, optimizer: Any, generator: torch.Generator, parts: Mapping[str, Stateful]) -> None:  # fmt: skip
        """Save after `done` steps of `steps`, if it is due."""
        if done % self.every and done != steps:
            return
        state = {
            "settings": self.settings,
            "logs": self.folder.sizes(),
            "parts": {name: part.state_dict() for name, part in parts.items()},
        }
        tensors = {"optimizer": optimizer.state_dict(), "generator": generator.get_state()}
        checkpoint.save(self.folder.checkpoints, done, model=policy, optimizer=tensors, state=state, keep=2)


class Draws:
    """A numpy generator as a `Stateful`."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.rng.bit_generator.state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rng.bit_generator.state = state
