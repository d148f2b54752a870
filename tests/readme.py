"""The README's code blocks, for the tests that run them."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def journey(number: int) -> tuple[str, str]:
    """Language and code of the block of a journey, unchanged."""
    found = re.search(rf"\*\*{number}\. .*?```(\w+)\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found, f"the README has no journey {number}"
    return found[1], found[2]
