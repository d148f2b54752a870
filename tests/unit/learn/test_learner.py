import copy

import numpy as np
import pytest
import torch

from wmrl_envs.engine import Sampling
from wmrl_train.config import OptimConfig
from wmrl_train.engines.transformers import TransformersEngine
from wmrl_train.episodes.records import Row
from wmrl_train.learn import learner as module
from wmrl_train.learn.learner import Learner, NonFiniteLoss, Sample, micro_batches


def rows(tiny, n=6, temperature=1.0, seed=0):
    engine = TransformersEngine(*tiny)
    made = engine.generate(
        [[5, 6, 7 + i] for i in range(n)], Sampling(temperature=temperature, max_new_tokens=10 + 5 * n), range(seed, seed + n)
    )
    result = []
    exact = Learner(tiny[0], OptimConfig(kl_coef=0), temperature=temperature)
    for i, generation in enumerate(made):
        row = Row()
        row.add([5, 6, 7 + i])
        row.add(generation.ids[:4], [0.0] * 4)
        row.add([9, 9])  # an observation in between
        row.add(generation.ids[4:], [0.0] * len(generation.ids[4:]))
        sampled = iter(exact.logprobs(row).tolist())
        row.logprobs = [next(sampled) if s else 0.0 for s in row.sampled]
        result.append(row)
    return result


def samples(tiny, n=6, **kwargs):
    return [Sample(r, (-1.0) ** i * (1 + i), 1 / n, r.n_sampled, f"rollout {i}") for i, r in enumerate(rows(tiny, n, **kwargs))]


def fresh(tiny, **options):
    config = OptimConfig(**({"lr": 1e-3, "kl_coef": 0.0, "entropy_coef": 0.0} | options))
    return Learner(copy.deepcopy(tiny[0]), config, horizon=60)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.6])
def test_on_policy_ratio_is_one_at_any_temperature(tiny, temperature):
    engine = TransformersEngine(*tiny)
    generation = engine.generate([[5, 6, 7]], Sampling(temperature=temperature, max_new_tokens=40), [3])[0]
    row = Row()
    row.add([5, 6, 7])
    row.add(generation.ids, generation.logprobs)
    learner = Learner(tiny[0], OptimConfig(kl_coef=0), temperature=temperature)
    np.testing.assert_allclose(learner.logprobs(row).exp() / np.exp(generation.logprobs), 1.0, atol=1e-4)
    wrong = Learner(tiny[0], OptimConfig(kl_coef=0), temperature=temperature + 0.5)
    assert (wrong.logprobs(row) - torch.tensor(generation.logprobs)).abs().max() > 1e-2


def gradient(learner, batch):
    learner.optimizer.step = lambda: None  # keep the gradient, skip the step
    zero = learner.optimizer.zero_grad
    calls = []
    learner.optimizer.zero_grad = lambda **k: calls.append(1) or (zero(**k) if len(calls) == 1 else None)
    learner.update(batch)
    return torch.cat([p.grad.flatten() for p in learner.parameters])


def test_gradient_is_the_weighted_policy_gradient_on_the_agents_tokens_only(tiny):
    batch = samples(tiny)
    got = gradient(fresh(tiny, max_grad_norm=1e9), batch)
    model, loss = copy.deepcopy(tiny[0]), 0.0
    for s in batch:
        ids = torch.tensor([s.row.ids])
        logprobs = model(ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None]).squeeze(-1)
        loss = loss - s.weight * s.advantage * logprobs[torch.tensor(s.row.sampled[1:])].mean()
    loss.backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters()])
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo", "cispo"])
def test_micro_batching_and_chunking_do_not_change_the_gradient(tiny, loss, monkeypatch):
    batch, options = samples(tiny), {"loss": loss, "kl_coef": 0.1, "entropy_coef": 0.05, "max_grad_norm": 1e9}
    whole = gradient(fresh(tiny, **options), batch)
    pieces = gradient(fresh(tiny, tokens_per_micro_batch=64, **options), batch)
    torch.testing.assert_close(whole, pieces, atol=1e-5, rtol=1e-3)
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 7 * 104)
    torch.testing.assert_close(whole, gradient(fresh(tiny, **options), batch), atol=1e-5, rtol=1e-3)


def test_rows_of_one_trajectory_count_like_one_row(tiny):
    row = rows(tiny, 1)[0]
    whole = [Sample(row, 1.0, 1.0, row.n_sampled)]
    first, second = copy.deepcopy(row), copy.deepcopy(row)  # the same tokens, learnt in two rows
    first.sampled[9:], second.sampled[:9] = [False] * len(row.ids[9:]), [False] * 9
    parts = [Sample(r, 1.0, 1.0, row.n_sampled) for r in (first, second)]
    torch.testing.assert_close(gradient(fresh(tiny), whole), gradient(fresh(tiny), parts), atol=1e-6, rtol=1e-4)


def test_an_update_raises_good_and_lowers_bad_trajectories(tiny):
    learner, batch = fresh(tiny, lr=1e-2), samples(tiny)
    before = [learner.logprobs(s.row).sum() for s in batch]
    for _ in range(5):
        metrics = learner.update(batch)
    after = [learner.logprobs(s.row).sum() for s in batch]
    moved = [float(a - b) * s.advantage for a, b, s in zip(after, before, batch, strict=True)]
    assert sum(m > 0 for m in moved) >= 5
    assert metrics["tokens"] == sum(s.row.n_sampled for s in batch)
    assert learner.updates == 5


