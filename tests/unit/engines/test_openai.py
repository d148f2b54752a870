import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from wmrl_envs.engine import Engine, Sampling
from wmrl_envs.errors import InfrastructureError, InvalidInput, MissingExtra
from wmrl_train.engines import make_engine
from wmrl_train.engines.openai import OpenAIEngine


class FakeServer:
    """A test double of an OpenAI-compatible server on 127.0.0.1: it replays a list of statuses and echoes the prompt."""

    def __init__(self):
        self.requests, self.statuses, self.headers = [], [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, body))
                outer.headers.append(dict(self.headers))
                status = outer.statuses.pop(0) if outer.statuses else 200
                if "messages" in body:
                    content = {"content": [{"logprob": -0.5}, {"logprob": -0.25}]}
                    choice = {
                        "message": {"content": "hi " + body["messages"][-1]["content"]},
                        "finish_reason": "stop",
                        "logprobs": content,
                    }
                else:
                    ids = [*body["prompt"], 7]
                    choice = {
                        "text": str(ids),
                        "token_ids": ids,
                        "finish_reason": "length",
                        "logprobs": {"token_logprobs": [-0.1] * len(ids)},
                    }
                reply = json.dumps({"choices": [choice]}).encode()
                if isinstance(status, bytes):  # this instead of an answer
                    self.wfile.write(status)
                    self.close_connection = True
                    return
                if isinstance(status, tuple):  # a status with its body
                    status, reply = status[0], status[1].encode()
                elif not isinstance(status, int):  # this as the body
                    status, reply = 200, status if isinstance(status, str) else json.dumps(status)
                    reply = reply.encode()
                self.send_response(status)
                self.end_headers()
                self.wfile.write(reply)

            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({"data": [{"id": "m", "max_model_len": 4096}, {"id": "n"}]}).encode())

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


@pytest.fixture
def server():
    fake = FakeServer()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


def engine(server, **options):
    return OpenAIEngine("m", base_url=server.url, **({"max_wait_s": 0.01, "attempts": 3} | options))


def test_token_prompts_keep_their_ids_and_order(server):
    made = engine(server).generate([[1], [2], [3]], Sampling(max_new_tokens=5, stop_ids=(9,)), seeds=[4, 5, 2**40])
    assert [g.ids for g in made] == [(1, 7), (2, 7), (3, 7)]
    assert made[0].logprobs == (-0.1, -0.1)
    assert made[0].finish == "length"
    path, body = next(r for r in server.requests if r[1]["prompt"] == [1])
    assert path == "/v1/completions"
    assert (body["seed"], body["stop_token_ids"], body["max_tokens"]) == (4, [9], 5)


def test_messages_and_schema_use_the_chat_route(server):
    made = engine(server).generate([[{"role": "user", "content": "you"}]], Sampling(schema={"type": "object"}))[0]
    assert (made.text, made.ids, made.finish) == ("hi you", (), "stop")
    assert server.requests[0][0] == "/v1/chat/completions"
    assert server.requests[0][1]["response_format"]["json_schema"]["schema"] == {"type": "object"}


NONSENSE = [
    "not json", "<html>", "[]", "3", {"error": "x"}, {"choices": []}, {"choices": [{"text": 5, "message": {"content": 5}}]},
    {"choices": [{"text": "x", "logprobs": {"token_logprobs": [None]}, "token_ids": [1]}]}, {"choices": [{"text": "x", "logprobs": [1]}]},
    {"choices": [{"text": "x", "message": {"content": 7}, "token_ids": "abc"}]}, {"choices": [{"text": "x", "message": {}, "token_ids": [[1]]}]},
    408,
    b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", b"",
]  # fmt: skip


@pytest.mark.parametrize("status", [429, 500, 503, *NONSENSE], ids=str)
def test_transient_failures_are_retried(server, status):
    server.statuses = [status, status]
    assert engine(server).generate([[1]], Sampling())[0].ids == (1, 7)
    assert len(server.requests) == 3


@pytest.mark.parametrize("answer", NONSENSE, ids=str)
def test_a_server_that_only_answers_nonsense_is_an_infrastructure_failure(server, answer):
    server.statuses = [answer] * 9
    for prompt in ([1], [{"role": "user", "content": "yo"}]):
        with pytest.raises(InfrastructureError, match=r"The server at|No usable answer"):
            engine(server, attempts=2).generate([prompt], Sampling())


def test_half_characters_are_replaced(server):
    server.statuses = ['{"choices": [{"message": {"content": "a\\ud800b"}}]}']
    assert engine(server).generate([[{"role": "user", "content": "yo"}]], Sampling())[0].text == "a?b"


def test_content_in_parts_is_joined(server):
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    server.statuses = [{"choices": [{"message": {"content": parts}}]}]
    assert engine(server).generate([[{"role": "user", "content": "yo"}]], Sampling())[0].text == "ab"


def test_the_context_is_what_the_server_says(server):
    assert engine(server).max_context == 4096
    assert engine(server, max_context=100).max_context == 100
    assert OpenAIEngine("n", base_url=server.url).max_context is None
    assert OpenAIEngine("m", base_url="http://127.0.0.1:9/v1").max_context is None


def test_exhausted_attempts_are_an_infrastructure_failure_that_hides_the_key(server):
    server.statuses = [503] * 9
    with pytest.raises(InfrastructureError, match="503") as caught:
        engine(server, api_key="s3cret").generate([[1]], Sampling())
    assert len(server.requests) == 3
    assert server.headers[0]["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in str(caught.value)


def test_a_refused_request_is_not_retried(server):
    server.statuses = [400] * 9
    with pytest.raises(InvalidInput, match="refused the request with 400"):
        engine(server).generate([[1]], Sampling())
    assert len(server.requests) == 1


def test_no_server_is_an_infrastructure_failure():
    with pytest.raises(InfrastructureError, match="No usable answer"):
        OpenAIEngine("m", base_url="http://127.0.0.1:9/v1", attempts=2, max_wait_s=0.01).generate([[1]], Sampling())


def test_factory_and_errors(server):
    made = make_engine("openai", "m", base_url=server.url)
    assert isinstance(made, Engine)
    with pytest.raises(InvalidInput, match="cannot take new weights"):
        made.update_weights([])
    with pytest.raises(InvalidInput, match="expected one of transformers, vllm, openai"):
        make_engine("vlm", "m")
    with pytest.raises(InvalidInput, match="expected an address"):
        OpenAIEngine("m", base_url="localhost")


def test_vllm_names_its_extra_where_it_is_not_installed():
    pytest.importorskip("torch")
    try:
        import vllm  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtra, match=r"'\.\[vllm\]'"):
            make_engine("vllm", "m")


def test_sampling_is_neutral_whatever_the_models_own_defaults_are(server):
    engine(server).generate([[1, 2]], Sampling(1.0, 1.0, 8), [0])
    _, body = server.requests[0]
    assert (body["top_k"], body["min_p"], body["repetition_penalty"]) == (-1, 0.0, 1.0)


def test_a_server_that_knows_no_such_keys_is_asked_without_them(server, caplog):
    made = engine(server)
    server.statuses = [(400, "Unrecognized request argument supplied: top_k")]
    made.generate([[1, 2]], Sampling(1.0, 1.0, 8), [0])
    made.generate([[1, 2]], Sampling(1.0, 1.0, 8), [0])
    assert ["top_k" in body for _, body in server.requests] == [True, False, False]
    assert "sampling is neutral only if it says so itself" in caplog.text
