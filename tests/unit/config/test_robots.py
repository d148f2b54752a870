"""Every key of a configuration means something to a robot, or is refused with the reason."""

import pytest

from wmrl_envs.errors import InvalidInput
from wmrl_train.config import load_config
from wmrl_train.config.robots import check_robots
from wmrl_train.training.estimate import estimate

WORKS = [
    "correction.debias=false", "correction.denoise=false", "correction.min_pairs=20", "correction.refit_every=8", "correction.levels=5",
    "correction.direction=regression", "correction.w_max=2", "correction.fusion=cv", "correction.prequential=false",
    "correction.window=64", "correction.per_task=true", "correction.two_stage=true", "anchors.place=members", "anchors.random_share=0.5",
    "anchors.stratify=true", "correction.on_alarm=act", "correction.scale=std", "anchors.fraction=0.5", "anchors.min_groups=2", "rollout.groups=2",
    "rollout.group_size=4", "rollout.temperature=1.3", "rollout.retries=0", "eval.k=0", "eval.every=5", "eval.temperature=1.0",
    "eval.held_out=false", "optim.lr=1e-3", "optim.kl_coef=0.1", "optim.entropy_coef=0.1", "optim.epochs=4", "optim.clip_low=0.1",
    "optim.clip_high=0.5", "optim.mismatch_alarm=0.5", "optim.max_grad_norm=0.1", "optim.warmup_steps=3", "optim.weight_decay=0.1", "optim.loss=dr_grpo",
    "optim.is_cap=3", "optim.tokens_per_micro_batch=2048", "optim.offload=true", "optim.betas=[0.9,0.95]", "train.keep_checkpoints=5",
    "tracking.trackers=[tensorboard]", "run.threads=1", "libero.options={texture_size: 64}", "libero.task=[0, 8]",
]  # fmt: skip
REFUSED = {
    "anchors.lag=2": "simulated like every other", "anchors.when=after": "reads no feedback", "anchors.memory=false": "same program", "rollout.max_new_tokens=10": "quantizer", "rollout.max_context=9000": "begins anew",
    "rollout.batch_size=8": "libero.simulators", "rollout.generation_workers=2": "libero.simulators",
    "rollout.prediction_workers=2": "one call", "tasks.max_turns=2": "libero.task", "execution.timeout_s=3": "libero",
    "world_model.kind=simulator": "libero.reward", "policy.dtype=bfloat16": "float32", "policy.lora={r: 4}": "trained whole",
    "policy.gradient_checkpointing=true": "short sequence", "estimate.learn_s=3": "wall clock", "agent.options={a: 1}": "folder",
}  # fmt: skip


def test_the_shipped_configuration_is_accepted():
    check_robots(load_config("libero"))


@pytest.mark.parametrize("override", WORKS)
def test_a_key_that_works_is_accepted(override):
    check_robots(load_config("libero", [override]))


@pytest.mark.parametrize("override", REFUSED)
def test_a_key_without_effect_is_refused_with_the_reason(override):
    key = override.partition("=")[0]
    with pytest.raises(InvalidInput, match=rf"{key}.* has no effect with agent.name=vla: .*{REFUSED[override]}"):
        check_robots(load_config("libero", [override]))


def test_every_key_of_these_sections_is_in_one_of_the_lists():
    config = load_config("libero")
    for section in ("correction", "anchors", "rollout", "eval", "optim"):
        for name in type(getattr(config, section)).model_fields:
            if (section, name) != ("rollout", "top_p"):  # refused for everyone
                assert any(o.startswith(f"{section}.{name}=") for o in [*WORKS, *REFUSED]), f"{section}.{name}"


def test_without_a_reward_model_every_group_is_real():
    config = load_config("libero", ["libero.reward=null"])
    check_robots(config)
    assert config.anchors.fraction == 1.0
    with pytest.raises(InvalidInput, match=r"anchors.fraction=0.5 with libero.reward=null"):
        check_robots(load_config("libero", ["libero.reward=null", "anchors.fraction=0.5"]))
    with pytest.raises(InvalidInput, match="nothing to correct"):
        check_robots(load_config("libero", ["libero.reward=null", "correction.fusion=cv"]))
    check_robots(load_config("libero", ["libero.reward=null", "correction.scale=std"]))
    assert load_config(config.model_dump()) == config


def test_greedy_copies_are_not_evaluated():
    with pytest.raises(InvalidInput, match=r"eval.k=8 with eval.temperature=0"):
        check_robots(load_config("libero", ["eval.k=8"]))
    check_robots(load_config("libero", ["eval.k=8", "eval.temperature=1.0"]))


def test_libero_is_refused_for_programs():
    with pytest.raises(InvalidInput, match=r"libero\.\* is of use"):
        load_config("laptop", ["libero.task=3"])


def test_the_dry_run_counts_episodes():
    page = "\n".join(estimate(load_config("libero")))
    assert "2560 of at most 520 simulator steps" in page
    assert "the success of 320 is used too" in page
    assert "wmrl import-minivla" in page
    with pytest.raises(InvalidInput, match="no wall clock is estimated"):
        estimate(load_config("libero"), "runs/other")
