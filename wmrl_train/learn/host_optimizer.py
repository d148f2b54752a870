"""AdamW whose moments live in host memory between updates, so that rollouts and the backward pass have the GPU's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

CHUNK_ELEMENTS = 2**27  # parameters whose moments are on the device at a time: 1 GB of two float32 moments


class HostAdamW(torch.optim.AdamW):
    """`torch.optim.AdamW` with equal results. A step brings in the moments of `CHUNK_ELEMENTS` parameters at a time.

    Host memory is pinned where there is a GPU. Parameters on the CPU have their moments there anyway: nothing is copied.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients = [(p, p.grad) for group in self.param_groups for p in group["params"] if p.grad is not None]
        for p, _ in gradients:
            p.grad = None
        for chunk in _chunks(gradients):
            for p, gradient in chunk:
                p.grad = gradient
                self._move(p, _local(p).device)
            super().step()
            for p, _ in chunk:
                p.grad = None
                self._move(p, torch.device("cpu"))
        for p, gradient in gradients:
            p.grad = gradient
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As AdamW's, which puts the moments on the parameters' devices; they go back to the host."""
        super().load_state_dict(state_dict)
        self.move_all(to_host=True)

    def move_all(self, *, to_host: bool) -> None:
        """Every moment to the host, or to its parameter's device."""
        for p in self.state:
            self._move(p, torch.device("cpu") if to_host else _local(p).device)

    @torch.no_grad()
    def _move(self, parameter: Tensor, device: torch.device) -> None:
        for value in self.state[parameter].values() if parameter in self.state else ():
            if isinstance(value, Tensor) and value.dim() and _local(value).device != device:
                local = _local(value)
                moved = torch.empty(local.shape, dtype=local.dtype, device=device, pin_memory=device.type == "cpu")
                local.data = moved.copy_(local)


def _chunks(gradients: list[tuple[Tensor, Tensor]]) -> Iterator[list[tuple[Tensor, Tensor]]]:
    chunk: list[tuple[Tensor, Tensor]] = []
    for pair in gradients:
        chunk.append(pair)
        if sum(_local(p).numel() for p, _ in chunk) >= CHUNK_ELEMENTS:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _local(tensor: Tensor) -> Tensor:
    """This rank's shard of a sharded tensor (the very storage); the tensor itself otherwise."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
