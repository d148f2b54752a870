"""`RayEngine`: rollout workers on many nodes as one engine.

Each worker is a Ray actor with an engine of its own. A call's prompts are dealt out to the workers; what a prompt is answered
depends on the prompt and its seed alone, so it does not matter to whom. New weights go into Ray's object store once; a worker
fetches them when it is next asked to generate, and so does one that Ray has restarted elsewhere: nothing is ever sampled from
weights of another version than the one that is stamped on the rollout.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from wmrl_envs.engine import Generation, Prompt, Sampling, max_context
from wmrl_envs.errors import InfrastructureError, InvalidInput, WmrlError
from wmrl_envs.execution.cluster.ray import connect

log = logging.getLogger(__name__)

Weights = list[tuple[str, Any]]


class RayEngine:
    """An `Engine` made of engines on the nodes of a Ray cluster, which all have the model's folder (or fetch it by the same
    name).

    Args:
        kind: of the engines, "transformers" or "vllm".
        model: what they load.
        tokenizer: the learner's.
        workers: how many. gpus, cpus: that each takes of its node.
        address: of the cluster (default: `RAY_ADDRESS`, else one that runs on this machine, else a new one on this machine).
        timeout_s: of one call in all; what is not answered by then is an infrastructure failure.
        options: keyword arguments of the engines.

    Raises:
        MissingExtra: Ray is not installed. InvalidInput: no cluster, or no room in it.
    """

    def __init__(
        self,
        kind: str,
        model: str,
        tokenizer: Any,
        *,
        workers: int,
        gpus: float = 1.0,
        cpus: float = 1.0,
        address: str | None = None,
        timeout_s: float = 3600.0,
        options: dict[str, Any] | None = None,
    ):
        if workers < 1:
            raise InvalidInput(f"RayEngine(workers={workers}): expected at least 1.")
        ray, _ = connect(address, "Generation on several nodes")
        self._ray, self.tokenizer, self.version, self._timeout_s = ray, tokenizer, 0, timeout_s
        there = ray.cluster_resources()
        for resource, each in (("GPU", gpus), ("CPU", cpus)):
            if each * workers > there.get(resource, 0):
                raise InvalidInput(
                    f"{workers} generation workers of {each:g} {resource} each: the Ray cluster has "
                    f"{there.get(resource, 0):g} in all."
                )
        actor = ray.remote(_Worker).options(num_gpus=gpus, num_cpus=cpus, max_restarts=-1, scheduling_strategy="SPREAD")
        self._workers = [actor.remote(kind, model, options or {}) for _ in range(workers)]
        self._weights: Any = None  # reference to those of `version`; None: as loaded
        self._lock = threading.Lock()
        self.max_context = min(self._checked(worker.max_context.remote()) for worker in self._workers)

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int] | None = None, **more: Sequence[Any]
    ) -> list[Generation]:
        """As `Engine.generate`; `more`: further arguments with an entry a prompt."""
        with self._lock:
            version, weights = self.version, [self._weights]  # in a list: a reference, fetched by those who need it
        made: dict[int, Generation] = {}
        deadline, left = time.monotonic() + self._timeout_s, list(range(len(prompts)))
        while left:
            shards = [left[i :: len(self._workers)] for i in range(len(self._workers))]
            asked = {
                worker.generate.remote(
                    version, weights, [prompts[i] for i in shard], sampling, seeds and [seeds[i] for i in shard],
                    {name: [values[i] for i in shard] for name, values in more.items()},
                ): shard
                for worker, shard in zip(self._workers, shards, strict=True) if shard
            }  # fmt: skip
            lost = 0
            for reference, shard in asked.items():
                try:
                    answer = self._checked(reference, deadline - time.monotonic())
                except _WorkerLost:
                    lost += 1
                else:
                    made |= zip(shard, answer, strict=True)
            left = [i for i in left if i not in made]
            if lost:
                log.warning("%d of %d generation workers went away; the others take over", lost, len(self._workers))
                if lost == len(asked):
                    time.sleep(min(5.0, max(0.0, deadline - time.monotonic())))  # all are being restarted
                if time.monotonic() > deadline:
                    raise InfrastructureError(f"No generation worker answered within timeout_s={self._timeout_s:g} s.")
                self._workers = self._workers[1:] + self._workers[:1]  # or a single prompt would go to the lost one again
        return [made[i] for i in range(len(prompts))]

    def update_weights(self, weights: Iterable[tuple[str, Any]] = ()) -> None:
        """Take new weights: kept in the object store until the next ones, fetched by each worker with its next prompts."""
        kept: Weights = [(name, tensor.detach().cpu()) for name, tensor in weights]
        with self._lock:
            self._weights = self._ray.put(kept) if kept else self._weights
            self.version += 1

    def close(self) -> None:
        """End the workers."""
        if self._ray.is_initialized():
            for worker in self._workers:
                self._ray.kill(worker)
        self._workers = []

    def _checked(self, reference: Any, timeout_s: float | None = None) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference, timeout=self._timeout_s if timeout_s is None else max(timeout_s, 0.0))
        except errors.RayTaskError as error:  # raised by our own code
            if isinstance(error.cause, WmrlError):
                raise error.cause from None
            raise InfrastructureError(f"A generation worker failed: {error.cause!r}") from error
        except errors.GetTimeoutError as error:
            raise InfrastructureError(f"No generation worker answered within timeout_s={self._timeout_s:g} s.") from error
        except errors.RayError as error:
            why = str(error).strip().splitlines() or [type(error).__name__]
            raise _WorkerLost(f"A generation worker was lost: {why[-1].strip()}") from error


class _WorkerLost(InfrastructureError):
    """Its node or process died; Ray restarts it where there is room."""


class _Worker:
    """The actor: an engine, and the version of the weights it has."""

    def __init__(self, kind: str, model: str, options: dict[str, Any]):
        from wmrl_train.engines import make_engine

        self._engine, self._version = make_engine(kind, model, **options), 0

    def max_context(self) -> int:
        return int(max_context(self._engine) or 2**31)

    def generate(
        self,
        version: int,
        weights: list[Any],
        prompts: list[Prompt],
        sampling: Sampling,
        seeds: list[int] | None,
        more: dict[str, Any],
    ) -> list[Generation]:
        if self._version != version:
            if weights[0] is not None:
                import ray

                self._engine.update_weights(ray.get(weights[0]))
            self._version = version
        return self._engine.generate(prompts, sampling, seeds, **more)
