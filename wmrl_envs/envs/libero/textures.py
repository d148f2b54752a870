"""Small textures for tests and laptops: a copy of LIBERO's assets in which no picture is larger than `size` pixels a side.

Saves about 1 GB of memory a simulator and two thirds of its construction time, and changes pixels: reported numbers
are those of the full textures.
"""

from __future__ import annotations

import os
from pathlib import Path

from wmrl_envs import paths
from wmrl_envs.errors import InvalidInput

_PICTURES = {".png", ".jpg", ".jpeg"}


def shrunken_assets(assets: Path, size: int) -> Path:
    """The folder of the copy, built on first use: shrunken pictures, links to everything else."""
    if size < 8:
        raise InvalidInput(f"texture_size={size}: expected at least 8 pixels, or None for the full textures.")
    from filelock import FileLock

    target = paths.home() / "libero" / f"assets-{size}"
    done = target / ".complete"
    target.mkdir(parents=True, exist_ok=True)
    with FileLock(str(target) + ".lock"):
        if done.is_file() and done.read_text() == str(assets):
            return target
        for folder, _, names in os.walk(assets):
            copy = target / Path(folder).relative_to(assets)
            copy.mkdir(parents=True, exist_ok=True)
            for name in names:
                _place(Path(folder) / name, copy / name, size)
        done.write_text(str(assets))
    return target


def _place(source: Path, copy: Path, size: int) -> None:
    copy.unlink(missing_ok=True)
    if source.suffix.lower() in _PICTURES:
        from PIL import Image

        with Image.open(source) as picture:
            if max(picture.size) > size:
                picture.thumbnail((size, size))
                picture.save(copy)
                return
    copy.symlink_to(source)
