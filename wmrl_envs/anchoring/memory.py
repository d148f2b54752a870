"""`Memory`: a program that was executed keeps its true outcome wherever it is written again.
A known truth is not a prediction.
"""

from __future__ import annotations

import ast
import hashlib
import threading
import warnings
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution

#: An outcome that another run of the same program might not have: a failure of ours, or a limit on the wall clock.
_NOT_KEPT = (ExecutionStatus.INFRA_ERROR, ExecutionStatus.TIMEOUT)


def program_key(code: str) -> str:
    r"""A digest that is the same for programs with the same syntax tree: comments, blank lines, layout and quotes do not count.

    Names, texts (of files, too) and numbers do. What does not parse is compared as it is written.

    >>> program_key("x = 1  # one") == program_key("x   = (1)\n")
    True
    >>> program_key("x = 1") == program_key("x = 2")
    False
    """
    try:
        with warnings.catch_warnings():  # of odd escapes in somebody's program
            warnings.simplefilter("ignore")
            tree = ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = "text:" + code.strip()
    return hashlib.sha256(tree.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Memory:
    """True outcomes of executed programs, by task. Thread-safe.

    Only programs are remembered: a solution that is not code (a robot's action) has another outcome each time. An outcome that
    hangs on the load of the machine, a time-out, is not kept.

    Args:
        max_entries: the latest that are kept.

    >>> memory = Memory()
    >>> memory.remember(Solution("print(1)", task="titanic"), Outcome(ExecutionStatus.OK, score=0.4))
    >>> memory.recall(Solution("print(1)  # again", task="titanic")).score
    0.4
    >>> memory.recall(Solution("print(1)", task="another")) is None
    True
    """

    def __init__(self, max_entries: int = 100_000):
        self.max_entries = max_entries
        self._outcomes: dict[tuple[str, str], tuple[Outcome, int]] = {}  # with the step it was executed in
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._outcomes)

    def recall(self, solution: Solution, before: int | None = None) -> Outcome | None:
        """The true outcome of this program, if it was executed (in a step before `before`:
        what is known must not hang on the clock).
        """
        if not solution.code or solution.problem is not None or not self._outcomes:
            return None
        outcome, step = self._outcomes.get((solution.task, program_key(solution.code)), (None, 0))
        return outcome if before is None or step < before else None

    def remember(self, solution: Solution, outcome: Outcome, step: int = 0) -> None:
        """Keep what an execution in this step said; a second execution of the same program changes nothing."""
        if not solution.code or solution.problem is not None or outcome.source == "predicted" or outcome.status in _NOT_KEPT:
            return
        key = solution.task, program_key(solution.code)
        with self._lock:
            if key in self._outcomes:
                return
            self._outcomes[key] = outcome, step
            while len(self._outcomes) > self.max_entries:
                del self._outcomes[next(iter(self._outcomes))]

    def distinct(self, solutions: Iterable[Solution]) -> int:
        """How many different programs there are among these."""
        return len({(s.task, program_key(s.code)) for s in solutions if s.code and s.problem is None})

    def state_dict(self) -> dict[str, Any]:
        """JSON-able."""
        with self._lock:
            return {"outcomes": [[task, key, asdict(outcome), step] for (task, key), (outcome, step) in self._outcomes.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What `state_dict` gave."""
        outcomes = {(task, key): (Outcome.from_dict(outcome), step) for task, key, outcome, step in state["outcomes"]}
        with self._lock:
            self._outcomes = outcomes
