import subprocess
import sys

import pytest

from wmrl_envs.errors import InvalidInput
from wmrl_train.config import Config, available_configs, load_config


def test_importable_without_torch():
    code = "import sys, wmrl_train.config as c; c.load_config('laptop'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["laptop", "demo", "paper-4b", "paper-9b", "libero"])
def test_shipped_configurations_load_and_survive_a_round_trip(name, tmp_path):
    assert name in available_configs()
    config = load_config(name)
    (tmp_path / "again.yaml").write_text(config.to_yaml())
    assert load_config(tmp_path / "again.yaml") == config


def test_paper_settings():
    config = load_config("paper-4b")
    assert (config.rollout.groups, config.rollout.group_size, config.tasks.max_turns) == (8, 8, 4)
    assert (config.rollout.max_new_tokens, config.tasks.observation_tokens) == (4096, 1024)
    assert (config.optim.lr, config.optim.kl_coef, config.optim.entropy_coef) == (1e-6, 0.04, 0.002)
    assert (config.rollout.temperature, config.rollout.top_p, config.execution.timeout_s) == (1.0, 1.0, 1200)
    assert (config.correction.min_pairs, config.correction.refit_every, config.correction.w_max) == (200, 64, 4)
    assert load_config("paper-9b").policy.model.endswith("9B")
    assert load_config("paper-9b").optim == config.optim


def test_overrides_are_typed_and_nested():
    config = load_config("laptop", ["train.steps=3", "optim.lr=1e-4", "tasks.train=[a, b]", "world_model.options.x=1"])
    assert (config.train.steps, config.optim.lr, config.tasks.train) == (3, 1e-4, ["a", "b"])
    assert config.world_model.options == {"x": 1}


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("train.stepz=3", "train.steps"),
        ("trian.steps=3", "train"),
        ("optim.learning_rate=1", "optim."),
        ("steps=3", "train.steps"),
        ("rollout.groupsize=4", "rollout.group_size"),
        ("train.lr=1", "optim.lr"),
        ("policy.lora.rank=4", "policy.lora.r"),
    ],
)
def test_unknown_key_names_the_nearest_valid_one(override, nearest):
    with pytest.raises(InvalidInput, match=rf"Unknown configuration key.*{nearest}"):
        load_config("laptop", [override])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.steps=0", "train.steps=0"),
        ("train.steps=many", "train.steps='many'"),
        ("optim.lr=nan", "optim.lr"),
        ("rollout.group_size=1", "rollout.group_size=1"),
        ("rollout.top_p=0.9", "top_p=0.9"),
        ("anchors.min_groups=9", "rollout.groups=8"),
        ("world_model.kind=none", "anchors.fraction=1"),
        ("tasks.train=[]", "tasks.train is empty"),
        ("world_model.kind=ensemble", "world_model.members"),
        ("world_model.members=[{kind: static}]", "only that"),
        ("world_model.kind=stacked", "world_model.members"),
        ("world_model.workers=2", 'with kind="low_fidelity" alone'),
        ("rollout.max_context=100", "leaves no room"),
        ("train=3", "is a section"),
        ("train.steps", "section.key=value"),
        ("train.steps=[1", "not valid YAML"),
    ],
)
def test_bad_values_give_one_sentence(override, message):
    with pytest.raises(InvalidInput) as caught:
        load_config("laptop", [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_name_broken_yaml_and_loops(tmp_path):
    with pytest.raises(InvalidInput, match="Did you mean 'laptop'"):
        load_config("labtop")
    (tmp_path / "a.yaml").write_text("train: [")
    with pytest.raises(InvalidInput, match="not valid YAML"):
        load_config(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text("- 1")
    with pytest.raises(InvalidInput, match="expected a mapping"):
        load_config(tmp_path / "b.yaml")
    (tmp_path / "c.yaml").write_text("extends: c.yaml")
    with pytest.raises(InvalidInput, match="extends itself"):
        load_config(tmp_path / "c.yaml")


def test_extends_starts_from_another_file(tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: laptop\ntrain: {steps: 7}\n")
    config = load_config(tmp_path / "mine.yaml")
    assert config.train.steps == 7
    assert config.agent.name == "program"


def test_defaults_validate():
    assert Config().rollout.group_size == 8
