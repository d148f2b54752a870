"""`ResidualVQ`: a chunk of actions as seven codes, each the nearest vector to what the codes before it left over.

The layout is that of VQ-BeT's `VqVae` (MLP encoder and decoder around a residual quantizer), so that its checkpoints load.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from wmrl_envs.correction.scores import check_positive
from wmrl_envs.errors import InvalidInput
from wmrl_train.learn.guard import guarded_step

_LARGEST, _NUMBERS = 2**16, 2**28  # a size; the numbers of all codebooks, 1 GiB


@dataclass(frozen=True)
class VQConfig:
    """Sizes; the defaults are those of the published LIBERO-90 quantizer."""

    horizon: int = 8
    action_size: int = 7
    groups: int = 7  # codes a chunk
    codes: int = 128  # of each codebook
    latent: int = 512
    hidden: int = 128
    layers: int = 1  # hidden layers beyond the first
    scale: float = 1.0  # actions are divided by it

    def __post_init__(self) -> None:
        sizes = {name: value for name, value in asdict(self).items() if name != "scale"}
        check_positive(**sizes)
        if max(sizes.values()) > _LARGEST or self.groups * self.codes * self.latent > _NUMBERS:
            raise InvalidInput(f"{self}: expected sizes of at most {_LARGEST} and at most {_NUMBERS} numbers in all codebooks.")
        if not (isinstance(self.scale, (int, float)) and 0 < self.scale < math.inf):
            raise InvalidInput(f"VQConfig(scale={self.scale!r}): expected a finite number above 0.")


class _MLP(nn.Module):
    """Names of VQ-BeT's EncoderMLP: `encoder` (hidden layers) and `fc`."""

    def __init__(self, inputs: int, outputs: int, hidden: int, layers: int):
        super().__init__()
        widths = [inputs] + [hidden] * (layers + 1)
        blocks: list[nn.Module] = []
        for a, b in itertools.pairwise(widths):
            blocks += [nn.Linear(a, b), nn.ReLU()]
        self.encoder = nn.Sequential(*blocks)
        self.fc = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.encoder(x))


