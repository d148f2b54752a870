"""Episodes of a robot in LIBERO's simulator: several environments at once, one call of the policy for all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np

from wmrl_envs.errors import InfrastructureError, MissingExtra
from wmrl_train.episodes.store import Trajectory
from wmrl_train.evaluation.folder import robot_episode
from wmrl_train.evaluation.policies import OpenEpisode, Policy

log = logging.getLogger(__name__)
Pictures = list[np.ndarray]  # (h, w, 3) uint8, one a look of the policy


def evaluate_robot(
    policy: Policy,
    make: Callable[[], Any],
    starts: Sequence[tuple[int, int]],
    *,
    workers: int = 1,
    retries: int = 1,
    on_episode: Callable[[Trajectory, Pictures], None] | None = None,
) -> list[Trajectory]:
    """One episode of a policy (observation -> actions (k, 7)) from each (initial state, repeat), in the order they end.

    Args:
        policy: answers observations.
        make: makes a `LiberoLongEnv` of the task.
        starts: pairs of an initial state's index and a repeat's number.
        workers: environments that simulate at once; only 1 for a policy whose episodes run one after the other.
        retries: times an episode that the simulator lost is begun again, after the others.
        on_episode: called with each episode and its pictures, from one thread at a time.

    Raises:
        InvalidInput: the policy's answer is no action.
    """
    waiting = [(start, retries) for start in starts]
    found: list[Trajectory] = []
    live: list[_RobotEpisode] = []
    sequential = policy.together == 1 and not policy.parallel
    count = 1 if sequential else max(1, min(workers, len(starts)))
    with ExitStack() as stack, ThreadPoolExecutor(count) as pool:
        envs = []
        for _ in range(count):
            envs.append(make())
            stack.callback(envs[-1].close)
        free = list(envs)
        while waiting or live:
            begun = [(free.pop(), waiting.pop(0)) for _ in range(min(len(free), len(waiting)))]
            live += pool.map(lambda pair: _RobotEpisode(pair[0], *pair[1]), begun)
            going = [e for e in live if not e.over]
            answers = [a for i in range(0, len(going), policy.together) for a in policy.respond(going[i : i + policy.together])]
            list(pool.map(_RobotEpisode.step, going, answers))
            for episode in [e for e in live if e.over]:
                live.remove(episode)
                free.append(episode.env)
                if episode.failure is not None and episode.retries > 0:
                    log.warning("an episode is begun again: %s", episode.failure)
                    waiting.append((episode.start, episode.retries - 1))
                    continue
                found.append(episode.record())
                if on_episode:
                    on_episode(found[-1], episode.pictures())
    return found


class _RobotEpisode(OpenEpisode):
    """An episode with its environment."""

    def __init__(self, env: Any, start: tuple[int, int], retries: int):
        self.env, self.start, self.retries = env, (int(start[0]), start[1]), retries
        self.over, self.success, self.steps, self.wall_s = False, False, 0, 0.0
        self.failure: str | None = None
        super().__init__(env.unwrapped.context(), [], seed=0)
        try:
            self.observations.append(env.reset(options={"init_state": self.start[0]})[0])
        except InfrastructureError as error:
            self.over, self.failure = True, str(error)

    def step(self, action: Any) -> None:
        observation, _, terminated, truncated, info = self.env.step(action)
        own = info["wmrl"]
        self.answers.append(None)  # an action is large, and no policy asks for its earlier ones
        self.observations.append(observation)
        self.success, self.steps, self.over = bool(terminated), own["steps"], bool(terminated or truncated)
        self.wall_s += float(own.get("wall_s", 0.0))
        if own["status"] == "infra_error":
            self.over, self.failure = True, str(own.get("detail") or "The simulator failed.")

    def record(self) -> Trajectory:
        return robot_episode(
            self.context.task, *self.start, success=self.success, steps=self.steps, failure=self.failure, wall_s=self.wall_s
        )

    def pictures(self) -> Pictures:
        return [o["image"] for o in self.observations if o.get("image") is not None]


def save_gif(frames: Sequence[np.ndarray], path: Any, milliseconds: int = 100) -> None:
    """An animation of pictures (h, w, 3) uint8."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("pillow", "libero", "Videos") from None
    first, *rest = [Image.fromarray(np.ascontiguousarray(frame)) for frame in frames]
    first.save(path, save_all=True, append_images=rest, duration=milliseconds, loop=0)
