"""Leasing GPUs to solutions, across all processes of this machine. Not tested on a GPU machine."""

from __future__ import annotations

import contextlib
import glob
import os
import time
from collections.abc import Iterator, Sequence

from filelock import FileLock, Timeout

from wmrl_envs import paths
from wmrl_envs.errors import InvalidInput


class GpuLeases:
    """A set of GPUs, each lent to `per_device` solutions at a time.

    Args:
        devices: their indices or UUIDs as `CUDA_VISIBLE_DEVICES` takes them; empty: solutions get no GPU.
        per_device: solutions that share one (their memory limits are not separated).
    """

    def __init__(self, devices: Sequence[str | int] = (), per_device: int = 1):
        self.devices = tuple(str(device) for device in devices)
        if per_device < 1 or len(set(self.devices)) != len(self.devices) or any("/" in d or not d for d in self.devices):
            raise InvalidInput(
                f"gpus={devices!r}, per_device={per_device}: expected distinct indices or UUIDs, at least 1 each."
            )
        folder = paths.home() / "gpu-leases"
        if self.devices:
            folder.mkdir(parents=True, exist_ok=True)
        self._slots = [(d, FileLock(folder / f"{d}.{i}", thread_local=False)) for i in range(per_device) for d in self.devices]

    @contextlib.contextmanager
    def lease(self) -> Iterator[str | None]:
        """Wait for a free GPU and hold it; None where there are none to lend."""
        if not self._slots:
            yield None
            return
        while True:
            for device, lock in self._slots:
                if lock.is_locked:  # by another thread of ours
                    continue
                try:
                    lock.acquire(blocking=False)
                except Timeout:
                    continue
                try:
                    yield device
                finally:
                    lock.release()
                return
            time.sleep(0.2)

    @staticmethod
    def nodes(device: str) -> list[str]:
        """Device files a solution with this GPU needs; for a UUID those of all GPUs, since it does not tell the number."""
        own = [f"/dev/nvidia{device}"] if device.isdigit() else glob.glob("/dev/nvidia[0-9]*")
        shared = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
        return [path for path in (*own, *shared) if os.path.exists(path)]
