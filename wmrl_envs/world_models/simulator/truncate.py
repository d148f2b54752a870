"""How a case is cut to fit the context: the rule, in one place.

1. The system prompt and the question of the check are never cut.
2. The program may take up to 60 % of what is left, more if the task needs less than the rest. Of a longer one the first and
   last lines stay, whole and with their numbers, and a line says how many were left out.
3. The verified data report may take a quarter of the remainder, the task overview the rest. Of a longer overview the first two
   thirds (description and inventory) and the last third (the submission contract) stay. A line longer than 2,000 characters (a
   table of thousands of columns) first loses its middle.
"""

from __future__ import annotations

from typing import Any

from wmrl_envs.context import TaskContext
from wmrl_envs.world_models.simulator.prompts import case_block, numbered

CODE_SHARE = 0.6
REPORT_SHARE = 0.25
LONG_LINE = 2000
CHARACTERS_PER_TOKEN = 3.0  # a cautious figure for engines that show no tokenizer


class TokenCounter:
    """Counts tokens with a tokenizer, or estimates from characters without one."""

    def __init__(self, tokenizer: Any = None):
        self._tokenizer = tokenizer if hasattr(tokenizer, "encode") else None
        self._seen: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        if self._tokenizer is None:
            return int(len(text) / CHARACTERS_PER_TOKEN) + 1
        if text not in self._seen:
            if len(self._seen) > 512:
                self._seen.clear()
            self._seen[text] = len(self._tokenizer.encode(text))
        return self._seen[text]


def shorten_lines(text: str, longest: int = LONG_LINE) -> str:
    """Lines beyond `longest` characters lose their middle."""

    def cut(line: str) -> str:
        if len(line) <= longest:
            return line
        keep = longest // 2
        return f"{line[:keep]} [... {len(line) - 2 * keep} characters left out ...] {line[-keep:]}"

    return "\n".join(cut(line) for line in text.split("\n"))


def cut_text(text: str, budget: int, count: TokenCounter, head_share: float = 2 / 3) -> str:
    """`text` with its middle left out so that it has at most `budget` tokens."""
    if count(text) <= budget:
        return text
    keep = len(text)
    for _ in range(40):
        keep = min(int(keep * 0.9), int(len(text) * budget / max(count(text), 1)) if keep == len(text) else keep)
        head = int(keep * head_share)
        short = f"{text[:head]}\n[... {len(text) - keep} characters left out ...]\n{text[len(text) - (keep - head) :]}"
        if count(short) <= budget:
            return short
        if keep < 16:
            break
    return ""


def cut_program(code: str, budget: int, count: TokenCounter) -> str:
    """The numbered program, or its first and last lines if it has more than `budget` tokens."""
    text = numbered(shorten_lines(code))
    if count(text) <= budget:
        return text
    lines = text.split("\n")
    keep = len(lines)
    while keep > 2:
        keep = int(keep * 0.9)
        head = (keep + 1) // 2
        left = [*lines[:head], f"... {len(lines) - keep} lines left out ...", *lines[len(lines) - (keep - head) :]]
        if count("\n".join(left)) <= budget:
            return "\n".join(left)
    return cut_text(text, budget, count, 0.5)


def fit_case(context: TaskContext, code: str, report: str, budget: int, count: TokenCounter) -> tuple[str, bool]:
    """The case block in at most `budget` tokens, and whether anything was left out."""
    overview = shorten_lines(context.overview)
    whole = case_block(context.task, overview, numbered(code), report)
    if count(whole) <= budget and overview == context.overview and shorten_lines(code) == code:
        return whole, False
    frame = count(case_block(context.task, "", "", "")) + 32
    room = max(budget - frame, 64)
    needed = count(overview) + (count(report) if report else 0)
    program = cut_program(code, max(int(room * CODE_SHARE), room - needed), count)
    rest = max(room - count(program), 32)
    if report:
        report = cut_text(report, int(rest * REPORT_SHARE), count)
        rest -= count(report) if report else 0
    overview = cut_text(overview, max(rest, 16), count)
    return case_block(context.task, overview, program, report), True
