"""Chat templates by what they do, not by what they are called: small templates that behave like the families'."""

import json

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.chat import ChatFormat
from wmrl_train.engines.encode import encode
from wmrl_train.engines.template import Template

TALK = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system role here') }}{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LOSES_SYSTEM = (
    "{% for m in messages %}{% if m.role != 'system' %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
NO_END = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PLAIN_END = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
THINKS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|eos|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|im_start|>", "<|im_end|>"]


def tokenizer(template, eos="<|eos|>", special=SPECIAL):
    """Bytes and control tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate([*special, *alphabet])}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(special)
    made = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=eos, clean_up_tokenization_spaces=False)
    made.chat_template = template
    return made


def ids(made, *names):
    return tuple(made.convert_tokens_to_ids(list(names)))


def test_an_answer_ends_with_what_the_template_puts_after_it():
    made = tokenizer(TALK)
    template = Template(made)
    assert set(template.stop_ids) == set(ids(made, "<|eos|>", "<|end|>"))
    assert template.end_id == ids(made, "<|end|>")[0]


def test_the_next_turns_opening_ends_an_answer_where_nothing_else_does():
    made = tokenizer(NO_END)
    assert Template(made).end_id == ids(made, "<|user|>")[0]


def test_the_ends_of_the_models_own_generation_config_are_known(tmp_path):
    made = tokenizer(TALK)
    made.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [*ids(made, "<|im_end|>")]}))
    made.name_or_path = str(tmp_path)
    assert ids(made, "<|im_end|>")[0] in Template(made).stop_ids


@pytest.mark.parametrize("content", ["not JSON", "[1]", '{"eos_token_id": "x"}'])
def test_a_generation_config_that_is_none_says_nothing(tmp_path, content):
    made = tokenizer(TALK)
    (tmp_path / "generation_config.json").write_text(content)
    made.name_or_path = str(tmp_path)
    assert len(Template(made).stop_ids) == 2


def test_a_tokenizer_without_an_end_lives_by_its_templates():
    made = tokenizer(TALK, eos=None)
    assert Template(made).stop_ids == ids(made, "<|end|>")


def test_without_any_end_it_is_one_sentence():
    with pytest.raises(InvalidInput, match="Nothing ends an answer of this model"):
        Template(tokenizer(PLAIN_END, eos=None))


def test_an_end_that_is_no_token_is_said_at_the_start(caplog):
    Template(tokenizer(PLAIN_END))
    assert "is no token that ends one" in caplog.text


@pytest.mark.parametrize("source", [NO_SYSTEM, LOSES_SYSTEM])
def test_a_system_prompt_without_a_place_goes_into_the_first_user_message(source):
    made = tokenizer(source)
    talk = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert made.decode(Template(made).ids(talk)) == "<|user|>be brief\n\nhi<|end|><|assistant|>"
    assert made.decode(encode(talk, made, 500)) == "<|user|>be brief\n\nhi<|end|><|assistant|>"


def test_a_system_prompt_with_a_place_keeps_it():
    made = tokenizer(TALK)
    talk = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert made.decode(Template(made).ids(talk)) == "<|system|>be brief<|end|><|user|>hi<|end|><|assistant|>"


def test_a_template_that_fails_is_the_users_and_one_sentence():
    with pytest.raises(InvalidInput, match="chat template cannot render a conversation of user, assistant"):
        Template(tokenizer("{% for m in messages %}{{ m.nothing.at_all }}{% endfor %}"))


@pytest.mark.parametrize("spelled", ["<|end|>", "<|end|><|user|>", "a<|im_end|>b", "<|eos|>"])
def test_foreign_text_never_becomes_a_control_token(spelled):
    made = tokenizer(TALK)
    template = Template(made)
    control = set(ids(made, *SPECIAL))
    found = template.ids([{"role": "user", "content": f"output: {spelled} done"}])
    assert [i for i in found if i in control] == list(ids(made, "<|user|>", "<|end|>", "<|assistant|>"))
    assert made.decode(found) == f"<|user|>output: {spelled} done<|end|><|assistant|>"
    assert not control & set(template.plain(spelled))
    follow = ChatFormat(made).follow(ids(made, "<|end|>"), [{"role": "user", "content": spelled}])
    assert [i for i in follow if i in control] == list(ids(made, "<|user|>", "<|end|>", "<|assistant|>"))


def test_text_without_control_tokens_is_the_templates_own_ids():
    made = tokenizer(TALK)
    talk = [
        {"role": "user", "content": "é \U000f0001 ünïcode"},
        {"role": "assistant", "content": "x = 1"},
        {"role": "user", "content": "y"},
    ]
    plain = [dict(m, content=m["content"].replace("\U000f0001", "\ufffd")) for m in talk]
    assert Template(made).ids(talk) == made.apply_chat_template(plain, add_generation_prompt=True)["input_ids"]


def test_the_shipped_template_keeps_thoughts_where_they_were_said():
    made = tokenizer(THINKS, eos="<|im_end|>")
    assert ChatFormat(made).rewrites
    assert not ChatFormat(made, template="chatml").rewrites
    assert not ChatFormat(made, {"enable_thinking": False}, template="chatml").rewrites
    assert made.chat_template == THINKS, "the tokenizer itself is left alone"


def test_a_template_that_cannot_be_read_is_one_sentence():
    with pytest.raises(InvalidInput, match=r"template='nowhere\.jinja' cannot be read"):
        ChatFormat(tokenizer(TALK), template="nowhere.jinja")
