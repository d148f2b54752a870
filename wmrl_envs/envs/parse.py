"""From an agent's answer to the program in it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

from wmrl_envs.envs.blocks import Block, Reader, statements
from wmrl_envs.outcome import Solution
from wmrl_envs.text import plain, without_thoughts

NO_PROGRAM = "the answer holds no program: give one complete script in a ```python block."
_QUOTE = re.compile(r"(?m)^[ \t]{0,3}(?:>[ \t]?)+")
_TAG = re.compile(
    r"<(code|python|execute|execute_python|execute_code|run_python|tool_code|script|program|solution|answer|parameter|arguments)"
    r"(?:[= ][^<>\n]{0,80})?>",
    re.IGNORECASE,
)
_PYTHON_TAG = re.compile(r"<\|python_tag\|>(.*)", re.DOTALL)
_KEYS = ("code", "python", "program", "script", "source", "source_code", "python_code", "input", "content")
_STARTS_A_STATEMENT = re.compile(
    r"(?m)^[ \t]*+(?:(?:import|from|def|class|for|while|if|with|try|return|raise|assert|del|global|async|await|lambda|print)\b"
    r"|@\w|[\w.\[\]'\", ]++[-+*/%|&^]?=[^=]|[\w.]++\(|#)"
)
_BARE_LABEL = re.compile(r"\A\s*(?:python3?|py)[ \t]*\n", re.IGNORECASE)
_LONGEST_SEARCH = 200  # objects of JSON that are tried


def solution(answer: str, task: str, max_characters: int, join_blocks: bool = False) -> Solution:
    """The `Solution` in an answer; where no program can be read from it, `problem` says why.

    Args:
        answer: all that the model wrote.
        task: key of the task.
        max_characters: longest answer that is read.
        join_blocks: see `extract_code`.
    """
    if len(answer) > max_characters:
        return Solution(task=task, problem=f"the answer has {len(answer)} characters; at most {max_characters} are accepted.")
    code = extract_code(answer, join_blocks)
    if not code.strip():
        return Solution(task=task, problem=NO_PROGRAM)
    try:
        code.encode()
    except UnicodeEncodeError as error:
        character = ord(code[error.start])
        return Solution(
            task=task, problem=f"the program holds the character U+{character:04X}, which no file can hold: remove it."
        )
    return Solution(code=code, task=task)


def extract_code(answer: str, join_blocks: bool = False) -> str:
    r"""The program in an answer: the last block that is labelled as Python and parses, else an unlabelled one, else the whole
    text.

    A block closes at the first later fence up to which it is Python, so that a fence in a string or a comment ends nothing.
    What a `<think>` passage holds is ignored. Code in tool calls (XML or JSON) is read where there is no block. Where nothing
    parses, the last block stands, whose syntax error the agent is told; "" where there is no program at all.

    Args:
        answer: all that the model wrote.
        join_blocks: take all blocks that parse, in their order, as one program (for agents that build a script in steps).

    >>> extract_code("I will fit a line.\n```python\nprint(1)\n```\nDone.")
    'print(1)\n'
    >>> extract_code("print(2)")
    'print(2)'
    """
    text, reader = _BARE_LABEL.sub("", plain(answer)), Reader()
    if not _is_markup(text) and reader.is_program(text):
        return text
    if _unquoted(text) != text and (found := _in_blocks(_unquoted(text), reader, join_blocks, parsed_only=True)):
        return found
    if found := _in_blocks(text, reader, join_blocks, parsed_only=True):
        return found
    rest = without_thoughts(text)
    for code in (*_tagged(rest), *_in_json(rest)):
        if reader.is_program(code):
            return code
        if found := _in_blocks(plain(code), reader, join_blocks, parsed_only=True):
            return found
    head = re.split(r"(?m)^[ \t]*(?:```|~~~)", rest, maxsplit=1)[0].lstrip("\n")
    if head != rest and reader.is_program(head) and statements(head, effective=True):
        return head  # the block was opened by the prompt
    if found := _in_blocks(text, reader, join_blocks, parsed_only=False):
        return found
    if re.search(r"(?m)^[ \t]*(?:```|~~~)", rest):
        return ""  # what there was is a block without a program
    rest = rest.lstrip("\n")
    if _is_markup(rest):
        return ""
    return rest if reader.is_program(rest) or _STARTS_A_STATEMENT.search(rest) else ""


def _unquoted(text: str) -> str:
    """The answer without the marks of quoted lines, where a fence stands in one."""
    return _QUOTE.sub("", text) if re.search(r"(?m)^[ \t]{0,3}>[> \t]*(?:```|~~~)", text) else text


def _in_blocks(text: str, reader: Reader, join_blocks: bool, parsed_only: bool) -> str:
    blocks = reader.blocks(text)
    if not blocks:
        return ""
    spans = [(block.start, block.end) for block in blocks if block.parses]
    outside = without_thoughts(text, spans)
    if outside != text:
        blocks = reader.blocks(outside)
    for kinds in (("python",), ("",), ("other",)):
        chosen = [b for b in blocks if b.kind in kinds and (b.parses or not parsed_only) and b.code.strip()]
        if kinds == ("other",) and len(blocks) > 1:
            chosen = []
        if kinds != ("python",):  # a block of output is Python too, but does nothing
            chosen = [b for b in chosen if not b.parses or statements(b.code, effective=True)] or chosen
        if chosen:
            return _joined(chosen) if join_blocks else chosen[-1].code
    return ""


def _joined(blocks: list[Block]) -> str:
    return "".join(block.code if block.code.endswith("\n") else block.code + "\n" for block in blocks)


def _is_markup(text: str) -> bool:
    """Whether an answer begins as a tool call does (a JSON object is Python too)."""
    return text.lstrip()[:1] in ("<", "{", "[") and bool(re.search(r"<\w|\"\s*:", text))


def _tagged(text: str) -> Iterator[str]:
    """What stands between tags of code, the last first."""
    for tag in list(_TAG.finditer(text))[: -_LONGEST_SEARCH - 1 : -1]:
        end = text.find(f"</{tag[1]}", tag.end())
        inner = text[tag.end() : end if end >= 0 else len(text)].strip("\n")
        if inner.lstrip().startswith("<![CDATA["):
            inner = inner.strip()[len("<![CDATA[") :].removesuffix("]]>")
        yield inner + "\n"
        if "&" in inner:
            yield html.unescape(inner) + "\n"
    if call := _PYTHON_TAG.search(text):
        yield call[1]


def _in_json(text: str) -> Iterator[str]:
    """Texts under the keys that tools give to code, in the JSON objects of an answer, the last first."""
    decoder, found, position = json.JSONDecoder(strict=False), [], 0
    for _ in range(_LONGEST_SEARCH):
        start = text.find("{", position)
        if start < 0:
            break
        try:
            value, position = decoder.raw_decode(text, start)
            found.append(value)
        except (ValueError, RecursionError):
            position = start + 1
    for value in reversed(found):
        yield from _code_in(value)


def _code_in(value: Any, depth: int = 0) -> Iterator[str]:
    if depth > 8:
        return
    if isinstance(value, list):
        for item in reversed(value):
            yield from _code_in(item, depth + 1)
    elif isinstance(value, dict):
        yield from (value[key] for key in _KEYS if isinstance(value.get(key), str))
        for key, item in value.items():
            if key in ("arguments", "parameters", "input") and isinstance(item, str):
                try:
                    yield from _code_in(json.loads(item, strict=False), depth + 1)
                except (ValueError, RecursionError):
                    continue
            elif isinstance(item, (dict, list)):
                yield from _code_in(item, depth + 1)
