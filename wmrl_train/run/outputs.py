"""Whether something can be written, asked before the work that it is the result of."""

from __future__ import annotations

import os
from pathlib import Path

from wmrl_envs.errors import InvalidInput


def require_folder(folder: str | Path) -> Path:
    """`folder`, if it is one we may write to or can be made; nothing is made yet."""
    folder = Path(folder)
    there = next(path for path in (folder, *folder.parents, Path()) if os.path.lexists(path))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        problem = "may not be written to" if there.is_dir() else "is no folder"
        raise InvalidInput(f"Nothing can be written to {folder}: {there} {problem}; choose another place.")
    return folder


def require_file(path: str | Path) -> Path:
    """`path`, if a file can be written there."""
    path = Path(path)
    require_folder(path.parent)
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder: expected the name of a file to write.")
    return path
