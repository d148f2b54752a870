"""A reward model in a process of its own, behind HTTP: `serve` on the machine with the GPU, `RemoteRewardModel` in the trainer.

A request is one line of JSON (instruction and shape of each episode's frames) and then the frames' bytes; the reply is JSON.
Frames are subsampled before they are sent, and the scalar is formed by the client, so that one server serves every form.
Nothing that is received is executed or unpickled.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

import numpy as np

from wmrl_envs.context import Episode
from wmrl_envs.correction.scores import check_positive
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.servers import NoAnswer, Refusal, ask, checked_url, server_retries
from wmrl_envs.world_models.reward.frames import FRAMES, Form, check_form, dense_reward, episode_frames

log = logging.getLogger(__name__)
MAX_REQUEST_BYTES = 2**28
_MAX_REPLY_BYTES = 2**24
_MAX_SECONDS = 86_400.0  # beyond it sockets refuse a timeout with an error of their own


class Reader(Protocol):
    """What can be served: `RobometerModel`, or any model that reads progress (n, 8) and success (n,) off episodes."""

    def read(self, episodes: Sequence[Episode]) -> tuple[np.ndarray, np.ndarray]: ...


class _Transient(InfrastructureError):
    """Worth another attempt: no connection, a timeout, status 408, 425, 429 or 5xx, a reply that cannot be read."""


class RemoteRewardModel:
    """A `RewardModel` whose numbers come from a server.

    Args:
        url: of the server, such as http://127.0.0.1:8010.
        form: which scalar the score is, see `frames.dense_reward`.
        timeout_s: of one request. attempts: in all, with exponential waits up to `max_wait_s` between them.
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
        headers = {"Content-Type": "application/octet-stream"}
        try:
            reply = ask(
                f"{self.url}/read", encode(clips), headers=headers, timeout_s=self.timeout_s, most_bytes=_MAX_REPLY_BYTES
            )
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
                f"No usable answer from the reward model's server at {self.url} ({error or type(error).__name__}): start it with `wmrl serve-robometer`, "
                "or give the address it listens at."
            ) from error
        return progress, success


def make_server(model: Reader, host: str = "127.0.0.1", port: int = 8010) -> ThreadingHTTPServer:
    """A server for one model (`serve_forever` runs it); requests wait for each other at the model. Port 0 takes a free one.

    It knows no passwords: listen on another address than this machine's own only inside a network you trust.
    """
    turn = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(200, {"model": type(model).__name__})

        def do_POST(self) -> None:
            try:
                size = int(self.headers.get("Content-Length") or 0)
                if self.path != "/read" or not 0 < size <= MAX_REQUEST_BYTES:
                    raise InvalidInput(
                        f"POST {self.path} of {size} bytes: expected /read and at most {MAX_REQUEST_BYTES} bytes."
                    )
                episodes = [Episode(list(frames), instruction=text) for text, frames in decode(self.rfile.read(size))]
                with turn:
                    progress, success = model.read(episodes)
                self._reply(200, {"progress": np.asarray(progress).tolist(), "success": np.asarray(success).tolist()})
            except InvalidInput as error:
                self._reply(400, {"error": str(error)})
            except Exception as error:  # whatever a model raises is told to the client and ends nothing here
                log.exception("A request failed.")
                self._reply(500, {"error": f"{type(error).__name__}: {error}"})

        def _reply(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            log.debug(format, *args)

    try:
        return ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise InvalidInput(
            f"Nothing can listen at {host}:{port} ({error.strerror}): choose another --port or --host."
        ) from None


def encode(clips: Sequence[tuple[str, np.ndarray]]) -> bytes:
    """The body of a request for episodes given as (instruction, frames (n, h, w, 3) uint8)."""
    header = [{"instruction": text, "shape": frames.shape} for text, frames in clips]
    return b"".join([json.dumps(header).encode(), b"\n", *(np.ascontiguousarray(frames).tobytes() for _, frames in clips)])


def decode(body: bytes) -> list[tuple[str, np.ndarray]]:
    """What `encode` was given.

    >>> [(text, frames.shape) for text, frames in decode(encode([("lift", np.zeros((8, 2, 2, 3), np.uint8))]))]
    [('lift', (8, 2, 2, 3))]
    """
    header, _, data = body.partition(b"\n")
    try:
        items = [(item["instruction"], tuple(item["shape"])) for item in json.loads(header)]
        if any(not isinstance(text, str) or len(shape) != 4 or min(shape) < 1 for text, shape in items):
            raise ValueError("an episode without instruction or frames")
        sizes = [int(np.prod(shape)) for _, shape in items]
        if sum(sizes) != len(data):
            raise ValueError(f"{len(data)} bytes of frames instead of {sum(sizes)}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInput(f"A request that cannot be read ({error}): expected what RemoteRewardModel sends.") from None
    ends = np.cumsum(sizes)
    return [
        (text, np.frombuffer(data[end - size : end], np.uint8).reshape(shape))
        for (text, shape), size, end in zip(items, sizes, ends, strict=True)
    ]


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
