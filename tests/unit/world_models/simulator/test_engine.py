"""The simulator on a real model: every path works; a tiny random model answers nonsense, which has to be survived."""

import pytest

from tests.unit.world_models.world_model_cases import program, script
from wmrl_envs.outcome import ExecutionStatus
from wmrl_envs.world_models.simulator.model import SimulatorWorldModel

pytestmark = pytest.mark.slow


@pytest.fixture
def engine():
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    from wmrl_train.engines.transformers import TransformersEngine

    byte_level = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={}, merges=[]))
    byte_level.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<eos>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    byte_level.train_from_iterator(["verdict pass fail"], trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level, eos_token="<eos>")
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=16384, eos_token_id=0, bos_token_id=0,
    )  # fmt: skip
    return TransformersEngine(transformers.LlamaForCausalLM(config), tokenizer, batch_size=8)


@pytest.mark.parametrize("layout", ["shared-prefix", "paper"])
def test_a_model_without_a_chat_template_that_answers_nonsense(engine, layout):
    model = SimulatorWorldModel(engine, layout=layout, max_new_tokens=16, installed={"numpy": "2.4.6"})
    outcome = model.predict([program("print(1)\n")], [script()])[0]
    assert outcome.status is ExecutionStatus.OK
    assert outcome.details["unparsed"] == 8
    assert outcome.confidence == 0
    assert model.statistics["tokens_in"] > model.statistics["tokens_out"] > 0
