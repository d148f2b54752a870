import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from tests.unit.world_models.reward import tiny_robometer
from wmrl_envs.context import Episode
from wmrl_envs.errors import DataNotBuilt, InvalidInput
from wmrl_envs.world_models.protocols import RewardModel
from wmrl_envs.world_models.reward.frames import episode_frames
from wmrl_envs.world_models.reward.robometer import READ, TOKENS, RobometerModel, patches, prompt_text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("robometer")
    tiny_robometer.write(path)
    return path


@pytest.fixture(scope="module")
def model(folder):
    return RobometerModel(folder, device="cpu")


def episode(seed, steps=11, size=64, instruction="turn on the stove"):
    pictures = np.random.default_rng(seed).integers(0, 256, (steps, size, size, 3), dtype=np.uint8)
    return Episode([{"image": p} for p in pictures], instruction=instruction)


def test_it_is_a_reward_model_that_reads_progress_and_success_of_eight_frames(model):
    assert isinstance(model, RewardModel)
    episodes = [episode(0), episode(1, steps=3, instruction="open the drawer of the cabinet"), episode(2, size=96)]
    progress, success = model.read(episodes)
    assert progress.shape == (3, 8)
    assert success.shape == (3,)
    assert ((progress > 0) & (progress < 1)).all()
    assert ((success > 0) & (success < 1)).all()
    assert progress.std() > 0.01
    scores = model.score(episodes)
    assert scores.shape == (3,)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert model.score([]).shape == (0,)


def test_progress_is_the_mean_of_the_bins_at_the_tokens_after_the_frames(model, folder):
    """The same numbers by hand: transformers' own picture processor, one unpadded row, parameters from the files."""
    one = episode(3)
    state = load_file(folder / "model-00001-of-00002.safetensors") | load_file(folder / "model-00002-of-00002.safetensors")
    processor = Qwen2VLImageProcessorPil(patch_size=16, do_resize=False, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    pictures = processor(list(episode_frames(one)), return_tensors="pt")
    ids = torch.tensor([model.tokenizer(prompt_text(one.instruction, (1, 4, 4)))["input_ids"]])
    net = model.network.backbone
    with torch.no_grad():
        out = net(
            input_ids=ids, mm_token_type_ids=(ids == net.config.image_token_id).int(), **pictures, output_hidden_states=True
        )
        assert torch.equal(out.hidden_states[-1], out.last_hidden_state)  # what the heads were trained on is the last layer
        at = out.hidden_states[-1][0, ids[0] == model.tokenizer.convert_tokens_to_ids(READ)]

        def head(name, x):
            x = x @ state[f"{name}.0.weight"].T + state[f"{name}.0.bias"]
            x = torch.nn.functional.layer_norm(x, x.shape[-1:], state[f"{name}.1.weight"], state[f"{name}.1.bias"])
            return torch.nn.functional.gelu(x) @ state[f"{name}.4.weight"].T + state[f"{name}.4.bias"]

        progress = head("progress_head", at).softmax(-1) @ torch.arange(10.0) / 9
        success = head("success_head", at).sigmoid()[-1, 0]
    read = model.read([one])
    assert read[0][0] == pytest.approx(progress.numpy(), abs=1e-5)
    assert read[1][0] == pytest.approx(success.item(), abs=1e-5)


def test_an_episode_is_read_alike_alone_and_in_any_batch(model, folder):
    episodes = [episode(i, instruction="put the bowl on the plate, " * (i + 1)) for i in range(5)]
    small = RobometerModel(folder, device="cpu", batch_size=2)
    together, alone = model.read(episodes), [model.read([e]) for e in episodes]
    for part in range(2):
        assert np.concatenate([a[part] for a in alone]) == pytest.approx(together[part], abs=1e-5)
        assert small.read(episodes)[part] == pytest.approx(together[part], abs=1e-5)


def test_both_published_layouts_hold_the_same_model(model, tmp_path):
    tiny_robometer.write(tmp_path, "lerobot")
    other = RobometerModel(tmp_path, device="cpu")
    assert np.array_equal(other.read([episode(4)])[0], model.read([episode(4)])[0])
    rope = other.network.backbone.config.text_config.rope_parameters  # config.json is of an earlier transformers
    assert (rope["rope_theta"], rope["mrope_section"]) == (5_000_000, [4, 2, 2])


def test_bfloat16_is_close(model, folder):
    half = RobometerModel(folder, device="cpu", dtype="bfloat16")
    assert half.network.backbone.dtype == half.network.progress_head[0].weight.dtype == torch.bfloat16
    assert half.read([episode(5)])[0] == pytest.approx(model.read([episode(5)])[0], abs=0.1)


def test_the_prompt_is_the_one_of_the_checkpoint(model):
    grid = (1, 4, 4)
    pads = "<|image_pad|>" * 4
    text = prompt_text("put the black bowl in the drawer", grid)
    assert text.startswith(
        "<|im_start|>user\nThe task for the robot is 'put the black bowl in the drawer'. Given the trajectory video, "
    )
    assert "predict 0 progress.Picture 1: <|vision_start|>" in text  # nothing between the words and the first picture
    assert text.endswith(f"Picture 8: <|vision_start|>{pads}<|vision_end|><|prog_token|><|im_end|>\n")
    ids = model.tokenizer(text)["input_ids"]
    assert ids.count(model.tokenizer.convert_tokens_to_ids(READ)) == 8
    rows = model.network.backbone.get_input_embeddings().weight.shape[0]
    assert [model.tokenizer.convert_tokens_to_ids(t) for t in TOKENS] == list(range(rows - 5, rows))


def test_pictures_become_patches_as_transformers_makes_them():
    frames = np.random.default_rng(0).integers(0, 256, (2, 96, 64, 3), dtype=np.uint8)
    theirs = Qwen2VLImageProcessorPil(patch_size=16, do_resize=False, image_mean=[0.5] * 3, image_std=[0.5] * 3)(
        list(frames), return_tensors="pt"
    )
    ours, grid = patches(frames, 16, 2, 2)
    assert theirs["image_grid_thw"].tolist() == [list(grid)] * 2
    assert torch.allclose(ours, theirs["pixel_values"], atol=1e-5)
    assert patches(frames[:, :50, :50], 16, 2, 2)[1] == (1, 4, 4)  # resized to 64 x 64


def test_frames_are_eight_evenly_spread_first_and_last_included():
    shades = Episode([np.full((2, 2, 3), i, np.uint8) for i in range(50)])
    assert episode_frames(shades)[:, 0, 0, 0].tolist() == [0, 7, 14, 21, 28, 35, 42, 49]
    assert episode_frames(Episode(shades.observations[:3]))[:, 0, 0, 0].tolist() == [0, 1, 2, 2, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("observations", "message"),
    [
        ([], "without frames"),
        ([{"state": 1}], "expected a picture under 'image'"),
        ([np.zeros((4, 4), np.uint8)], r"shape \(4, 4\): expected \(height, width, 3\)"),
        ([np.zeros((3, 4, 4), np.uint8)], r"shape \(3, 4, 4\)"),
        ([np.zeros((4, 4, 3))], "float64: expected uint8"),
        ([np.zeros((4, 4, 3), np.uint8), np.zeros((5, 4, 3), np.uint8)], "one size"),
        ([[[[0, 0, 0]], [[0, 0]]]], "no array"),
        ([None], r"shape \(\): expected"),
        (None, "type NoneType: expected a sequence"),
        ({"image": 1}, "type dict: expected a sequence"),
    ],
)
def test_frames_that_cannot_be_read_are_named(model, observations, message):
    with pytest.raises(InvalidInput, match=message):
        model.score([episode(0), Episode(observations, instruction="x")])


@pytest.mark.parametrize("instruction", ["", "  ", "end <|prog_token|>"])
def test_an_instruction_must_be_words(model, instruction):
    with pytest.raises(InvalidInput, match="expected the task in words"):
        model.score([episode(0, instruction=instruction)])


def _broken(folder, tmp_path, change):
    """A copy of the checkpoint as one file, changed."""
    for file in folder.iterdir():
        if file.suffix == ".json" and "index" not in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    state = {k: v for file in folder.glob("model-*.safetensors") for k, v in load_file(file).items()}
    change(state)
    save_file(state, tmp_path / "model.safetensors")
    return tmp_path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("progress_head.0.weight"), "lacks progress_head.0.weight: expected a checkpoint of Robometer"),
        (lambda s: s.pop("success_head.4.bias"), "success_head lacks 4.bias"),
        (lambda s: s.pop("model.visual.pos_embed.weight"), "lacks visual.pos_embed.weight; the sizes"),
        (lambda s: s.update({"model.visual.extra": torch.zeros(1)}), "has visual.extra, which"),
        (lambda s: s.update({"base_model.lora_A": torch.zeros(1)}), "has base_model.lora_A, .*merge the adapters"),
        (lambda s: s.update({"progress_head.4.weight": torch.zeros(1, 16)}), r"progress_head: 4.weight has shape \(1, 16\).* \(10, 16\)"),
        (lambda s: s.update({"model.language_model.embed_tokens.weight": torch.zeros(300, 32)}), "gives <|prog_token|> the id"),
    ],
)  # fmt: skip
def test_a_checkpoint_in_another_layout_is_refused_by_the_first_wrong_key(folder, tmp_path, change, message):
    message = message.replace("|", r"\|") if "<|" in message else message
    with pytest.raises(InvalidInput, match=message):
        RobometerModel(_broken(folder, tmp_path, change), device="cpu")


