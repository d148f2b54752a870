"""Text that came from somewhere else."""

from __future__ import annotations


def clean(text: str) -> str:
    r"""`text` with half characters (lone surrogates, as JSON may hold) replaced: no tokenizer and no file takes them.

    >>> clean("a\ud800b")
    'a?b'
    """
    return text.encode("utf-8", "replace").decode("utf-8")
