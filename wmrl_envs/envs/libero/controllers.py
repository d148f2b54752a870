"""Scripted controllers: generators that are sent what `LiberoLongEnv.privileged` sees and yield one action (7,) at a time.

They use true object positions, so they are no policies: they make demonstrations, and start states near success.

>>> supported([["turnon", "flat_stove_1"]]), supported([["close", "microwave_1"]])
(True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.envs.libero.catalog import LiberoTask, StartStates, tasks
from wmrl_envs.errors import InfrastructureError, InvalidInput

View = dict[str, Any]
Controller = Generator[np.ndarray, View, View]
OPEN, CLOSE = -1.0, 1.0
_UP = np.array([0.0, 0.0, 1.0])
_STEP_M = 0.05  # metres of a full translation action
_TURN = 0.4  # of a full rotation action: the knob slips when turned faster
_GRASP_ABOVE_KNOB_M = 0.03


def _action(offset_m: np.ndarray, grip: float, yaw: float = 0.0, gain: float = 1.0) -> np.ndarray:
    return np.array([*np.clip(gain * offset_m / _STEP_M, -1, 1), 0.0, 0.0, yaw, grip])


def _reach(view: View, target: np.ndarray, grip: float, tolerance_m: float, at_most: int, gain: float = 1.0) -> Controller:
    for _ in range(at_most):
        offset = target - view["eef"]
        if np.linalg.norm(offset) < tolerance_m:
            break
        view = yield _action(offset, grip, gain=gain)
    return view


def _hold(view: View, grip: float, steps: int) -> Controller:
    for _ in range(steps):
        view = yield _action(np.zeros(3), grip)
    return view


def hover_over_knob(view: View, stove: str = "flat_stove_1") -> Controller:
    """Bring the open hand 15 cm above the stove's knob."""
    knob = view["bodies"][f"{stove}_button"] + [-0.005, 0.001, 0.0]
    return (yield from _reach(view, knob + 0.15 * _UP, OPEN, 0.008, 60))


def grasp_knob(view: View, stove: str = "flat_stove_1") -> Controller:
    """Hover over the stove's knob, descend, close the fingers on it."""
    view = yield from hover_over_knob(view, stove)
    knob = view["bodies"][f"{stove}_button"] + [-0.005, 0.001, 0.0]
    view = yield from _reach(view, knob + _GRASP_ABOVE_KNOB_M * _UP, OPEN, 0.008, 60)
    return (yield from _hold(view, CLOSE, 8))


def turn_on_stove(view: View, stove: str = "flat_stove_1") -> Controller:
    """Grasp the knob and turn it until the stove is on (0.5 rad)."""
    view = yield from grasp_knob(view, stove)
    knob = view["bodies"][f"{stove}_button"] + [-0.005, 0.001, _GRASP_ABOVE_KNOB_M]
    for _ in range(60):
        view = yield _action(knob - view["eef"], CLOSE, yaw=_TURN)
    view = yield from _hold(view, OPEN, 6)
    return (yield from _reach(view, view["eef"] + 0.2 * _UP, OPEN, 0.03, 40))


def put_in(view: View, thing: str, container: str) -> Controller:
    """Pick a thing up from above, carry it over an open container and let go."""
    body, into = f"{thing}_main", f"{container}_main"
    for _ in range(3):  # a grasp can slip
        at = view["bodies"][body].copy()
        above = at + 0.28 * _UP
        view = yield from _reach(view, at + 0.16 * _UP, OPEN, 0.012, 60, gain=1.2)
        view = yield from _reach(view, at, OPEN, 0.008, 40, gain=1.2)
        view = yield from _hold(view, CLOSE, 10)
        view = yield from _reach(view, above, CLOSE, 0.03, 60, gain=1.2)
        if view["bodies"][body][2] - at[2] > 0.05:
            break
        view = yield from _hold(view, OPEN, 6)
    goal = view["bodies"][into]
    over = np.array([goal[0], goal[1], above[2]])
    view = yield from _reach(view, over, CLOSE, 0.02, 80, gain=1.2)
    view = yield from _reach(view, goal + 0.17 * _UP, CLOSE, 0.02, 30, gain=1.2)
    view = yield from _hold(view, OPEN, 12)
    return (yield from _reach(view, over, OPEN, 0.03, 60, gain=1.2))


