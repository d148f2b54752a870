import ast
import json
from dataclasses import replace

import pytest

from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.brief import known_tasks, prompt
from wmrl_train.warm_start.build import WarmStartConfig, conversations, encode, warm_start
from wmrl_train.warm_start.grammar import write_program
from wmrl_train.warm_start.tokenizer import train_tokenizer

QUICK = WarmStartConfig(steps=40, programs=12, batch=6, broken=0.0, anonymous=0.0, second_turn=0.0)


@pytest.fixture(scope="module")
def built(briefs, tmp_path_factory):
    """A much shorter warm start than the one that ships: two tasks and few programs, which it learns nearly by heart."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    out, losses = tmp_path_factory.mktemp("policy"), []
    warm_start(briefs[1:3], out, QUICK, lambda step, loss: losses.append(loss))
    torch.set_num_threads(threads)
    return out, losses


def test_the_loss_falls_and_the_directory_says_how_it_was_made(built, briefs):
    out, losses = built
    assert len(losses) == QUICK.steps
    assert sum(losses[-10:]) / 10 < 0.35 * losses[0]
    provenance = json.loads((out / "provenance.json").read_text())
    assert provenance["config"]["steps"] == QUICK.steps
    assert provenance["tasks"] == [b.task for b in briefs[1:3]]


def test_it_loads_as_any_causal_language_model_and_writes_programs_that_parse(built, briefs):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(built[0]), AutoTokenizer.from_pretrained(built[0])
    assert next(model.parameters()).dtype == torch.float32
    assert known_tasks(tokenizer) == {b.task for b in briefs[1:3]}
    torch.manual_seed(0)
    parsed, saved = 0, 0
    for brief in briefs[1:3]:
        ids = torch.tensor([tokenizer(prompt(brief))["input_ids"]] * 10)
        sampled = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=0.5, max_new_tokens=120)
        for code in tokenizer.batch_decode(sampled[:, ids.shape[1] :], skip_special_tokens=True):
            try:
                ast.parse(code)
            except SyntaxError:
                continue
            parsed += 1
            saved += "save(" in code and "m.fit(X, y)" in code
    assert parsed >= 8, f"{parsed} of 20 programs parse"
    assert saved >= 5


def test_weights_are_kept_in_half_precision(built):
    assert (built[0] / "model.safetensors").stat().st_size < 5_000_000


def test_the_tokenizer_is_lossless_for_any_text_and_writes_clauses_as_one_token(briefs):
    codes = [write_program(b, s).code for b in briefs for s in range(100)]
    tokenizer = train_tokenizer(codes, ["alpha-rent"], 900)
    for text in [*codes[:50], "λ → é\t日本 'x'\r\n", "  two  spaces ,( ) ='\n\n", "<|endoftext|>"]:
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert len(tokenizer("from sklearn.ensemble import RandomForestClassifier\n")["input_ids"]) <= 2
    assert len(tokenizer) == 900


def test_only_what_the_policy_writes_has_labels(briefs):
    config = replace(QUICK, programs=60, second_turn=1.0)
    data = conversations(briefs, config)
    tokenizer = train_tokenizer([text for parts in data for text, _ in parts], [], 900)
    for parts in data:
        ids, labels = encode(parts, tokenizer)
        assert tokenizer.decode(ids) == "".join(text + (tokenizer.eos_token if written else "") for text, written in parts)
        learnt = tokenizer.decode([t for t in labels if t != -100])
        assert learnt == parts[1][0] + tokenizer.eos_token + parts[3][0] + tokenizer.eos_token
        assert parts[2][0] in ("# ran, again\n", "# failed, again\n")


@pytest.mark.parametrize("bad", [{"steps": 0}, {"batch": -1}, {"programs": 1.5}, {"seed": -1}, {"seed": 2**63}])
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(InvalidInput, match=next(iter(bad))):
        WarmStartConfig(**bad)


def test_a_place_that_cannot_be_written_is_refused_before_any_work(briefs, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot write a model"):
        warm_start(briefs, tmp_path / "file", QUICK)
