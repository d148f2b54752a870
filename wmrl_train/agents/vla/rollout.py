"""Episodes of a VLA in several `LIBERO-Long-v0` environments at once: one batched look of the policy, then all step together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from wmrl_envs.context import Episode
from wmrl_envs.errors import InfrastructureError
from wmrl_train.agents.vla.policy import VLAPolicy

log = logging.getLogger(__name__)


@dataclass
class Trajectory:
    """One episode of L looks. `group`: which start of the batch it began from; `infra`: lost to the simulator, no score."""

    group: int
    init_state: int
    observations: list[dict[str, Any]] = field(default_factory=list)  # L + 1
    codes: list[np.ndarray] = field(default_factory=list)  # L x (groups,)
    logprobs: list[np.ndarray] = field(default_factory=list)
    success: bool = False
    steps: int = 0
    ended: bool = False
    infra: bool = False

    def __len__(self) -> int:
        return len(self.codes)

    def episode(self, task: str = "") -> Episode:
        """For a reward model."""
        return Episode(self.observations, self.codes, self.observations[0]["instruction"], task, self.success)


def rollouts(
    policy: VLAPolicy,
    envs: Sequence[Any],
    starts: Sequence[int],
    n: int = 1,
    *,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> list[Trajectory]:
    """`n` episodes from every initial state in `starts`, in order: a group has one initial state and ids 0, 1, ... in `starts`.

    An episode lost to the simulator is run once more; if that is lost too, its trajectory has `infra` set, and its whole
    group should be dropped.
    """
    jobs = [(group, index) for group, index in enumerate(starts) for _ in range(n)]
    results: list[Trajectory | None] = [None] * len(jobs)
    waiting = list(range(len(jobs)))
    retried: set[int] = set()
    with ThreadPoolExecutor(len(envs)) as pool:
        active: dict[int, tuple[int, Trajectory]] = {}  # environment -> (job, trajectory)
        while waiting or active:
            free = [e for e in range(len(envs)) if e not in active][: len(waiting)]
            begun = [(e, waiting.pop(0)) for e in free]
            for e, job, trajectory in pool.map(lambda eb: (eb[0], eb[1], _begin(envs[eb[0]], *jobs[eb[1]])), begun):
                active[e] = (job, trajectory)
            slots = [e for e, (_, t) in active.items() if not t.infra]
            if slots:
                looks = [active[e][1].observations[-1] for e in slots]
                actions, codes, scores = policy.act(looks, temperature, generator)
                stepped = pool.map(lambda ea: envs[ea[0]].step(ea[1]), zip(slots, actions, strict=True))
                for e, code, score, outcome in zip(slots, codes, scores, stepped, strict=True):
                    _advance(active[e][1], code, score, outcome)
            for e in [e for e, (_, t) in active.items() if t.infra or t.ended]:
                job, trajectory = active.pop(e)
                if trajectory.infra and job not in retried:
                    retried.add(job)
                    waiting.append(job)
                else:
                    results[job] = trajectory
    return [t for t in results if t is not None]


def _begin(env: Any, group: int, index: int) -> Trajectory:
    trajectory = Trajectory(group, index)
    try:
        observation, _ = env.reset(options={"init_state": index})
        trajectory.observations.append(observation)
    except InfrastructureError as error:
        log.warning("reset failed: %s", error)
        trajectory.infra = True
    return trajectory


def _advance(trajectory: Trajectory, code: np.ndarray, score: np.ndarray, outcome: tuple[Any, float, bool, bool, dict]) -> None:
    observation, _, terminated, truncated, info = outcome
    trajectory.observations.append(observation)
    trajectory.codes.append(code)
    trajectory.logprobs.append(score)
    trajectory.success, trajectory.steps = bool(terminated), info["wmrl"]["steps"]
    trajectory.infra = info["wmrl"]["status"] == "infra_error"
    trajectory.ended = bool(terminated or truncated)
