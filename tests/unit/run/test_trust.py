"""A run's config.yaml may be from somebody else: what it would start is asked about when the run goes on."""

import pytest
from typer.testing import CliRunner

from wmrl_envs.errors import InvalidInput
from wmrl_train.cli import app
from wmrl_train.config import load_config
from wmrl_train.run.trust import check, reaching

REACHING = [
    "execution.options.tier=unsafe",
    "execution.options.allow_unsafe=true",
    "execution.options.environment=/tmp/theirs",
    "execution.options.base_url=tcp://far:2375",
    "world_model.kind=theirs:Model",
    "policy.engine_options.trust_remote_code=true",
    "world_model.engine_options.base_url=http://far",
    "world_model.options.sandbox=ray",
    "world_model.options.data_dir=/theirs",
    "execution.store=/etc/theirs",
    "tracking.trackers=[wandb]",
]


@pytest.mark.parametrize("setting", REACHING)
def test_what_a_stored_configuration_would_start_needs_the_users_word(setting, tmp_path):
    stored, file = load_config("laptop", [setting]), tmp_path / "config.yaml"
    key = setting.partition("=")[0]
    with pytest.raises(InvalidInput, match=rf"config.yaml sets {key}=.*--trust"):
        check(stored, [], file, trust=False)
    with pytest.raises(InvalidInput, match="--trust"):
        check(stored, ["execution.workers=2", f"{key}2=1"], file, trust=False)
    check(stored, [], file, trust=True)
    check(stored, [setting], file, trust=False)


def test_a_reward_model_on_another_machine_needs_the_users_word(tmp_path):
    with pytest.raises(InvalidInput, match=r"libero\.reward='http://far:8010'"):
        check(load_config("libero", ["libero.reward=http://far:8010"]), [], tmp_path / "config.yaml", trust=False)


def test_members_of_members_are_looked_at(tmp_path):
    inner = {"kind": "ensemble", "members": [{"kind": "static"}, {"kind": "theirs:Model"}]}
    stored = load_config("laptop", ["world_model.kind=ensemble", f"world_model.members={[inner, {'kind': 'static'}]}"])
    with pytest.raises(InvalidInput, match=r"world_model\.members\.0\.members\.1\.kind='theirs:Model'"):
        check(stored, [], tmp_path / "config.yaml", trust=False)


def test_what_only_says_how_fast_is_not_asked_about(tmp_path):
    harmless = ["execution.options.cpus=1", "execution.options.warm=false", "policy.engine_options.max_model_len=512"]
    stored = load_config("laptop", harmless)
    assert reaching(stored) == {}
    check(stored, [], tmp_path, trust=False)


def test_resume_refuses_a_foreign_run_that_lowers_the_isolation(tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    settings = ["execution.options.tier=unsafe", "execution.options.allow_unsafe=true"]
    (run / "config.yaml").write_text(load_config("laptop", settings).to_yaml())
    asked = ["train", "--resume", "--run-dir", str(run)]
    refused, trusted = (CliRunner().invoke(app, [*asked, *more]) for more in ([], ["--trust"]))
    assert "execution.options.tier='unsafe'" in str(refused.exception)
    assert "No checkpoint in" in str(trusted.exception)
    alone = CliRunner().invoke(app, ["train", "demo", "--trust", "--dry-run"])
    assert "add --resume" in str(alone.exception)
