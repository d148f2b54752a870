import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager, suppress

import numpy as np
import pytest

from wmrl_envs.context import Episode
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.world_models.protocols import RewardModel
from wmrl_envs.world_models.reward.remote import RemoteRewardModel, make_server


class MeanBrightness:
    """A double: progress is the mean of a frame, success whether the instruction is "bright". Fails as often as told."""

    def __init__(self):
        self.failures, self.calls = [], 0

    def read(self, episodes):
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        progress = np.stack([np.stack(e.observations).mean(axis=(1, 2, 3)) / 255 for e in episodes])
        return progress, np.array([float(e.instruction == "bright") for e in episodes])


@pytest.fixture
def served():
    model = MeanBrightness()
    with make_server(model, port=0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield model, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def episode(low, high, size=4, instruction="bright"):
    return Episode(
        [{"image": np.full((size, size + 1, 3), v, np.uint8)} for v in np.linspace(low, high, 21)], instruction=instruction
    )


def test_the_client_returns_what_the_model_reads(served):
    model, url = served
    client = RemoteRewardModel(url, batch_size=2)
    assert isinstance(client, RewardModel)
    episodes = [episode(0, 255), episode(51, 51, size=9, instruction="größer"), episode(255, 0)]
    progress, success = client.read(episodes)
    assert progress[0] == pytest.approx(np.linspace(0, 1, 8), abs=0.04)
    assert progress[1] == pytest.approx(np.full(8, 0.2))
    assert success.tolist() == [1, 0, 1]
    assert model.calls == 2
    assert client.score(episodes) == pytest.approx([0.857, 0, 0], abs=0.04)
    assert RemoteRewardModel(url, form="max").score(episodes) == pytest.approx([1, 0.2, 1])
    assert client.score([]).shape == (0,)


def test_failures_of_the_server_are_retried_and_then_an_infrastructure_failure(served):
    model, url = served
    client = RemoteRewardModel(url, attempts=3, max_wait_s=0.01)
    model.failures = [RuntimeError("out of memory"), RuntimeError("out of memory")]
    assert client.score([episode(0, 255)]).shape == (1,)
    model.failures = [RuntimeError("out of memory")] * 3
    with pytest.raises(InfrastructureError, match="answered 500: RuntimeError: out of memory"):
        client.score([episode(0, 255)])


def test_a_server_that_is_not_there_is_named():
    with make_server(MeanBrightness(), port=0) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}"
    client = RemoteRewardModel(url, attempts=2, max_wait_s=0.01)
    with pytest.raises(InfrastructureError, match=f"at {url} .* `wmrl serve-robometer`"):
        client.score([episode(0, 1)])
    with pytest.raises(InvalidInput, match="url='localhost:8010'"):
        RemoteRewardModel("localhost:8010")


def test_a_reply_that_cannot_be_used_is_an_infrastructure_failure(served):
    model, url = served
    model.read = lambda episodes: (np.full((1, 8), np.nan), np.ones(1))
    with pytest.raises(InfrastructureError, match="not finite"):
        RemoteRewardModel(url, attempts=1).score([episode(0, 1)])
    model.read = lambda episodes: (np.ones((1, 3)), np.ones(1))
    with pytest.raises(InfrastructureError, match=r"shape \(1, 3\)"):
        RemoteRewardModel(url, attempts=1).score([episode(0, 1)])


