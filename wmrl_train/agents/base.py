"""The protocol of an agent: token ids in, token ids out, and text only at the environment's door."""

from __future__ import annotations

from typing import Protocol

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
        """Ids that follow a completion: what closes the turn if the sample did not, the observation, the next turn's opening."""

    def act(self, text: str) -> str:
        """The action for `env.step` in a decoded completion (the program, or text the environment will find a problem in)."""
