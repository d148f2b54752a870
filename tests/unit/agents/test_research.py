import copy

import pytest

from wmrl_envs.context import TaskContext
from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.chat import ChatFormat
from wmrl_train.agents.research import SEGMENTS, ResearchAgent

CONTEXT = TaskContext("titanic", timeout_s=60)
DROPS_THINKING = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<assistant>{{ m.content.split('</think>')[-1] if not loop.last else m.content }}"
    "{% else %}<user>{{ m.content }}{% endif %}<end>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture
def agent(tiny):
    return ResearchAgent(tiny[1], 64, max_turns=3, installed={"numpy": "2.1", "pandas": "2.3"})


def test_system_prompt_has_the_seven_segments_with_the_facts_of_the_run(agent):
    prompt = agent.system_prompt(CONTEXT)
    assert len(SEGMENTS) == 7
    assert len(prompt.split("\n\n")) == 7
    for fact in ("up to 3 attempts", "after 60 seconds", "numpy 2.1, pandas 2.3", "DATA_DIR", "SUBMISSION_PATH", "```python"):
        assert fact in prompt
    assert "{" not in prompt.replace("os.environ", "")


def test_a_conversation_by_ids_is_the_template_of_its_messages(agent, tiny):
    tokenizer = tiny[1]
    ids = agent.begin("overview", CONTEXT)
    text = tokenizer.decode(ids)
    assert text.endswith("overview\n\nBegin with attempt 1.<end><assistant>")
    answer = tuple(tokenizer("print(1)")["input_ids"])
    closed = [*ids, *answer, 1, *agent.extend("it ran", (*answer, 1))]
    cut_off = ids + list(answer) + agent.extend("it ran", answer)
    assert closed == cut_off
    messages = [
        *agent.messages("overview", CONTEXT),
        {"role": "assistant", "content": "print(1)"},
        {"role": "user", "content": "it ran"},
    ]
    assert closed == tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]


def test_a_template_that_rewrites_the_past_is_found_and_rendered_a_row_a_turn(tiny, caplog):
    tokenizer = copy.deepcopy(tiny[1])
    assert not ChatFormat(tokenizer).rewrites
    tokenizer.chat_template = DROPS_THINKING
    assert ChatFormat(tokenizer).rewrites
    agent = ResearchAgent(tokenizer, installed={})
    assert agent.one_row_per_turn
    assert "rewrites earlier turns" in caplog.text
    text = tokenizer.decode(agent.render(["overview", "feedback"], ["<think>hm</think>print(1)"], CONTEXT))
    assert text.endswith("<assistant>print(1)<end><user>feedback<end><assistant>")
    assert not ResearchAgent(tiny[1]).one_row_per_turn


def test_long_feedback_loses_its_middle(tiny):
    agent = ResearchAgent(tiny[1], observation_tokens=100, installed={})
    ids = agent.extend("a" * 500 + "b" * 500, ())
    assert len(ids) < 120
    text = tiny[1].decode(ids)
    assert "aaa\n[...]\nbbb" in text


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        ("I fit it.\n```python\nprint(1)\n```", "print(1)\n"),
        ("```python\nprint(1)\n```\nor better\n```python\nprint(2)\n```", "print(2)\n"),
        ("~~~python\nprint(1)\n~~~", "print(1)\n"),
        ("```python\nprint(1)", "print(1)"),
        ("<think>\n```python\nprint(0)\n```\n</think>\n```python\nprint(1)\n```", "print(1)\n"),
        ("print(1)", "print(1)"),
    ],
)
def test_programs_are_found_in_answers_of_many_kinds(agent, answer, program):
    assert agent.act(answer).strip() == program.strip()


def test_an_answer_without_a_program_reaches_the_environment(agent):
    assert agent.act("```json\n{}\n```") == "```json\n{}\n```"


def test_a_model_without_a_chat_template_is_refused(tiny):
    bare = copy.deepcopy(tiny[1])
    bare.chat_template = None
    with pytest.raises(InvalidInput, match="no chat template"):
        ResearchAgent(bare)


def test_without_a_tokenizer_it_still_makes_messages():
    agent = ResearchAgent(None, installed={})
    roles = [m["role"] for m in agent.messages("overview", CONTEXT)]
    assert roles == ["system", "user"]
