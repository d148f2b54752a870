"""Where people read: a console and warnings that show control characters of foreign text instead of obeying them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from wmrl_envs.text import visible


class Terminal(Console):
    """A rich console; what text is printed on it passes `visible`, however deep in a table it stands."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


class VisibleFormatter(logging.Formatter):
    """Log records whose text passes `visible`."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def log_warnings(console: Console) -> None:
    """Show warnings of this process on a console."""
    from rich.logging import RichHandler

    handler = RichHandler(console=console, show_path=False)
    handler.setFormatter(VisibleFormatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
