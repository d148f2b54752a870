"""A small random MiniVLA: the same code as the large one."""

import json

import numpy as np
import pytest
import torch

from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.vla.actions import EXTRA_TOKENS, ActionNormalizer
from wmrl_train.agents.vla.checkpoint import load_minivla, load_prismatic, load_state, prismatic_state
from wmrl_train.agents.vla.model import HashTokenizer, MiniVLA, MiniVLAConfig, small_config
from wmrl_train.agents.vla.policy import VLAPolicy
from wmrl_train.agents.vla.vision import DINOV2_LARGE, SIGLIP_SO400M, FusedVisionTower, VisionTransformer, ViTConfig
from wmrl_train.agents.vla.vq import ResidualVQ, VQConfig

TINY = ViTConfig(16, 3, 2, 32, patch=8, image_size=16)
CONFIG = MiniVLAConfig(
    ViTConfig(16, 3, 2, 32, patch=8, image_size=16, registers=4, class_token=True, layer_scale=True),
    TINY,
    vocabulary=50 + EXTRA_TOKENS,
    hidden=32,
    layers=2,
    heads=2,
    kv_heads=1,
    mlp=48,
)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return MiniVLA(CONFIG).eval()


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    pictures = torch.from_numpy(rng.integers(0, 256, (3, 16, 16, 3), dtype=np.uint8))
    prompts = [[1, 2, 3, 4, 5], [6, 7], [1, 9, 8]]
    return pictures, prompts, torch.from_numpy(rng.integers(0, 128, (3, 7)))


def test_logits_are_over_the_legal_codes_at_every_position(model, batch):
    logits = model(*batch)
    assert logits.shape == (3, 7, 128)
    total = torch.stack([model.log_probs(batch[0], batch[1], torch.full((3, 7), c)) for c in range(128)])[:, :, 0].exp().sum(0)
    torch.testing.assert_close(total, torch.ones(3))


def test_legal_logits_are_the_rows_of_the_last_ids(model, batch):
    pictures, prompts, codes = batch
    before, _ = model.context(pictures[:1], prompts[:1])
    full = model.llm(inputs_embeds=before).logits[0, -1]
    vocabulary = CONFIG.vocabulary
    expected = full[[vocabulary - 1 - c for c in range(128)]]
    torch.testing.assert_close(model(pictures[:1], prompts[:1], codes[:1])[0, 0], expected, atol=1e-5, rtol=1e-4)


def test_padding_a_batch_changes_nothing(model, batch):
    pictures, prompts, codes = batch
    together = model(pictures, prompts, codes)
    for i in range(3):
        torch.testing.assert_close(
            model(pictures[i : i + 1], prompts[i : i + 1], codes[i : i + 1])[0], together[i], atol=1e-5, rtol=1e-4
        )


def test_sampled_log_probabilities_are_those_of_the_training_pass(model, batch):
    pictures, prompts, _ = batch
    for temperature in (1.0, 1.6):
        uniforms = torch.rand(3, 7, generator=torch.Generator().manual_seed(1))
        codes, scores = model.sample(pictures, prompts, temperature=temperature, uniforms=uniforms)
        with torch.no_grad():
            again = model.log_probs(pictures, prompts, codes, temperature=temperature)
        torch.testing.assert_close(scores, again, atol=1e-5, rtol=1e-4)
        assert codes.min() >= 0
        assert codes.max() < 128
    greedy, _ = model.sample(pictures, prompts, temperature=0.0)
    assert torch.equal(greedy[:, 0], model(pictures, prompts, greedy).argmax(-1)[:, 0])


def test_earlier_codes_do_not_see_later_ones(model, batch):
    pictures, prompts, codes = batch
    changed = codes.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 128
    a, b = model(pictures, prompts, codes), model(pictures, prompts, changed)
    torch.testing.assert_close(a[:, :5], b[:, :5])
    assert not torch.allclose(a[:, 5:], b[:, 5:])


def test_a_prismatic_checkpoint_loads_whole_and_says_what_does_not_fit(model, batch, tmp_path):
    state = prismatic_state(model)
    for tower in ("dino_featurizer", "siglip_featurizer"):  # what the published files hold beyond the second-to-last layer
        state["vision_backbone"] = dict(state["vision_backbone"]) | {
            f"{tower}.{name}": torch.zeros(2) for name in ("blocks.2.norm1.weight", "norm.weight", "attn_pool.latent")
        }
    torch.save({"model": state}, tmp_path / "latest-checkpoint.pt")
    torch.manual_seed(1)
    loaded = load_prismatic(MiniVLA(CONFIG), tmp_path / "latest-checkpoint.pt").eval()
    with torch.no_grad():
        torch.testing.assert_close(loaded(*batch), model(*batch))

    with pytest.raises(InvalidInput, match=r"lacks projector.*it has"):
        load_state(MiniVLA(CONFIG), {k: v for k, v in state.items() if k != "projector"})
    short = {k: v for k, v in state["llm_backbone"].items() if "layers.1." not in k}
    with pytest.raises(InvalidInput, match=r"llm_backbone lacks model\.layers\.1\."):
        load_state(MiniVLA(CONFIG), state | {"llm_backbone": short})
    with pytest.raises(InvalidInput, match=r"llm_backbone has model\.layers\.7"):
        load_state(MiniVLA(CONFIG), state | {"llm_backbone": state["llm_backbone"] | {"llm.model.layers.7.x": torch.zeros(1)}})
    wide = state["projector"] | {"projector.0.bias": torch.zeros(3)}
    with pytest.raises(InvalidInput, match=r"projector\.projector\.0\.bias has shape \(3,\)"):
        load_state(MiniVLA(CONFIG), state | {"projector": wide})