def test_kl_holds_the_policy_near_the_reference_and_entropy_spreads_it(tiny):
    batch = samples(tiny)

    def distance(**options):
        learner = fresh(tiny, lr=5e-3, **options)
        for _ in range(8):
            metrics = learner.update(batch)
        return metrics

    free, held = distance(kl_coef=1e-9), distance(kl_coef=5.0)
    assert held["kl"] < free["kl"] / 2
    assert distance(entropy_coef=1.0)["entropy"] > free["entropy"]


def test_first_step_has_no_kl_and_no_mismatch(tiny):
    metrics = fresh(tiny, kl_coef=0.04).update(samples(tiny))
    assert metrics["kl"] == 0
    assert metrics["mismatch_kl"] < 1e-9
    assert metrics["importance"] == pytest.approx(1, abs=1e-4)
    assert metrics["clip_fraction"] == 0


def test_several_epochs_use_the_ratio(tiny):
    learner = fresh(tiny, lr=5e-2, epochs=4)
    assert learner.update(samples(tiny))["clip_fraction"] > 0


def test_a_non_finite_loss_names_the_rollout_and_changes_nothing(tiny):
    learner, batch = fresh(tiny), samples(tiny)
    batch[3] = Sample(batch[3].row, float("nan"), 1 / 6, batch[3].length, "group 7 (titanic), member 3")
    before = copy.deepcopy(learner.model.state_dict())
    with pytest.raises(NonFiniteLoss, match=r"group 7 \(titanic\), member 3"):
        learner.update(batch)
    assert all(torch.equal(v, before[k]) for k, v in learner.model.state_dict().items())


def test_bfloat16_keeps_float32_weights(tiny):
    learner = Learner(copy.deepcopy(tiny[0]), OptimConfig(lr=1e-6, kl_coef=0.04), horizon=60, autocast=torch.bfloat16)
    before = copy.deepcopy(learner.model.state_dict())
    learner.update(samples(tiny))
    changed = [not torch.equal(v, before[k]) for k, v in learner.model.state_dict().items()]
    assert sum(changed) > len(changed) / 2, "a learning rate of 1e-6 would vanish in bfloat16 weights"


def test_gradient_checkpointing_gives_the_same_gradient(tiny):
    batch = samples(tiny)
    plain = gradient(fresh(tiny), batch)
    saving = Learner(
        copy.deepcopy(tiny[0]), OptimConfig(lr=1e-3, kl_coef=0, entropy_coef=0), horizon=60, gradient_checkpointing=True
    )
    torch.testing.assert_close(plain, gradient(saving, batch), atol=1e-6, rtol=1e-4)


def test_lora_trains_adapters_only_and_its_base_is_the_reference(tiny):
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(copy.deepcopy(tiny[0]), peft.LoraConfig(r=4, target_modules="all-linear"))
    learner = Learner(model, OptimConfig(lr=1e-2, kl_coef=0.04), horizon=60)
    batch = samples(tiny)
    first = learner.update(batch)
    second = learner.update(batch)
    assert first["kl"] == pytest.approx(0, abs=1e-9)
    assert second["kl"] > 0
    assert all("lora" in n for n, p in model.named_parameters() if p.requires_grad)


def test_warmup_and_empty_batches(tiny):
    learner = fresh(tiny, lr=1e-3, warmup_steps=4)
    assert [learner.update(samples(tiny))["lr"] for _ in range(5)] == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3])
    assert learner.update([]) == {"tokens": 0.0}


def test_micro_batches_hold_everything_within_the_budget():
    lengths = [3, 17, 5, 9, 30, 2, 2, 8]
    batches = micro_batches(lengths, list(range(8)), 20)
    assert sorted(i for b in batches for i in b) == list(range(8))
    assert all(len(b) == 1 or len(b) * max(lengths[i] for i in b) <= 20 for b in batches)


@pytest.mark.parametrize("lora", [False, True])
def test_gradient_checkpointing_recomputes_layers_and_drops_nothing(lora):
    """GPT-2 ships with dropout: with it the policy that is updated would not be the one that sampled."""
    import peft
    from transformers import GPT2Config, GPT2LMHeadModel

    from wmrl_train.episodes.records import Row

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=64)).eval()
    if lora:
        model = peft.get_peft_model(
            model, peft.LoraConfig(r=4, lora_dropout=0.5, target_modules=["c_attn"], task_type="CAUSAL_LM")
        )
    learner = Learner(model, OptimConfig(lr=1e-6, kl_coef=0.0), gradient_checkpointing=True)
    row = Row()
    row.add([1, 2, 3])
    row.add([4, 5], [0.0, 0.0])
    ours = learner.logprobs(row).tolist()
    row.logprobs[-2:] = ours
    calls = []
    inner = next(m for m in model.modules() if type(m).__name__ == "GPT2MLP")
    inner.register_forward_pre_hook(lambda *_: calls.append(1))
    found = learner.update([Sample(row, 1.0, 1.0, 2)])
    assert found["mismatch_kl"] == pytest.approx(0.0, abs=1e-9)
    assert found["importance"] == pytest.approx(1.0, abs=1e-5)
    assert len(calls) == 2, "once forwards, once again for the gradient"
