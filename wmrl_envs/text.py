"""Text that came from somewhere else, or is too long."""

from __future__ import annotations


def clean(text: str) -> str:
    r"""`text` with half characters (lone surrogates, as JSON may hold) replaced: no tokenizer and no file takes them.

    >>> clean("a\ud800b")
    'a?b'
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def cut_middle(text: str, max_characters: int) -> str:
    r"""`text` cut to `max_characters` in its middle: a traceback ends, and a grading follows, at the end.

    >>> cut_middle("x" * 100, 50)
    'xxx\n[... middle of 100 characters cut ...]\nxxxxxxx'
    """
    if len(text) <= max_characters:
        return text
    marker = f"\n[... middle of {len(text)} characters cut ...]\n"
    room = max_characters - len(marker)
    if room <= 0:
        return text[len(text) - max_characters :]
    head = room // 3
    return text[:head] + marker + text[len(text) - (room - head) :]
