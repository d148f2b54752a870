"""Options that belong to one kind of job: given for another, they are refused instead of ignored."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from wmrl_envs.errors import InvalidInput


def refuse_options(context: typer.Context, names: Iterable[str], why: str) -> None:
    """Raise `InvalidInput` ("--NAME" and `why`) if one of these parameters was given on the command line."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InvalidInput(f"--{name.replace('_', '-')} {why}")