class ResidualVQ(nn.Module):
    """Encodes (n, horizon, action_size) normalised actions to codes (n, groups) and back."""

    codebooks: Tensor  # (groups, codes, latent)

    def __init__(self, config: VQConfig | None = None):
        super().__init__()
        c = self.config = config or VQConfig()
        flat = c.horizon * c.action_size
        self.encoder = _MLP(flat, c.latent, c.hidden, c.layers)
        self.decoder = _MLP(c.latent, flat, c.hidden, c.layers)
        self.register_buffer("codebooks", torch.randn(c.groups, c.codes, c.latent) / math.sqrt(c.latent))

    def latents(self, actions: Tensor) -> Tensor:
        return self.encoder(actions.flatten(1) / self.config.scale)

    def quantize(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """Codes (n, groups) and the quantized latents (n, latent), the sum of one vector a codebook."""
        rest, chosen = latents, []
        for book in self.codebooks:
            codes = torch.cdist(rest, book).argmin(dim=1)
            rest = rest - book[codes]
            chosen.append(codes)
        return torch.stack(chosen, dim=1), latents - rest

    @torch.no_grad()
    def encode(self, actions: Tensor) -> Tensor:
        """Codes (n, groups) of normalised action chunks."""
        return self.quantize(self.latents(actions))[0]

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        """Normalised action chunks (n, horizon, action_size) of codes (n, groups)."""
        vectors = self.codebooks[torch.arange(self.config.groups, device=codes.device), codes]
        return self.from_latents(vectors.sum(dim=1))

    def from_latents(self, latents: Tensor) -> Tensor:
        return (self.decoder(latents) * self.config.scale).unflatten(1, (self.config.horizon, self.config.action_size))

    # -- files --------------------------------------------------------------------------------------------------------
    @classmethod
    def from_vqbet(cls, state: Mapping[str, Any], config: VQConfig | None = None) -> ResidualVQ:
        """From the state of VQ-BeT's `VqVae`: encoder, decoder, vq_embedding."""
        missing = [key for key in ("encoder", "decoder", "vq_embedding") if key not in state]
        if missing:
            raise InvalidInput(
                f"A quantizer checkpoint without {', '.join(missing)}; expected VQ-BeT's encoder, decoder and vq_embedding."
            )
        model = cls(config)
        books = [state["vq_embedding"].get(f"layers.{i}._codebook.embed") for i in range(model.config.groups)]
        wanted = (model.config.codes, model.config.latent)
        for i, book in enumerate(books):
            if book is None or tuple(book.reshape(-1, book.shape[-1]).shape) != wanted:
                found = "absent" if book is None else tuple(book.shape)
                raise InvalidInput(f"Codebook {i} of the quantizer checkpoint is {found}; expected {wanted} (see VQConfig).")
        model.codebooks.copy_(torch.stack([book.reshape(wanted) for book in books]))
        try:
            model.encoder.load_state_dict(state["encoder"])
            model.decoder.load_state_dict(state["decoder"])
        except RuntimeError as error:
            raise InvalidInput(
                f"The quantizer checkpoint does not fit {model.config}: {str(error).splitlines()[-1].strip()}"
            ) from None
        return model

    def to_vqbet(self) -> dict[str, Any]:
        """The state of VQ-BeT's `VqVae` (for its tools, and for tests of the loader)."""
        embedding = {f"layers.{i}._codebook.embed": book[None].clone() for i, book in enumerate(self.codebooks)}
        return {"encoder": self.encoder.state_dict(), "decoder": self.decoder.state_dict(), "vq_embedding": embedding}

    def save(self, path: str | Path) -> Path:
        """One safetensors file with the configuration in its header."""
        from safetensors.torch import save_file

        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(
            {k: v.contiguous() for k, v in self.state_dict().items()}, path, {k: str(v) for k, v in asdict(self.config).items()}
        )
        return path

    @classmethod
    def load(cls, path: str | Path) -> ResidualVQ:
        """From `save`, or from a folder or .pt file of VQ-BeT (`config.json` beside it, if there is one)."""
        path = Path(path)
        if path.suffix != ".safetensors":
            return _load_vqbet(path)
        from safetensors import safe_open

        try:
            with safe_open(path, "pt") as file:
                header = file.metadata() or {}
                state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            sizes: dict[str, Any] = {k: float(v) if k == "scale" else int(v) for k, v in header.items()}
            model = cls(VQConfig(**sizes))
            model.load_state_dict(state)
        except Exception as error:
            raise InvalidInput(f"{path}: not a readable quantizer ({error}).") from None
        return model


def _load_vqbet(path: Path) -> ResidualVQ:
    import json

    file = path / "checkpoints" / "model.pt" if path.is_dir() else path
    config_file = (path if path.is_dir() else file.parent.parent) / "config.json"
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise InvalidInput(
            f"{file}: not a readable quantizer checkpoint ({type(error).__name__}: {str(error).splitlines()[0]})."
        ) from None
    config = VQConfig()
    if config_file.is_file():
        names = {"input_dim_h": "horizon", "input_dim_w": "action_size", "vqvae_groups": "groups", "vqvae_n_embed": "codes"}
        names |= {"n_latent_dims": "latent", "hidden_dim": "hidden", "num_layers": "layers", "act_scale": "scale"}
        try:
            raw = json.loads(config_file.read_text())
            config = VQConfig(**{ours: raw[theirs] for theirs, ours in names.items() if raw.get(theirs) is not None})
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            raise InvalidInput(f"{config_file}: no settings of a VQ-BeT quantizer ({error}).") from None
    return ResidualVQ.from_vqbet(state, config)


def fit(
    chunks: np.ndarray, config: VQConfig | None = None, *, steps: int = 2000, batch: int = 256, lr: float = 1e-3, seed: int = 0
) -> ResidualVQ:
    """Train a quantizer on normalised action chunks (n, horizon, action_size).

    Straight-through gradients to the encoder, L1 reconstruction and a commitment loss; codebooks are moving averages of
    the residuals assigned to them, and codes that nothing is assigned to are moved onto residuals of the batch.
    """
    config = config or VQConfig()
    if chunks.ndim != 3 or chunks.shape[1:] != (config.horizon, config.action_size) or len(chunks) < 2:
        raise InvalidInput(
            f"Action chunks of shape {chunks.shape}: expected (n, {config.horizon}, {config.action_size}) with n >= 2."
        )
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = ResidualVQ(config)
    data = torch.as_tensor(np.ascontiguousarray(chunks), dtype=torch.float32)
    optimizer = torch.optim.AdamW([*model.encoder.parameters(), *model.decoder.parameters()], lr=lr, weight_decay=1e-4)
    counts = torch.ones(config.groups, config.codes)
    sums = model.codebooks.clone()
    for step in range(steps):
        x = data[torch.randint(len(data), (min(batch, len(data)),), generator=generator)]
        latents = model.latents(x)
        with torch.no_grad():
            _update_codebooks(model, latents.detach(), counts, sums, first=step == 0, generator=generator)
            _, quantized = model.quantize(latents)
        through = latents + (quantized - latents).detach()
        loss = functional.l1_loss(model.from_latents(through), x) + 0.25 * functional.mse_loss(latents, quantized)
        optimizer.zero_grad()
        loss.backward()
        guarded_step(optimizer, what=f"step {step + 1} of the quantizer")
        for group in optimizer.param_groups:
            group["lr"] = lr * 0.5 * (1 + math.cos(math.pi * (step + 1) / steps))
    return model.eval()


def _update_codebooks(
    model: ResidualVQ, latents: Tensor, counts: Tensor, sums: Tensor, *, first: bool, generator: torch.Generator
) -> None:
    """One step of the moving averages, codebook by codebook on the residuals."""
    rest, decay = latents, 0.95
    for g, book in enumerate(model.codebooks):
        pick = torch.randint(len(rest), (len(book),), generator=generator)
        if first:
            sums[g] = rest[pick]
        else:
            codes = torch.cdist(rest, book).argmin(dim=1)
            one_hot = functional.one_hot(codes, len(book)).to(rest.dtype)
            counts[g] = decay * counts[g] + (1 - decay) * one_hot.sum(0)
            sums[g] = decay * sums[g] + (1 - decay) * (one_hot.T @ rest)
            dead = counts[g] < 0.01
            counts[g, dead], sums[g, dead] = 1.0, rest[pick[dead]]
        book.copy_(sums[g] / counts[g].clamp(min=1e-5)[:, None])
        codes = torch.cdist(rest, book).argmin(dim=1)
        rest = rest - book[codes]
