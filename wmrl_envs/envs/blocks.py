"""The fenced blocks of an answer: where they open and close, given that models write fences anywhere and programs contain
them.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from dataclasses import dataclass

_MARK = re.compile(r"`{3,}|~{3,}")
_BEFORE = re.compile(
    r"[^\S\n]*(?:(?:[-*+>]|\d{1,3}[.)])[^\S\n]+)*[^\S\n]*"
)  # what may stand before a fence: blanks, a list item
_LABEL = re.compile(r"[^\S\n]*[{.\[]?([\w.+:/\-#]*)[^\n]*")
_PYTHON = re.compile(r"(i?python|py|tool_code|code$)[\w.:\-/]*$|[\w./\-]+\.py$", re.IGNORECASE)
_OTHERS = frozenset(
    [
        "bash",
        "sh",
        "shell",
        "zsh",
        "console",
        "terminal",
        "cmd",
        "powershell",
        "text",
        "txt",
        "plain",
        "plaintext",
        "output",
        "stdout",
        "log",
        "traceback",
        "json",
        "jsonl",
        "yaml",
        "yml",
        "toml",
        "xml",
        "html",
        "css",
        "csv",
        "tsv",
        "sql",
        "r",
        "julia",
        "diff",
        "patch",
        "markdown",
        "md",
        "ini",
        "cfg",
        "dockerfile",
        "makefile",
        "c",
        "cpp",
        "c++",
        "java",
        "js",
        "javascript",
        "ts",
        "typescript",
        "go",
        "rust",
        "latex",
        "tex",
        "math",
        "mermaid",
    ]
)
_MOST_MARKS = 400  # the last ones: the last block counts
_BEGINS = re.compile(r"\s*(?:import|from|def|class|#)\b")
_CLOSINGS = 12  # later fences that are tried as the end of a block, of each kind


@dataclass(frozen=True)
class Block:
    """A fenced block: its text, where it lies in the answer, and how it is labelled.

    `kind`: "python", "" (no label), "other" (a label that says nothing) or "foreign" (another language).
    """

    code: str
    start: int
    end: int
    kind: str
    parses: bool


@dataclass(frozen=True)
class _Mark:
    start: int
    end: int
    opens_line: bool  # nothing but blanks, or the mark of a list item or quote, before it
    rest: str  # of its line
    line_end: int

    @property
    def closes_line(self) -> bool:
        return self.opens_line and not self.rest.strip()


class Reader:
    """Finds blocks; tries a bounded amount of text as Python, whatever the answer holds."""

    def __init__(self, budget: int = 1_000_000):
        self._budget = budget  # characters

    def is_program(self, text: str) -> bool:
        """Whether `text` is Python with at least one statement."""
        if not text.strip() or len(text) > self._budget:
            return False
        self._budget -= len(text) + 1000
        return bool(statements(text))

    def blocks(self, text: str) -> list[Block]:
        """The blocks in order. One ends at the first later fence up to which it is Python, else at the first that closes a
        line.
        """
        marks, found, i = _marks(text), [], 0
        while i < len(marks):
            block, i = self._block(text, marks, i)
            if block is not None:
                found.append(block)
        return found

    def _block(self, text: str, marks: list[_Mark], i: int) -> tuple[Block | None, int]:
        mark = marks[i]
        _, kind, rest = _label(mark.rest)
        if not mark.opens_line and kind != "python" and mark.rest.strip():
            return None, i + 1  # a fence that prose speaks of
        same_line = _closing_in_line(marks, i)
        if same_line is not None:
            inline = text[mark.end : same_line.start]
            code, parses = self._readable(_after_label(inline, kind).strip() + "\n")
            return (Block(code, mark.start, same_line.end, kind, True), i + 2) if parses else (None, i + 1)
        later = [j for j in range(i + 1, min(len(marks), i + 40)) if _fits(text, mark, marks[j])]
        pure, glued = [j for j in later if marks[j].closes_line], [j for j in later if not marks[j].closes_line]
        for j in [*pure[:_CLOSINGS], *glued[:_CLOSINGS]]:
            code, parses = self._readable(_body(text, mark, marks[j].start), rest)
            if parses:
                again = not marks[j].closes_line and _label(marks[j].rest)[1] == "python"  # it opens the next block
                return Block(code, mark.start, marks[j].start if again else marks[j].end, kind, True), j if again else j + 1
        end = pure[0] if pure else None
        nested = next(
            (j for j in range(i + 1, end or len(marks)) if marks[j].opens_line and _label(marks[j].rest)[1] == "python"), None
        )
        stop = marks[nested].start if nested is not None else (marks[end].start if end is not None else len(text))
        code, parses = self._readable(_body(text, mark, stop), rest)
        block = Block(code, mark.start, stop, kind, parses) if code.strip() else None
        return block, nested if nested is not None else (end + 1 if end is not None else i + 1 if pure or glued else len(marks))

    def _readable(self, body: str, rest: str = "") -> tuple[str, bool]:
        """(the body in the first form that is Python, True), or (as it stands, False)."""
        dedented = textwrap.dedent(body)
        forms = [dedented, body, textwrap.dedent(body.replace("\u00a0", " "))]
        if _BEGINS.match(rest):
            forms.insert(0, f"{rest.strip()}\n{dedented}")  # the program begins in the line of the fence
        for form in dict.fromkeys(forms):
            if self.is_program(form):
                return form, True
        return dedented, False


def statements(text: str, effective: bool = False) -> list[ast.stmt]:
    """The statements of a program; none where it is no Python. `effective`: without those that do nothing (names, literals)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the agent's strings are no business of ours
            body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [s for s in body if not _does_nothing(s)] if effective else body


