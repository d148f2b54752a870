"""`make_sandbox`: a sandbox by name."""

from __future__ import annotations

from typing import Any

from wmrl_envs.errors import InvalidInput, IsolationError, WmrlError
from wmrl_envs.execution.base import Sandbox


def make_sandbox(kind: str = "auto", **kwargs: Any) -> Sandbox:
    """The sandbox of this kind; `kwargs` go to its constructor.

    Args:
        kind: "process" (embedded, no daemon), "docker", "replay" (recorded executions only), or "auto": the embedded one,
            or Docker where this machine can isolate only with it.

    Raises:
        InvalidInput: an unknown kind. IsolationError: "auto" found no way to isolate untrusted code.
    """
    match kind:
        case "process":
            from wmrl_envs.execution.process import ProcessSandbox

            return ProcessSandbox(**kwargs)
        case "docker":
            from wmrl_envs.execution.docker import DockerSandbox

            return DockerSandbox(**kwargs)
        case "replay":
            from wmrl_envs.execution.cache import ReplaySandbox

            return ReplaySandbox(**kwargs)
        case "auto":
            return _auto(kwargs)
    raise InvalidInput(f"There is no sandbox {kind!r}: expected 'auto', 'process', 'docker' or 'replay'.")


def _auto(kwargs: dict[str, Any]) -> Sandbox:
    try:
        return make_sandbox("process", **kwargs)
    except IsolationError as embedded:
        try:
            return make_sandbox("docker")
        except WmrlError as docker:
            raise IsolationError(f"{embedded} Docker is no way out either: {docker}") from None
