"""`server_retries`: how requests to a server of ours or of others are tried again."""

from __future__ import annotations

import logging

from tenacity import Retrying, before_sleep_log, retry_if_exception_type, stop_after_attempt, wait_random_exponential


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