def _does_nothing(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Expr):
        return False
    return not any(isinstance(node, (ast.Call, ast.Await, ast.NamedExpr)) for node in ast.walk(statement))


def _marks(text: str) -> list[_Mark]:
    found, line_start, line_end = [], 0, -1
    for match in list(_MARK.finditer(text))[-_MOST_MARKS:]:
        if match.start() > line_end:
            line_start = text.rfind("\n", 0, match.start()) + 1
            line_end = text.find("\n", match.end())
            line_end = len(text) if line_end < 0 else line_end
        before = text[line_start : match.start()]
        opens = len(before) < 80 and _BEFORE.fullmatch(before) is not None
        found.append(_Mark(match.start(), match.end(), opens, text[match.end() : line_end], line_end))
    return found


def _after_label(line: str, kind: str) -> str:
    """The code of a block of one line."""
    return line if kind != "python" else line.strip().partition(" ")[2]


def _label(rest: str) -> tuple[str, str, str]:
    """(label, kind, what follows it in its line) of the text after an opening fence."""
    if _BEGINS.match(rest):
        return "", "", rest
    match = _LABEL.fullmatch(rest)
    label = match[1].strip(".") if match is not None else ""
    after = rest[match.end(1) :] if match is not None else rest
    if not label:
        return "", "", rest
    if _PYTHON.match(label):
        return label, "python", after.strip(" }]")
    return label, "foreign" if label.lower() in _OTHERS else "other", after.strip(" }]")


def _fits(text: str, opening: _Mark, closing: _Mark) -> bool:
    return text[closing.start] == text[opening.start] and closing.end - closing.start >= opening.end - opening.start


def _closing_in_line(marks: list[_Mark], i: int) -> _Mark | None:
    """The fence that closes a block in the line where it opens."""
    following = marks[i + 1] if i + 1 < len(marks) else None
    return following if following is not None and following.start < marks[i].line_end else None


def _body(text: str, opening: _Mark, end: int) -> str:
    """The lines between a fence and `end`, each with a line end."""
    body = text[opening.line_end + 1 : max(end, opening.line_end + 1)]
    if body and not body.endswith("\n"):
        head, _, last = body.rpartition("\n")
        body = f"{head}\n" if not last.strip() and head else body + "\n"
    return body if body.strip() else ""
