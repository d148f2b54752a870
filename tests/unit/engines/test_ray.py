"""Generation on a Ray cluster of two nodes on this machine (`make test-ray`)."""

import copy

import pytest

from tests.cluster import two_nodes
from wmrl_envs.engine import Sampling
from wmrl_envs.errors import InvalidInput
from wmrl_train.engines.ray import RayEngine
from wmrl_train.engines.transformers import TransformersEngine

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
SAMPLING = Sampling(max_new_tokens=8)


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray", reason="needs the extra [ray]: make test-ray")
    with two_nodes() as cluster:
        yield cluster


def test_two_nodes_generate_as_one_engine_and_one_of_them_may_die(cluster, tiny, tmp_path):
    model, tokenizer = copy.deepcopy(tiny[0]), tiny[1]
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    here = TransformersEngine(model, tokenizer)
    prompts = [tokenizer(f"<user>task {i}<end><assistant>")["input_ids"] for i in range(7)]
    seeds = list(range(7))

    def same():
        far, near = there.generate(prompts, SAMPLING, seeds), here.generate(prompts, SAMPLING, seeds)
        assert [g.ids for g in far] == [g.ids for g in near]
        for a, b in zip(far, near, strict=True):
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-5)
        return [g.ids for g in far]

    with pytest.raises(InvalidInput, match="the Ray cluster has 2 in all"):
        RayEngine("transformers", str(tmp_path), tokenizer, workers=3, gpus=0)
    there = RayEngine("transformers", str(tmp_path), tokenizer, workers=2, gpus=0, options={"device": "cpu"})
    assert there.max_context == here.max_context
    first = same()
    for parameter in model.parameters():
        parameter.data *= 1.5
    there.update_weights((name, p) for name, p in model.named_parameters())
    here.update_weights()
    assert there.version == here.version == 1
    assert same() != first, "new weights are in force"
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    assert same() != first, "what the dead node was asked is answered by the other, from the same weights"
    there.close()
