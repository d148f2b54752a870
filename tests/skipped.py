"""`python -m tests.skipped FILE`: what the runs of pytest that wrote FILE have skipped, and why (`tests/conftest.py`)."""

import sys
from collections import Counter
from pathlib import Path


def report(lines: list[str]) -> list[str]:
    """The reasons, each once, with how many tests it kept from running.

    >>> report(["2\\tno browser", "1\\tno Docker", "3\\tno browser"])
    ['6 tests were skipped:', '  5: no browser', '  1: no Docker']
    """
    counts: Counter[str] = Counter()
    for line in lines:
        count, _, reason = line.partition("\t")
        counts[reason] += int(count)
    if not counts:
        return ["Nothing was skipped."]
    return [f"{counts.total()} tests were skipped:", *(f"  {count}: {reason}" for reason, count in counts.most_common())]


if __name__ == "__main__":
    print("\n".join(report(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines())))
