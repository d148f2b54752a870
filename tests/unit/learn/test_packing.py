import copy
import random

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from wmrl_train.config import OptimConfig
from wmrl_train.episodes.records import Row
from wmrl_train.learn import learner as module
from wmrl_train.learn.learner import Learner, Sample
from wmrl_train.learn.packing import Pack, can_pack, pack, packs


def row(prompt, rest, observation=()):
    """A prompt, sampled tokens, an observation in the middle."""
    made, half = Row(), len(rest) // 2
    made.add(prompt)
    made.add(rest[:half], [-4.0] * half)
    made.add(observation)
    made.add(rest[half:], [-4.0] * (len(rest) - half))
    return made


def group(seed, members=4):
    """Rows of one prompt and different lengths."""
    rng = random.Random(seed)
    prompt = [rng.randrange(4, 100) for _ in range(8)]
    return [row(prompt, [rng.randrange(4, 100) for _ in range(4 + 3 * i)], [7] * i) for i in range(members)]


def samples():
    rows = [r for seed in range(3) for r in group(seed)] + [row([9, 9], [50, 60, 70])]
    rows[0].add([8, 8, 8, 8])  # what nobody needs
    return [Sample(r, (-1.0) ** i * (1 + i % 3), 1 / len(rows), r.n_sampled) for i, r in enumerate(rows)]


def learner(tiny, monkeypatch, limit, **options):
    monkeypatch.setattr(module, "PACK_TOKENS", limit)
    config = OptimConfig(**({"lr": 1e-3, "kl_coef": 0.05, "entropy_coef": 0.01, "max_grad_norm": 1e9} | options))
    return Learner(copy.deepcopy(tiny[0]), config, temperature=0.8, horizon=30)


def test_packs_hold_every_row_once_within_the_limit():
    rows = [s.row for s in samples()]
    made = packs(rows, 40)
    assert sorted(i for p in made for i in p.rows) == list(range(len(rows)))
    for p in made:
        assert p.length <= 40
        assert p.length == p.prompt + sum(rows[i].n_needed - p.prompt for i in p.rows)
        assert len({tuple(rows[i].ids[: p.prompt]) for i in p.rows}) == 1
    assert max(len(p.rows) for p in made) > 1
    assert packs(rows, 0) == [Pack([i], r.sampled.index(True), r.n_needed) for i, r in enumerate(rows)]


def test_hidden_states_are_those_of_the_rows_alone(tiny):
    rows = [s.row for s in samples()]
    packed = pack(rows, packs(rows, 100), "cpu")
    assert packed.mask.dim() == 4
    got = tiny[0](input_ids=packed.ids, attention_mask=packed.mask, position_ids=packed.positions).logits.flatten(0, 1)
    alone = [tiny[0](torch.tensor([r.ids])).logits[0, :-1][torch.tensor(r.sampled[1:])] for r in rows]
    torch.testing.assert_close(got[packed.sources], torch.cat(alone), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("limit", [30, 1024])
@pytest.mark.parametrize("options", [{"loss": "grpo"}, {"loss": "dapo", "epochs": 2}, {"tokens_per_micro_batch": 64}])
def test_gradients_are_those_without_packs(tiny, monkeypatch, options, limit):
    gradients = []
    for tokens in (0, limit):
        work = learner(tiny, monkeypatch, tokens, **options)
        work.optimizer.step = lambda: gradients.append(torch.cat([p.grad.flatten() for p in work.parameters]))  # noqa: B023
        gradients.append(work.update(samples()))
    half = len(gradients) // 2
    for expected, got in zip(gradients[:half], gradients[half:], strict=True):
        if isinstance(expected, dict):
            assert got == pytest.approx(expected, abs=1e-5, rel=1e-3)
        else:
            torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-3)


def test_a_prompt_is_computed_once(tiny, monkeypatch):
    computed = []
    work = learner(tiny, monkeypatch, 1024, kl_coef=0)
    work.model.model.register_forward_pre_hook(lambda m, a, k: computed.append(k["input_ids"].numel()), with_kwargs=True)
    one = group(0)
    work.update([Sample(r, 1.0, 0.25, r.n_sampled) for r in one])
    assert computed == [sum(r.n_needed for r in one) - 3 * 8]


def test_only_full_attention_by_a_dense_mask_is_packed(tiny):
    assert can_pack(tiny[0])
    eager = copy.deepcopy(tiny[0])
    eager.config._attn_implementation = "eager"
    assert not can_pack(eager)
    size = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    assert not can_pack(MistralForCausalLM(MistralConfig(vocab_size=20, sliding_window=8, **size)))
    assert can_pack(MistralForCausalLM(MistralConfig(vocab_size=20, sliding_window=None, **size)))
    deaf = copy.deepcopy(tiny[0])  # a model that makes positions of its own
    forward = deaf.model.forward
    deaf.model.forward = lambda **kwargs: forward(**{k: v for k, v in kwargs.items() if k != "position_ids"})
    assert not can_pack(deaf)
