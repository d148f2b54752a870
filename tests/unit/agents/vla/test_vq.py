import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from wmrl_envs.errors import InvalidInput
from wmrl_train.agents.vla.vq import ResidualVQ, VQConfig, fit

SMALL = VQConfig(codes=16, groups=3, latent=8, hidden=32)


def waves(n=400, seed=0):
    """Smooth chunks of a few shapes, as arm movements are."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, 8)[None, :, None]
    directions = np.random.default_rng(9).uniform(-1, 1, (2, 7))
    amplitude, phase = rng.uniform(-1, 1, (n, 1, 2)) @ directions, rng.choice([0.0, 1.5], (n, 1, 1))
    return np.clip(amplitude * np.cos(2 * t + phase), -1, 1).astype(np.float32)


def test_codes_are_the_nearest_vectors_of_what_is_left():
    model = ResidualVQ(SMALL)
    latents = torch.randn(20, 8)
    codes, quantized = model.quantize(latents)
    rest = latents.clone()
    for g in range(3):
        distances = ((rest[:, None] - model.codebooks[g][None]) ** 2).sum(-1)
        assert torch.equal(codes[:, g], distances.argmin(1))
        rest = rest - model.codebooks[g][codes[:, g]]
    torch.testing.assert_close(quantized, latents - rest)
    torch.testing.assert_close(model.decode(codes), model.from_latents(quantized), atol=1e-5, rtol=1e-4)


def test_training_reconstructs_better_than_the_mean_and_each_code_helps():
    data = waves()
    model = fit(data, SMALL, steps=300, batch=64)
    x = torch.from_numpy(waves(200, seed=1))
    with torch.no_grad():
        error = (model.decode(model.encode(x)) - x).abs().mean()
    assert error < 0.6 * (x - torch.from_numpy(data).mean(0)).abs().mean()
    assert len(torch.unique(model.encode(x)[:, 0])) > 4


def test_training_is_a_function_of_the_seed():
    one, other = (fit(waves(64), SMALL, steps=5, seed=3) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def test_files_round_trip(tmp_path):
    model = ResidualVQ(SMALL)
    loaded = ResidualVQ.load(model.save(tmp_path / "vq.safetensors"))
    assert loaded.config == SMALL
    x = torch.from_numpy(waves(10))
    assert torch.equal(loaded.encode(x), model.encode(x))


def test_vq_bet_checkpoints_load(tmp_path):
    import json

    model = ResidualVQ(SMALL)
    run = tmp_path / "pretrain_vq"
    (run / "checkpoints").mkdir(parents=True)
    torch.save(model.to_vqbet() | {"optimizer": {"state": {}}}, run / "checkpoints" / "model.pt")
    sizes = {
        "input_dim_h": 8,
        "input_dim_w": 7,
        "n_latent_dims": 8,
        "vqvae_n_embed": 16,
        "vqvae_groups": 3,
        "hidden_dim": 32,
        "act_scale": 1.0,
    }
    (run / "config.json").write_text(json.dumps(sizes))
    loaded = ResidualVQ.load(run)
    codes = torch.randint(0, 16, (5, 3))
    torch.testing.assert_close(loaded.decode(codes), model.decode(codes))

    with pytest.raises(InvalidInput, match="without decoder"):
        ResidualVQ.from_vqbet({k: v for k, v in model.to_vqbet().items() if k != "decoder"})
    with pytest.raises(InvalidInput, match="Codebook 3 of the quantizer checkpoint is absent"):
        ResidualVQ.from_vqbet(model.to_vqbet(), VQConfig(codes=16, groups=7, latent=8, hidden=32))
    with pytest.raises(InvalidInput, match="not a readable quantizer checkpoint"):
        ResidualVQ.load(tmp_path / "absent.pt")


@pytest.mark.parametrize(
    "sizes",
    [{"codes": 10**12}, {"codes": 0}, {"horizon": 1.5}, {"groups": 4096, "codes": 4096}, {"scale": float("nan")}, {"scale": 0}],
)
def test_sizes_that_no_machine_holds_are_refused(sizes):
    with pytest.raises(InvalidInput, match=next(iter(sizes))):
        VQConfig(**sizes)


@pytest.mark.parametrize("header", [{"codes": "x"}, {"size": "3"}, {"codes": "999999999999"}, {"codes": "8"}])
def test_a_file_of_something_else_is_no_quantizer(tmp_path, header):
    save_file({"a": torch.zeros(1)}, tmp_path / "vq.safetensors", header)
    with pytest.raises(InvalidInput, match="not a readable quantizer"):
        ResidualVQ.load(tmp_path / "vq.safetensors")


@pytest.mark.parametrize("config", ["{bad", "[]", '{"vqvae_n_embed": "x"}'])
def test_settings_beside_a_vq_bet_checkpoint_are_checked(tmp_path, config):
    (tmp_path / "checkpoints").mkdir()
    torch.save(ResidualVQ(SMALL).to_vqbet(), tmp_path / "checkpoints" / "model.pt")
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(InvalidInput, match=r"config\.json"):
        ResidualVQ.load(tmp_path)


def test_chunks_of_another_shape_are_refused():
    with pytest.raises(InvalidInput, match=r"\(5, 4, 7\)"):
        fit(np.zeros((5, 4, 7)), SMALL)
