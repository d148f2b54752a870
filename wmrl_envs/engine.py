"""What a language-model engine is, for whoever samples from one (agents, the simulator world model). No torch here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

Message = Mapping[str, str]  # {"role": ..., "content": ...}
Prompt = Sequence[int] | Sequence[Message]


@dataclass(frozen=True)
class Sampling:
    """How to sample. `seed`: with it a prompt's sample depends on (prompt, seed) alone, not on the batch it is in.

    `schema`: a JSON schema the text must satisfy, where the engine can enforce it (ignored elsewhere).
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 1024
    stop_ids: tuple[int, ...] = ()
    seed: int | None = None
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Generation:
    """One completion: sampled ids (a final stop id included), the log-probability of each under the sampling distribution, text
    without the stop id.

    `choices`: for each id, the ids there were to choose from, if the sampling was restricted (to one: nothing was chosen).
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish: Literal["stop", "length"] = "stop"
    choices: tuple[tuple[int, ...], ...] | None = None


@runtime_checkable
class Engine(Protocol):
    """Generates in batches. A failure of the engine raises `wmrl_envs.errors.InfrastructureError`."""

    tokenizer: Any
    version: int  # number of weight updates received; stamped on rollouts

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int] | None = None
    ) -> list[Generation]: ...

    def update_weights(self, weights: Iterable[tuple[str, Any]]) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class LimitedContext(Protocol):
    """An engine that knows how long a context may be. `max_context`: tokens of prompt and completion together; None: it cannot
    say.
    """

    max_context: int | None


def max_context(engine: Any) -> int | None:
    """Tokens of prompt and completion together, where the engine says it."""
    return engine.max_context if isinstance(engine, LimitedContext) else None
