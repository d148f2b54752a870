"""Where WMRL keeps what it builds: one directory, `WMRL_HOME`, outside the repository.

`WMRL_HOME` defaults to `$XDG_CACHE_HOME/wmrl`, else `~/.cache/wmrl`. Everything in it can be deleted and rebuilt.
"""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """The root of everything WMRL builds on this machine (not created here)."""
    explicit = os.environ.get("WMRL_HOME")
    if explicit:
        return Path(explicit).expanduser().resolve()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(cache).expanduser() / "wmrl").resolve()


def data_dir() -> Path:
    """Where prepared competitions lie (`<slug>/data/public`, `<slug>/data/private`). `WMRL_DATA_DIR` overrides it."""
    explicit = os.environ.get("WMRL_DATA_DIR")
    return Path(explicit).expanduser().resolve() if explicit else home() / "data"


def sandbox_dir() -> Path:
    """Where the virtual environments of the sandbox lie (made by `wmrl sandbox build`)."""
    return home() / "sandbox"


def models_dir() -> Path:
    """Where converted language models lie."""
    return home() / "models"


def box_sources() -> Path:
    """The files that run inside the sandbox (`sandbox/` in a checkout, `wmrl_envs/_sandbox` in an installed wheel)."""
    installed = Path(__file__).parent / "_sandbox"
    return installed if installed.is_dir() else Path(__file__).parent.parent / "sandbox"
