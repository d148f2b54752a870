"""Messages between the processes: a JSON header and binary parts, each with its length."""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Callable
from typing import Any

_LENGTH = struct.Struct("!Q")
_PIECE = 1 << 20


def pack(header: dict[str, Any], *parts: bytes, more: int | None = None) -> bytes:
    """One message; with `more`, a last part of so many bytes follows it (`copy`)."""
    lengths = [len(part) for part in parts] + ([] if more is None else [more])
    text = json.dumps({**header, "parts": lengths}).encode()
    return b"".join((_LENGTH.pack(len(text)), text, *parts))


def unpack(read: Callable[[int], bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """The next message; `read(n)` returns at most n bytes, b"" at the end. Raises EOFError if it ends early."""

    def exactly(n: int) -> bytes:
        data = io.BytesIO()  # which hands out what it holds without copying it
        while data.tell() < n:
            piece = read(min(n - data.tell(), _PIECE))
            if not piece:
                raise EOFError("the message ends early")
            data.write(piece)
        return data.getvalue()

    header = json.loads(exactly(_LENGTH.unpack(exactly(_LENGTH.size))[0]))
    return header, [exactly(n) for n in header.pop("parts")]


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def copy(file: int, descriptor: int, length: int) -> None:
    """Write the first `length` bytes of a file to a descriptor, a piece at a time. Raises EOFError if it has fewer."""
    done = 0
    while done < length:
        piece = os.pread(file, min(length - done, _PIECE), done)
        if not piece:
            raise EOFError("the file became shorter")
        write_all(descriptor, piece)
        done += len(piece)
