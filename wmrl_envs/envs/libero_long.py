"""`LIBERO-Long-v0`: a LIBERO task, one action or one chunk of actions a step, paid 1 when the task is done."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from wmrl_envs.context import TaskContext
from wmrl_envs.envs.executable import ExecutableEnv
from wmrl_envs.envs.libero import catalog, install
from wmrl_envs.envs.libero.process import SimulatorProcess
from wmrl_envs.envs.libero.simulator import ACTION_SIZE, Scene, Simulator
from wmrl_envs.errors import InfrastructureError, InvalidAction, InvalidInput, WmrlError
from wmrl_envs.info import Measured, wmrl_info
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution
from wmrl_envs.spaces import UnicodeText

log = logging.getLogger(__name__)
Orientation = Literal["vertical", "rot180", "none"]
_TURN = {  # MuJoCo draws the bottom row first
    "vertical": lambda picture: picture[::-1],  # the true view, labels readable; MiniVLA's training data
    "rot180": lambda picture: picture[::-1, ::-1],  # mirrored; OpenVLA's training data
    "none": lambda picture: picture,
}


def check_orientation(name: str) -> Orientation:
    """`name` if it is an orientation, else InvalidInput."""
    if not isinstance(name, str) or name not in _TURN:
        raise InvalidInput(f"orientation={name!r}: expected one of {', '.join(_TURN)}.")
    return name  # type: ignore[return-value]


def turn(picture: np.ndarray, orientation: Orientation) -> np.ndarray:
    """A picture as MuJoCo draws it, (h, w, 3), in the orientation a policy was trained with."""
    return np.ascontiguousarray(_TURN[orientation](picture))


class LiberoLongEnv(ExecutableEnv):
    """One task of LIBERO (LIBERO-Long is the suite `libero_10`) with its official initial states.

    Observation: a dict of

    * `image` (image_size, image_size, 3) uint8, the camera facing the robot, drawn once a chunk;
    * `wrist_image`, the same from the gripper, if asked for;
    * `proprioception` (9,) float32: end-effector position in metres, its quaternion (x, y, z, w), two finger positions;
    * `instruction`, text.

    Action: (action_chunk, 7) in [-1, 1], or fewer rows, or one action (7,): translation (1 = 5 cm), rotation (1 = 0.5 rad),
    gripper (-1 open, +1 close); values beyond the range are clipped. A success inside a chunk ends it and is paid.

    Reward: 1 at success, which terminates; `max_steps` simulator steps without success truncate. A simulator that crashes
    or hangs truncates with `info["wmrl"]["status"] == "infra_error"`: not a score, drop the episode.

    Reset: settles for 10 steps (not counted). `options={"init_state": i}` picks one of the 50 official states; else it is
    drawn from `init_states` by the seed.

    Args:
        task: index, name or instruction.
        suite: any suite of the installed package.
        image_size: pixels, or None for an observation without pictures (no renderer needed).
        wrist_image: add the wrist camera.
        max_steps: simulator steps an episode.
        action_chunk: most actions a step.
        init_states: "train" (first 16), "unseen" (other 34), "all", a list of indices, or an .npz of start states.
        orientation: "vertical" (the true view), "rot180" or "none" (as drawn, upside down).
        settle_steps: idle steps after a reset from an official state.
        texture_size: shrink textures to this many pixels (saves 1 GB; for tests, never for reported numbers).
        mesh_faces: do not draw meshes with more faces than this (at 5000 the arm and the walls are gone, the hand and the
            objects stay, and a picture takes a quarter of the time; as `texture_size`).
        process: simulate in a process of its own (crashes become infrastructure failures, several environments run in
            parallel); False to simulate in this one, for use inside vector workers
            (`AsyncVectorEnv(fns, shared_memory=False, context="spawn")`: the instruction is text, OpenGL survives no fork).
        render_mode: None or "rgb_array".

    The simulator is built with the first reset. Every episode is a function of the initial state and the actions, bit by
    bit, on one machine.

    Version history: v0, first version.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}
    replaceable = False  # what is seen after a step is the simulator's

    def __init__(
        self,
        task: int | str = 0,
        suite: str = "libero_10",
        image_size: int | None = 224,
        wrist_image: bool = False,
        max_steps: int = 520,
        action_chunk: int = 8,
        init_states: str | Path | Iterable[int] = "train",
        orientation: Orientation = "vertical",
        settle_steps: int = 10,
        texture_size: int | None = None,
        mesh_faces: int | None = None,
        process: bool = True,
        render_mode: str | None = None,
    ):
        _check_arguments(
            {"image_size": image_size, "max_steps": max_steps, "action_chunk": action_chunk, "settle_steps": settle_steps,
             "texture_size": texture_size, "mesh_faces": mesh_faces},
            {"wrist_image": wrist_image, "process": process}, orientation, render_mode,
        )  # fmt: skip
        install.require(render=image_size is not None)
        install.require_libraries()  # said now, not after a minute of loading
        self.task = catalog.find_task(task, suite)
        self.start_states = catalog.start_states(self.task, init_states, settle_steps)
        self.max_steps, self.action_chunk = max_steps, action_chunk
        self.orientation: Orientation = orientation
        self.render_mode = render_mode
        self._scene = Scene(str(self.task.bddl), image_size, wrist_image, texture_size, mesh_faces)
        self._own_process = process
        self._simulator: Simulator | SimulatorProcess | None = None

        self.action_space = spaces.Box(
            -1.0, 1.0, (ACTION_SIZE,) if action_chunk == 1 else (action_chunk, ACTION_SIZE), np.float32
        )
        picture = spaces.Box(0, 255, (image_size or 0, image_size or 0, 3), np.uint8)
        views: dict[str, spaces.Space[Any]] = dict.fromkeys(self._scene.cameras, picture)
        self.observation_space = spaces.Dict(
            {
                **views,
                "proprioception": spaces.Box(-np.inf, np.inf, (9,), np.float32),
                "instruction": UnicodeText(512, min_length=1),
            }
        )
        self.init_state: int | None = None  # of the running episode
        self._steps, self._done, self._best = 0, True, 0.0
        self._lost: str | None = None  # why the simulator of this episode is gone
        self._observation: dict[str, Any] = {}

    # -- Gymnasium ----------------------------------------------------------------------------------------------------
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if not (options is None or isinstance(options, Mapping)):
            raise InvalidInput(f"reset(options={options!r}): expected a dict, for example {{'init_state': 0}}.")
        super().reset(seed=seed)
        start = self.start_states
        if options and options.get("init_state") is not None:
            index = start.check_index(options["init_state"])
        else:
            index = int(self.np_random.choice(start.indices))
        self._done, began = True, time.perf_counter()
        seen = self._begin(start.states[index], start.gripper[index], start.settle_steps)
        self.init_state, self._steps, self._done, self._best = index, 0, False, 0.0
        self._observation = self._present(seen)
        return dict(self._observation), self._info(ExecutionStatus.OK, 0.0, time.perf_counter() - began)

    def propose(self, action: Any) -> Solution:
        return Solution(task=self.task.name, action=self._checked(action))

    def execute(self, solution: Solution) -> Outcome:
        if self._done:
            raise gymnasium.error.ResetNeeded("This episode is over (or none has begun); call reset().")
        began = time.perf_counter()
        try:
            seen, taken, success = self._simulate("run", solution.action[: self.max_steps - self._steps])
        except InfrastructureError as error:
            return Outcome(
                ExecutionStatus.INFRA_ERROR, feedback=str(error), error=str(error), wall_s=time.perf_counter() - began
            )
        self._observation = self._present(seen)
        self._steps += taken
        return Outcome(
            ExecutionStatus.OK,
            score=float(success),
            feedback="success" if success else "",
            wall_s=time.perf_counter() - began,
            steps=taken,
        )

    def observe(self, outcome: Outcome) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        success = not outcome.is_infra_error and outcome.score >= 1.0
        truncated = not success and (outcome.is_infra_error or self._steps >= self.max_steps)
        self._done = success or truncated
        self._best = max(self._best, 0.0 if outcome.is_infra_error else outcome.score)
        info = self._info(outcome.status, outcome.score, outcome.wall_s)
        if outcome.is_infra_error:
            info["wmrl"]["detail"] = outcome.feedback
        return dict(self._observation), float(success), success, truncated, info

    def context(self) -> TaskContext:
        return TaskContext(task=self.task.name, overview=self.task.instruction, category="robot", metric="success")

    def render(self) -> np.ndarray | None:
        """The camera facing the robot, the true view, (image_size, image_size, 3) uint8."""
        if self.render_mode != "rgb_array":
            return None
        return turn(self._simulate("render", "image"), "vertical")

    def close(self) -> None:
        if self._simulator is not None:
            self._simulator.close()
            self._simulator = None
        self._done = True

    # -- for scripted controllers and curricula -------------------------------------------------------------------------
    def privileged(self) -> dict[str, Any]:
        """Positions of everything, for scripted controllers (see `Simulator.privileged`); no policy may see it."""
        return self._simulate("privileged")

    def save_state(self) -> catalog.StartStates:
        """The present state as a start state for `init_states=` (its `save` writes the file)."""
        state, gripper = self._simulate("save")
        return catalog.StartStates(state[None], gripper[None], (0,), 0)

    # -- internals ----------------------------------------------------------------------------------------------------
    def _begin(self, *arguments: Any) -> dict[str, np.ndarray]:
        """Reset the simulator; one that has died since the last episode is replaced."""
        self._lost = None
        try:
            return self._simulate("reset", *arguments)
        except InfrastructureError as error:
            if not self._own_process or self._simulator is None:  # None: closed by another thread meanwhile
                raise
            log.warning("trying again in a new process: %s", error)
            self._lost = None
            return self._simulate("reset", *arguments)

    def _simulate(self, method: str, *args: Any) -> Any:
        if self._lost is not None:  # a retry would run in a fresh scene, somewhere else than the episode was
            raise InfrastructureError(self._lost)
        try:
            if self._simulator is None:
                self._simulator = SimulatorProcess(self._scene) if self._own_process else Simulator(self._scene)
            return getattr(self._simulator, method)(*args)
        except InfrastructureError as error:
            self._lost = str(error)
            raise
        except WmrlError:  # the user's: a start that does not fit, an extra that is not installed
            raise
        except Exception as error:  # in this process: MuJoCo or robosuite gave up
            self._lost = f"The LIBERO simulator failed: {type(error).__name__}: {error}"
            raise InfrastructureError(self._lost) from error

    def _present(self, seen: dict[str, np.ndarray]) -> dict[str, Any]:
        views = {name: turn(seen[name], self.orientation) for name in self._scene.cameras}
        return {**views, "proprioception": seen["proprioception"], "instruction": self.task.instruction}

    def _info(self, status: ExecutionStatus, score: float, wall_s: float) -> dict[str, Any]:
        known = None if status is ExecutionStatus.INFRA_ERROR else score
        return {
            "wmrl": wmrl_info(
                {
                    "status": str(status),
                    "score": known,
                    "raw_score": known,
                    "best_score": self._best,
                    "anchored": True,
                    "true": known,
                    "weight": 1.0,
                    "steps": self._steps,
                    "init_state": self.init_state,
                    "wall_s": Measured(wall_s),
                }
            )
        }

    def _checked(self, action: Any) -> np.ndarray:
        expected = f"(7,) or (k, 7) with k from 1 to {self.action_chunk}"
        try:
            values = np.asarray(action, dtype=np.float64)
        except (TypeError, ValueError):
            raise InvalidAction(f"An action of type {type(action).__name__}: expected numbers of shape {expected}.") from None
        rows = values[None] if values.ndim == 1 else values
        if rows.ndim != 2 or rows.shape[1] != ACTION_SIZE or not 1 <= len(rows) <= self.action_chunk:
            raise InvalidInput(f"An action of shape {values.shape}: expected {expected}.")
        if not np.isfinite(rows).all():
            raise InvalidInput(
                f"An action with {int((~np.isfinite(rows)).sum())} values that are not finite: expected numbers in [-1, 1]."
            )
        return np.clip(rows, -1.0, 1.0)


_LIMITS = {
    "image_size": (16, 2048),
    "max_steps": (1, 10**6),
    "action_chunk": (1, 10**4),
    "settle_steps": (0, catalog.MOST_SETTLE_STEPS),
    "texture_size": (1, 10**4),
    "mesh_faces": (0, 10**9),
}
_MAY_BE_NONE = ("image_size", "texture_size", "mesh_faces")


def _check_arguments(numbers: Mapping[str, Any], switches: Mapping[str, Any], orientation: Any, render_mode: Any) -> None:
    for name, value in numbers.items():
        low, high = _LIMITS[name]
        if value is None and name in _MAY_BE_NONE:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
            raise InvalidInput(f"{name}={value!r}: expected a whole number from {low} to {high}.")
    for name, value in switches.items():
        if not isinstance(value, (bool, np.bool_)):
            raise InvalidInput(f"{name}={value!r}: expected True or False.")
    check_orientation(orientation)
    if numbers["image_size"] is None and (switches["wrist_image"] or render_mode):
        raise InvalidInput("image_size=None draws no pictures: it goes with neither wrist_image=True nor a render_mode.")
    if render_mode not in (None, "rgb_array"):
        raise InvalidInput(f"render_mode={render_mode!r}: expected None or 'rgb_array'.")
