import copy
from collections import Counter

import numpy as np
import pytest
import torch

from wmrl_envs.engine import Engine, Sampling
from wmrl_envs.errors import DataNotBuilt, InfrastructureError, InvalidInput
from wmrl_train.engines.transformers import TransformersEngine, sample

PROMPTS = [[5, 6, 7], [9] * 11, [5, 6, 7], [4], [20, 21, 22, 23, 24]]


def logprobs_of(model, prompt, ids, temperature):
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None]).squeeze(-1)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.6])
def test_logprobs_are_those_of_the_sampling_distribution_whatever_the_padding(tiny, temperature):
    engine = TransformersEngine(*tiny)
    made = engine.generate(PROMPTS, Sampling(temperature=temperature, max_new_tokens=20), seeds=range(5))
    for prompt, generation in zip(PROMPTS, made, strict=True):
        expected = logprobs_of(tiny[0], prompt, generation.ids, temperature)
        np.testing.assert_allclose(generation.logprobs, expected, atol=2e-5)


def test_a_sample_does_not_depend_on_its_batch(tiny):
    sampling = Sampling(max_new_tokens=40)
    together = TransformersEngine(*tiny).generate(PROMPTS, sampling, seeds=[3, 1, 4, 1, 5])
    alone = [
        TransformersEngine(*tiny).generate([p], sampling, seeds=[s])[0] for p, s in zip(PROMPTS, [3, 1, 4, 1, 5], strict=True)
    ]
    in_pieces = TransformersEngine(*tiny, batch_size=2).generate(PROMPTS, sampling, seeds=[3, 1, 4, 1, 5])
    assert [g.ids for g in together] == [g.ids for g in alone] == [g.ids for g in in_pieces]
    assert together[0].ids != together[2].ids  # the same prompt with another seed


@pytest.mark.parametrize("prefix", [31, 32, 100])
def test_a_common_beginning_is_computed_once_and_changes_nothing(tiny, prefix):
    beginning = [7 + i % 50 for i in range(prefix)]
    prompts = [[*beginning, *end] for end in ([3], [4, 5, 6, 7, 8], [3], [3, 9], [60] * 20)]
    engine, sampling = TransformersEngine(*tiny), Sampling(max_new_tokens=30)
    together = engine.generate(prompts, sampling, seeds=range(5))
    assert engine.statistics["prompt_tokens"] == sum(map(len, prompts))
    assert engine.statistics["cached_tokens"] == len(prompts[2]) + (3 * prefix if prefix >= 32 else 0)
    for seed, (prompt, generation) in enumerate(zip(prompts, together, strict=True)):
        assert generation.ids == TransformersEngine(*tiny).generate([prompt], sampling, seeds=[seed])[0].ids
        np.testing.assert_allclose(generation.logprobs, logprobs_of(tiny[0], prompt, generation.ids, 1.0), atol=2e-5)


def test_a_prompt_that_begins_another_keeps_a_token_of_its_own(tiny):
    prompts = [[5] * 50, [5] * 60, [5] * 50]
    made = TransformersEngine(*tiny).generate(prompts, Sampling(max_new_tokens=10), seeds=range(3))
    for prompt, generation in zip(prompts, made, strict=True):
        np.testing.assert_allclose(generation.logprobs, logprobs_of(tiny[0], prompt, generation.ids, 1.0), atol=2e-5)


def test_stop_ids_end_a_sample_and_stay_out_of_the_text(tiny):
    made = TransformersEngine(*tiny).generate(
        [[5, 6]] * 64, Sampling(max_new_tokens=200, stop_ids=(1, 30, 40)), seeds=range(64)
    )
    stopped = [g for g in made if g.finish == "stop"]
    assert len({len(g.ids) for g in stopped}) > 5  # rows left the batch at different times
    for g in stopped:
        assert g.ids[-1] in (1, 30, 40)
        assert not set(g.ids[:-1]) & {1, 30, 40}
        assert len(g.logprobs) == len(g.ids)
        assert len(g.text) <= len(g.ids) * len("<assistant>")
        assert "<end>" not in g.text


