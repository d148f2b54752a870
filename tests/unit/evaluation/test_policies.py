"""What a policy answers; the agents and engines are test doubles."""

import json

import pytest

from wmrl_envs.context import TaskContext
from wmrl_envs.engine import Generation
from wmrl_envs.errors import InvalidInput
from wmrl_train.evaluation.policies import CallablePolicy, ChatPolicy, OpenEpisode

CONTEXT = TaskContext("task", "overview")


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


def test_the_chat_policy_keeps_the_whole_episode():
    talker = Talker()
    policy = ChatPolicy(talker, talker, temperature=0.5, max_new_tokens=9)
    c = OpenEpisode(CONTEXT, ["overview"], 0)
    (answer,) = policy.respond([c])
    assert answer == "ANSWER 1"
    c.answers.append(answer)
    c.observations.append("feedback")
    policy.respond([c])
    assert [(m["role"], m["content"]) for m in talker.prompts[1]] == [
        ("system", "be brief"), ("user", "overview"), ("assistant", "answer 1"), ("user", "feedback"),
    ]  # fmt: skip


def test_an_agent_that_exits_does_not_end_the_evaluation_without_a_word():
    def agent(observation):
        raise SystemExit(3)

    with pytest.raises(InvalidInput, match="raised SystemExit: 3"):
        CallablePolicy(agent).respond([OpenEpisode(CONTEXT, ["overview"], 0)])


def test_an_error_inside_a_library_is_placed_in_the_users_own_line():
    def agent(observation):
        return json.loads(observation)

    line = agent.__code__.co_firstlineno + 1
    with pytest.raises(InvalidInput, match=rf"raised JSONDecodeError: .* \(.*test_policies\.py, line {line}\)"):
        CallablePolicy(agent).respond([OpenEpisode(CONTEXT, ["overview"], 0)])
