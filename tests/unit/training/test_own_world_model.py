"""`world_model.kind` may name a class by import path."""

import pytest

from wmrl_envs.errors import InvalidInput
from wmrl_train.config import load_config
from wmrl_train.training.build import _world_model


def test_a_class_of_the_users_is_built_with_its_options():
    config = load_config(
        "laptop",
        ["world_model.kind=wmrl_envs.world_models.static.model:StaticWorldModel", "world_model.options.base_valid=0.5"],
    )
    assert _world_model(config, None, None, None).base_valid == 0.5


@pytest.mark.parametrize("kind", ["nowhere.at_all:Model", "wmrl_envs.world_models.static.model:Nothing"])
def test_what_cannot_be_imported_is_named(kind):
    with pytest.raises(InvalidInput, match=f"{kind}.*expected package.module:Class"):
        _world_model(load_config("laptop", [f"world_model.kind={kind}"]), None, None, None)


def test_an_option_the_class_does_not_take_is_named():
    config = load_config(
        "laptop", ["world_model.kind=wmrl_envs.world_models.static.model:StaticWorldModel", "world_model.options.base_vald=0.5"]
    )
    with pytest.raises(InvalidInput, match=r"did you mean 'world_model.options\.base_valid'"):
        _world_model(config, None, None, None)


def test_a_kind_that_is_neither_is_refused():
    with pytest.raises(InvalidInput, match=r"world_model\.kind"):
        load_config("laptop", ["world_model.kind=statik model"])


def test_an_ensemble_is_built_from_its_members():
    members = "[{kind: static}, {kind: static, options: {base_valid: 0.5}}]"
    config = load_config(
        "laptop", ["world_model.kind=ensemble", f"world_model.members={members}", "world_model.options={combine: worst}"]
    )
    model = _world_model(config, None, None, None)
    assert (model.combine, len(model.members), model.members[1].base_valid) == ("worst", 2, 0.5)
    assert model.spread("any") == 0


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("os:path", "is no world model .module"),
        (".a:B", "expected package.module:Class"),
        ("a..b:B", "expected package.module:Class"),
        ("json:JSONDecoder", "a class with a method predict"),
        ("json:dumps", "is no world model .function"),
        ("own_no_python:M", "SyntaxError"),
        ("own_exits:M", "SystemExit: 3"),
        ("own_unmakeable:NeedsMore", "TypeError: .*missing 1 required"),
        ("own_unmakeable:Exits", "SystemExit: 4"),
    ],
)
def test_what_is_no_world_model_is_one_sentence(tmp_path, monkeypatch, kind, message):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_no_python.py").write_text("class M(:")
    (tmp_path / "own_exits.py").write_text("import sys; sys.exit(3)")
    (tmp_path / "own_unmakeable.py").write_text(
        "class NeedsMore:\n    def __init__(self, more): ...\n    def predict(self): ...\n"
        "class Exits:\n    def __init__(self): raise SystemExit(4)\n    def predict(self): ...\n"
    )
    with pytest.raises(InvalidInput, match=f"{kind}.*{message}") as error:
        _world_model(load_config("laptop", [f"world_model.kind={kind}"]), None, None, None)
    assert "\n" not in str(error.value)
