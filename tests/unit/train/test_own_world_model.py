"""`world_model.kind` may name a class by import path."""

import pytest

from wmrl_envs.errors import InvalidInput
from wmrl_train.assemble import _world_model
from wmrl_train.config import load_config


def test_a_class_of_the_users_is_built_with_its_options():
    config = load_config(
        "laptop", ["world_model.kind=wmrl_envs.world_models.static:StaticWorldModel", "world_model.options.base_valid=0.5"]
    )
    assert _world_model(config, None, None, None).base_valid == 0.5


@pytest.mark.parametrize("kind", ["nowhere.at_all:Model", "wmrl_envs.world_models.static:Nothing"])
def test_what_cannot_be_imported_is_named(kind):
    with pytest.raises(InvalidInput, match=f"{kind}.*expected package.module:Class"):
        _world_model(load_config("laptop", [f"world_model.kind={kind}"]), None, None, None)


def test_an_option_the_class_does_not_take_is_named():
    config = load_config(
        "laptop", ["world_model.kind=wmrl_envs.world_models.static:StaticWorldModel", "world_model.options.base_vald=0.5"]
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
