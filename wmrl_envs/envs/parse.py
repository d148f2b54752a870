"""From an agent's answer to the program in it."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings

from wmrl_envs.outcome import Solution

_OPENING = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")
_PYTHON = frozenset({"python", "python3", "py", "py3", "ipython", "python-repl"})
_THOUGHTS = re.compile(r"^.*</think(?:ing)?>", re.DOTALL)


def solution(answer: str, task: str, max_characters: int) -> Solution:
    """The `Solution` in an answer; where no program can be read from it, `problem` says why."""
    if len(answer) > max_characters:
        return Solution(task=task, problem=f"the answer has {len(answer)} characters; at most {max_characters} are accepted.")
    code = extract_code(answer)
    if not code.strip():
        return Solution(task=task, problem="the answer holds no program: give one complete script in a ```python block.")
    try:
        code.encode()
    except UnicodeEncodeError as error:
        character = ord(code[error.start])
        return Solution(
            task=task, problem=f"the program holds the character U+{character:04X}, which no file can hold: remove it."
        )
    return Solution(code=code, task=task)


def extract_code(answer: str) -> str:
    r"""The program in an answer: the last block fenced as Python, else the last unlabelled block, else the whole text.

    What stands before the end of a `<think>` passage is ignored; an answer that was cut inside its block yields what is
    there; a fence inside a string of a plain program opens nothing.

    >>> extract_code("I will fit a line.\n```python\nprint(1)\n```\nDone.")
    'print(1)\n'
    >>> extract_code("print(2)")
    'print(2)'
    """
    answer = answer.replace("\r\n", "\n")
    answer = _THOUGHTS.sub("", answer) or answer
    if "```" not in answer and "~~~" not in answer:
        return answer
    if _is_program(answer):
        return answer
    blocks = _blocks(answer)
    for wanted in (_PYTHON, frozenset({""})):
        found = [code for language, code in blocks if language in wanted]
        if found:
            return found[-1]
    return "" if blocks else answer.replace("```", "")


def _blocks(answer: str) -> list[tuple[str, str]]:
    """(language, text) of the fenced blocks; a block that is never closed runs to the end."""
    blocks, lines = [], answer.split("\n")
    i = 0
    while i < len(lines):
        opening = _OPENING.match(lines[i])
        i += 1
        if opening is None:
            continue
        fence, body = opening["fence"], []
        while i < len(lines) and not _closes(lines[i], fence):
            body.append(lines[i])
            i += 1
        i += 1
        words = opening["info"].strip().strip("{}.").lower().split()
        text = textwrap.dedent("\n".join(body)) if opening["indent"] else "\n".join(body)
        blocks.append((words[0] if words else "", text + "\n" if text else ""))
    return blocks


def _closes(line: str, fence: str) -> bool:
    line = line.strip()
    return len(line) >= len(fence) and set(line) == {fence[0]}


def _is_program(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the agent's strings are no business of ours
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
