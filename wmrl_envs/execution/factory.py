"""`make_sandbox`: a sandbox by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmrl_envs.errors import InvalidInput, IsolationError, WmrlError
from wmrl_envs.execution.base import Sandbox

if TYPE_CHECKING:
    from wmrl_envs.execution.recorded.store import CacheMode


def make_sandbox(kind: str = "auto", *, cache: CacheMode = "off", store: str | Path | None = None, **kwargs: Any) -> Sandbox:
    """The sandbox of this kind; `kwargs` go to its constructor.

    Args:
        kind: "process" (embedded, no daemon), "docker", "ray" (on the nodes of a cluster), "replay" (recorded executions
            only), or "auto": the embedded one, or Docker where this machine can isolate only with it.
        cache: "off", "read" or "read-write": whether executions are remembered in `store` (a folder; a replay's too).

    Raises:
        InvalidInput: an unknown kind, mode or option, or no store to replay. IsolationError: "auto" found no way to isolate untrusted code.
    """
    if kind != "replay" and cache == "off":
        return _make(kind, kwargs)
    from wmrl_envs.execution.recorded.store import CachedSandbox, ExecutionStore, ReplaySandbox, check_mode

    if cache != "off":
        check_mode(cache)
    if kind == "replay":
        return _build(ReplaySandbox, kind, kwargs | {"store": ExecutionStore(create=False) if store is None else store})
    opened = ExecutionStore(store)  # before the sandbox, which may have processes that somebody has to end
    try:
        return CachedSandbox(_make(kind, kwargs), cache, opened)
    except BaseException:
        opened.close()
        raise


def _build(receiver: Any, kind: str, kwargs: dict[str, Any]) -> Sandbox:
    import inspect

    try:
        inspect.signature(receiver).bind(**kwargs)
    except TypeError as error:
        known = ", ".join(name for name in inspect.signature(receiver).parameters if name != "store")
        raise InvalidInput(f"make_sandbox({kind!r}, ...): {error}; its options are {known}.") from None
    return receiver(**kwargs)


def _make(kind: str, kwargs: dict[str, Any]) -> Sandbox:
    match kind:
        case "process":
            from wmrl_envs.execution.process.sandbox import ProcessSandbox

            return _build(ProcessSandbox, kind, kwargs)
        case "docker":
            from wmrl_envs.execution.docker import DockerSandbox

            return _build(DockerSandbox, kind, kwargs)
        case "ray":
            from wmrl_envs.execution.cluster.ray import RaySandbox

            return _build(RaySandbox, kind, kwargs)
        case "auto":
            return _auto(kwargs)
    raise InvalidInput(f"There is no sandbox {kind!r}: expected 'auto', 'process', 'docker', 'ray' or 'replay'.")


def _auto(kwargs: dict[str, Any]) -> Sandbox:
    try:
        return _make("process", kwargs)
    except IsolationError as embedded:
        try:
            return _make("docker", {})
        except WmrlError as docker:
            raise IsolationError(f"{embedded} Docker is no way out either: {docker}") from None
