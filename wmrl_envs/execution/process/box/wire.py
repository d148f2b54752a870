"""Messages between the processes: a JSON header and binary parts, each with its length."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from typing import Any

_LENGTH = struct.Struct("!Q")


def pack(header: dict[str, Any], *parts: bytes) -> bytes:
    """One message."""
    text = json.dumps({**header, "parts": [len(part) for part in parts]}).encode()
    return b"".join((_LENGTH.pack(len(text)), text, *parts))


def unpack(read: Callable[[int], bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """The next message; `read(n)` returns at most n bytes, b"" at the end. Raises EOFError if it ends early."""

    def exactly(n: int) -> bytes:
        data = bytearray()
        while len(data) < n:
            piece = read(min(n - len(data), 1 << 20))
            if not piece:
                raise EOFError("the message ends early")
            data += piece
        return bytes(data)

    header = json.loads(exactly(_LENGTH.unpack(exactly(_LENGTH.size))[0]))
    return header, [exactly(n) for n in header.pop("parts")]


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
