"""Many wrapper chains at once: each is suspended where its base asks, until all have asked and one batch can answer.

`greenlet` switches the stack, in the caller's thread, in about a microsecond; one chain alone asks directly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from greenlet import GreenletExit, getcurrent, greenlet

from wmrl_envs.chain import Ask
from wmrl_envs.errors import InfrastructureError

Answer = Callable[[list[int], list[Any]], Sequence[Any]]


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
            answer: (which of them ask, their questions) -> one answer each; an `InfrastructureError` is raised where it was
                asked.
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
