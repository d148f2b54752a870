"""Requests to a server, ours or others': an address that is one, what is worth another attempt, and how it is tried again."""

from __future__ import annotations

import logging
import urllib.parse
from typing import Any

from tenacity import Retrying, before_sleep_log, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from wmrl_envs.errors import InvalidInput


def server_retries(transient: type[Exception], attempts: int, max_wait_s: float, log: logging.Logger) -> Retrying:
    """Calls what it is given up to `attempts` times while it raises `transient`; waits grow exponentially, with jitter, up to
    `max_wait_s`. Every wait is a warning in `log`, and the last failure is raised as it is.
    """
    return Retrying(
        retry=retry_if_exception_type(transient),
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=min(0.5, max_wait_s), max=max_wait_s),
        before_sleep=before_sleep_log(log, logging.WARNING),
        reraise=True,
    )


def checked_url(url: Any, given: str, example: str) -> str:
    """The address without a slash at its end, so that a mistake in it is not taken for a server that is down.

    Args:
        given: how the user wrote it. example: of one that is right.

    Raises:
        InvalidInput: no address of a web server.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and url.isascii()
        usable = usable and url.isprintable() and " " not in url and parts.hostname.encode("idna")
    except (ValueError, TypeError, AttributeError):  # brackets, port, label of a host; no text
        usable = False
    if not usable:
        raise InvalidInput(f"{given}: expected an address such as {example}.")
    return url.rstrip("/")


def worth_another_attempt(status: int) -> bool:
    """Whether an HTTP status says "not now" rather than "never"."""
    return status in (408, 425, 429) or status >= 500