@contextmanager
def raw_server(answer):
    """Answers every request with these bytes and then closes, or is silent where they say so; counts its requests."""
    calls = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    connection.settimeout(2)
                    calls.append(1)
                    head = b""
                    while b"\r\n\r\n" not in head:
                        head += connection.recv(65536)
                    size = int(re.search(rb"(?i)content-length: (\d+)", head).group(1)) - len(head.partition(b"\r\n\r\n")[2])
                    while size > 0:
                        size -= len(connection.recv(65536))
                    connection.sendall(answer)
                    if b"silence" in answer:
                        connection.recv(1)  # until the client gives up

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", calls
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def reply(body, head=b"200 OK"):
    return b"HTTP/1.1 " + head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def numbers(progress, success):
    return reply(json.dumps({"progress": [progress], "success": [success]}).encode())


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(reply(b"slow down", b"429 Too Many Requests"), id="429"),
        pytest.param(reply(b"", b"408 Request Timeout"), id="408"),
        pytest.param(reply(b"[" * 100_000, b"503 Busy"), id="503"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", id="half a body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="a broken chunk"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="not HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000 + b"\r\n\r\n", id="a long header"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"A: x\r\n" * 200 + b"\r\n", id="many headers"),
        pytest.param(b"HTTP/1.1 500 silence\r\nContent-Length: 100\r\n\r\n", id="500 and silence"),
        pytest.param(reply(b"[" * 100_000), id="deep JSON"),
        pytest.param(reply(b"[1]"), id="a list"),
        pytest.param(numbers([0.5] * 7 + [1.5], 0.5), id="progress above 1"),
        pytest.param(numbers([0.5] * 8, -0.5), id="success below 0"),
        pytest.param(numbers(["0.5"] * 8, 0.5), id="numbers as text"),
        pytest.param(numbers([10**400] * 8, 0.5), id="numbers beyond all bounds"),
    ],
)
def test_nonsense_of_a_server_is_retried_and_then_an_infrastructure_failure(answer):
    with raw_server(answer) as (url, calls):
        client = RemoteRewardModel(url, attempts=2, max_wait_s=0, timeout_s=0.3)
        with pytest.raises(InfrastructureError, match=re.escape(url)):
            client.score([episode(0, 1)])
        assert len(calls) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [("batch_size", v) for v in (0, -1, 1.5, True)]
    + [("attempts", v) for v in (0, "3")]
    + [("timeout_s", v) for v in (0, -1, float("nan"), float("inf"), 1e30, "a", None)]
    + [("max_wait_s", v) for v in (-1, float("nan"), 1e30)]
    + [("form", "best")]
    + [
        ("url", v)
        for v in (
            "http://[::1", "http://localhost:abc", "http://localhost:0", "http://localhost:99999", "http://", "http://a b:80",
            "http://a\n:80", "http://a..b:80", "http://a/\u00e4", "ftp://a", None, 8010,
        )
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used_are_refused_at_construction(name, value):
    with pytest.raises(InvalidInput, match=name):
        RemoteRewardModel(**{"url": "http://127.0.0.1:8010", name: value})


def test_bad_episodes_are_refused_before_and_behind_the_wire(served):
    model, url = served
    client = RemoteRewardModel(url, attempts=3, max_wait_s=0.01)
    with pytest.raises(InvalidInput, match="without frames"):
        client.score([Episode([])])
    assert model.calls == 0
    model.failures = [InvalidInput("An episode with instruction '': expected the task in words.")]
    with pytest.raises(InvalidInput, match="refused the episodes: An episode with instruction ''"):
        client.score([episode(0, 1)])
    assert model.calls == 1  # not retried


@pytest.mark.parametrize(
    "body", [b"", b"[", b'[{"instruction": "x"}]\n', b'[{"instruction": "x", "shape": [8, 1, 1, 3]}]\nabc', b'{"a": 1}\n']
)
def test_requests_that_are_no_episodes_are_refused(served, body):
    request = urllib.request.Request(f"{served[1]}/read", body)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert caught.value.code == 400
    assert "expected" in json.loads(caught.value.read())["error"]


def test_an_address_in_use_is_refused(served):
    port = int(served[1].rpartition(":")[2])
    with pytest.raises(InvalidInput, match="choose another --port"):
        make_server(MeanBrightness(), port=port)


def test_groups_of_robots_are_scored_by_the_server(served):
    """On the double of LIBERO: every look goes over the wire in one request a step."""
    pytest.importorskip("torch")
    from tests.unit.agents.vla.doubles import simulators, small_policy
    from wmrl_envs.correction import Corrector
    from wmrl_train.agents.vla.roller import RobotRoller
    from wmrl_train.config import load_config
    from wmrl_train.episodes.records import GroupPlan

    model, url = served
    config, paid = load_config("libero", ["rollout.group_size=4"]), RemoteRewardModel(url, form="final")
    roller = RobotRoller(small_policy(), simulators(), paid, {"colour": (0, 1)}, config, Corrector())
    groups = roller.collect([GroupPlan(0, 0, "colour", 1, True), GroupPlan(1, 0, "colour", 2, False)])
    assert model.calls == 1
    for turn in (turn for group in groups for t in group.trajectories for turn in t.turns):
        assert turn.predicted == pytest.approx(85 / 255, abs=1e-3)  # the mean brightness of a picture of one colour
    assert [len(group.pairs()) for group in groups] == [4, 0]


def test_the_command_serves_a_checkpoint_in_a_process_of_its_own(tmp_path):
    pytest.importorskip("transformers")
    from tests.unit.world_models.reward import tiny_robometer
    from wmrl_envs.world_models.reward.robometer import RobometerModel

    tiny_robometer.write(tmp_path)
    command = [sys.executable, "-m", "wmrl_train.cli", "serve-robometer", str(tmp_path), "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        line = process.stdout.readline()
        url = re.search(r"http://\S+", line).group()
        one = episode(0, 255, size=64)
        assert RemoteRewardModel(url).read([one])[0] == pytest.approx(
            RobometerModel(tmp_path, device="cpu").read([one])[0], abs=1e-5
        )
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
