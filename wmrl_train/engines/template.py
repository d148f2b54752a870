"""`Template`: a model's chat template, tried out instead of searched for words, and safe for foreign text.

One place for agents, world models and fine-tuning. Two things are found out by rendering: whether the template takes a system
message (else it is put in front of the first user message), and what it puts after an answer. Text of an agent, of a program's
output or of a data set never becomes a control token: where it spells one, the ids are those of its characters.
"""

from __future__ import annotations

import json
import logging
import re
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wmrl_envs.engine import Message
from wmrl_envs.errors import InvalidInput

log = logging.getLogger(__name__)

PROBE = "\u2042probe\u2042"  # a text no template contains
_HIDDEN = 0xF0000  # private-use characters that stand for control tokens spelled in foreign text, while a template is rendered


class Template:
    """A chat template with its tokenizer.

    Args:
        tokenizer: with a chat template.
        options: keywords of the template, such as `{"enable_thinking": False}`.
        ends: further ids that end an answer, such as the model's own `generation_config.eos_token_id`.

    Attributes:
        takes_system: it has a place for a system message.
        stop_ids: any of them ends an answer: the tokenizer's end token, those of the model's generation_config.json, and what
            the template itself puts after an answer, if that is a control token.
        end_id: the one that the template puts after an answer.

    Raises:
        InvalidInput: there is no template, it fails to render, or nothing ends an answer.
    """

    def __init__(self, tokenizer: Any, options: Mapping[str, Any] | None = None, ends: Sequence[int] = ()):
        if not getattr(tokenizer, "chat_template", None):
            raise InvalidInput(
                "This model has no chat template, so there is no way to talk to it: take an instruction-tuned model, or set "
                "tokenizer.chat_template and save the tokenizer with the model."
            )
        self.tokenizer, self.options, self.source = tokenizer, dict(options or {}), tokenizer.chat_template
        self._spelled = _control_tokens(tokenizer)
        self.takes_system = self._takes_system()
        suffix = self.suffix([{"role": "user", "content": "x"}])
        first = suffix[0] if suffix else None
        closing = [first] if first is not None and first in tokenizer.added_tokens_decoder else []
        own = [tokenizer.eos_token_id, *_generation_ends(tokenizer), *ends, *closing]
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys(int(i) for i in own if i is not None))
        if not self.stop_ids:
            raise InvalidInput(
                "Nothing ends an answer of this model: its tokenizer has no eos_token, its folder no generation_config.json "
                "with eos_token_id, and its chat template puts no control token after an answer. Set tokenizer.eos_token and "
                "save it."
            )
        self.end_id: int = first if first in self.stop_ids else self.stop_ids[0]
        if first not in self.stop_ids:
            log.warning(
                "The chat template puts %r after an answer, which is no token that ends one; answers end with %s.",
                tokenizer.decode(suffix[:1]) if suffix else "nothing",
                ", ".join(repr(tokenizer.convert_ids_to_tokens(i)) for i in self.stop_ids),
            )

    def text(self, messages: Sequence[Mapping[str, Any]], *, opening: bool = True) -> str:
        """Messages rendered, with the opening of an answer; control tokens in their contents are hidden (`ids` shows them)."""
        hidden = [{**m, "content": self._hide(str(m["content"]))} for m in self._placed(messages)]
        return self._render(hidden, opening)

    def ids(self, messages: Sequence[Mapping[str, Any]], *, opening: bool = True) -> list[int]:
        """Token ids of messages and the opening of an answer to them."""
        return self._encode(self.text(messages, opening=opening))

    def plain(self, text: str) -> list[int]:
        """Ids of foreign text by itself: no control token among them."""
        return self._encode(self._hide(text))

    def suffix(self, messages: Sequence[Message]) -> list[int]:
        """Ids after an answer: the end of its turn, what is said then, the opening of the next answer."""
        before: list[Mapping[str, Any]] = [{"role": "user", "content": "x"}, {"role": "assistant", "content": PROBE}]
        return self._encode(self.text([*before, *messages]).rpartition(PROBE)[2])

    def keeps_answers(self) -> bool:
        """Whether a conversation rendered later begins with what it was rendered as before, thinking included."""
        messages: list[Mapping[str, Any]] = [{"role": "user", "content": "task"}]
        for thought, reply in (
            ("", "first"),
            ("<think>\nwhy\n</think>\n\n", "second"),
            ("<think>\nhow\n</think>\n\n", "third"),
        ):
            so_far = self.text(messages)
            messages += [{"role": "assistant", "content": thought + reply}, {"role": "user", "content": "feedback"}]
            if not self.text(messages).startswith(so_far + thought + reply):
                return False
        return True

    # -- inside ------------------------------------------------------------------------------------------------------
    def _takes_system(self) -> bool:
        try:
            shown = self._apply([{"role": "system", "content": PROBE}, {"role": "user", "content": "x"}], True)
        except Exception:  # templates say no in their own ways
            return False
        return PROBE in shown

    def _placed(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The messages, with the system prompt put in front of the first user message where the template has no place for
        it.
        """
        listed = [dict(m) for m in messages]
        if self.takes_system or len(listed) < 2 or listed[0]["role"] != "system":
            return listed
        system, first, *rest = listed
        return [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *rest]

    def _render(self, messages: Sequence[Mapping[str, Any]], opening: bool) -> str:
        try:
            return self._apply(messages, opening)
        except Exception as error:  # a template is a program of the model's maker
            raise InvalidInput(
                f"The model's chat template cannot render a conversation of {', '.join(str(m['role']) for m in messages)} "
                f"({type(error).__name__}: {' '.join(str(error).split())}): mend tokenizer.chat_template, or take another one."
            ) from error

    def _apply(self, messages: Sequence[Mapping[str, Any]], opening: bool) -> str:
        return self.tokenizer.apply_chat_template(list(messages), add_generation_prompt=opening, tokenize=False, **self.options)

    def _hide(self, text: str) -> str:
        text = re.sub(f"[{chr(_HIDDEN)}-{chr(_HIDDEN + 0xFFFD)}]", "\ufffd", text)
        for number, spelled in enumerate(self._spelled):
            if spelled in text:
                text = text.replace(spelled, chr(_HIDDEN + number))
        return text

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in re.split(f"([{chr(_HIDDEN)}-{chr(_HIDDEN + 0xFFFD)}])", text):
            number = ord(piece) - _HIDDEN if len(piece) == 1 else -1
            if 0 <= number < len(self._spelled):
                ids += self._characters(self._spelled[number])
            elif piece:
                ids += self.tokenizer(piece, add_special_tokens=False)["input_ids"]
        return ids

    def _characters(self, spelled: str) -> list[int]:
        """A control token's text as ordinary tokens."""
        ids: list[int] = []
        for part in (spelled[:1], spelled[1:]):  # no control token is left in either part
            ids += self.tokenizer(part, add_special_tokens=False)["input_ids"] if part else []
        return ids


_KNOWN: weakref.WeakKeyDictionary[Any, Template] = weakref.WeakKeyDictionary()


def template_of(tokenizer: Any) -> Template:
    """The template of a tokenizer without options; tried out once."""
    known = _KNOWN.get(tokenizer)
    if known is None or known.source != tokenizer.chat_template:
        known = _KNOWN[tokenizer] = Template(tokenizer)
    return known


def _control_tokens(tokenizer: Any) -> list[str]:
    """Texts that the tokenizer reads as control tokens, longest first."""
    added = {t.content for t in tokenizer.added_tokens_decoder.values() if t.special}
    return sorted(added | set(tokenizer.all_special_tokens), key=lambda text: (-len(text), text))


def _generation_ends(tokenizer: Any) -> list[int]:
    """`eos_token_id` of the generation_config.json in the model's folder; none where there is no such file."""
    try:
        found = json.loads((Path(tokenizer.name_or_path) / "generation_config.json").read_text(encoding="utf-8"))
        ends = found.get("eos_token_id")
    except (OSError, ValueError, AttributeError, TypeError):
        return []
    ends = ends if isinstance(ends, list) else [ends]
    return [i for i in ends if isinstance(i, int) and not isinstance(i, bool)]
