"""A user's own class or function, by import path. Their code may fail in any way, and each way is one sentence."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sysconfig
import traceback
from pathlib import Path
from typing import Any

from wmrl_envs.errors import InvalidInput, WmrlError

FAILURES = (Exception, SystemExit)  # what a user's code may end in: sys.exit() must not end ours without a word


def imported(path: str, given: str, expected: str) -> Any:
    """What `package.module:name` names (`name` may have dots).

    Args:
        path: `package.module:name`.
        given: how the user wrote it, for messages.
        expected: what it should have been, for messages.

    Raises:
        InvalidInput: not such a path, no such module, a module that fails when imported, no such name in it.
    """
    module_name, _, name = path.partition(":")
    if not all((*module_name.split("."), *name.split("."))):  # nothing between two dots, or a relative import
        raise InvalidInput(f"{given}: expected {expected}.")
    try:
        found: Any = importlib.import_module(module_name)
    except FAILURES as error:
        raise InvalidInput(f"{given}: cannot import {module_name!r} ({reason(error)}); expected {expected}.") from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except FAILURES:
            raise InvalidInput(f"{given}: {module_name!r} has no {name!r}; expected {expected}.") from None
    return found


def source_digest(path: str) -> str | None:
    """A fingerprint of the file of `package.module:name`'s module, which changes when its author edits it; None if there is no
    file.
    """
    try:
        spec = importlib.util.find_spec(path.partition(":")[0])
        return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()[:12] if spec and spec.origin else None
    except FAILURES:  # whoever imports it says what is wrong
        return None


def place_and_reason(error: BaseException) -> str:
    """What went wrong in a user's code, and in which file and line of it (the innermost that is no library's, where there is
    one).
    """
    libraries = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
    ours = str(Path(__file__).parents[1])
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((ours, "<frozen"))]
    own = [f for f in frames if not f.filename.startswith(libraries) and "site-packages" not in f.filename] or frames
    return f"{reason(error)} ({own[-1].filename}, line {own[-1].lineno})" if own else reason(error)


def reason(error: BaseException) -> str:
    """The kind of an error and its text, on one line; errors of ours say it themselves."""
    text = " ".join(str(error).split())
    return text if isinstance(error, WmrlError) else f"{type(error).__name__}: {text}"
