"""`ExecutableEnv`: an environment whose `step` is propose -> execute -> observe, so that a world model can replace `execute`
alone.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import gymnasium

from wmrl_envs.context import TaskContext
from wmrl_envs.outcome import Outcome, Solution


class ExecutableEnv(gymnasium.Env):
    """Base of the environments whose step runs something expensive.

    `propose` and `observe` are cheap and run in the caller; `execute` may take minutes and must be safe to call from
    another thread while no other method of the same environment runs.

    Attributes:
        replaceable: whether `observe` is a function of the outcome (and of earlier ones) alone, so that a predicted outcome can
            take the place of `execute`. False where `execute` leaves something behind that is observed.
    """

    replaceable = True

    @abstractmethod
    def propose(self, action: Any) -> Solution:
        """Parse an action; changes nothing outside the environment, raises nothing for a bad action of the right type."""

    @abstractmethod
    def execute(self, solution: Solution) -> Outcome:
        """Run the solution for real. An infrastructure failure comes back as status `infra_error`, it is not raised."""

    @abstractmethod
    def observe(self, outcome: Outcome) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance the episode by an outcome, executed or predicted: (obs, reward, terminated, truncated, info)."""

    @abstractmethod
    def context(self) -> TaskContext:
        """What a world model may know about the current task and turn (never an answer)."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observe(self.execute(self.propose(action)))
