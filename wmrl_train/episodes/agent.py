"""The protocol of an agent: token ids in, token ids out, and text only at the environment's door."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

from wmrl_envs.context import TaskContext


class Agent(Protocol):
    """Stateless: one object serves all episodes.

    A conversation is the ids of `begin`, then alternately sampled ids and the ids of `extend`; nothing is ever
    decoded and encoded again.
    """

    max_new_tokens: int
    stop_ids: tuple[int, ...]

    def begin(self, observation: str, context: TaskContext) -> list[int]:
        """Prompt of the first turn."""

    def extend(self, observation: str, completion_ids: tuple[int, ...]) -> list[int]:
        """Ids that follow a completion: what closes the turn if the sample did not, the observation, the next turn's
        opening.
        """

    def act(self, text: str) -> str:
        """The action for `env.step` in a decoded completion (the program, or text the environment will find a problem in)."""


@runtime_checkable
class RestrictedAgent(Protocol):
    """An agent that may write only some completions, as a tree over token ids (`wmrl_train.episodes.trie.Trie`)."""

    def trie(self, context: TaskContext) -> Any:
        """What it may write in this context."""


@runtime_checkable
class RenderingAgent(Protocol):
    """An agent whose chat template may rewrite earlier turns, so that a prompt cannot always be continued token by token.

    Attributes:
        one_row_per_turn: it does: every turn is rendered anew and becomes a row of its own.
    """

    one_row_per_turn: bool

    def render(self, observations: Sequence[str], texts: Sequence[str], context: TaskContext) -> Sequence[int]:
        """The prompt of the next turn: all observations so far, one more than the agent's own texts."""


def renders_every_turn(agent: Any) -> TypeGuard[RenderingAgent]:
    """Whether every turn of this agent is rendered anew."""
    return isinstance(agent, RenderingAgent) and agent.one_row_per_turn


def restriction(agent: Any, contexts: Iterable[TaskContext]) -> dict[str, Any]:
    """Keyword arguments for `engine.generate`: what the agent may write in each of these contexts; none if it may write
    anything.
    """
    return {"tries": [agent.trie(context) for context in contexts]} if isinstance(agent, RestrictedAgent) else {}
