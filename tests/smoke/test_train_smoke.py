"""Two training steps of the real thing: shipped policy, built-in competitions, real sandbox, static world model; and the path of a chat model."""

import json

import pytest

from wmrl_envs.errors import WmrlError
from wmrl_train.config import load_config
from wmrl_train.engines.models import fetch_model
from wmrl_train.run.report import write_report
from wmrl_train.run.rundir import RunDirectory
from wmrl_train.training.build import build
from wmrl_train.training.trainer import Trainer


def run(name, tmp_path, *overrides):
    config = load_config(name, [f"run.dir={tmp_path}", "run.min_free_disk_mb=0", "execution.cache=false", *overrides])
    directory = RunDirectory(config.run_dir)
    directory.acquire()
    directory.config_file.write_text(config.to_yaml())
    try:
        parts = build(config)
    except WmrlError as error:  # neither data nor sandbox is built by a test
        directory.release()
        pytest.skip(f"needs `make setup`: {error}")
    trainer = Trainer(config, parts, directory)
    try:
        result = trainer.run()
    finally:
        trainer.close()
        directory.release()
    return config, result, [json.loads(line) for line in (config.run_dir / "rollouts.jsonl").open()]


def test_two_steps_of_the_demo(tmp_path):
    config, result, rollouts = run(
        "demo", tmp_path, "train.steps=2", "tasks.train=[credit-default,hpc-job-speed]", "rollout.groups=2", "rollout.group_size=4",
        "eval.k=1", "eval.held_out=false", "correction.min_pairs=4", "execution.timeout_s=20",
    )  # fmt: skip
    assert len(rollouts) == 16
    executed = [t for r in rollouts if r["anchored"] for t in r["turns"]]
    assert len(executed) == 8
    assert {t["status"] for t in executed} <= {"ok", "agent_error", "invalid_submission", "timeout", "memory"}
    assert any(t["status"] == "ok" and t["true"] > 0 for t in executed), executed
    predicted = [t for r in rollouts if not r["anchored"] for t in r["turns"]]
    assert all(t["true"] is None and 0 <= t["calibrated"] <= 1 for t in predicted)
    assert result["ledger"]["executions_paid"] == 8
    assert result["ledger"]["executions_avoided"] == 8
    assert 0 <= result["before"]["train"]["avg"] <= 1
    assert result["after"]["train"]["executions"] == 2
    assert sum(result["after"]["train"]["statuses"].values()) == 2
    assert write_report(config.run_dir).stat().st_size > 50_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_smollm2_takes_two_steps_with_whole_scripts(tmp_path):
    """The path of a real chat model: template, two turns with feedback, whole scripts. Its programs mostly fail, and the run says so."""
    fetch_model("smollm2")
    _, result, rollouts = run(
        "laptop", tmp_path, "policy.model=smollm2", "agent.name=research", "tasks.scaffold=null", "tasks.max_rows=null",
        "tasks.train=[tweet-sentiment]", "tasks.max_turns=2", "tasks.observation_tokens=128", "train.steps=2", "rollout.groups=2", "rollout.group_size=2",
        "rollout.max_new_tokens=120", "rollout.temperature=0.7", "eval.k=0", "optim.lr=1e-6", "execution.timeout_s=60",
        "optim.tokens_per_micro_batch=2048", "policy.gradient_checkpointing=true",
    )  # fmt: skip
    assert len(rollouts) == 8
    for record in rollouts:
        assert len(record["turns"]) == 2
        first, second = record["turns"]
        assert second["prompt_tokens"] > first["prompt_tokens"] + first["completion_tokens"], "feedback came in between"
        for turn in record["turns"]:
            assert turn["feedback"]
            assert turn["problem"] or turn["predicted"] is not None
    executed = [t for r in rollouts if r["anchored"] for t in r["turns"]]
    assert executed
    assert all(t["status"] for t in executed)
    assert result["ledger"]["dropped_groups"] == 0
