"""Agents by name. The demo policy is the real one; the server of the chat policy is a test double."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.unit.evaluate.conftest import SLUG
from wmrl_envs.engine import Generation
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.world_models.base import TaskContext
from wmrl_train import policies
from wmrl_train.config import load_config
from wmrl_train.evaluate import Conversation, evaluate, make_env

CONTEXT = TaskContext(SLUG, "overview")


@pytest.fixture(scope="module")
def demo():
    named = policies.build("demo")
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
    answers = demo.policy.respond([Conversation(env.context(), [observation], seed) for seed in (1, 2, 3, 1)])
    assert all("import" in answer or "save(" in answer for answer in answers)
    assert answers[0] == answers[3]
    assert len(set(answers)) > 1


def test_a_checkpoint_is_evaluated_with_the_settings_of_its_run(tmp_path, demo):
    from wmrl_train import checkpoint

    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(load_config("laptop", ["tasks.max_rows=77", "tasks.max_turns=3"]).to_yaml())
    engine = demo.policy._engine
    saved = checkpoint.save(
        run / "checkpoints", 7, model=engine.model, tokenizer=engine.tokenizer, optimizer={}, state={}, keep=1
    )
    for spec in (run, saved, str(saved)):
        named = policies.build(str(spec))
        assert (named.env_kwargs["max_rows"], named.env_kwargs["max_turns"]) == (77, 3)
        named.close()
    bare = policies.build(str(saved / "policy"))
    assert bare.env_kwargs["max_rows"] == load_config("laptop").tasks.max_rows


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(Exception, match=r"config\.json"):
        policies.build(str(tmp_path))


class Talker:
    """An engine and an agent of chat messages in one (a test double)."""

    def __init__(self):
        self.prompts = []

    def messages(self, observation, context):
        return [{"role": "system", "content": "be brief"}, {"role": "user", "content": observation}]

    def act(self, text):
        return text.upper()

    def generate(self, prompts, sampling, seeds=None):
        self.prompts += [list(p) for p in prompts]
        return [Generation((), (), f"answer {len(self.prompts)}") for _ in prompts]


def test_the_chat_policy_keeps_the_whole_conversation():
    talker = Talker()
    policy = policies.ChatPolicy(talker, talker, temperature=0.5, max_new_tokens=9)
    c = Conversation(CONTEXT, ["overview"], 0)
    (answer,) = policy.respond([c])
    assert answer == "ANSWER 1"
    c.answers.append(answer)
    c.observations.append("feedback")
    policy.respond([c])
    assert [(m["role"], m["content"]) for m in talker.prompts[1]] == [
        ("system", "be brief"), ("user", "overview"), ("assistant", "answer 1"), ("user", "feedback"),
    ]  # fmt: skip


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
    assert policies._served_model(url, "secret") == "one"
    assert keys == ["Bearer secret"]
    models.append("two")
    with pytest.raises(InvalidInput, match="one, two"):
        policies._served_model(url, None)


def test_a_server_is_evaluated_over_several_turns(server, dojo, box, monkeypatch):
    url, _, keys, chats, answers = server
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    answers.append(f"Analysis: easy.\n```python\n#ok\n{dojo[1][SLUG]['perfect']}```")
    named = policies.build(f"openai:{url}", temperature=0.3, max_new_tokens=99, turns=2)
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
        policies._served_model("http://127.0.0.1:9/v1", "secret")
    assert "127.0.0.1:9" in str(error.value)
    assert "secret" not in str(error.value)
