"""Keeping the head and the tail of a stream of any length."""

from __future__ import annotations


class Kept:
    """At most `limit` bytes of a stream: all of it, or its head and its tail with a note between them.

    >>> kept = Kept(100); kept.add(b"x" * 1000); len(kept.bytes()) <= 100, kept.total
    (True, 1000)
    """

    def __init__(self, limit: int):
        self.limit = limit
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self.limit - len(self._head)
        self._head += data[:room]
        self._tail = (self._tail + data[room:])[-self.limit :]

    def bytes(self) -> bytes:
        if self.total <= self.limit:
            return bytes(self._head)
        note = b"\n[... %d bytes in all, the middle is left out ...]\n" % self.total
        if len(note) >= self.limit:
            return bytes(self._head)
        half, rest = divmod(self.limit - len(note), 2)
        tail = (self._head + self._tail)[-half:] if half else b""
        return bytes(self._head[: half + rest]) + note + bytes(tail)
