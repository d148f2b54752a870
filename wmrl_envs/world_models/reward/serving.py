"""The other end of `remote.RemoteRewardModel`: one model behind HTTP, for clients that may be slow, wrong or gone.

What a client can hold of this process is bounded: connections, bytes, and how long a request may take to arrive.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

import numpy as np

from wmrl_envs.context import Episode
from wmrl_envs.errors import InvalidInput
from wmrl_envs.world_models.reward.frames_wire import MAX_REQUEST_BYTES, decode

log = logging.getLogger(__name__)
_LEFT = (ConnectionError, TimeoutError)  # a client that went away, or took too long
_PIECE = 1 << 20


class Reader(Protocol):
    """What can be served: `RobometerModel`, or any model that reads progress (n, 8) and success (n,) off episodes."""

    def read(self, episodes: Sequence[Episode]) -> tuple[np.ndarray, np.ndarray]: ...


class _Refused(Exception):
    """Answered with this status and these words."""

    def __init__(self, status: int, words: str):
        super().__init__(words)
        self.status = status


class RewardServer(ThreadingHTTPServer):
    """Serves one model; `make_server` makes it.

    Args:
        request_s: seconds from connecting within which a request must have arrived.
        clients: connections at a time; more are told to come back.
        buffer_bytes: of the bodies of all requests together.
    """

    request_queue_size = 64

    def __init__(self, address: tuple[str, int], model: Reader, request_s: float, clients: int, buffer_bytes: int):
        self.model, self.turn = model, threading.Lock()
        self._request_s, self._clients, self._free_bytes = request_s, clients, buffer_bytes
        self._guard = threading.Lock()
        self._deadlines: dict[socket.socket, float] = {}
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            full = len(self._open) >= self._clients
            if not full:
                self._open.add(request)
                self._deadlines[request] = time.monotonic() + self._request_s
        if full:
            body = json.dumps({"error": f"{self._clients} clients are served already: try again."}).encode()
            try:
                request.settimeout(1.0)
                request.sendall(b"HTTP/1.0 503 Busy\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            except OSError:
                pass
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
            self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called twice a second while the server runs: hang up on whoever has not sent its request in time."""
        now = time.monotonic()
        with self._guard:
            overdue = [request for request, deadline in self._deadlines.items() if deadline < now]
            for request in overdue:
                del self._deadlines[request]
        for request in overdue:
            try:
                request.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def arrived(self, request: Any) -> None:
        """A request is here: what follows takes as long as the model does."""
        with self._guard:
            self._deadlines.pop(request, None)

    def reserve(self, size: int) -> Callable[[], None]:
        """Room for a body; call what is returned when it is no longer held. Raises `_Refused` while there is none."""
        with self._guard:
            if size > self._free_bytes:
                raise _Refused(503, "Too many requests are waiting: try again.")
            self._free_bytes -= size

        def release() -> None:
            with self._guard:
                self._free_bytes += size

        return release

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("A connection ended.", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: RewardServer
    timeout = 60.0  # of any single read or write

    def do_GET(self) -> None:
        self.server.arrived(self.connection)
        self._reply(200, {"model": type(self.server.model).__name__})

    def do_POST(self) -> None:
        try:
            size = self._size()
            release = self.server.reserve(size)
            try:
                answer = self._answer(size)
            finally:
                release()
            self._reply(200, answer)
        except _Refused as refusal:
            self._reply(refusal.status, {"error": str(refusal)})
            self._drain()
        except InvalidInput as error:
            self._reply(400, {"error": str(error)})
        except _LEFT as error:
            log.debug("A client went away: %s", error)
        except Exception as error:  # whatever a model raises is told to the client and ends nothing here
            log.exception("A request failed.")
            self._reply(500, {"error": f"{type(error).__name__}: {error}"})

    def _size(self) -> int:
        """Bytes of the body that is announced."""
        given = self.headers.get("Content-Length")
        if self.path != "/read":
            raise _Refused(404, f"POST {self.path!r:.100}: expected /read.")
        if given is None:
            raise _Refused(411, "A request without Content-Length: expected the number of bytes of its body.")
        if not (given.isascii() and given.isdigit()) or int(given[:20]) == 0:
            raise _Refused(400, f"Content-Length {given!r:.40}: expected a number of bytes above 0.")
        size = int(given[:20])
        if size > MAX_REQUEST_BYTES:
            raise _Refused(413, f"A body of {size} bytes: expected at most {MAX_REQUEST_BYTES}; send fewer episodes at a time.")
        return size

    def _answer(self, size: int) -> dict[str, Any]:
        body = self.rfile.read(size)
        if len(body) < size:
            raise ConnectionAbortedError("the request ends early")
        self.server.arrived(self.connection)
        episodes = [Episode(list(frames), instruction=text) for text, frames in decode(body)]
        with self.server.turn:
            progress, success = self.server.model.read(episodes)
        return {"progress": np.asarray(progress).tolist(), "success": np.asarray(success).tolist()}

    def _drain(self) -> None:
        """Take what a refused client still sends, without keeping it: it reads the answer only when it has sent everything.

        It has the time of a request for that.
        """
        try:
            self.connection.shutdown(socket.SHUT_WR)
            while self.rfile.read1(_PIECE):
                pass
        except OSError:
            return

    def _reply(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except _LEFT as error:
            log.debug("A client did not wait for its answer: %s", error)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


def make_server(
    model: Reader,
    host: str = "127.0.0.1",
    port: int = 8010,
    *,
    request_s: float = 120.0,
    clients: int = 64,
    buffer_bytes: int = 4 * MAX_REQUEST_BYTES,
) -> RewardServer:
    """A server for one model (`serve_forever` runs it); requests wait for each other at the model. Port 0 takes a free one.

    It knows no passwords: listen on another address than this machine's own only inside a network you trust.

    Args:
        model: what is served.
        host: address to listen on.
        port: port to listen on.
        request_s: seconds within which a request must have arrived; slower clients are hung up on.
        clients: connections at a time.
        buffer_bytes: of all bodies that are held at a time.

    Raises:
        InvalidInput: nothing can listen there.
    """
    try:
        return RewardServer((host, port), model, request_s, clients, buffer_bytes)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput(f"Nothing can listen at {host}:{port} ({reason}): choose another --port or --host.") from None
