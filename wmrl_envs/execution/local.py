"""Sandboxes of this machine: the embedded one, Docker's, or the one of the two that isolates here."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from wmrl_envs.errors import InvalidInput, IsolationError, WmrlError
from wmrl_envs.execution.base import Sandbox

KINDS = ("auto", "process", "docker")


def make_local(kind: str, options: dict[str, Any]) -> Sandbox:
    """The sandbox of this kind, one of `KINDS`; `options` go to its constructor.

    Raises:
        InvalidInput: an unknown option. IsolationError: "auto" found no way to isolate untrusted code.
    """
    if kind == "process" and sys.platform != "linux":
        raise IsolationError(
            f"The embedded sandbox isolates with what the Linux kernel has, and this is {sys.platform}: install Docker and use "
            "sandbox 'docker'."
        )
    if kind == "process":
        from wmrl_envs.execution.process.sandbox import ProcessSandbox

        return build(ProcessSandbox, kind, options)
    if kind == "docker":
        from wmrl_envs.execution.docker import DockerSandbox

        return build(DockerSandbox, kind, options)
    try:
        return make_local("process", options)
    except IsolationError as embedded:
        try:
            return make_local("docker", {})
        except WmrlError as docker:
            raise IsolationError(f"{embedded} Docker is no way out either: {docker}") from None


def build(receiver: Any, kind: str, options: dict[str, Any]) -> Sandbox:
    """`receiver(**options)`, if it takes these options."""
    try:
        inspect.signature(receiver).bind(**options)
    except TypeError as error:
        known = ", ".join(name for name in inspect.signature(receiver).parameters if name != "store")
        raise InvalidInput(f"make_sandbox({kind!r}, ...): {error}; its options are {known}.") from None
    return receiver(**options)
