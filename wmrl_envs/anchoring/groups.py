"""Which episode of which slot belongs to which group: ids, shared seeds and the anchor decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wmrl_envs.correction.schedule import AnchorSchedule
from wmrl_envs.errors import InvalidInput


@dataclass(slots=True)
class Group:
    """One group of episodes: the e-th episode of every slot of a block."""

    id: int
    seed: int | None  # of the resets; None: unseeded
    anchored: bool
    propensity: float
    unfinished: int
    dropped: bool = False  # a failure of ours: its episodes count nowhere


class GroupBook:
    """Slots lie in blocks of `size`; the e-th episodes of a block form a group with an id that is never used again.

    Members do not wait for each other, so two groups of a block may be in flight. The decision to anchor falls when the
    first member starts; it is forced if fewer than `min_anchored` of the other blocks' newest groups are anchored.
    """

    def __init__(
        self, n_slots: int, size: int, schedule: AnchorSchedule, min_anchored: int, seed: int, draws_seeds: bool = False
    ):
        self.size, self.schedule, self.min_anchored, self.seed = size, schedule, min_anchored, seed
        self.n_blocks = n_slots // size
        self.draws_seeds = draws_seeds  # episodes have a seed even if no reset was given one
        self.seeded = False  # whether episodes follow from a seed that a reset was given
        self._episode = [-1] * n_slots  # number of each slot's current episode
        self._origin = 0  # number of the first episode under `seed`
        self._next_id = 0
        self._open: dict[tuple[int, int], Group] = {}  # (block, episode) -> group with unfinished members
        self._newest: list[Group | None] = [None] * self.n_blocks

    def start_all(self, seed: int | Sequence[int | None] | None) -> list[Group]:
        """Begin a new episode everywhere, whatever was running; with a seed, everything random starts over from it."""
        first: list[int | None] = [None] * self.n_blocks
        episode = max(self._episode) + 1
        if isinstance(seed, (int, np.integer)):
            self.seed, self._origin, self.seeded = int(seed), episode, True
            self.schedule.reseed(self.seed)
        elif seed is not None:
            first = self._seeds_of_blocks(seed)
            self.seeded = None not in first
        self._open.clear()
        self._newest = [None] * self.n_blocks
        self._episode = [episode] * len(self._episode)
        anchored, propensity = self.schedule.draw(self.n_blocks, min_groups=self.min_anchored)
        for block in range(self.n_blocks):
            self._create(block, episode, bool(anchored[block]), float(propensity[block]), first[block])
        return [self._open[slot // self.size, episode] for slot in range(len(self._episode))]

    def start(self, slot: int) -> Group:
        """Begin the slot's next episode."""
        self._episode[slot] += 1
        block, episode = slot // self.size, self._episode[slot]
        if (block, episode) not in self._open:
            others = sum(g is not None and g.anchored for b, g in enumerate(self._newest) if b != block)
            anchored, propensity = self.schedule.draw(1, min_groups=int(others < self.min_anchored))
            self._create(block, episode, bool(anchored[0]), float(propensity[0]), None)
        return self._open[block, episode]

    def finish(self, slot: int) -> None:
        """The slot's current episode is over."""
        key = slot // self.size, self._episode[slot]
        self._open[key].unfinished -= 1
        if self._open[key].unfinished == 0:
            del self._open[key]

    def _create(self, block: int, episode: int, anchored: bool, propensity: float, seed: int | None) -> None:
        if seed is None:
            seed = self._seed_of(block, episode - self._origin)
        group = Group(self._next_id, seed, anchored, propensity, self.size)
        self._next_id += 1
        self._open[block, episode] = self._newest[block] = group

    def _seed_of(self, block: int, turn: int) -> int | None:
        """The first episode is seeded as gymnasium's vector environments do it; later ones from a hash.

        (Not by going on with the environment's generator: predicted episodes draw nothing from it, so that starts would depend
        on what was anchored.) Without a seed, members of a group still have to start alike.
        """
        if not self.seeded:
            return None if self.size == 1 and not self.draws_seeds else int(np.random.SeedSequence().generate_state(1)[0])
        if turn == 0:
            return self.seed + block
        return int(np.random.SeedSequence([self.seed, block, turn]).generate_state(1)[0])

    def _seeds_of_blocks(self, seeds: Sequence[int | None]) -> list[int | None]:
        if len(seeds) != len(self._episode):
            raise InvalidInput(f"{len(seeds)} seeds for {len(self._episode)} environments: expected one each.")
        blocks = [list(seeds[i : i + self.size]) for i in range(0, len(seeds), self.size)]
        for block in blocks:
            if any(s != block[0] for s in block):
                raise InvalidInput(
                    f"seeds {block} for one group: its {self.size} members share their seed, so give them the same."
                )
        return [block[0] for block in blocks]

    def state_dict(self) -> dict[str, Any]:
        """Counters and random state; episodes in flight are not resumed, the next `reset()` starts new ones."""
        return {"seed": self.seed, "seeded": self.seeded, "origin": self._origin, "episode": max(self._episode),
                "next_id": self._next_id, "schedule": self.schedule.state_dict()}  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seed, self._origin, self._next_id = state["seed"], state["origin"], state["next_id"]
        self.seeded = state.get("seeded", True)
        self._episode = [state["episode"]] * len(self._episode)
        self.schedule.load_state_dict(state["schedule"])
