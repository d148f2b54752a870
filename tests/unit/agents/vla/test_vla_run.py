import inspect
from pathlib import Path

import pytest

from wmrl_envs.errors import InvalidInput
from wmrl_train import vla_run
from wmrl_train.commands import grpo as commands
from wmrl_train.config import load_config
from wmrl_train.training.estimate import estimate


def libero(tmp_path, *more):
    return load_config("libero", [f"run.dir={tmp_path}", *more])


def test_the_configuration_is_the_options_of_wmrl_grpo(tmp_path, monkeypatch):
    """With a double in the place of the training itself, whose own tests need the simulator."""
    given = []
    signature = inspect.signature(commands.run)
    monkeypatch.setattr(commands, "run", lambda *a, **k: given.append(signature.bind(*a, **k).arguments))
    vla_run.run(libero(tmp_path, "libero.reward=null", "run.seed=3"))
    vla_run.run(libero(tmp_path, "run.name=other", "policy.device=auto"))
    first, second = given
    assert (first["folder"].path, first["policy"]) == (tmp_path / "libero", Path("runs/policy"))
    assert first["simulation"] == {"task": 8, "suite": "libero_10", "init_states": "train", "max_steps": 520}
    settings = first["config"]
    assert (settings.steps, settings.groups * settings.n, settings.anchors, settings.seed) == (40, 64, None, 3)
    assert (first["reward"], first["device"]) == (None, "cuda")
    assert (second["reward"], second["config"].anchors, second["device"]) == ("http://127.0.0.1:8010", 1, "auto")
    assert load_config(tmp_path / "libero" / "config.yaml").run.seed == 3


def test_what_would_have_no_effect_is_refused(tmp_path):
    vla_run.check(libero(tmp_path))
    for override in ("correction.levels=5", "optim.kl_coef=0", "anchors.lag=2", "tasks.max_turns=2"):
        with pytest.raises(InvalidInput, match=rf"{override.split('=')[0]}=.* has no effect"):
            vla_run.check(libero(tmp_path, override))
    with pytest.raises(InvalidInput, match=r"libero\.\* is of use"):
        load_config("laptop", ["libero.task=3"])


def test_a_run_is_not_overwritten_and_nothing_is_not_resumed(tmp_path):
    with pytest.raises(InvalidInput, match="No checkpoint in"):
        vla_run.run(libero(tmp_path), resume=True)
    with pytest.raises(InvalidInput, match="holds a run already: go on with --resume"):
        vla_run.run(libero(tmp_path))


def test_the_dry_run_counts_episodes(tmp_path):
    page = "\n".join(estimate(libero(tmp_path)))
    assert "2560 of at most 520 simulator steps" in page
    assert "the success of 320 is used too" in page
    assert "wmrl import-minivla" in page
