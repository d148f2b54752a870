"""Policies: who answers the observations of open episodes. A function, a model on an engine, a chat server."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from wmrl_envs.context import TaskContext
from wmrl_envs.engine import Engine, Sampling, max_context
from wmrl_envs.errors import InvalidInput, WmrlError
from wmrl_train.config.imported import FAILURES, place_and_reason
from wmrl_train.episodes.agent import Agent, renders_every_turn, restriction


@dataclass(eq=False)
class OpenEpisode:
    """An episode that a policy is asked to continue.

    Attributes:
        context: the task as it stands.
        observations: all so far, one more than answers.
        seed: of the episode; `turn_seed` is that of the next answer.
        state: the policy's own.
    """

    context: TaskContext
    observations: list[Any]
    seed: int
    answers: list[Any] = field(default_factory=list)
    state: Any = None

    @property
    def turn_seed(self) -> int:
        return seed_of(self.seed, len(self.answers))


class Policy(Protocol):
    """Answers the last observation of open episodes.

    Attributes:
        together: how many episodes one call takes.
        parallel: calls may come from several threads at once, each for episodes of its own.
    """

    together: int
    parallel: bool

    def respond(self, episodes: Sequence[OpenEpisode]) -> Sequence[Any]:
        """One answer an episode; None ends it (no room left in the context)."""


@runtime_checkable
class Resettable(Protocol):
    """An agent of a user's that keeps something from step to step (a queue of actions, a history)."""

    def reset(self) -> None:
        """Called before the first observation of every episode; episodes of such an agent run one after the other."""


class CallablePolicy:
    """A Python function `agent(observation) -> program`, or `agent(observation, context)` with `context.history`.

    An object with `reset()` is told of every new episode (see `Resettable`).
    """

    together = 1
    returns = "a str, its answer or its program"

    def __init__(self, function: Callable[..., Any]):
        self._function, self._with_context = function, _takes_two(function)
        self.parallel = not isinstance(function, Resettable)

    def respond(self, episodes: Sequence[OpenEpisode]) -> list[Any]:
        return [self._ask(episode) for episode in episodes]

    def check(self, answer: Any) -> None:
        """Raises InvalidInput for an answer of the wrong type."""
        if not isinstance(answer, str):
            raise InvalidInput(f"The agent returned {type(answer).__name__}; expected {self.returns}.")

    def _ask(self, episode: OpenEpisode) -> Any:
        if not episode.answers and isinstance(self._function, Resettable):
            self._call(self._function.reset)
        context = (episode.context,) if self._with_context else ()
        answer = self._call(self._function, episode.observations[-1], *context)
        self.check(answer)
        return answer

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except WmrlError:
            raise
        except FAILURES as error:
            name = getattr(function, "__qualname__", type(function).__qualname__)
            raise InvalidInput(f"The agent {name} raised {place_and_reason(error)}; it must return {self.returns}.") from error


class CallableRobot(CallablePolicy):
    """A Python function `agent(observation) -> actions (k, 7)`, or an object that is called so, perhaps with `reset()`."""

    returns = "actions (k, 7)"

    def begin(self) -> None:
        """An episode begins."""
        if isinstance(self._function, Resettable):
            self._call(self._function.reset)

    def act(
        self, observations: Sequence[Any], temperature: float = 1.0, seeds: Sequence[int] | None = None
    ) -> tuple[list[Any], list[tuple[()]], list[tuple[()]]]:
        """Its actions for each observation, which the environment checks; it has no codes, and a temperature says nothing to
        it.
        """
        none: list[tuple[()]] = [()] * len(observations)
        return [self._call(self._function, observation) for observation in observations], none, none


class EnginePolicy:
    """An `Agent` on an `Engine`: a batch of episodes is sampled together, token ids in, token ids out."""

    parallel = False

    def __init__(self, engine: Engine, agent: Agent, *, temperature: float = 1.0, top_p: float = 1.0, together: int = 64):
        self.together = together
        self._engine, self._agent = engine, agent
        self._sampling = Sampling(temperature, top_p, agent.max_new_tokens, agent.stop_ids)

    def respond(self, episodes: Sequence[OpenEpisode]) -> list[str | None]:
        for e in episodes:
            self._prompt(e)
        limit = max_context(self._engine)
        fits = [e for e in episodes if limit is None or len(e.state.ids) < limit]
        for e in episodes:
            if e not in fits and not e.answers:
                raise InvalidInput(
                    f"The first prompt of {e.context.task} has {len(e.state.ids)} tokens, and the context of the model is "
                    f"{limit}: take a model with a longer context."
                )
        prompts, seeds = [e.state.ids for e in fits], [e.turn_seed for e in fits]
        within = restriction(self._agent, [e.context for e in fits])
        made = self._engine.generate(prompts, self._sampling, seeds, **within) if fits else []
        answers: dict[int, str] = {}
        for e, generation in zip(fits, made, strict=True):
            e.state.ids += generation.ids
            e.state.completion = tuple(generation.ids)
            e.state.texts.append(generation.text)
            answers[id(e)] = self._agent.act(generation.text)
        return [answers.get(id(e)) for e in episodes]

    def _prompt(self, e: OpenEpisode) -> None:
        """Token ids of the episode so far; of an agent that renders every turn afresh, from its texts."""
        if e.state is None:
            e.state = _Tokens(list(self._agent.begin(e.observations[-1], e.context)))
        elif renders_every_turn(self._agent):
            e.state.ids = list(self._agent.render(e.observations, e.state.texts, e.context))
        else:
            e.state.ids += self._agent.extend(e.observations[-1], e.state.completion)


@dataclass
class _Tokens:
    ids: list[int]
    completion: tuple[int, ...] = ()
    texts: list[str] = field(default_factory=list)


class ChatPolicy:
    """Chat messages to a server that templates and tokenizes them itself."""

    together, parallel = 1, True

    def __init__(self, engine: Any, agent: Any, *, temperature: float, max_new_tokens: int):
        self._engine, self._agent = engine, agent
        self._sampling = Sampling(temperature=temperature, max_new_tokens=max_new_tokens)

    def respond(self, episodes: Sequence[OpenEpisode]) -> list[str | None]:
        for e in episodes:
            if e.state is None:
                e.state = list(self._agent.messages(e.observations[0], e.context))
            else:
                e.state.append({"role": "user", "content": e.observations[-1]})
        made = self._engine.generate([e.state for e in episodes], self._sampling, [e.turn_seed for e in episodes])
        for e, generation in zip(episodes, made, strict=True):
            e.state.append({"role": "assistant", "content": generation.text})
        return [self._agent.act(generation.text) for generation in made]


def seed_of(*parts: int) -> int:
    """One seed of several numbers, 32 bits."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def _takes_two(function: Callable[..., Any]) -> bool:
    """Whether a callable has a place for a second positional argument."""
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return False
    return True
