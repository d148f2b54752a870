"""Wrapper chains: the world model sits at the base environment, and every wrapper around it acts in predicted steps as in real ones.

For one step of a chain, the base environment's expensive method is shadowed by a question. One environment asks directly;
many are suspended in the middle of their step (`greenlet`: a switch of the stack, in the caller's thread, about a microsecond)
until all of them have asked, so that the world model answers in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from typing import Any, Literal, NamedTuple

import gymnasium
from greenlet import GreenletExit, getcurrent, greenlet
from gymnasium.wrappers import TimeLimit

from wmrl_envs.errors import InfrastructureError

Ask = Callable[[Any], Any]
Answer = Callable[[list[int], list[Any]], Sequence[Any]]


class Chain:
    """An environment under its wrappers.

    Args:
        env: the outermost wrapper, or the environment itself.
        method: of the base environment, the one that is asked about: "execute" (of a solution) or "step" (an action).

    Attributes:
        real: that method of the base environment, to be called for real while a step is under way.
        observation: the base environment's latest after a reset (or a step taken while resetting).
    """

    def __init__(self, env: gymnasium.Env, method: Literal["execute", "step"]):
        self.env, self.base, self._method = env, env.unwrapped, method
        self.real: Callable[[Any], Any] = getattr(self.base, method)
        self.observation: Any = None
        self._limits = [layer for layer in layers(env) if isinstance(layer, TimeLimit)]
        self._noted_reset, self._noted_step = self._noting(self.base.reset), self._noting(self.base.step)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Reset the whole chain for real; wrappers that step while they reset (no-op starts) do so for real too."""
        return self._shadowing("step", self._noted_step, lambda: self.env.reset(**arguments))

    def step(self, action: Any, ask: Ask) -> Any:
        """One step of the whole chain; `ask` answers for the base environment's method."""
        self.real = getattr(self.base, self._method)
        if self.env is self.base and self._method == "step":
            return ask(action)
        return self._shadowing(self._method, ask, partial(self.env.step, action))

    def _shadowing(self, name: str, method: Callable[..., Any], call: Callable[[], Any]) -> Any:
        """`call` while two attributes of this one object shadow its methods: `name`, and `reset`, whose observation is noted."""
        own = vars(self.base)
        before = {key: own[key] for key in (name, "reset") if key in own}
        own[name], own["reset"] = method, self._noted_reset
        try:
            return call()
        finally:
            del own[name], own["reset"]
            own |= before

    def at_limit(self) -> bool:
        """Whether a TimeLimit in the chain truncates the step under way."""
        limits = ((layer._elapsed_steps, layer._max_episode_steps) for layer in self._limits)
        return any(elapsed is not None and elapsed + 1 >= most for elapsed, most in limits)

    def _noting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)  # its signature is looked at by gymnasium's checker
        def noted(*args: Any, **arguments: Any) -> Any:
            result = method(*args, **arguments)
            self.observation = result[0]
            return result

        return noted


def layers(env: gymnasium.Env) -> Iterator[gymnasium.Env]:
    """The wrappers from the outermost inwards, and the base environment."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


class SideBySide:
    """Runs functions side by side that ask questions: each is suspended where it asks until all have asked or ended.

    The stacks are kept from call to call (a new one costs more than the step of many environments).
    """

    def __init__(self) -> None:
        self._main: greenlet | None = None
        self._stacks: list[greenlet] = []

    def run(self, work: Sequence[Callable[[Ask], Any]], answer: Answer) -> list[Any]:
        """What each function returned, or the `InfrastructureError` it raised.

        Args:
            work: each is given `ask`.
            answer: (which of them ask, their questions) -> one answer each; an `InfrastructureError` is raised where it was asked.
        """
        if len(work) == 1:  # nobody to wait for
            return [_outcome_of(work[0], lambda question: _raised(answer([0], [question])[0]))]
        self._prepare(len(work))
        try:
            return self._run(work, answer)
        except BaseException:  # ends the step: unwind the others, which puts their methods back
            self._main = None
            for stack in self._stacks:
                if stack:
                    stack.throw(GreenletExit)
            raise

    def _run(self, work: Sequence[Callable[[Ask], Any]], answer: Answer) -> list[Any]:
        results: list[Any] = [None] * len(work)
        said = [(k, self._stacks[k].switch(function)) for k, function in enumerate(work)]
        while True:
            asking = []
            for k, word in said:
                if type(word) is _Ended:
                    results[k] = word.result
                else:
                    asking.append((k, word))
            if not asking:
                return results
            which = [k for k, _ in asking]
            replies = answer(which, [question for _, question in asking])
            said = [(k, _resume(self._stacks[k], reply)) for k, reply in zip(which, replies, strict=True)]

    def _prepare(self, n: int) -> None:
        """Enough stacks, which belong to whoever calls."""
        if self._main is not getcurrent():
            self._main, self._stacks = getcurrent(), []
        self._stacks += [greenlet(self._serve) for _ in range(n - len(self._stacks))]

    def _serve(self, work: Callable[[Ask], Any]) -> None:
        assert self._main is not None
        switch = self._main.switch
        while True:
            work = switch(_Ended(_outcome_of(work, switch)))


class _Ended(NamedTuple):
    result: Any


def _resume(stack: greenlet, reply: Any) -> Any:
    return stack.throw(reply) if isinstance(reply, InfrastructureError) else stack.switch(reply)


def _raised(reply: Any) -> Any:
    if isinstance(reply, InfrastructureError):
        raise reply
    return reply


def _outcome_of(work: Callable[[Ask], Any], ask: Ask) -> Any:
    try:
        return work(ask)
    except InfrastructureError as error:
        return error
