"""Episodes of a robot in LIBERO's simulator, evaluated: any policy, in several simulators at once, recorded one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from wmrl_envs.errors import MissingExtra
from wmrl_train.agents.vla.play import Acts, Played, Simulators, Start, play
from wmrl_train.episodes.store import Trajectory
from wmrl_train.evaluation.folder import robot_episode
from wmrl_train.evaluation.policies import CallableRobot

Pictures = list[np.ndarray]  # (h, w, 3) uint8, one a look of the policy


class RobotStart(NamedTuple):
    """Where an episode begins: its task, an initial state's index, the number of the repeat."""

    task: str
    init_state: int
    repeat: int


def evaluate_robot(
    policy: Acts,
    make: Callable[[str], Any],
    starts: Sequence[RobotStart],
    *,
    workers: int = 1,
    retries: int = 1,
    on_episode: Callable[[Trajectory, Pictures], None] | None = None,
) -> list[Trajectory]:
    """One greedy episode of a policy from each start.

    Args:
        policy: a `VLAPolicy`, or a `CallableRobot`.
        make: task -> a `LiberoLongEnv` of it.
        starts: in the order in which they are begun.
        workers: environments that simulate at once; only 1 for an agent whose episodes run one after the other.
        retries: times an episode that the simulator lost is begun again, after the others.
        on_episode: called with each episode and its pictures, as they end.

    Raises:
        InvalidInput: the policy's answer is no action.
    """
    announced = policy if isinstance(policy, CallableRobot) else None
    if announced is not None and not announced.parallel:
        workers = 1
    found: dict[int, Trajectory] = {}

    def ended(number: int, played: Played) -> None:
        start = starts[number]
        found[number] = robot_episode(
            *start, success=played.success, steps=played.steps, failure=played.lost, wall_s=played.wall_s
        )
        if on_episode is not None:
            on_episode(found[number], [o["image"] for o in played.seen if o.get("image") is not None])
        played.seen.clear()  # pictures of all episodes would fill the memory

    environments = make if announced is None else lambda task: _Announced(make(task), announced)
    with closing(Simulators(environments, min(workers, max(len(starts), 1)))) as simulators:
        wanted = [Start(start.task, start.init_state, seed=0) for start in starts]
        play(policy, simulators, wanted, temperature=0.0, retries=retries, on_played=ended)
    return [found[number] for number in range(len(starts))]


class _Announced:
    """An environment that tells an agent when an episode begins."""

    def __init__(self, env: Any, agent: CallableRobot):
        self._env, self._agent = env, agent
        self.step, self.close = env.step, env.close

    def reset(self, **kwargs: Any) -> Any:
        observation = self._env.reset(**kwargs)
        self._agent.begin()
        return observation


def save_gif(frames: Sequence[np.ndarray], path: Any, milliseconds: int = 100) -> None:
    """An animation of pictures (h, w, 3) uint8."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("pillow", "libero", "Videos") from None
    first, *rest = [Image.fromarray(np.ascontiguousarray(frame)) for frame in frames]
    first.save(path, save_all=True, append_images=rest, duration=milliseconds, loop=0)
