"""Is a submission too good to be honest? (work in progress: hard rows follow)"""

from __future__ import annotations

from typing import Any


def hard_rows(*_: Any) -> None:
    """No rows are marked yet."""
    return None
