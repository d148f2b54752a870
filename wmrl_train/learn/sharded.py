"""Learning on several GPUs (or CPUs): FSDP2 over the processes that torchrun started, driven by rank 0.

Rank 0 runs the trainer as a single process would, with one difference: its learner is a `ShardedLearner`, whose calls the other
ranks follow. It keeps a whole copy of the policy, from which the engine samples and checkpoints are written, and which gets the
trained weights after every update. Samples are dealt out over the ranks; weights, gradients and moments are sharded. The
checkpoint is that of a single process, so a run may go on with any number of ranks.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from wmrl_envs.errors import WmrlError
from wmrl_train.config import OptimConfig
from wmrl_train.learn.guard import NonFiniteLoss
from wmrl_train.learn.host_optimizer import HostAdamW
from wmrl_train.learn.learner import Learner, Sample, Whole
from wmrl_train.learn.ranks import Ranks


class ShardedLearner(Learner):
    """A `Learner` on several ranks, with equal results up to rounding.

    Rank 0 calls `update`, `state_dict`, `load_state_dict` and `close`; the others call `follow`.

    Args:
        model: the policy, the same on all ranks (rank 0's weights are the ones that count). On rank 0 it stays whole, and
            `update` and `load_state_dict` keep it and the shards in step.
        ranks: from `Ranks.from_torchrun`.
        options: as for `Learner`.
    """

    def __init__(self, model: Any, config: OptimConfig, *, ranks: Ranks, **options: Any):
        self.whole = model if ranks.rank == 0 else None
        self._saved: dict[str, Any] = {}
        self._in_step = True  # whether all ranks wait for the next call
        super().__init__(copy.deepcopy(model).cpu() if ranks.rank == 0 else model, config, ranks=ranks, **options)

    def update(self, samples: Sequence[Sample]) -> dict[str, float]:
        """As `Learner.update`; rank 0's whole copy has the new weights afterwards."""
        return self._together("_update", list(samples))

    def state_dict(self) -> dict[str, Any]:
        """The state a single process would have, whole and in host memory."""
        return self._together("_gather_state")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Shard that state, and the weights of rank 0's whole copy."""
        self._saved = state
        self._together("_scatter_state", int(state["updates"]), bool(state["optimizer"]["state"]))
        self._saved = {}

    def close(self) -> None:
        """Let the other ranks go."""
        if self._in_step:
            self._in_step = False
            self.ranks.broadcast(None)

    def follow(self) -> None:
        """Do what rank 0 does, until it closes."""
        while (call := self.ranks.broadcast(None)) is not None:
            name, arguments = call
            with contextlib.suppress(NonFiniteLoss):  # rank 0 tells
                getattr(self, name)(*arguments)

    def _together(self, name: str, *arguments: Any) -> Any:
        if not self._in_step:
            raise WmrlError("The processes of this run are out of step: resume from the last checkpoint.")
        self.ranks.broadcast((name, arguments))
        self._in_step = False
        try:
            result = getattr(self, name)(*arguments)
        except NonFiniteLoss:  # on every rank, see Learner.update
            self._in_step = True
            raise
        self._in_step = True
        return result

    # -- on every rank -----------------------------------------------------------------------------------------------
    def _place(self, whole: Whole) -> None:
        for tensor in whole.state_dict().values():
            dist.broadcast(tensor, 0)
        mesh = init_device_mesh(self.ranks.device.partition(":")[0], (self.ranks.size,))
        inner = whole.model.get_base_model() if hasattr(whole.model, "get_base_model") else whole.model
        layers = set(inner._no_split_modules or ())
        for module in inner.modules():
            if type(module).__name__ in layers:
                fully_shard(module, mesh=mesh)
        fully_shard(whole, mesh=mesh)

    def _update(self, samples: Sequence[Sample]) -> dict[str, float]:
        values = super().update(samples)
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                gathered = parameter.detach().full_tensor()
                if self.whole is not None:
                    self.whole.get_parameter(name).data.copy_(gathered)
        return values

    def _gather_state(self) -> dict[str, Any]:
        with self._moments_on_device():
            options = StateDictOptions(full_state_dict=True, cpu_offload=True)
            state: dict[str, Any] = get_optimizer_state_dict(self.model, self.optimizer, options=options)
        if not state:  # only rank 0 is given one
            return {}
        number = {name: i for i, name in enumerate(self._trained())}
        moments = {number[name]: value for name, value in state["state"].items()}
        groups = [group | {"params": [number[name] for name in group["params"]]} for group in state["param_groups"]]
        return {"optimizer": {"state": moments, "param_groups": groups}, "updates": self.updates}

    def _scatter_state(self, updates: int, has_moments: bool) -> None:
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(self.model, {} if self.whole is None else self.whole.state_dict(), options=options)
        if has_moments:
            state: dict[str, Any] = {}
            if self._saved:
                names, saved = self._trained(), self._saved["optimizer"]
                groups = [group | {"params": [names[i] for i in group["params"]]} for group in saved["param_groups"]]
                state = {"state": {names[i]: value for i, value in saved["state"].items()}, "param_groups": groups}
            with self._moments_on_device():
                set_optimizer_state_dict(self.model, self.optimizer, state, options=options)
        self.updates = updates

    def _trained(self) -> list[str]:
        """Names of the trained weights, in the optimizer's order."""
        return [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]

    @contextlib.contextmanager
    def _moments_on_device(self) -> Any:
        """Collectives run where the shards are."""
        if not isinstance(self.optimizer, HostAdamW):
            yield
            return
        self.optimizer.move_all(to_host=False)
        try:
            yield
        finally:
            self.optimizer.move_all(to_host=True)