def test_a_pickle_is_not_executed(tmp_path):
    import pickle

    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    (tmp_path / "evil.pt").write_bytes(pickle.dumps({"model": Evil()}))
    with pytest.raises(InvalidInput, match="not a readable checkpoint"):
        load_prismatic(MiniVLA(CONFIG), tmp_path / "evil.pt")
    assert not (tmp_path / "owned").exists()


def test_full_size_parameters_have_timm_s_names_and_shapes():
    with torch.device("meta"):
        tower = FusedVisionTower(DINOV2_LARGE, SIGLIP_SO400M)
    shapes = {k: tuple(v.shape) for k, v in tower.state_dict().items()}
    assert shapes["dino_featurizer.pos_embed"] == (1, 256, 1024)
    assert shapes["dino_featurizer.reg_token"] == (1, 4, 1024)
    assert shapes["dino_featurizer.blocks.22.ls2.gamma"] == (1024,)
    assert "dino_featurizer.blocks.23.ls2.gamma" not in shapes
    assert shapes["siglip_featurizer.blocks.25.mlp.fc1.weight"] == (4304, 1152)
    assert shapes["siglip_featurizer.patch_embed.proj.weight"] == (1152, 3, 14, 14)
    assert tower.width == 2176
    assert MiniVLAConfig().language().vocab_size == 151936


def test_the_last_layer_of_a_tower_is_not_run():
    tower = VisionTransformer(TINY)
    assert len(tower.blocks) == TINY.depth - 1
    assert tower.unused("blocks.2.norm1.weight")
    assert not tower.unused("blocks.1.norm1.weight")


@pytest.fixture
def published(model, tmp_path):
    """The four files of a published MiniVLA, small and random."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(49)} | {"[UNK]": 49}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(tmp_path / "qwen")
    torch.save({"model": prismatic_state(model)}, tmp_path / "step.pt")
    (tmp_path / "vq" / "checkpoints").mkdir(parents=True)
    torch.save(ResidualVQ().to_vqbet(), tmp_path / "vq" / "checkpoints" / "model.pt")
    actions = {"q01": [-0.5] * 7, "q99": [0.5] * 7, "mask": [True] * 6 + [False]}
    (tmp_path / "dataset_statistics.json").write_text(json.dumps({"libero_90_no_noops": {"action": actions}}))
    return tmp_path


def test_a_published_minivla_becomes_a_policy_folder_that_acts_alike(published):
    policy = load_minivla(
        published / "step.pt", published / "vq", published / "dataset_statistics.json", published / "qwen", config=CONFIG
    )
    picture = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    look = {"image": picture, "instruction": "w1 w2"}
    again = VLAPolicy.load(policy.save(published / "policy"))
    assert len(again.tokenizer) == CONFIG.vocabulary
    assert again.prompt("w1") == policy.prompt("w1")
    assert np.array_equal(again(look), policy(look))
    assert again.inverted_gripper
    with pytest.raises(InvalidInput, match="no tokenizer"):
        load_minivla(
            published / "step.pt", published / "vq", published / "dataset_statistics.json", published / "vq", config=CONFIG
        )


class TestPolicy:
    @pytest.fixture(scope="class")
    def policy(self):
        torch.manual_seed(0)
        normalizer = ActionNormalizer(np.full(7, -0.5), np.full(7, 0.5), np.array([True] * 6 + [False]))
        model = MiniVLA(small_config(layers=1)).eval()
        return VLAPolicy(model, ResidualVQ(VQConfig(latent=16)).eval(), normalizer, HashTokenizer(512))

    def observation(self, seed=0):
        rng = np.random.default_rng(seed)
        return {
            "image": rng.integers(0, 256, (64, 64, 3), dtype=np.uint8),
            "proprioception": rng.normal(size=9).astype(np.float32),
            "instruction": "turn on the stove",
        }

    def test_actions_are_chunks_with_a_binary_gripper(self, policy):
        actions, codes, scores = policy.act([self.observation(0), self.observation(1)])
        assert actions.shape == (2, 8, 7)
        assert codes.shape == scores.shape == (2, 7)
        assert set(np.unique(actions[..., 6])) <= {-1.0, 1.0}
        assert np.array_equal(policy(self.observation()), policy(self.observation()))

    def test_execute_horizon_shortens_what_is_executed(self, policy):
        whole = policy(self.observation())
        for k in (1, 5):
            short = VLAPolicy(policy.model, policy.quantizer, policy.normalizer, policy.tokenizer, execute_horizon=k)
            assert np.array_equal(short(self.observation()), whole[:k])
        for bad in (0, 9, 2.0):
            with pytest.raises(InvalidInput, match="execute_horizon"):
                VLAPolicy(policy.model, policy.quantizer, policy.normalizer, policy.tokenizer, execute_horizon=bad)

    def test_parts_that_do_not_fit_are_refused(self, policy):
        with pytest.raises(InvalidInput, match="7 x 128 codes and the quantizer 3 x 128"):
            VLAPolicy(policy.model, ResidualVQ(VQConfig(groups=3, latent=16)), policy.normalizer, policy.tokenizer)
        with pytest.raises(InvalidInput, match="tokenizer has 266 ids"):
            VLAPolicy(policy.model, policy.quantizer, policy.normalizer, HashTokenizer(10))

    def test_a_saved_policy_acts_the_same(self, policy, tmp_path):
        loaded = VLAPolicy.load(policy.save(tmp_path / "policy"))
        assert np.array_equal(loaded(self.observation()), policy(self.observation()))
        with pytest.raises(InvalidInput, match="no policy"):
            VLAPolicy.load(tmp_path)
