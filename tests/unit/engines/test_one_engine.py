"""One engine, three roles: under LoRA the frozen base serves the reference policy and the world model, without a copy."""

import copy
import gc

import pytest
import torch

from tests.unit.learn.test_packing import samples
from wmrl_envs.engine import Sampling
from wmrl_envs.errors import InvalidInput
from wmrl_train.config import load_config
from wmrl_train.engines.load import FrozenBase
from wmrl_train.engines.transformers import TransformersEngine
from wmrl_train.learn.learner import Learner
from wmrl_train.training.build import _world_model

peft = pytest.importorskip("peft")
GREEDY, PROMPTS = Sampling(temperature=0, max_new_tokens=20), [[5, 6, 7], [30, 31, 32, 33]]


def storages():
    """Bytes of all parameters that live in this process, each storage once."""
    gc.collect()
    live = [o for o in gc.get_objects() if type(o) is torch.nn.Parameter]
    return sum({p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in live}.values())


def test_reference_and_world_model_are_the_base_of_the_policy(tiny):
    base, tokenizer = copy.deepcopy(tiny[0]), tiny[1]
    before = copy.deepcopy(base.state_dict())
    expected = TransformersEngine(base, tokenizer).generate(PROMPTS, GREEDY)
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules="all-linear")).eval()
    alone = storages()
    config = load_config(
        {
            "policy": {"lora": {"r": 4}},
            "world_model": {"kind": "simulator", "options": {"max_new_tokens": 64}},
            "optim": {"lr": 5e-2},
        }
    )
    engine = TransformersEngine(model, tokenizer)
    learner = Learner.from_config(model, config)
    world_model = _world_model(config, model, tokenizer, engine)
    assert storages() == alone, "a role has weights of its own"
    frozen = world_model.engine
    assert isinstance(frozen, FrozenBase)
    for _ in range(3):
        metrics = learner.update(samples())
        engine.update_weights()
    assert metrics["kl"] > 0.01, "the policy has left its reference"
    assert frozen.generate(PROMPTS, GREEDY) == expected, "the world model has not changed"
    assert engine.generate(PROMPTS, GREEDY) != expected, "the policy has"
    assert (engine.version, frozen.version) == (3, 0)
    after = {name.replace(".base_layer", ""): value for name, value in model.get_base_model().state_dict().items()}
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_the_frozen_base_takes_no_weights(tiny):
    model = peft.get_peft_model(copy.deepcopy(tiny[0]), peft.LoraConfig(r=2, target_modules="all-linear"))
    with pytest.raises(InvalidInput, match="frozen"):
        FrozenBase(TransformersEngine(model, tiny[1]), model).update_weights()
