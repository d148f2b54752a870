"""A conversation token by token: what was sampled is never encoded again, and what follows an answer is encoded alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from wmrl_envs.engine import Message
from wmrl_envs.errors import InvalidInput
from wmrl_train.engines.template import Template

TEMPLATES = Path(__file__).parent / "templates"


class ChatFormat:
    """How a model's conversations become token ids.

    Args:
        tokenizer: with a chat template.
        options: keywords of the template, such as `{"enable_thinking": False}`.
        template: a template in place of the tokenizer's: the name of a shipped one ("chatml": that of Qwen and others, which
            keeps every thought where it was said) or a file.

    Attributes:
        stop_ids: any of them ends an answer. end_id: the one that the template puts after an answer.
        rewrites: the template renders earlier turns anew (the stock Qwen3 templates drop past thinking, with
            enable_thinking=False too), so that a conversation cannot be continued token by token: each answer needs a row of
            its own.
    """

    def __init__(self, tokenizer: Any, options: Mapping[str, Any] | None = None, template: str | None = None):
        if template is not None:
            tokenizer = copy(tokenizer)
            tokenizer.chat_template = _read(template)
        self.template, self.tokenizer = Template(tokenizer, options), tokenizer
        self.stop_ids, self.end_id = self.template.stop_ids, self.template.end_id
        self.rewrites = not self.template.keeps_answers()

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Messages and the opening of an answer to them."""
        return self.template.ids(messages)

    def suffix(self, messages: Sequence[Message]) -> list[int]:
        """Ids after an answer: the end of its turn, what is said then, the opening of the next answer."""
        return self.template.suffix(messages)

    def follow(self, answer: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """`suffix`, without the end of the turn where the answer closed it itself."""
        suffix = self.suffix(messages)
        return suffix[1:] if answer and answer[-1] in self.stop_ids and suffix[:1] == [answer[-1]] else suffix


def _read(template: str) -> str:
    shipped = TEMPLATES / f"{template}.jinja"
    path = shipped if shipped.is_file() else Path(template).expanduser()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        names = ", ".join(repr(p.stem) for p in sorted(TEMPLATES.glob("*.jinja")))
        raise InvalidInput(
            f"template={template!r} cannot be read ({error}): expected {names}, or a file with a chat template."
        ) from error
