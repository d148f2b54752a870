"""Requests to a server, ours or others': an address that is one, a request, what is worth another attempt, how it is tried
again.
"""

from __future__ import annotations

import json
import logging
import urllib.parse
from collections.abc import Mapping
from functools import cache
from typing import Any

from tenacity import Retrying, before_sleep_log, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from wmrl_envs.errors import InvalidInput

MOST_BYTES = 2**26  # of a reply
_DETAIL_BYTES = 2000  # read of what a refusal says


class Refusal(Exception):
    """A server answered with a status that is no success. `detail`: the beginning of what it says."""

    def __init__(self, status: int, detail: str):
        super().__init__(f"{status}: {detail}")
        self.status, self.detail = status, detail

    @property
    def worth_another_attempt(self) -> bool:
        """Whether the status says "not now" rather than "never"."""
        return self.status in (408, 425, 429) or self.status >= 500


class NoAnswer(Exception):
    """No connection, a time limit, something that is no HTTP, a reply that is no JSON or too large:
    all worth another attempt.
    """


def ask(
    url: str, body: bytes | None = None, *, headers: Mapping[str, str], timeout_s: float, most_bytes: int = MOST_BYTES
) -> Any:
    """What a server answers, read from JSON. A POST with a body, a GET without. Redirects are not followed: nobody checked
    where to.

    Args:
        url: address to ask, checked before (`checked_url`).
        body: bytes to send; None: a GET.
        headers: HTTP headers to send.
        timeout_s: seconds for connecting, and for any wait for more bytes.
        most_bytes: largest reply that is read.

    Raises:
        Refusal, NoAnswer: see there. Neither shows a header.
    """
    import httpx2

    try:
        with (
            httpx2.Client(verify=_tls(), timeout=timeout_s) as client,
            client.stream("GET" if body is None else "POST", url, content=body, headers=dict(headers)) as reply,
        ):
            if not reply.is_success:
                raise Refusal(reply.status_code, _beginning(reply))
            return json.loads(_read(reply, most_bytes))
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, RecursionError) as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from error


@cache
def _tls() -> Any:
    """The certificates of this machine, read once: it takes a tenth of a second."""
    import httpx2

    return httpx2.create_ssl_context()


def _read(reply: Any, most_bytes: int) -> bytes:
    content = bytearray()
    for chunk in reply.iter_bytes():
        content += chunk
        if len(content) > most_bytes:
            raise ValueError(f"a reply of more than {most_bytes} bytes")
    return bytes(content)


def _beginning(reply: Any) -> str:
    """What a refusal says, as far as it arrives; of our own servers the sentence in it."""
    import httpx2

    content = b""
    try:
        for chunk in reply.iter_bytes():
            content += chunk
            if len(content) >= _DETAIL_BYTES:
                break
    except httpx2.HTTPError:
        pass
    return content[:_DETAIL_BYTES].decode(errors="replace") or reply.reason_phrase


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
        url: the address to check.
        given: how the user wrote it, for the message.
        example: an address that is right, for the message.

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
