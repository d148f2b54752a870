"""Options that a part of a run is given: checked before it is made."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

from wmrl_envs.errors import InvalidInput


def known_options(receiver: type, key: str, options: dict[str, Any]) -> dict[str, Any]:
    """`options`, once each is known to be an argument of `receiver`, which does not see them before a run is under way."""
    try:
        names = list(inspect.signature(receiver).parameters)
    except (TypeError, ValueError):  # a class of the user's that is written in C
        raise InvalidInput(f"{key}: {receiver.__name__} does not say which arguments it takes.") from None
    for name in options:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean '{key}.{near[0]}'?" if near else f"expected one of {', '.join(names)}."
            raise InvalidInput(f"Unknown configuration key '{key}.{name}': {hint}")
    return options
