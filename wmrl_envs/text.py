"""Text that came from somewhere else, or is too long."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence


def clean(text: str) -> str:
    r"""`text` with half characters (lone surrogates, as JSON may hold) replaced: no tokenizer and no file takes them.

    >>> clean("a\ud800b")
    'a?b'
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def visible(text: object) -> str:
    r"""`text` as a terminal may show it: control and format characters become escapes, but for newlines and tabs.

    >>> visible("\x1b[2Jred \u202e\ud800\tend")
    '\\x1b[2Jred \\u202e\\ud800\tend'
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c in "\n\t" or c.isprintable() or unicodedata.category(c) == "Zs" else _escaped(c) for c in shown)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


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


_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060"
_END_OF_TEXT = re.compile(r"(?:<[|\uff5c][^<>\s]{1,40}[|\uff5c]>|</s>|<eos>|<end_of_turn>|<\|?end_of_text\|?>|\[/INST\])\Z")
_THOUGHT = re.compile(
    r"<(/?)(?:\w{1,20}:)?(?:think|thinking|thought|thoughts|reasoning|scratchpad|reflection)>|\[(/?)THINK\]|\u25c1(/?)think\u25b7",
    re.IGNORECASE,
)
_FINAL = re.compile(r"<\|channel\|>final[^<\n]*<\|message\|>")


def plain(answer: str) -> str:
    r"""A model's answer with line ends alone between its lines, without the marks of a tokenizer or an editor around it.

    >>> plain("\ufeffPlan\rx = 1<|im_end|>")
    'Plan\nx = 1'
    """
    answer = answer.replace("\r\n", "\n").replace("\r", "\n").lstrip(_INVISIBLE)
    if channels := list(_FINAL.finditer(answer)):  # what comes before is the model's analysis
        answer = answer[channels[-1].end() :]
    answer = re.sub(rf"(?m)^[{_INVISIBLE}]+(?=\s*(?:```|~~~))", "", answer)
    while token := _END_OF_TEXT.search(answer.rstrip()[-60:]):
        answer = answer.rstrip()[: -len(token.group())]
    return answer


def without_thoughts(text: str, kept: Sequence[tuple[int, int]] = ()) -> str:
    """`text` without its `<think>` passages; one that never ends goes to the end, one that never began starts at the beginning.

    Args:
        text: what the model wrote.
        kept: (start, end) in order of parts whose tags are content: a program or an object that was read there.

    >>> without_thoughts("maybe</think>yes<think>or no")
    'yes'
    """
    starts = [start for start, _ in kept]
    parts, position, opened = [], 0, False
    for tag in _THOUGHT.finditer(text):
        i = bisect_right(starts, tag.start()) - 1
        if i >= 0 and tag.start() < kept[i][1]:
            continue
        if not any(tag.groups()):
            if not opened:
                parts.append(text[position : tag.start()])
            opened = True
            continue
        if not opened:
            parts.clear()  # the passage was begun by the prompt
        opened, position = False, tag.end()
    return "".join(parts) if opened else "".join(parts) + text[position:]
