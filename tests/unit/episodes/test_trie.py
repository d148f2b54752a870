import numpy as np
import pytest
import torch

from wmrl_envs.engine import Sampling
from wmrl_train.config import OptimConfig
from wmrl_train.engines.transformers import TransformersEngine
from wmrl_train.episodes.records import Row
from wmrl_train.episodes.trie import Trie, tail
from wmrl_train.learn.learner import Learner, Sample

STOP = 1
WORDS = [[5, 6, 7, STOP], [5, 6, 8, 9, 9, STOP], [5, 10, 11, STOP], [12, 13, STOP], [12, 13, 14, STOP]]
OTHERS = [[20, 21, STOP], [22, 21, 23, STOP]]


def drawn(tiny, n=200, temperature=1.0, words=WORDS, batch_size=64):
    engine = TransformersEngine(*tiny, batch_size=batch_size)
    sampling = Sampling(temperature=temperature, max_new_tokens=20, stop_ids=(STOP,))
    return engine.generate([[3, 4]] * n, sampling, range(n), tries=[Trie(words)] * n)


@torch.no_grad()
def exact(tiny, word, words=WORDS, temperature=1.0):
    """Log-probability of a word under the masked distribution, token by token, from full forward passes."""
    trie, found = Trie(words), []
    for at, choices in enumerate(trie.choices(word)):
        logits = tiny[0](input_ids=torch.tensor([[3, 4, *word[:at]]])).logits[0, -1] / temperature
        chosen = logits[list(choices)].log_softmax(-1)
        found.append(float(chosen[list(choices).index(word[at])]))
    return found


def test_every_sample_is_a_word_of_its_own_trie(tiny):
    engine = TransformersEngine(*tiny)
    tries = [Trie(WORDS), Trie(OTHERS)] * 20
    made = engine.generate([[3, 4]] * 40, Sampling(max_new_tokens=20, stop_ids=(STOP,)), range(40), tries=tries)
    assert all(list(g.ids) in WORDS for g in made[::2])
    assert all(list(g.ids) in OTHERS for g in made[1::2])
    assert {g.finish for g in made} == {"stop"}


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.6])
def test_log_probabilities_are_those_of_the_masked_distribution(tiny, temperature):
    for generation in drawn(tiny, 20, temperature):
        np.testing.assert_allclose(generation.logprobs, exact(tiny, list(generation.ids), temperature=temperature), atol=1e-4)


def test_words_are_drawn_as_often_as_the_masked_distribution_says(tiny):
    made = [list(g.ids) for g in drawn(tiny, 2000)]
    for word in WORDS:
        assert abs(made.count(word) / 2000 - np.exp(sum(exact(tiny, word)))) < 0.05


def test_samples_do_not_depend_on_the_batch(tiny):
    assert [g.ids for g in drawn(tiny, 40)] == [g.ids for g in drawn(tiny, 40, batch_size=7)]


def test_what_had_no_alternative_is_given_and_not_learned_from(tiny):
    row = Row()
    row.add([3, 4])
    row.add([5, 6, 8, 9, 9, STOP], [-0.1, -0.2, -0.3, 0.0, 0.0, 0.0], Trie(WORDS).choices([5, 6, 8, 9, 9, STOP]))
    assert row.sampled == [False, False, True, True, True, False, False, False]
    assert row.choices == [[5, 12], [6, 10], [7, 8]]
    assert row.n_needed == 5


@pytest.mark.parametrize("temperature", [0.6, 1.6])
def test_learner_and_sampler_agree_so_that_the_on_policy_ratio_is_one(tiny, temperature):
    learner = Learner(tiny[0], OptimConfig(kl_coef=0.1), temperature=temperature)
    rows = []
    for generation in drawn(tiny, 30, temperature):
        rows.append(Row())
        rows[-1].add([3, 4])
        rows[-1].add(generation.ids, generation.logprobs, generation.choices)
        ours = learner.logprobs(rows[-1])
        sampled = np.array(rows[-1].logprobs)[rows[-1].sampled]
        np.testing.assert_allclose(ours, sampled, atol=1e-4)
    learned = learner.update([Sample(r, 1.0, 1 / 30, r.n_sampled) for r in rows])
    assert abs(learned["mismatch_kl"]) < 1e-6
    assert 0 < learned["entropy"] <= np.log(2)


def test_tail_is_what_must_follow():
    root = Trie(WORDS).root
    assert tail(root) is None
    assert tail(root[5][6][8]) == [9, 9, STOP]
    assert tail(root[12][13][STOP]) == []


def test_a_trie_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        Trie([])
