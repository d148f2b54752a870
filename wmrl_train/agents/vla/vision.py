"""The fused vision tower: DINOv2 (with registers) and SigLIP, second-to-last layer, patch features side by side.

Parameter names are timm's, so that Prismatic checkpoints load; the layers after the second-to-last are not built.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

DINO_MEAN_STD = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SIGLIP_MEAN_STD = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@dataclass(frozen=True)
class ViTConfig:
    """A vision transformer. `depth` counts all layers of the checkpoint; `depth - 1` are run."""

    width: int
    depth: int
    heads: int
    mlp: int
    patch: int = 14
    image_size: int = 224
    registers: int = 0
    class_token: bool = False
    layer_scale: bool = False

    @property
    def patches(self) -> int:
        return (self.image_size // self.patch) ** 2


DINOV2_LARGE = ViTConfig(1024, 24, 16, 4096, registers=4, class_token=True, layer_scale=True)
SIGLIP_SO400M = ViTConfig(1152, 27, 16, 4304)


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        return self.proj(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, width))


class _Scale(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((width,), 1e-5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class _MLP(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(functional.gelu(self.fc1(x)))


class _Block(nn.Module):
    def __init__(self, c: ViTConfig):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(c.width, eps=1e-6), nn.LayerNorm(c.width, eps=1e-6)
        self.attn = _Attention(c.width, c.heads)
        self.mlp = _MLP(c.width, c.mlp)
        self.ls1: nn.Module = _Scale(c.width) if c.layer_scale else nn.Identity()
        self.ls2: nn.Module = _Scale(c.width) if c.layer_scale else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.ls1(self.attn(self.norm1(x)))
        return x + self.ls2(self.mlp(self.norm2(x)))


class _PatchEmbed(nn.Module):
    def __init__(self, c: ViTConfig):
        super().__init__()
        self.proj = nn.Conv2d(3, c.width, c.patch, c.patch)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x).flatten(2).transpose(1, 2)


class VisionTransformer(nn.Module):
    """(n, 3, s, s) normalised pixels to patch features (n, patches, width) of the second-to-last layer."""

    def __init__(self, config: ViTConfig):
        super().__init__()
        self.config = config
        self.patch_embed = _PatchEmbed(config)
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, config.patches, config.width))
        if config.class_token:
            self.cls_token = nn.Parameter(torch.zeros(1, 1, config.width))
        if config.registers:
            self.reg_token = nn.Parameter(torch.zeros(1, config.registers, config.width))
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.depth - 1))

    def unused(self, name: str) -> bool:
        """Whether a checkpoint's parameter belongs to a part that is not built: the last layer and what follows it."""
        return name.startswith((f"blocks.{self.config.depth - 1}.", "norm.", "attn_pool.", "fc_norm.", "head."))

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.patch_embed(pixels) + self.pos_embed
        prefix = [getattr(self, name).expand(len(x), -1, -1) for name in ("cls_token", "reg_token") if hasattr(self, name)]
        x = torch.cat([*prefix, x], dim=1)
        for block in self.blocks:
            x = block(x)
        return x[:, -self.config.patches :]


class FusedVisionTower(nn.Module):
    """Uint8 pictures (n, h, w, 3) to features (n, patches, width of DINOv2 + width of SigLIP)."""

    def __init__(self, dino: ViTConfig = DINOV2_LARGE, siglip: ViTConfig = SIGLIP_SO400M):
        super().__init__()
        if dino.patches != siglip.patches or dino.image_size != siglip.image_size:
            raise ValueError(
                f"Towers with {dino.patches} and {siglip.patches} patches cannot be fused: their grids must be equal."
            )
        self.dino_featurizer, self.siglip_featurizer = VisionTransformer(dino), VisionTransformer(siglip)
        self.width, self.patches, self.image_size = dino.width + siglip.width, dino.patches, dino.image_size

    def forward(self, pictures: Tensor) -> Tensor:
        pixels = resize(pictures, self.image_size)
        features = [
            tower(standardize(pixels, *moments))
            for tower, moments in ((self.dino_featurizer, DINO_MEAN_STD), (self.siglip_featurizer, SIGLIP_MEAN_STD))
        ]
        return torch.cat(features, dim=2)


def resize(pictures: Tensor, size: int) -> Tensor:
    """Uint8 (n, h, w, 3) to float (n, 3, size, size) in [0, 1]; bicubic where the size differs."""
    pixels = pictures.permute(0, 3, 1, 2).float() / 255.0
    if pixels.shape[-2:] != (size, size):
        pixels = functional.interpolate(pixels, (size, size), mode="bicubic", antialias=True).clamp(0, 1)
    return pixels


def standardize(pixels: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """(n, 3, h, w) minus mean over std, channel by channel."""
    return (pixels - pixels.new_tensor(mean)[:, None, None]) / pixels.new_tensor(std)[:, None, None]


def center_crop(pictures: Tensor, area: float) -> Tensor:
    """The middle `area` of each picture (n, h, w, 3), for models trained with random crops of that area (0.9)."""
    if area >= 1:
        return pictures
    h, w = (round(side * area**0.5) for side in pictures.shape[1:3])
    top, left = (pictures.shape[1] - h) // 2, (pictures.shape[2] - w) // 2
    return pictures[:, top : top + h, left : left + w]