def test_length_and_context_bound_a_sample(tiny):
    engine = TransformersEngine(*tiny, max_context=16)
    short, long = engine.generate([[5] * 3, [5] * 12], Sampling(max_new_tokens=8, stop_ids=(9999,)), seeds=[0, 1])
    assert (len(short.ids), len(long.ids)) == (8, 4)
    assert short.finish == long.finish == "length"
    with pytest.raises(InvalidInput, match="16 tokens leaves no room"):
        engine.generate([[5] * 16], Sampling(max_new_tokens=8))


def test_sampling_follows_the_distribution():
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05])).repeat(20_000, 1)
    uniform = torch.rand(20_000, generator=torch.Generator().manual_seed(0))
    ids, logprobs = sample(logits, uniform, 1.0)
    share = np.array([Counter(ids.tolist())[i] / 20_000 for i in range(4)])
    np.testing.assert_allclose(share, [0.5, 0.3, 0.15, 0.05], atol=0.012)
    np.testing.assert_allclose(logprobs.exp(), torch.tensor([0.5, 0.3, 0.15, 0.05])[ids], rtol=1e-5)


def test_top_p_renormalises_and_temperature_zero_is_greedy():
    logits = torch.log(torch.tensor([[0.15, 0.5, 0.05, 0.3]]))
    ids, logprobs = sample(logits.repeat(1000, 1), torch.linspace(0, 0.9999, 1000), 1.0, top_p=0.7)
    assert set(ids.tolist()) == {1, 3}
    np.testing.assert_allclose(logprobs.exp(), torch.where(ids == 1, 0.625, 0.375), rtol=1e-5)
    assert sample(logits, torch.tensor([0.999]), 0.0)[0].item() == 1


def test_never_samples_a_token_of_probability_zero():
    logits = torch.tensor([[float("-inf"), 0.0, float("-inf")]]).repeat(3, 1)
    assert sample(logits, torch.tensor([0.0, 0.5, 1 - 1e-16]), 1.0)[0].tolist() == [1, 1, 1]


def test_messages_go_through_the_chat_template(tiny):
    engine = TransformersEngine(*tiny)
    as_messages = engine.generate([[{"role": "user", "content": "hi"}]], Sampling(max_new_tokens=5), seeds=[0])
    ids = tiny[1]("<user>hi<end><assistant>")["input_ids"]
    assert as_messages == engine.generate([ids], Sampling(max_new_tokens=5), seeds=[0])
    bare = copy.deepcopy(tiny[1])
    bare.chat_template = None
    with pytest.raises(InvalidInput, match="no chat template"):
        TransformersEngine(tiny[0], bare).generate([[{"role": "user", "content": "hi"}]], Sampling())


def test_weight_updates_count_versions_and_change_the_samples(tiny):
    engine = TransformersEngine(copy.deepcopy(tiny[0]), tiny[1])
    before = engine.generate([[5]], Sampling(max_new_tokens=30), seeds=[0])
    engine.update_weights((n, torch.zeros_like(p)) for n, p in engine.model.named_parameters())
    assert engine.version == 1
    assert engine.generate([[5]], Sampling(max_new_tokens=30), seeds=[0]) != before
    with pytest.raises(InvalidInput, match="does not have"):
        engine.update_weights([("nonsense", torch.zeros(1))])


def test_is_an_engine_and_closing_ends_it(tiny, tmp_path):
    engine = TransformersEngine(*tiny)
    assert isinstance(engine, Engine)
    engine.close()
    with pytest.raises(InfrastructureError, match="closed"):
        engine.generate([[5]], Sampling())
    with pytest.raises(DataNotBuilt, match="No model in"):
        TransformersEngine.from_pretrained(tmp_path)


def test_a_saved_model_loads_and_samples_the_same(tiny, tmp_path):
    for part in tiny:
        part.save_pretrained(tmp_path)
    loaded = TransformersEngine.from_pretrained(tmp_path, device="cpu")
    assert loaded.generate([[5, 6]], Sampling(), seeds=[1]) == TransformersEngine(*tiny).generate(
        [[5, 6]], Sampling(), seeds=[1]
    )
