"""Episodes as bytes and back: a line of JSON (instruction and shape of each episode's frames), then the frames.

Nothing that is received is executed or unpickled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wmrl_envs.errors import InvalidInput

MAX_REQUEST_BYTES = 2**28
_MOST_HEADER_BYTES = 2**22
_MOST_PIXELS = 2**14  # frames, or pixels in a row or column


def encode(clips: Sequence[tuple[str, np.ndarray]]) -> bytes:
    """The body of a request for episodes given as (instruction, frames (n, h, w, 3) uint8)."""
    header = [{"instruction": text, "shape": frames.shape} for text, frames in clips]
    return b"".join([json.dumps(header).encode(), b"\n", *(np.ascontiguousarray(frames).tobytes() for _, frames in clips)])


def decode(body: bytes) -> list[tuple[str, np.ndarray]]:
    """What `encode` was given.

    Raises:
        InvalidInput: nothing that `encode` made.

    >>> [(text, frames.shape) for text, frames in decode(encode([("lift", np.zeros((8, 2, 2, 3), np.uint8))]))]
    [('lift', (8, 2, 2, 3))]
    """
    end = body.find(b"\n", 0, _MOST_HEADER_BYTES)
    try:
        if end < 0:
            raise ValueError("no line that says what it holds")
        items = [(item["instruction"], _shape(item["shape"])) for item in json.loads(body[:end])]
        if any(not isinstance(text, str) for text, _ in items):
            raise ValueError("an episode without instruction")
        sizes = [math.prod(shape) for _, shape in items]
        if sum(sizes) != len(body) - end - 1:
            raise ValueError(f"{len(body) - end - 1} bytes of frames instead of {sum(sizes)}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInput(f"A request that cannot be read ({error}): expected what RemoteRewardModel sends.") from None
    clips, at = [], end + 1
    for (text, shape), size in zip(items, sizes, strict=True):
        clips.append((text, np.frombuffer(body, np.uint8, size, at).reshape(shape)))
        at += size
    return clips


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) != 4 or any(type(n) is not int or not 1 <= n <= _MOST_PIXELS for n in value):
        raise ValueError(f"frames of shape {value!r:.100}, expected four whole numbers from 1 to {_MOST_PIXELS}")
    if value[3] != 3:
        raise ValueError(f"frames with {value[3]} channels, expected 3")
    return tuple(value)
