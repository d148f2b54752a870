"""Errors of WMRL. Each message is one sentence or two: what was given, what was expected, how to fix it.

The command line prints the message of a `WmrlError` without a traceback and exits with status 2.
"""

from __future__ import annotations


class WmrlError(Exception):
    """Base of every error a user can cause or fix."""


class InvalidInput(WmrlError, ValueError):
    """A value that cannot be used: an unknown name, a number out of range, shapes that do not fit."""


class InvalidAction(WmrlError, TypeError):
    """An action of the wrong type for this environment."""


class DataNotBuilt(WmrlError, FileNotFoundError):
    """Data, a model or a sandbox environment that a command has to make first; the message names the command."""


class MissingExtra(WmrlError, ImportError):
    """An optional dependency is absent; the message names the extra to install."""

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(f"{purpose} needs the package {package!r}, which is not installed: {install_hint(extra)}.")


def install_hint(extra: str) -> str:
    """How to install an extra, in words.

    >>> install_hint("libero")
    "in the clone of WMRL, pip install '.[libero]'"
    """
    cuda = (
        " (without a GPU, install torch's CPU build before it, as `make setup` does: the extra alone brings gigabytes of CUDA)"
    )
    return f"in the clone of WMRL, pip install '.[{extra}]'" + (cuda if extra in ("train", "sb3", "trl") else "")


class IsolationError(WmrlError, RuntimeError):
    """This machine cannot isolate untrusted code; the message says which probe failed and what to do."""


class InfrastructureError(WmrlError, RuntimeError):
    """A failure of ours (sandbox, engine, daemon, disk), never of the agent: retried, then raised. Never a score of 0."""
