"""The vLLM engine on a real model (SmolLM2-135M, float32), against the transformers engine on the same weights."""

import json

import numpy as np
import pytest
import torch

from wmrl_envs.engine import Engine, Sampling
from wmrl_envs.errors import InvalidInput
from wmrl_envs.world_models.simulator.verdict import json_schema, parse
from wmrl_train.engines.encode import encode

pytestmark = pytest.mark.vllm

CHAT = [
    [{"role": "user", "content": text}]
    for text in (
        "What is the capital of France?",
        "Write one line of Python that reads train.csv with pandas.",
        "Name three classifiers of scikit-learn.",
        "Does `import numpyy` run? Answer in one sentence.",
    )
]
END = 2  # <|im_end|> of SmolLM2


def logprobs_of(reference, prompt, ids, temperature=1.0):
    """Log-probabilities of `ids` after `prompt` by the transformers model, in one pass."""
    given = encode(prompt, reference.tokenizer, reference.max_context)
    with torch.no_grad():
        logits = reference.model(torch.tensor([[*given, *ids]])).logits[0, len(given) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None]).squeeze(-1)


def test_is_an_engine_that_names_its_context(engine, reference):
    assert isinstance(engine, Engine)
    assert engine.max_context == 4096
    assert encode(CHAT[0], engine.tokenizer, 4096) == encode(CHAT[0], reference.tokenizer, 4096)


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_logprobs_are_those_of_the_transformers_model(engine, reference, temperature):
    made = engine.generate(CHAT, Sampling(temperature=temperature, max_new_tokens=24), seeds=range(len(CHAT)))
    for prompt, generation in zip(CHAT, made, strict=True):
        assert len(generation.ids) == len(generation.logprobs) > 0
        np.testing.assert_allclose(generation.logprobs, logprobs_of(reference, prompt, generation.ids, temperature), atol=1e-3)


def test_greedy_samples_are_those_of_the_transformers_engine(engine, reference):
    greedy = Sampling(temperature=0.0, max_new_tokens=16)
    for ours, theirs in zip(engine.generate(CHAT, greedy), reference.generate(CHAT, greedy), strict=True):
        assert (ours.ids, ours.text, ours.finish) == (theirs.ids, theirs.text, theirs.finish)
        np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-3)


def test_a_sample_is_a_function_of_its_seed_and_not_of_its_batch(engine):
    sampling = Sampling(max_new_tokens=16)
    together = engine.generate([CHAT[0], CHAT[1], CHAT[1]], sampling, seeds=[3, 1, 2**40 + 4])
    alone = engine.generate([CHAT[1]], sampling, seeds=[1])[0]
    assert together[1].ids == alone.ids
    assert together[1].ids != together[2].ids
    assert engine.generate([CHAT[1]], Sampling(max_new_tokens=16, seed=1))[0].ids == alone.ids


def test_the_end_of_an_answer_stops_it_and_stays_out_of_the_text(engine):
    (made,) = engine.generate([CHAT[0]], Sampling(temperature=0.0, max_new_tokens=64))
    assert made.finish == "stop"
    assert made.ids[-1] == END
    assert len(made.logprobs) == len(made.ids)
    assert made.text == engine.tokenizer.decode(made.ids[:-1])
    assert "Paris" in made.text


def test_stop_ids_take_the_place_of_the_end_of_an_answer(engine, reference):
    (plain,) = engine.generate([CHAT[0]], Sampling(temperature=0.0, max_new_tokens=64))
    stop = plain.ids[3]
    sampling = Sampling(temperature=0.0, max_new_tokens=64, stop_ids=(stop,))
    (made,) = engine.generate([CHAT[0]], sampling)
    assert made.ids == plain.ids[: plain.ids.index(stop) + 1]
    assert made.finish == "stop"
    assert made.text == engine.tokenizer.decode(made.ids[:-1])
    beyond = Sampling(temperature=0.0, max_new_tokens=len(plain.ids) + 4, stop_ids=(3,))  # not the end of an answer
    ours, theirs = engine.generate([CHAT[0]], beyond)[0], reference.generate([CHAT[0]], beyond)[0]
    assert END in ours.ids[:-1]
    assert (ours.ids, ours.text, ours.finish) == (theirs.ids, theirs.text, theirs.finish)


def test_length_bounds_a_sample(engine):
    (made,) = engine.generate([CHAT[1]], Sampling(temperature=0.0, max_new_tokens=3))
    assert (len(made.ids), made.finish) == (3, "length")


def test_bad_prompts_are_refused_and_the_engine_goes_on(engine):
    with pytest.raises(InvalidInput, match="4096 tokens leaves no room"):
        engine.generate([[5], [5] * 4096], Sampling(max_new_tokens=4))
    with pytest.raises(InvalidInput, match="empty prompt"):
        engine.generate([[5], []], Sampling(max_new_tokens=4))
    with pytest.raises(InvalidInput, match="2 prompts and 1 seeds"):
        engine.generate([[5], [6]], Sampling(max_new_tokens=4), seeds=[1])
    assert len(engine.generate([[5]], Sampling(max_new_tokens=4, stop_ids=(49151,)))[0].ids) == 4


def test_a_verdict_decoded_under_its_schema_can_be_read_and_keeps_its_ranges(engine):
    question = [{"role": "user", "content": "Does `import numpyy` run? Answer with the JSON object of a verdict."}]
    sampling = Sampling(temperature=1.0, max_new_tokens=1024, schema=json_schema())
    for generation in engine.generate([question] * 4, sampling, seeds=range(4)):
        assert generation.finish == "stop"
        record = json.loads(generation.text)
        assert record["verdict"] in ("pass", "fail")
        assert 0 <= record["confidence"] <= 1
        assert record.get("score") is None or 0 <= record["score"] <= 1
        assert record.get("error_line") is None or record["error_line"] >= 1
        assert parse(generation.text).verdict == record["verdict"]


def test_new_weights_of_tied_embeddings_give_the_logprobs_of_transformers_and_the_old_ones_bring_them_back(engine, reference):
    from wmrl_train.engines.load import merged_weights

    assert reference.model.config.tie_word_embeddings
    greedy = Sampling(temperature=0.0, max_new_tokens=16)
    before, version = engine.generate(CHAT, greedy), engine.version
    original = {name: p.clone() for name, p in reference.model.state_dict().items()}
    noise = torch.Generator().manual_seed(0)
    try:
        with torch.no_grad():
            for p in reference.model.parameters():
                p += 0.1 * p.std() * torch.randn(p.shape, generator=noise) if p.ndim > 1 else 0
        engine.update_weights(merged_weights(reference.model))
        changed = engine.generate(CHAT, greedy)
        for prompt, generation in zip(CHAT, changed, strict=True):
            np.testing.assert_allclose(generation.logprobs, logprobs_of(reference, prompt, generation.ids), atol=1e-3)
    finally:
        reference.model.load_state_dict(original)
        engine.update_weights(merged_weights(reference.model))
    after = engine.generate(CHAT, greedy)
    assert [g.ids for g in changed] != [g.ids for g in before]
    assert [(g.ids, g.logprobs) for g in after] == [(g.ids, g.logprobs) for g in before]
    assert engine.version == version + 2
