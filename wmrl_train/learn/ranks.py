"""The processes that torchrun started for one run, and what they tell each other. One process needs none of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

T = TypeVar("T")
_PATIENCE = timedelta(days=30)  # the others wait for rank 0 through rollouts and evaluations, however long these take


@dataclass(frozen=True)
class Ranks:
    """This process among `size` ones. Every method is called by all of them, in the same order.

    Attributes:
        device: "cpu", or the CUDA device of this rank.
        control: the process group of messages; tensors of the model travel over the default one.

    >>> Ranks().sum({"tokens": 3.0})
    {'tokens': 3.0}
    """

    rank: int = 0
    size: int = 1
    device: str = "cpu"
    control: Any = None

    @classmethod
    def from_torchrun(cls, device: str = "auto") -> Ranks:
        """Join the processes of this `torchrun`: NCCL between GPUs, gloo between CPUs. A single process joins nothing."""
        size, local = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
        if size == 1:
            return cls()
        import torch
        import torch.distributed as dist

        cuda = device != "cpu" and torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(local)
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
        control = dist.new_group(backend="gloo", timeout=_PATIENCE)
        return cls(dist.get_rank(), size, f"cuda:{local}" if cuda else "cpu", control)

    def broadcast(self, value: T) -> T:
        """Rank 0's value."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.control)
        return box[0]

    def gather(self, items: list[T]) -> list[T]:
        """The items of all ranks, in order of rank."""
        if self.size == 1:
            return items
        import torch.distributed as dist

        lists: list[Any] = [None] * self.size
        dist.all_gather_object(lists, items, group=self.control)
        return [item for items in lists for item in items]

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sums over the ranks by key; a rank may lack keys."""
        totals: dict[str, float] = {}
        for key, value in self.gather(list(values.items())):
            totals[key] = totals.get(key, 0.0) + value
        return totals

    def leave(self) -> None:
        """End of the common work; safe to call twice."""
        if self.size > 1:
            import torch.distributed as dist

            if dist.is_initialized():
                dist.destroy_process_group()