def _part(predicate: Sequence[str]) -> Callable[[View], Controller] | None:
    match [str(word).lower() for word in predicate]:
        case ["turnon", stove] if "stove" in stove:
            return lambda view: turn_on_stove(view, stove)
        case ["in", thing, region] if region.endswith("_contain_region") and "basket" in region:
            return lambda view: put_in(view, thing, region.removesuffix("_contain_region"))
    return None


def supported(goal: Sequence[Sequence[str]]) -> bool:
    """Whether there is a controller for every predicate of a goal."""
    return all(_part(predicate) is not None for predicate in goal)


def controller(view: View) -> Controller:
    """The controller for the goal in `view`: its predicates one after another."""
    parts = [_part(predicate) for predicate in view["goal"]]
    for part, predicate in zip(parts, view["goal"], strict=True):
        if part is None:
            raise InvalidInput(
                f"No scripted controller achieves {' '.join(predicate)!r}; expected turning on a stove or putting things "
                f"in a basket."
            )
    for part in parts:
        if part is not None:
            view = yield from part(view)
    return (yield from _hold(view, OPEN, 10))


def drive(env: Any, script: Callable[[View], Controller] = controller, noise: float = 0.0, seed: int | None = None) -> bool:
    """Let a script act in a reset environment to its end, or the episode's: success.

    Args:
        env: a `LiberoLongEnv`, wrapped or not.
        script: makes the controller for what it can see of the scene (a `View`).
        noise: standard deviation of Gaussian noise on the six motion components, in units of a full action; demonstrations
            with some noise show how to come back from small errors.
        seed: of the noise.
    """
    rng = np.random.default_rng(seed)
    core = env.unwrapped
    steps = script(core.privileged())
    action = next(steps)
    while True:
        if noise:
            action = action + np.r_[noise * rng.standard_normal(6), 0.0]
        _, _, terminated, truncated, info = env.step(np.clip(action, -1, 1).astype(np.float32))
        if info["wmrl"]["status"] == "infra_error":
            raise InfrastructureError(info["wmrl"]["detail"])
        if terminated or truncated:
            return bool(terminated)
        try:
            action = steps.send(core.privileged())
        except StopIteration:
            return False


def stove_task() -> LiberoTask:
    """The shortest task of all: "turn on the stove" of LIBERO-90."""
    return next(task for task in tasks("libero_90") if task.name == "KITCHEN_SCENE3_turn_on_the_stove")


def near_stove(
    path: str | Path, init_states: Sequence[int] = (0,), script: Callable[[View], Controller] = grasp_knob, **env_options: Any
) -> Path:
    """Write start states of `stove_task`, one for each official state, brought nearer to success by `script`, for
    `init_states=path`.

    With the fingers closed on the knob (the default) random actions succeed in some 15 to 30 % of episodes within 64 steps: a
    policy learns from there without demonstrations.
    """
    import gymnasium

    task = stove_task()
    env = gymnasium.make("LIBERO-Long-v0", task=task.index, suite=task.suite, image_size=None, init_states="all", **env_options)
    saved = []
    try:
        for index in init_states:
            env.reset(options={"init_state": index})
            drive(env, script)
            saved.append(env.unwrapped.save_state())  # type: ignore[attr-defined]
    finally:
        env.close()
    states, gripper = (np.concatenate([getattr(start, name) for start in saved]) for name in ("states", "gripper"))
    return StartStates(states, gripper, tuple(range(len(states))), 0).save(path)
