"""`Chain`: an environment under its wrappers, whose base can be answered for.

For one step, the base environment's expensive method is shadowed: whoever steps the chain says what it returns, and every
wrapper around it acts on that as on a real step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import Any, Literal

import gymnasium
from gymnasium.wrappers import TimeLimit

Ask = Callable[[Any], Any]


class Chain:
    """An environment under its wrappers.

    Args:
        env: the outermost wrapper, or the environment itself.
        method: of the base environment, the one that is asked about: "execute" (of a solution) or "step" (an action).

    Attributes:
        real: that method of the base environment, to be called for real while a step is under way.
        observation: the base environment's latest after a reset (or a step taken while resetting).
        resets: real resets of the base environment so far.
        start: what the next reset of the base environment returns instead of being made; None: it is made.
    """

    def __init__(self, env: gymnasium.Env, method: Literal["execute", "step"]):
        self.env, self.base, self._method = env, env.unwrapped, method
        self.real: Callable[[Any], Any] = getattr(self.base, method)
        self.observation: Any = None
        self.resets = 0
        self.start: tuple[Any, dict[str, Any]] | None = None
        self._limits = [layer for layer in layers(env) if isinstance(layer, TimeLimit)]
        self._noted_reset, self._noted_step = self._noting(self.base.reset, reset=True), self._noting(self.base.step)

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
        """`call` while two attributes of this one object shadow its methods: `name`, and `reset`,
        whose observation is noted.
        """
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

    def _noting(self, method: Callable[..., Any], reset: bool = False) -> Callable[..., Any]:
        @wraps(method)  # its signature is looked at by gymnasium's checker
        def noted(*args: Any, **arguments: Any) -> Any:
            if reset and self.start is not None:
                if arguments.get("seed") is not None:
                    gymnasium.Env.reset(self.base, seed=arguments["seed"])  # its generator, as gymnasium asks for
                result: Any = self.start
            else:
                result = method(*args, **arguments)
                self.resets += reset
            self.observation = result[0]
            return result

        return noted


def layers(env: gymnasium.Env) -> Iterator[gymnasium.Env]:
    """The wrappers from the outermost inwards, and the base environment."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env
