"""Agents by name. The demo policy is the real one; the server of the chat policy is a test double."""

import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.unit.evaluation.conftest import SLUG
from wmrl_envs.envs.make import make_env
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_train.config import load_config
from wmrl_train.evaluation import named as agents
from wmrl_train.evaluation.policies import OpenEpisode
from wmrl_train.evaluation.programs import evaluate


@pytest.fixture(scope="module")
def demo():
    named = agents.build("demo")
    yield named
    named.close()


def test_the_demo_policy_brings_the_settings_it_was_made_for(demo):
    laptop = load_config("laptop")
    assert demo.env_kwargs["scaffold"] == "sklearn"
    assert demo.env_kwargs["max_rows"] == laptop.tasks.max_rows
    assert demo.env_kwargs["limits"].timeout_s == laptop.execution.timeout_s


def test_the_demo_policy_writes_programs_that_depend_on_the_seed(demo, dojo, box):
    env = make_env(SLUG, data_dir=dojo[0], sandbox=box, scaffold="sklearn")
    observation, _ = env.reset(seed=0)
    answers = demo.policy.respond([OpenEpisode(env.context(), [observation], seed) for seed in (1, 2, 3, 1)])
    assert all("import" in answer or "save(" in answer for answer in answers)
    assert answers[0] == answers[3]
    assert len(set(answers)) > 1


def test_a_checkpoint_is_evaluated_with_the_settings_of_its_run(tmp_path, demo):
    from wmrl_train.run import checkpoint

    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(load_config("laptop", ["tasks.max_rows=77", "tasks.max_turns=3"]).to_yaml())
    engine = demo.policy._engine
    saved = checkpoint.save(
        run / "checkpoints", 7, model=engine.model, tokenizer=engine.tokenizer, optimizer={}, state={}, keep=1
    )
    for spec in (run, saved, str(saved)):
        named = agents.build(str(spec))
        assert (named.env_kwargs["max_rows"], named.env_kwargs["max_turns"]) == (77, 3)
        named.close()
    bare = agents.build(str(saved / "policy"))
    assert bare.env_kwargs["max_rows"] == load_config("laptop").tasks.max_rows


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(Exception, match=r"config\.json"):
        agents.build(str(tmp_path))


@pytest.fixture
def server():
    """A server that lists models and answers chats: (address, models, the keys it was shown, the chats, the answer to give)."""
    models, keys, chats, answers = ["one"], [], [], []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            keys.append(self.headers.get("Authorization"))
            self.reply({"data": [{"id": m} for m in models]})

        def do_POST(self):
            chats.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.reply({"choices": [{"message": {"content": answers[0]}, "finish_reason": "stop"}]})

        def reply(self, body):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}/v1", models, keys, chats, answers
    http.shutdown()
    http.server_close()


def test_the_only_model_of_a_server_is_taken_and_several_are_listed(server):
    url, models, keys, *_ = server
    assert agents._served_model(url, "secret") == "one"
    assert keys == ["Bearer secret"]
    models.append("two")
    with pytest.raises(InvalidInput, match="one, two"):
        agents._served_model(url, None)


def test_a_server_is_evaluated_over_several_turns(server, dojo, box, monkeypatch):
    url, _, keys, chats, answers = server
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    answers.append(f"Analysis: easy.\n```python\n#ok\n{dojo[1][SLUG]['perfect']}```")
    named = agents.build(f"openai:{url}", temperature=0.3, max_new_tokens=99, turns=2)
    kwargs = {"data_dir": dojo[0], "max_turns": 2}
    result = evaluate(named.policy, [SLUG], 2, sandbox=box, env_kwargs=kwargs, workers=2)
    named.close()
    assert [t.score for t in result.trajectories] == [1.0, 1.0]
    assert set(keys) == {"Bearer secret"}
    assert {(c["model"], c["temperature"], c["max_tokens"]) for c in chats} == {("one", 0.3, 99)}
    assert sorted(len(c["messages"]) for c in chats) == [2, 2, 4, 4]
    longest = max(chats, key=lambda c: len(c["messages"]))["messages"]
    assert [m["role"] for m in longest] == ["system", "user", "assistant", "user"]
    assert "up to 2 attempts" in longest[0]["content"]
    assert "ACTION" in longest[1]["content"]
    assert "Best Raw Score: 1.0" in longest[3]["content"]


def test_a_server_that_is_down_is_named_without_the_key():
    with pytest.raises(InfrastructureError) as error:
        agents._served_model("http://127.0.0.1:9/v1", "secret")
    assert "127.0.0.1:9" in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("json", "expected python:module:function"),
        (":f", "expected python:module:function"),
        (".m:f", "expected python:module:function"),
        ("a..b:f", "expected python:module:function"),
        ("json:", "expected python:module:function"),
        ("nowhere_at_all:f", "cannot import 'nowhere_at_all' .ModuleNotFoundError"),
        ("json:__doc__", "expected a function, got a str"),
        ("json:nothing.at.all", "has no 'nothing.at.all'"),
        ("mine_no_python:f", "SyntaxError"),
        ("mine_raises:f", "RuntimeError: no key"),
        ("mine_exits:f", "SystemExit: 3"),
    ],
)
def test_a_function_that_cannot_be_had_is_one_sentence(tmp_path, monkeypatch, path, message):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine_no_python.py").write_text("def f(:")
    (tmp_path / "mine_raises.py").write_text("raise RuntimeError('no\\nkey')")
    (tmp_path / "mine_exits.py").write_text("import sys; sys.exit(3)")
    with pytest.raises(InvalidInput, match=message) as error:
        agents.function_of(path)
    assert "\n" not in str(error.value)


@pytest.fixture
def raw_server():
    """A server that sends these bytes to whoever connects, once: (address, the list to put them in)."""
    replies, listening = [], socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(replies[0])

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1", replies
    listening.close()


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 200_000,
        b'HTTP/1.1 200 OK\r\n\r\n{"data": [{"id": 1}, {"id": 2}]}',
        b'HTTP/1.1 200 OK\r\n\r\n{"data": [7]}',
        b"HTTP/1.1 401 Unauthorized\r\n\r\n",
    ],
)
def test_no_list_of_models_is_one_sentence_without_the_key(raw_server, reply):
    url, replies = raw_server
    replies.append(reply)
    with pytest.raises(InfrastructureError, match=r"No list of models from http.*--model") as error:
        agents._served_model(url, "secret")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "url",
    ["localhost:8000/v1", "file:///etc/passwd", "http://localhost:ab/v1", "http:///v1", "http://[::1/v1", "http://a b/v1"],
)
def test_what_is_no_address_is_refused_before_a_request(url):
    with pytest.raises(InvalidInput, match=r"openai:.*expected an address such as http"):
        agents.build(f"openai:{url}")


def test_a_key_is_sent_without_the_line_end_of_its_file(server, monkeypatch):
    url, _, keys, *_ = server
    monkeypatch.setenv("OPENAI_API_KEY", " secret\n")
    agents.build(f"openai:{url}").close()
    assert set(keys) == {"Bearer secret"}


@pytest.mark.parametrize("key", ["sec\nret", "secr\u00e9t", "sec\x00ret"])
def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(server, monkeypatch, key):
    monkeypatch.setattr("os.environ", {**os.environ, "OPENAI_API_KEY": key})
    with pytest.raises(InvalidInput, match="not shown here") as error:
        agents.build(f"openai:{server[0]}")
    assert "sec" not in str(error.value)
