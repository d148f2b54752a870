"""Checks of an environment's arguments: each refusal names the argument, what was given and what is expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wmrl_envs.errors import InvalidInput


def expect_count(name: str, value: Any) -> None:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(f"{name}={value!r}: expected a whole number of at least 1.")


def expect_type(name: str, value: Any, *kinds: type) -> None:
    """None or an instance of one of `kinds`."""
    if value is not None and not isinstance(value, kinds):
        raise InvalidInput(f"{name}={value!r}: expected {' or '.join(f'a {kind.__name__}' for kind in kinds)}, or None.")


def expect_one_of(name: str, value: Any, allowed: Sequence[Any]) -> None:
    """None or a string, and one of `allowed`."""
    if not (value is None or isinstance(value, str)) or value not in allowed:  # an array equals nothing and something
        raise InvalidInput(f"{name}={value!r}: expected one of {', '.join(map(repr, allowed))}.")
