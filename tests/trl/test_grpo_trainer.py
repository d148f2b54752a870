"""`WmrlRewards` in a real `GRPOTrainer`: its steps are those of our learner with the corrector's weighted advantages."""

import copy

import numpy as np
import pytest
import torch

from tests.doubles import FakeWorldModel, ToyEnv, tiny_model, toy_score
from wmrl_envs.correction import AnchorSchedule, Corrector
from wmrl_train.config import OptimConfig
from wmrl_train.episodes.records import Row
from wmrl_train.integrations.trl import WmrlRewards
from wmrl_train.learn.learner import Learner, Sample

trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")
GROUPS, N, STEPS, LR, HORIZON = 4, 4, 3, 1.0, 12


def corrector():
    return Corrector(min_pairs=8, refit_every=4)


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo"])
def test_steps_of_grpo_trainer_equal_those_of_our_learner(tmp_path, loss):
    model, tokenizer = tiny_model()
    ours = Learner(
        copy.deepcopy(model), OptimConfig(lr=LR, kl_coef=0, entropy_coef=0, loss=loss, max_grad_norm=1.0), horizon=HORIZON
    )
    ours.optimizer = torch.optim.SGD(ours.parameters, lr=LR)  # AdamW would make much of the rounding of a gradient of nearly 0
    reference = corrector()
    rewards = WmrlRewards(ToyEnv, FakeWorldModel(), corrector(), AnchorSchedule(0.25, 1, seed=0), group_size=N)
    seen = []

    class Watched(trl.GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            anchored = []
            draw = rewards.schedule.draw
            rewards.schedule.draw = lambda *a, **k: anchored.append(draw(*a, **k)) or anchored[-1]
            batch = super()._generate_and_score_completions(inputs)
            rewards.schedule.draw = draw
            seen.append((batch, anchored[0][0], [row["task"] for row in inputs[::N]]))
            return batch

    settings = trl.GRPOConfig(
        output_dir=str(tmp_path), max_steps=STEPS, per_device_train_batch_size=GROUPS * N, num_generations=N, beta=0.0,
        max_completion_length=HORIZON, loss_type=loss, scale_rewards="none", learning_rate=LR, optim="sgd", lr_scheduler_type="constant",
        gradient_checkpointing=False, use_cpu=True, bf16=False, report_to=[], save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    data = datasets.Dataset.from_list([{"prompt": f"task {t}: ", "task": t} for t in "abcd"])
    trainer = Watched(
        model, [rewards.executed, rewards.predicted], args=settings, train_dataset=data, processing_class=tokenizer
    )
    trainer.train()
    assert len(seen) == STEPS
    assert rewards.corrector.n_pairs == STEPS * N
    assert rewards.corrector.ready
    for batch, anchored, tasks in seen:
        texts = tokenizer.batch_decode(batch["completion_ids"], skip_special_tokens=True)
        raw = np.array([FakeWorldModel()._score(text) for text in texts]).reshape(GROUPS, N)
        true = np.array([toy_score(text) for text in texts]).reshape(GROUPS, N)
        advantages = reference.advantages(raw, true, anchored, tasks=tasks) * GROUPS
        for k in np.flatnonzero(anchored):
            reference.observe(raw[k], true[k], group=k, task=tasks[k])
        np.testing.assert_allclose(batch["advantages"].numpy(), advantages.ravel(), atol=1e-6)
        ours.update(list(learnt(batch, advantages.ravel(), ours)))
    for name, weight in model.named_parameters():
        torch.testing.assert_close(ours.model.get_parameter(name), weight, atol=1e-5, rtol=0, msg=name)
    start = dict(tiny_model()[0].named_parameters())
    assert max((weight - start[name]).abs().max() for name, weight in model.named_parameters()) > 1e-3


def learnt(batch, advantages, learner):
    """TRL's batch as samples of ours."""
    parts = zip(*(batch[k].tolist() for k in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")), strict=True)
    for (prompt, prompt_mask, completion, mask), advantage in zip(parts, advantages, strict=True):
        row = Row()
        row.add([i for i, m in zip(prompt, prompt_mask, strict=True) if m])
        row.add([i for i, m in zip(completion, mask, strict=True) if m], [0.0] * sum(mask))
        row.logprobs[-sum(mask) :] = learner.logprobs(row).tolist()  # sampled from these very weights
        yield Sample(row, float(advantage), 1 / len(advantages), sum(mask))
