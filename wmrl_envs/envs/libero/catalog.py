"""LIBERO's tasks and official initial states, read from the installed package without importing it.

(Importing LIBERO loads robosuite, and hf-libero asks questions on standard input.)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.envs.libero.install import package_root
from wmrl_envs.errors import InfrastructureError, InvalidInput

MOST_SETTLE_STEPS = 10**4
TRAIN_STATES = 16  # of the 50 official initial states of a task, the first 16 are for training, the others unseen


@dataclass(frozen=True)
class LiberoTask:
    """One task: `index` in its suite, `name` (file stem), `instruction` as policies are given it."""

    suite: str
    index: int
    name: str
    instruction: str
    bddl: Path


@lru_cache(maxsize=1)
def _task_map() -> dict[str, list[str]]:
    file = package_root() / "benchmark" / "libero_suite_task_map.py"
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "libero_task_map":
            return ast.literal_eval(node.value)
    raise InfrastructureError(f"{file}: found no libero_task_map; this release of LIBERO is not supported.")


def instruction_of(name: str) -> str:
    """The instruction in a task's name.

    >>> instruction_of("KITCHEN_SCENE8_put_both_moka_pots_on_the_stove")
    'put both moka pots on the stove'
    """
    return re.sub(r"^[A-Z].*?SCENE\d+_", "", name).replace("_", " ")


def suites() -> list[str]:
    """Names of the suites of the installed package ("libero_10" is LIBERO-Long)."""
    return sorted(_task_map())


def tasks(suite: str = "libero_10") -> list[LiberoTask]:
    """The tasks of a suite in the official order."""
    names = _task_map().get(suite) if isinstance(suite, str) else None
    if names is None:
        known = [s for s in ("libero_10", "libero_90", "libero_goal", "libero_object", "libero_spatial") if s in _task_map()]
        raise InvalidInput(
            f"suite={suite!r}: no such LIBERO suite; expected one of {', '.join(known)} or another suite of the "
            f"installed package."
        )
    folder = package_root() / "bddl_files" / suite
    return [LiberoTask(suite, i, name, instruction_of(name), folder / f"{name}.bddl") for i, name in enumerate(names)]


def index_or_name(text: str) -> int | str:
    """A task as a user writes it: whole numbers are indices, anything else is a name or an instruction.

    >>> index_or_name("7"), index_or_name("--5"), index_or_name("²")
    (7, '--5', '²')
    """
    return int(text) if re.fullmatch("-?[0-9]{1,9}", text) else text  # str.isdigit takes superscripts, int does not


def find_task(task: int | str, suite: str = "libero_10") -> LiberoTask:
    """A task by index (0-based), name or instruction."""
    known = tasks(suite)
    if isinstance(task, (int, np.integer)) and not isinstance(task, bool):
        if 0 <= task < len(known):
            return known[int(task)]
    elif isinstance(task, str):
        for candidate in known:
            if task in (candidate.name, candidate.instruction):
                return candidate
    raise InvalidInput(f"task={task!r}: {suite} has tasks 0 to {len(known) - 1}; give an index, a task name or an instruction.")


@lru_cache(maxsize=16)
def initial_states(task: LiberoTask) -> np.ndarray:
    """Official initial simulator states, shape (50, d): time, positions, velocities."""
    stem = package_root() / "init_files" / task.suite / f"{task.name}.pruned_init"
    compressed = stem.with_name(stem.name + ".npz")
    if compressed.is_file():
        with np.load(compressed, allow_pickle=False) as archive:
            return archive["states"]
    if stem.is_file():  # hf-libero: a pickled array, trusted because it comes with the package
        import torch

        return np.asarray(torch.load(stem, weights_only=False, map_location="cpu"))
    raise InfrastructureError(f"{task.suite} task {task.index}: the installed package has no initial states at {stem}.")


@dataclass(frozen=True)
class StartStates:
    """Where episodes of one task begin.

    Attributes:
        states: simulator states, shape (n, d).
        gripper: the gripper's commanded opening in each, shape (n, 2); zeros for official states.
        indices: the rows that a seeded reset draws from.
        settle_steps: idle steps after a reset, before the episode (not counted).
    """

    states: np.ndarray
    gripper: np.ndarray
    indices: tuple[int, ...]
    settle_steps: int

    def check_index(self, index: Any) -> int:
        """`index` as an int, or InvalidInput."""
        if isinstance(index, (int, np.integer)) and not isinstance(index, bool) and 0 <= index < len(self.states):
            return int(index)
        raise InvalidInput(f"init_state={index!r}: expected an index from 0 to {len(self.states) - 1}.")

    def save(self, path: str | Path) -> Path:
        """Write them as an .npz that `init_states=` accepts."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, states=self.states, gripper=self.gripper, settle_steps=self.settle_steps)
        return path


def start_states(task: LiberoTask, init_states: str | Path | Iterable[int] = "train", settle_steps: int = 10) -> StartStates:
    """Start states by split ("train": first 16, "unseen": the others, "all"), by list of indices, or from an .npz of
    `StartStates.save`.
    """
    if isinstance(init_states, Path) or (isinstance(init_states, str) and init_states.endswith(".npz")):
        return _load(Path(init_states), task)
    states = initial_states(task)
    everything = range(len(states))
    splits = {"train": everything[:TRAIN_STATES], "unseen": everything[TRAIN_STATES:], "all": everything}
    start = StartStates(states, np.zeros((len(states), 2)), (), settle_steps)
    problem = (
        f"init_states={init_states!r}: expected 'train', 'unseen', 'all', a list of indices from 0 to {len(states) - 1}, "
        "or an .npz file."
    )
    if isinstance(init_states, str):
        if init_states not in splits:
            raise InvalidInput(problem)
        chosen = tuple(splits[init_states])
    else:
        try:
            chosen = tuple(start.check_index(i) for i in init_states)
        except (TypeError, InvalidInput):
            raise InvalidInput(problem) from None
    if not chosen:
        raise InvalidInput(problem)
    return StartStates(states, start.gripper, chosen, settle_steps)


def _load(path: Path, task: LiberoTask) -> StartStates:
    try:
        with np.load(path, allow_pickle=False) as archive:
            states, gripper, settle = (archive[name] for name in ("states", "gripper", "settle_steps"))
    except Exception as error:  # whatever archives, compression and headers of arrays raise, numpy lets through
        raise InvalidInput(
            f"init_states={str(path)!r}: not a file of start states ({error or type(error).__name__}); expected one that "
            "`StartStates.save` wrote."
        ) from None
    width = initial_states(task).shape[1]
    if states.ndim != 2 or not len(states) or states.shape[1] != width or gripper.shape != (len(states), 2):
        raise InvalidInput(
            f"init_states={str(path)!r}: states {states.shape} and gripper {gripper.shape}; expected (n, {width}) and (n, 2) "
            f"for {task.suite} task {task.index}."
        )
    if any(values.dtype.kind not in "iuf" or not np.isfinite(values).all() for values in (states, gripper)):
        raise InvalidInput(f"init_states={str(path)!r}: states or gripper with values that are no finite numbers.")
    if settle.dtype.kind not in "iu" or settle.ndim or not 0 <= settle <= MOST_SETTLE_STEPS:
        raise InvalidInput(
            f"init_states={str(path)!r}: settle_steps={settle.tolist()!r:.80}; expected a whole number from 0 to "
            f"{MOST_SETTLE_STEPS}."
        )
    return StartStates(states.astype(np.float64), gripper.astype(np.float64), tuple(range(len(states))), int(settle))
