"""`make_sandbox`: a sandbox by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmrl_envs.errors import InvalidInput, IsolationError, WmrlError
from wmrl_envs.execution.base import Sandbox

if TYPE_CHECKING:
    from wmrl_envs.execution.cache import CacheMode


def make_sandbox(kind: str = "auto", *, cache: CacheMode = "off", store: str | Path | None = None, **kwargs: Any) -> Sandbox:
    """The sandbox of this kind; `kwargs` go to its constructor.

    Args:
        kind: "process" (embedded, no daemon), "docker", "ray" (on the nodes of a cluster), "replay" (recorded executions
            only), or "auto": the embedded one, or Docker where this machine can isolate only with it.
        cache: "off", "read" or "read-write": whether executions are remembered in `store` (a folder; a replay's too).

    Raises:
        InvalidInput: an unknown kind. IsolationError: "auto" found no way to isolate untrusted code.
    """
    if kind == "replay":
        from wmrl_envs.execution.cache import ReplaySandbox

        return ReplaySandbox(store, **kwargs)
    if cache != "off":
        from wmrl_envs.execution.cache import CachedSandbox, check_mode

        check_mode(cache)
        return CachedSandbox(_make(kind, kwargs), cache, store)
    return _make(kind, kwargs)


def _make(kind: str, kwargs: dict[str, Any]) -> Sandbox:
    match kind:
        case "process":
            from wmrl_envs.execution.process import ProcessSandbox

            return ProcessSandbox(**kwargs)
        case "docker":
            from wmrl_envs.execution.docker import DockerSandbox

            return DockerSandbox(**kwargs)
        case "ray":
            from wmrl_envs.execution.ray import RaySandbox

            return RaySandbox(**kwargs)
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
