"""What a trainer is made of, and what it asks of the two parts that make it a trainer of language or of robots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from wmrl_envs.anchoring.outcomes import OutcomeOracle
from wmrl_envs.correction import Corrector
from wmrl_train.config import Config
from wmrl_train.episodes.lanes import Busy, Lane
from wmrl_train.episodes.records import Group, GroupPlan, Sampled, Turn
from wmrl_train.learn.learner import Sample


class Sampler(Protocol):
    """What samples with the policy's weights. `version`: how often it was given new ones."""

    version: int

    def update_weights(self, weights: Iterable[tuple[str, Any]]) -> None: ...


class Roller(Protocol):
    """Rolls groups out: samples, predicts, executes the anchors. `busy`: of all three lanes together."""

    busy: Busy
    generation: Lane
    prediction: Lane
    execution: Lane

    def collect(self, plans: Sequence[GroupPlan]) -> list[Group]:
        """Roll groups out and wait for them; in the order of `plans`."""

    def close(self) -> None: ...


class Running(Protocol):
    """Groups under way."""

    def as_dict(self) -> dict[str, Any]:
        """For a checkpoint: what it takes to go on. Waits for nothing."""

    def result(self) -> list[Group]:
        """The groups, once they are finished."""


@runtime_checkable
class Deferring(Roller, Protocol):
    """A roller whose anchors may land in a later step (`anchors.lag`)."""

    def start(self, plans: Sequence[GroupPlan], given: Sequence[Sampled] = ()) -> Sequence[Running]:
        """Set groups going: each anchor group by itself, then the others."""

    def take_up(self, data: dict[str, Any]) -> Running:
        """Groups from the checkpoint they were saved in (`Running.as_dict`)."""


@runtime_checkable
class Executing(Roller, Protocol):
    """A roller that can execute more once a group is finished (`anchors.place`, `anchors.when`)."""

    def execute(self, chosen: Sequence[tuple[Group, Turn]]) -> None:
        """Execute turns of finished groups: they get the truth, a failure of ours is their group's."""


@runtime_checkable
class Recalling(Executing, Protocol):
    """A roller that executes programs, and remembers what was executed."""

    oracle: OutcomeOracle


class Learner(Protocol):
    """Updates the policy. Everything it needs for the next update is in its state."""

    def update(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Learn from a step's rows; the scalars to log."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


@dataclass
class Parts:
    """What a trainer is made of; `wmrl_train.training.build` builds them from a configuration, tests pass doubles.

    Attributes:
        model: the policy, as checkpoints save and load it (`save_pretrained`).
        tokenizer: saved with it; may be None.
        engine: samples with its weights.
        world_model: predicts what the roller does not execute; None if every group is an anchor.
        tasks: what groups are about.
        make_roller: (configuration, corrector of the predictions) -> roller.
        make_learner: (policy, configuration) -> learner, of this process alone or one that other processes follow.
        evaluate: (step) -> JSON-able results of really executing samples, or None.
        try_out: called with the trainer before its first step; raises what would go wrong later.
        close: called at the end, last one first.
    """

    model: Any
    tokenizer: Any
    engine: Sampler
    world_model: Any
    tasks: Sequence[str]
    make_roller: Callable[[Config, Corrector], Roller]
    make_learner: Callable[[Any, Config], Learner]
    evaluate: Callable[[int], dict[str, Any]] | None = None
    try_out: Callable[[Any], None] | None = None
    close: list[Callable[[], None]] = field(default_factory=list)