def test_folders_that_hold_no_checkpoint_are_refused(folder, tmp_path):
    with pytest.raises(DataNotBuilt, match="No Robometer checkpoint"):
        RobometerModel(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InvalidInput, match="type None: expected 'qwen3_vl'"):
        RobometerModel(tmp_path)
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(InvalidInput, match="not the configuration of a model"):
        RobometerModel(tmp_path)
    raw = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"vlm_config": raw, "progress_loss_type": "l2"}))
    with pytest.raises(InvalidInput, match="progress_loss_type='l2'"):
        RobometerModel(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(InvalidInput, match=r"no \*.safetensors"):
        RobometerModel(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(InvalidInput, match="not a readable safetensors file"):
        RobometerModel(tmp_path)


def test_a_tokenizer_must_be_there(folder, tmp_path):
    checkpoint = _broken(folder, tmp_path, lambda state: None)
    for file in checkpoint.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(DataNotBuilt, match="with tokenizer="):
        RobometerModel(checkpoint, device="cpu")
    assert RobometerModel(checkpoint, tokenizer=folder, device="cpu").score([episode(0)]).shape == (1,)


def test_bad_settings_are_refused(folder):
    with pytest.raises(InvalidInput, match="form='sum'"):
        RobometerModel(folder, form="sum")
    with pytest.raises(InvalidInput, match="dtype='int8'"):
        RobometerModel(folder, dtype="int8")
    with pytest.raises(InvalidInput, match="batch_size=0"):
        RobometerModel(folder, batch_size=0)
