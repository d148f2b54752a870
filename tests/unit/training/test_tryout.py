"""What would end a run later is found before its first step."""

import copy
import json

import pytest
import torch

from tests.doubles import FakeWorldModel, ToyAgent, ToyEnv
from tests.unit.training.test_trainer import config, trainer
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_train.engines.load import merged_weights
from wmrl_train.engines.transformers import TransformersEngine
from wmrl_train.run import checkpoint
from wmrl_train.run.rundir import RunDirectory
from wmrl_train.training import tryout
from wmrl_train.training.build import text_parts
from wmrl_train.training.trainer import Trainer


class Wordy(ToyEnv):
    """Task "c" has a first prompt longer than the context of 512 tokens."""

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return observation + " long" * 200 * (self.task == "c"), info


def test_prompts_that_do_not_fit_are_named_before_the_first_step(tmp_path, tiny):
    work = trainer(config(tmp_path), tiny, env=Wordy)
    with pytest.raises(InvalidInput, match=r"1 of 3 tasks do not fit a context of 512 tokens: c \(\d+\).*tasks\.too_long=skip"):
        work.run()
    assert work.step == 0
    work.close()


def test_tasks_that_do_not_fit_can_be_left_out(tmp_path, tiny, caplog):
    cfg = config(tmp_path, tasks__too_long="skip")
    work = trainer(cfg, tiny, env=Wordy)
    work.run()
    assert {r["task"] for r in work.run_dir.read("rollouts.jsonl")} == {"a", "b"}
    assert "leaves out 1 tasks" in caplog.text
    work.close()


def test_a_sampler_with_other_weights_is_found(tmp_path, tiny):
    cfg = config(tmp_path)
    model, other = copy.deepcopy(tiny[0]), copy.deepcopy(tiny[0])
    with torch.no_grad():
        other.lm_head.weight.mul_(2.0)
    run = RunDirectory(cfg.run_dir)
    run.acquire()
    parts = text_parts(model, tiny[1], TransformersEngine(other, tiny[1]), ToyAgent(tiny[1]), ToyEnv, FakeWorldModel(), ["a"])
    work = Trainer(cfg, parts, run)
    with pytest.raises(InvalidInput, match="trained on samples of another policy"):
        work.run()
    work.close()


def test_a_model_that_cannot_be_sampled_is_one_sentence(tmp_path, tiny, monkeypatch):
    work = trainer(config(tmp_path), tiny)

    def broken(*args, **kwargs):
        raise AttributeError("'RecurrentCache' object has no attribute 'layers'")

    monkeypatch.setattr(TransformersEngine, "generate", broken)
    with pytest.raises(InvalidInput, match="cannot be sampled and trained here"):
        work.run()
    work.close()


def test_too_little_disk_for_two_checkpoints_is_found(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr(tryout.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 1000})())
    work = trainer(config(tmp_path), tiny)
    with pytest.raises(InvalidInput, match="2 checkpoints of this policy take about"):
        work.run()
    work.close()


def test_an_error_on_the_way_out_saves_what_a_ctrl_c_would(tmp_path, tiny):
    cfg = config(tmp_path, train__save_every=1000)
    work = trainer(cfg, tiny)

    class Gone(FakeWorldModel):
        def predict(self, solutions, contexts):
            raise InvalidInput("the server wants another key")

    work.parts.try_out = None
    for _ in range(2):
        work._before_step = (work.step, work.schedule.state_dict(), [])
        work._train_step()
    work.roller.oracle.world_model = Gone()
    with pytest.raises(InvalidInput, match="another key"):
        work.run()
    assert checkpoint.latest(work.run_dir.checkpoints).step == 2
    work.close()


def test_a_checkpoint_with_numbers_that_are_not_finite_is_never_written_nor_resumed_from(tmp_path, tiny):
    model = copy.deepcopy(tiny[0])
    good = checkpoint.save(tmp_path, 1, model=model, tokenizer=tiny[1], optimizer={}, state={}, keep=2)
    with torch.no_grad():
        model.lm_head.weight[0, 0] = float("nan")
    with pytest.raises(checkpoint.CheckpointError, match=r"lm_head\.weight holds numbers that are not finite"):
        checkpoint.save(tmp_path, 2, model=model, tokenizer=tiny[1], optimizer={}, state={}, keep=2)
    assert checkpoint.checkpoints(tmp_path) == [good]


def test_a_sampler_that_is_not_the_learner_is_said_once(tmp_path, tiny, caplog):
    work = trainer(config(tmp_path, optim__mismatch_alarm="1e-9"), tiny)
    work.alarm.mismatch({"mismatch_kl": 0.2})
    work.alarm.mismatch({"mismatch_kl": 0.3})
    assert caplog.text.count("optim.mismatch_alarm") == 1
    work.close()


def test_merged_weights_can_be_kept(tiny):
    """An engine on another machine gets them after the adapters were taken out again."""
    peft = pytest.importorskip("peft")
    policy = peft.get_peft_model(
        copy.deepcopy(tiny[0]), peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    ).eval()
    for name, p in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=0.2)
    prompt = torch.tensor([[5, 6, 7]])
    wanted = policy(input_ids=prompt).logits
    kept = list(merged_weights(policy))
    other = TransformersEngine(copy.deepcopy(tiny[0]), tiny[1])
    other.update_weights(kept)
    assert torch.allclose(other.model(input_ids=prompt).logits, wanted, atol=1e-4)


def test_a_failure_of_ours_is_no_users_error_in_a_try_out(tmp_path, tiny, monkeypatch):
    work = trainer(config(tmp_path), tiny)

    def down(*args, **kwargs):
        raise InfrastructureError("the engine is gone")

    monkeypatch.setattr(TransformersEngine, "generate", down)
    with pytest.raises(InfrastructureError):
        work.run()
    work.close()
    assert json.dumps(work.step) == "0"
