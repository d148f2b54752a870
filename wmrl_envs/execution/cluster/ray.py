"""`RaySandbox`: executions on the nodes of a Ray cluster.

An execution is a Ray task that asks for `cpus`. Ray queues it, places it on a node with room, and runs it again elsewhere
when its worker or node dies; nothing here keeps a list of nodes. A worker process of Ray makes a sandbox of the kind `inner`
for its first task and keeps it (warm) for those that follow. Ray isolates nothing: what isolates is that sandbox.

Data folders are not assumed to be everywhere: a node uses the folder of the same path if it looks the same (shared storage,
the driver's own machine), else it is sent the contents once (`shipping`).
"""

from __future__ import annotations

import functools
import json
import logging
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wmrl_envs.errors import InfrastructureError, InvalidInput, MissingExtra, WmrlError
from wmrl_envs.execution.base import Job, Sandbox
from wmrl_envs.execution.cluster import shipping
from wmrl_envs.execution.local import KINDS, make_local
from wmrl_envs.outcome import Execution

_ANSWER_GRACE_S = 120.0


class RaySandbox(Sandbox):
    """Many nodes as one sandbox. `wmrl` and the sandbox environment must be installed on all of them.

    Args:
        inner: kind of the sandbox on the nodes: "auto", "process" or "docker".
        address: of the cluster (default: `RAY_ADDRESS`, else one that runs on this machine, else a new one on this machine).
        cpus: cores that an execution takes; a node runs as many at a time as it has room for.
        gpus: GPUs that an execution takes, likewise. They are lent by Ray and handed on to the inner sandbox. Not tested on a
            GPU machine.
        memory_mb: that Ray sets aside for an execution (default: none; its limit holds anyway).
        retries: how often Ray runs an execution again that was lost with its worker or node.
        wait_s: how long an execution may wait for room before that counts as an infrastructure failure.
        options: keyword arguments of the inner sandbox.

    Raises:
        MissingExtra: Ray is not installed. InvalidInput: the nodes' sandboxes differ, or no node has room for an execution.
    """

    def __init__(
        self,
        inner: str = "auto",
        *,
        address: str | None = None,
        cpus: float = 1.0,
        gpus: int = 0,
        memory_mb: int | None = None,
        retries: int = 3,
        wait_s: float = 3600.0,
        options: Mapping[str, Any] | None = None,
    ):
        if inner not in KINDS:
            raise InvalidInput(f"RaySandbox(inner={inner!r}): expected 'auto', 'process' or 'docker'.")
        if not cpus > 0:
            raise InvalidInput(f"RaySandbox(cpus={cpus!r}): expected a number above 0.")
        self._ray, ours = connect(address, "The Ray sandbox")
        self._running: set[Any] = set()
        self._finalizer = weakref.finalize(self, _close, self._ray, self._running, ours)
        self._spec = (inner, json.dumps(dict(options or {}), default=str))
        self._takes, self._wait_s = {"CPU": float(cpus)} | ({"GPU": float(gpus)} if gpus else {}), wait_s
        self._task = self._ray.remote(_execute).options(
            num_cpus=cpus,
            num_gpus=gpus,
            memory=memory_mb and memory_mb << 20,
            max_retries=retries,
            scheduling_strategy="SPREAD",
        )
        self._lock = threading.Lock()
        self._shipped: dict[str, tuple[str, list[Any]]] = {}  # signature -> digest, parts in Ray's object store
        try:
            self._environment, self.tier = self._survey()
        except BaseException:
            self.close()
            raise

    @property
    def lock(self) -> str:
        return self._environment

    @property
    def slots(self) -> int:
        """Executions the nodes that are alive now can run at a time."""
        return sum(min(int(node["Resources"][kind] // each) for kind, each in self._takes.items()) for node in self._nodes())

    def run_job(self, job: Job) -> Execution:
        folder = job.data_dir.expanduser().resolve()
        job, seen = replace(job, data_dir=folder), shipping.signature(folder)
        execution = self._ask(job, seen, None)
        if execution is None:  # the node that took it does not have the data
            execution = self._ask(job, seen, self._ship(folder, seen))
        if execution is None:
            raise InfrastructureError(f"A node could not make its copy of {folder}.")
        return execution

    def close(self) -> None:
        self._finalizer()

    def _ask(self, job: Job, seen: str, shipped: tuple[str, list[Any]] | None) -> Execution | None:
        errors = self._ray.exceptions
        if not self._finalizer.alive:
            raise InvalidInput("This sandbox is closed.")
        reference = self._task.remote(self._spec, self._environment, job, seen, shipped)
        self._running.add(reference)
        try:
            return self._ray.get(reference, timeout=self._wait_s + job.limits.timeout_s + _ANSWER_GRACE_S)
        except errors.RayTaskError as error:  # raised by our own code on the node
            if isinstance(error.cause, WmrlError):
                raise error.cause from None
            raise InfrastructureError(f"The sandbox on a Ray node failed: {error.cause!r}") from error
        except errors.GetTimeoutError as error:
            self._ray.cancel(reference, force=True)
            raise InfrastructureError(
                f"No Ray node ran an execution within wait_s={self._wait_s:g} s and its own limit: is the cluster alive "
                "(`ray status`)?"
            ) from error
        except errors.RayError as error:  # lost more often than `retries`, or cancelled by `close`
            raise InfrastructureError(f"Ray lost an execution ({type(error).__name__}).") from error
        finally:
            self._running.discard(reference)

    def _ship(self, folder: Path, seen: str) -> tuple[str, list[Any]]:
        with self._lock:
            if seen not in self._shipped:
                parts: list[Any] = []
                digest = shipping.pack(folder, lambda part: parts.append(self._ray.put(part)))
                self._shipped[seen] = digest, parts
            return self._shipped[seen]

    def _nodes(self) -> list[dict[str, Any]]:
        """Those alive that have room for an execution."""
        takes = self._takes.items()
        return [n for n in self._ray.nodes() if n["Alive"] and all(n["Resources"].get(k, 0) >= each for k, each in takes)]

    def _survey(self) -> tuple[str, str]:
        """(environment lock, tier) of the nodes; every node is asked, so that what is wrong is known before a run starts."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = self._nodes()
        if not nodes:
            takes = " and ".join(f"{each:g} {kind}" for kind, each in self._takes.items())
            raise InvalidInput(f"No node of the Ray cluster has the {takes} of an execution: lower cpus or gpus, or add nodes.")
        describe = self._ray.remote(_describe)
        asked = {
            f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})": describe.options(
                num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(self._spec)
            for node in nodes
        }
        found = {}
        for name, reference in asked.items():
            try:
                found[name] = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError as error:
                raise InvalidInput(f"Ray node {name} has no usable sandbox: {error.cause}") from None
        if len(set(found.values())) > 1:
            kinds = "; ".join(f"{name}: {environment[:12]}, {tier}" for name, (environment, tier) in found.items())
            raise InvalidInput(
                f"The sandboxes of the Ray nodes differ (environment, isolation): {kinds}. Run `wmrl sandbox build` on all of "
                "them."
            )
        return next(iter(found.values()))


def connect(address: str | None, purpose: str) -> tuple[Any, bool]:
    """The module `ray`, connected to a cluster, and whether it was this call that connected it.

    Raises:
        MissingExtra: Ray is not installed; `purpose` says what needs it. InvalidInput: no cluster can be reached or started.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "ray", purpose) from None
    if ray.is_initialized():
        return ray, False
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises exceptions of no class of its own
        where = "on this machine" if address is None else f"at {address!r}"
        raise InvalidInput(f"No Ray cluster could be reached or started {where}: {' '.join(str(error).split())}") from error
    return ray, True


def _close(ray: Any, running: set[Any], ours: bool) -> None:
    if not ray.is_initialized():
        return
    for reference in list(running):
        ray.cancel(reference, force=True)
    if ours:
        ray.shutdown()


# -- on the nodes --------------------------------------------------------------------------------------------------------
@functools.cache
def _sandbox(kind: str, options: str, gpus: tuple[str, ...] = ()) -> Sandbox:
    """The one of this worker process (for these GPUs); it ends with the process."""
    return make_local(kind, json.loads(options) | ({"gpus": gpus} if gpus else {}))


def _describe(spec: tuple[str, str]) -> tuple[str, str]:
    box = _sandbox(*spec)
    return box.lock, box.tier


def _execute(
    spec: tuple[str, str], environment: str, job: Job, seen: str, shipped: tuple[str, Sequence[Any]] | None
) -> Execution | None:
    """Run a job here; None if its data is neither here nor `shipped` (the digest, and references to the parts)."""
    import ray

    box = _sandbox(*spec, tuple(ray.get_runtime_context().get_accelerator_ids()["GPU"]))
    if box.lock != environment:  # a node that joined later
        raise InfrastructureError(
            "The sandbox environment of a Ray node differs from the others': run `wmrl sandbox build` there."
        )
    if not _looks_like(job.data_dir, seen):
        if shipped is None:
            return None
        digest, parts = shipped
        job = replace(job, data_dir=shipping.unpack(_fetched(parts), digest))
    return box.run_job(job)


def _looks_like(folder: Path, seen: str) -> bool:
    return folder.is_dir() and shipping.signature(folder) == seen


def _fetched(references: Sequence[Any]) -> Iterator[bytes]:
    import ray

    for reference in references:
        yield ray.get(reference)
