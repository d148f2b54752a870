"""The server of a reward model outlives its clients: slow ones, wrong ones, those that leave."""

import json
import logging
import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

from wmrl_envs.context import Episode
from wmrl_envs.errors import InvalidInput
from wmrl_envs.world_models.reward import remote
from wmrl_envs.world_models.reward.remote import RemoteRewardModel
from wmrl_envs.world_models.reward.serving import make_server


class Half:
    """A test double: every episode is half done."""

    def read(self, episodes):
        return np.full((len(episodes), 8), 0.5), np.full(len(episodes), 0.5)


@contextmanager
def serving(**options):
    with make_server(Half(), "127.0.0.1", 0, **options) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def send(server, head, body=b""):
    """What is answered to these bytes: status and content (0 and "" where the connection is closed without an answer)."""
    with socket.create_connection(server.server_address, 20) as connection:
        connection.sendall(head.encode() + body)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    if not answer:
        return 0, ""
    head, _, content = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(content)["error"]


def posted(server, body, length=None):
    return send(server, f"POST /read HTTP/1.0\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n", body)


@pytest.mark.parametrize("length", ["-5", "0", "x", "1e3", "\u0663", "9" * 30])
def test_an_impossible_length_is_refused(length):
    with serving() as server:
        status, words = send(server, f"POST /read HTTP/1.0\r\nContent-Length: {length}\r\n\r\n")
        assert status in (400, 413)
        assert "expected" in words
        assert send(server, "POST /read HTTP/1.0\r\n\r\n")[0] == 411
        assert send(server, "POST /else HTTP/1.0\r\nContent-Length: 1\r\n\r\n", b"x")[0] == 404


@pytest.mark.parametrize(
    "shape", [[8, 2, 2, 4], [8, 2, 2], [-8, -2, 2, 3], [2**40, 2**40, 2**40, 3], [8.0, 2, 2, 3], [True, 2, 2, 3], "8223", None, [0, 2, 2, 3]]
)  # fmt: skip
def test_impossible_shapes_are_400(shape):
    with serving() as server:
        body = json.dumps([{"instruction": "lift", "shape": shape}]).encode() + b"\n" + bytes(96)
        status, words = posted(server, body)
        assert (status, "cannot be read" in words) == (400, True)
        assert posted(server, b"no line")[0] == 400


def test_an_oversized_body_is_told_once_and_not_kept(monkeypatch):
    with serving() as server:
        status, words = posted(server, b"", remote.MAX_REQUEST_BYTES + 1)
        assert status == 413
        assert "send fewer episodes" in words
        model = RemoteRewardModel(f"http://127.0.0.1:{server.server_address[1]}", attempts=5)
        asked = []
        monkeypatch.setattr(remote, "ask", lambda *a, **k: asked.append(a))
        monkeypatch.setattr(remote, "MAX_REQUEST_BYTES", 100)
        with pytest.raises(InvalidInput, match="smaller batch_size"):
            model.read([Episode([np.zeros((4, 4, 3), np.uint8)] * 8, instruction="lift")])
        assert not asked


def test_a_client_that_drips_its_request_is_hung_up_on(caplog):
    caplog.set_level(logging.INFO)
    with serving(request_s=0.3) as server, socket.create_connection(server.server_address, 20) as connection:
        connection.sendall(b"POST /read HTTP/1.0\r\nContent-Length: 1000\r\n\r\n")
        ended = False
        for _ in range(400):
            try:
                connection.sendall(b"x")
            except OSError:
                ended = True
                break
            time.sleep(0.05)
        assert ended
        assert posted(server, b"no line")[0] == 400  # others are served
    assert not caplog.records


def test_what_waits_is_bounded_in_clients_and_in_bytes():
    with serving(clients=1) as server, socket.create_connection(server.server_address, 20) as first:
        first.sendall(b"POST /read HTTP/1.0\r\n")
        time.sleep(0.2)
        assert posted(server, b"")[0] == 503
    with serving(buffer_bytes=1000) as server:
        assert posted(server, bytes(2000))[0] == 503
        assert posted(server, b"no line")[0] == 400


def test_a_client_that_leaves_is_no_news(caplog):
    caplog.set_level(logging.INFO)
    body = json.dumps([{"instruction": "lift", "shape": [8, 2, 2, 3]}]).encode() + b"\n" + bytes(96)
    with serving() as server:
        for head in (
            "POST /read HTTP/1.0\r\nContent-Length: 1000\r\n\r\n",
            "POST /re",
            f"POST /read HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n",
        ):
            connection = socket.create_connection(server.server_address, 20)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # closes with a reset
            connection.sendall(head.encode() + body)
            connection.close()
        model = RemoteRewardModel(f"http://127.0.0.1:{server.server_address[1]}", attempts=2)
        assert model.read([Episode([np.zeros((2, 2, 3), np.uint8)] * 8, instruction="lift")])[1] == pytest.approx([0.5])
    assert not [record for record in caplog.records if record.name.startswith("wmrl")]
