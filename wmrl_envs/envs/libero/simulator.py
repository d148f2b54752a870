"""`Simulator`: one LIBERO scene in this process, with cheap resets and pictures only when asked for.

Three departures from the upstream wrapper, none of which changes the physics (`tests/libero` compares bit by bit):

* A reset keeps the compiled scene. robosuite's own soft reset differs from a hard one because the gripper's commanded
  opening survives it; here it is part of the state.
* The settled start of an initial state is remembered, so its second reset costs milliseconds (a GRPO group has eight).
* robosuite refreshes some sixty sensor readings 25 times a control step; here they are read once, when observed (and so
  are a few milliseconds younger than upstream's).
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from cachetools import LRUCache

from wmrl_envs.envs.libero.install import configure
from wmrl_envs.errors import InvalidInput

ACTION_SIZE = 7  # end-effector translation (3), rotation (3), gripper: -1 open, +1 close; 1 = 5 cm or 0.5 rad a control step
IDLE = np.array([0, 0, 0, 0, 0, 0, -1.0])
_CAMERAS = {"image": "agentview", "wrist_image": "robot0_eye_in_hand"}
_REMEMBERED_STARTS = 64
_UNDRAWN = 5  # a group of geoms that robosuite's cameras do not show
_FIXTURE_SEED = 0  # robosuite samples where fixtures stand from numpy's global generator; upstream evaluations seed it with 0


@dataclass(frozen=True)
class Scene:
    """What to simulate: a BDDL file, picture size in pixels (None: no pictures, no renderer), cameras, texture size, mesh
    limit.
    """

    bddl: str
    image_size: int | None = 224
    wrist_image: bool = False
    texture_size: int | None = None
    mesh_faces: int | None = None

    @property
    def cameras(self) -> tuple[str, ...]:
        if self.image_size is None:
            return ()
        return ("image", "wrist_image") if self.wrist_image else ("image",)


@dataclass
class Snapshot:
    """Everything an episode depends on: MuJoCo's integration state, the gripper's commanded opening, the arm's target pose.

    (A rotation of exactly zero leaves the target orientation of earlier steps in force, so it is part of the state.)
    """

    physics: np.ndarray
    gripper: np.ndarray
    target: tuple[np.ndarray, np.ndarray]
    observation: dict[str, np.ndarray] | None = None


@contextlib.contextmanager
def _global_seed(seed: int) -> Iterator[None]:
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)


class Simulator:
    """A scene, ready to be reset. Construction takes 4 to 35 s and 1 to 2.5 GB; not thread-safe."""

    def __init__(self, scene: Scene):
        configure(render=scene.image_size is not None, texture_size=scene.texture_size)
        with contextlib.redirect_stdout(io.StringIO()):  # upstream prints
            import libero.libero as package
            from libero.libero.envs.env_wrapper import ControlEnv

            if hasattr(
                package, "_assets_path_cache"
            ):  # hf-libero would look beside its code, then download, whatever is configured
                package._assets_path_cache = package.get_libero_path("assets")
            with _global_seed(_FIXTURE_SEED):
                self._upstream = ControlEnv(
                    bddl_file_name=scene.bddl,
                    use_camera_obs=False,
                    has_offscreen_renderer=scene.image_size is not None,
                    camera_names=[_CAMERAS[name] for name in scene.cameras] or ["agentview"],
                    ignore_done=True,  # else robosuite refuses to step after its own horizon of 1000
                    hard_reset=False,
                )
        self.scene = scene
        self.goal: list[list[str]] = [list(predicate) for predicate in self._upstream.env.parsed_problem["goal_state"]]
        self._env = self._upstream.env
        self._substeps = int(self._env.control_timestep / self._env.model_timestep)
        self._starts: LRUCache[tuple[bytes, bytes, int], Snapshot] = LRUCache(_REMEMBERED_STARTS)
        if scene.mesh_faces is not None:
            self._hide_meshes(scene.mesh_faces)

    # -- episodes -----------------------------------------------------------------------------------------------------
    def reset(self, state: np.ndarray, gripper: np.ndarray | None = None, settle_steps: int = 10) -> dict[str, np.ndarray]:
        """Start from an initial state, settled: the first observation."""
        gripper = np.zeros(2) if gripper is None else np.asarray(gripper, np.float64)
        key = (np.ascontiguousarray(state).tobytes(), gripper.tobytes(), settle_steps)
        start = self._starts.get(key)
        if start is None:
            self._soft_reset(state, gripper)
            for _ in range(settle_steps):
                self._control_step(IDLE)
            start = self.snapshot()
            start.observation = self.observe()
            self._starts[key] = start
        self.restore(start)  # the first time too, so that all episodes from here begin alike in every bit
        assert start.observation is not None
        return dict(start.observation)

    def run(self, actions: np.ndarray) -> tuple[dict[str, np.ndarray], int, bool]:
        """Step through actions (k, 7) until success: the last observation, control steps taken, success."""
        taken, success = 0, False
        for action in actions:
            self._control_step(action)
            taken += 1
            success = bool(self._env._check_success())
            if success:
                break
        return self.observe(), taken, success

    def snapshot(self) -> Snapshot:
        """The present state, for `restore`."""
        import mujoco

        model, data = self._raw()
        physics = np.empty(mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_INTEGRATION))
        mujoco.mj_getState(model, data, physics, mujoco.mjtState.mjSTATE_INTEGRATION)
        controller = self._env.robots[0].controller
        target = (controller.goal_pos.copy(), controller.goal_ori.copy())
        return Snapshot(physics, np.array(self._gripper().current_action, np.float64), target)

    def restore(self, snapshot: Snapshot) -> None:
        """Return to a snapshot of this simulator."""
        import mujoco

        model, data = self._raw()
        mujoco.mj_setState(model, data, snapshot.physics, mujoco.mjtState.mjSTATE_INTEGRATION)
        self._gripper().current_action = snapshot.gripper.copy()
        mujoco.mj_forward(model, data)
        mujoco.mj_setState(
            model, data, snapshot.physics, mujoco.mjtState.mjSTATE_INTEGRATION
        )  # mj_forward moved the warm start
        controller = self._env.robots[0].controller
        controller.goal_pos, controller.goal_ori = snapshot.target[0].copy(), snapshot.target[1].copy()
        controller.new_update = True
        self._env._post_process()

    def save(self) -> tuple[np.ndarray, np.ndarray]:
        """The present state as a row of `StartStates`: (time, positions, velocities), the gripper's commanded opening."""
        return self._upstream.get_sim_state().copy(), np.array(self._gripper().current_action, np.float64)

    def hard_reset(self, state: np.ndarray, settle_steps: int = 10) -> None:
        """The same start the upstream way: compile the scene anew (seconds). The yardstick of tests and benchmarks, never
        needed.
        """
        self._starts.clear()
        self._env.hard_reset = True
        with _global_seed(_FIXTURE_SEED), contextlib.redirect_stdout(io.StringIO()):
            self._upstream.reset()
        self._env.hard_reset = False
        self._upstream.set_init_state(state)
        for _ in range(settle_steps):
            self._upstream.step(IDLE)

    def _soft_reset(self, state: np.ndarray, gripper: np.ndarray) -> None:
        expected = 1 + self._env.sim.model.nq + self._env.sim.model.nv
        if np.shape(state) != (expected,):
            raise InvalidInput(
                f"An initial state of shape {np.shape(state)} was given to a scene that needs ({expected},): it belongs to "
                f"another task."
            )
        with _global_seed(_FIXTURE_SEED):
            self._upstream.reset()
        self._gripper().current_action = gripper.copy()
        self._upstream.set_init_state(state)

    def _control_step(self, action: np.ndarray) -> None:
        """One control step (0.05 s): what robosuite's `step` does to the physics, without its sensor bookkeeping."""
        env = self._env
        for substep in range(self._substeps):
            env.sim.forward()
            env._pre_action(action, substep == 0)
            env.sim.step()
        env._post_process()

    # -- what can be seen ---------------------------------------------------------------------------------------------
    def observe(self) -> dict[str, np.ndarray]:
        """Pictures as MuJoCo draws them (bottom row first) and proprioception (9,): position, quaternion xyzw, two fingers."""
        seen = {name: self.render(name) for name in self.scene.cameras}
        seen["proprioception"] = self._proprioception()
        return seen

    def render(self, camera: str = "image", size: int | None = None) -> np.ndarray:
        """One picture (size, size, 3) uint8, bottom row first."""
        size = size or self.scene.image_size
        if self.scene.image_size is None:
            raise InvalidInput("image_size=None builds no renderer; give a size in pixels to draw pictures.")
        return self._env.sim.render(camera_name=_CAMERAS[camera], width=size, height=size)

    def _hide_meshes(self, faces: int) -> None:
        """Leave meshes with more faces undrawn: the time of a picture on a CPU goes into their vertices, whatever its size."""
        model, _ = self._raw()
        for i in range(model.ngeom):
            if model.geom_dataid[i] >= 0 and model.mesh_facenum[model.geom_dataid[i]] > faces:
                model.geom_group[i] = _UNDRAWN

    def privileged(self) -> dict[str, Any]:
        """What scripted controllers may know: "goal" predicates, "eef" position, "bodies" name -> position, "joints" name ->
        position.
        """
        model, data = self._raw()
        bodies = {model.body(i).name: data.xpos[i].copy() for i in range(model.nbody)}
        joints = {model.joint(i).name: float(data.qpos[model.jnt_qposadr[i]]) for i in range(model.njnt)}
        return {"goal": self.goal, "eef": self._proprioception()[:3].astype(np.float64), "bodies": bodies, "joints": joints}

    def _proprioception(self) -> np.ndarray:
        robot, data = self._env.robots[0], self._env.sim.data
        quaternion = data.get_body_xquat(robot.robot_model.eef_name)  # w x y z
        fingers = [data.qpos[i] for i in robot._ref_gripper_joint_pos_indexes]
        return np.concatenate([data.site_xpos[robot.eef_site_id], np.roll(quaternion, -1), fingers]).astype(np.float32)

    # -- plumbing -----------------------------------------------------------------------------------------------------
    def _raw(self) -> tuple[Any, Any]:
        return self._env.sim.model._model, self._env.sim.data._data

    def _gripper(self) -> Any:
        return self._env.robots[0].gripper

    def close(self) -> None:
        """Free the scene. Idempotent."""
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = self._env = None
