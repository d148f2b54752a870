"""A reward model in a process of its own, behind HTTP: `wmrl serve-robometer` on the machine with the GPU (`serving`),
`RemoteRewardModel` in the trainer.

A request is one line of JSON (instruction and shape of each episode's frames) and then the frames' bytes; the reply is JSON.
Frames are subsampled before they are sent, and the scalar is formed by the client, so that one server serves every form.
Nothing that is received is executed or unpickled.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wmrl_envs.context import Episode
from wmrl_envs.correction.scores import check_positive
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.servers import NoAnswer, Refusal, ask, checked_url, server_retries
from wmrl_envs.world_models.reward.frames import FRAMES, Form, check_form, dense_reward, episode_frames
from wmrl_envs.world_models.reward.frames_wire import MAX_REQUEST_BYTES, decode, encode
from wmrl_envs.world_models.reward.serving import Reader, make_server

__all__ = ["MAX_REQUEST_BYTES", "Reader", "RemoteRewardModel", "decode", "encode", "make_server"]
log = logging.getLogger(__name__)
_MAX_REPLY_BYTES = 2**24
_MAX_SECONDS = 86_400.0  # beyond it sockets refuse a timeout with an error of their own


class _Transient(InfrastructureError):
    """Worth another attempt: no connection, a timeout, status 408, 425, 429 or 5xx, a reply that cannot be read."""


class RemoteRewardModel:
    """A `RewardModel` whose numbers come from a server.

    Args:
        url: of the server, such as http://127.0.0.1:8010.
        form: which scalar the score is, see `frames.dense_reward`.
        timeout_s: seconds for one request.
        attempts: in all, with exponential waits up to `max_wait_s` between them.
        batch_size: episodes a request.

    Raises:
        InvalidInput: an address, a number or a form that cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        form: Form = "potential",
        timeout_s: float = 600.0,
        attempts: int = 5,
        max_wait_s: float = 30.0,
        batch_size: int = 16,
    ):
        check_positive(attempts=attempts, batch_size=batch_size)
        _check_seconds("timeout_s", timeout_s, timeout_s != 0)
        _check_seconds("max_wait_s", max_wait_s)
        address = checked_url(url, f"RemoteRewardModel(url={url!r})", "http://127.0.0.1:8010")
        self.url, self.form, self.timeout_s, self.batch_size = address, check_form(form), timeout_s, batch_size
        self._retry = server_retries(_Transient, attempts, max_wait_s, log)

    def read(self, episodes: Sequence[Episode]) -> tuple[np.ndarray, np.ndarray]:
        """Progress (n, 8) in [0, 1] of eight frames of each episode, and the probability (n,) that it succeeded.

        Raises:
            InvalidInput: episodes that cannot be scored. InfrastructureError: the server failed on every attempt.
        """
        clips = [(e.instruction, episode_frames(e)) for e in episodes]
        progress, success = np.zeros((len(clips), FRAMES)), np.zeros(len(clips))
        for begin in range(0, len(clips), self.batch_size):
            part = clips[begin : begin + self.batch_size]
            progress[begin : begin + len(part)], success[begin : begin + len(part)] = self._retry(self._ask, part)
        return progress, success

    def score(self, episodes: Sequence[Episode]) -> np.ndarray:
        """The dense reward of finished episodes, (n,) in [0, 1]."""
        if not episodes:
            return np.zeros(0)
        return dense_reward(*self.read(episodes), self.form).clip(0, 1)

    def _ask(self, clips: Sequence[tuple[str, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
        headers, body = {"Content-Type": "application/octet-stream"}, encode(clips)
        if len(body) > MAX_REQUEST_BYTES:
            raise InvalidInput(
                f"{len(clips)} episodes are {len(body) >> 20} MiB of frames, a request takes {MAX_REQUEST_BYTES >> 20}: give "
                "RemoteRewardModel a smaller batch_size, or smaller images."
            )
        try:
            reply = ask(f"{self.url}/read", body, headers=headers, timeout_s=self.timeout_s, most_bytes=_MAX_REPLY_BYTES)
            progress, success = (_fractions(name, reply[name]) for name in ("progress", "success"))
            if progress.shape != (len(clips), FRAMES) or success.shape != (len(clips),):
                raise ValueError(f"progress of shape {progress.shape} for {len(clips)} episodes")
        except Refusal as refusal:
            detail = _detail(refusal.detail)
            if refusal.worth_another_attempt:
                raise _Transient(f"The reward model's server at {self.url} answered {refusal.status}: {detail}") from None
            raise InvalidInput(f"The reward model's server at {self.url} refused the episodes: {detail}") from None
        except (NoAnswer, ValueError, KeyError, TypeError) as error:
            raise _Transient(
                f"No usable answer from the reward model's server at {self.url} ({error or type(error).__name__}): start it "
                "with `wmrl serve-robometer`, or give the address it listens at."
            ) from error
        return progress, success


def _check_seconds(name: str, value: Any, allowed: bool = True) -> None:
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and math.isfinite(value)
    if not (number and allowed and 0 <= value <= _MAX_SECONDS):
        raise InvalidInput(f"RemoteRewardModel({name}={value!r}): expected seconds, at most {_MAX_SECONDS:g}.")


def _fractions(name: str, values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":  # text that looks like numbers is no server of ours
        raise ValueError(f"{name} that is not all numbers")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} with numbers that are not finite")
    if array.size and not -1e-6 <= array.min() <= array.max() <= 1 + 1e-6:  # float32 of a softmax
        raise ValueError(f"{name} from {array.min():g} to {array.max():g}, outside [0, 1]")
    return array.astype(float).clip(0, 1)


def _detail(text: str) -> str:
    """The sentence in a refusal of `make_server`'s; the whole of another server's."""
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return text
