"""A chat template token by token: what was sampled is never encoded again, and what follows an answer is encoded alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wmrl_envs.engine import Message
from wmrl_envs.errors import InvalidInput

_PROBE = "\u2042probe\u2042"  # a text no template contains


class ChatFormat:
    """How a model's conversations become token ids.

    Args:
        tokenizer: with a chat template.
        options: keywords of the template, such as `{"enable_thinking": False}`.

    Attributes:
        stop_ids: any of them ends an answer. end_id: the one that the template puts after an answer.
        rewrites: the template renders earlier turns anew (the stock Qwen3.5 template drops past thinking), so that a conversation
            cannot be continued token by token: each answer needs a row of its own.
    """

    def __init__(self, tokenizer: Any, options: Mapping[str, Any] | None = None):
        if not getattr(tokenizer, "chat_template", None):
            raise InvalidInput(
                "This model has no chat template, so there is no way to talk to it: take an instruction-tuned model, or set "
                "tokenizer.chat_template and save the tokenizer with the model."
            )
        self.tokenizer, self.options = tokenizer, dict(options or {})
        self.stop_ids = _stop_ids(tokenizer)
        self.rewrites = not is_prefix_preserving(tokenizer, self.options)
        first = self.suffix([{"role": "user", "content": "x"}])[0]
        self.end_id: int = first if first in self.stop_ids else self.stop_ids[0]

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Messages and the opening of an answer to them."""
        encoded = self.tokenizer.apply_chat_template(
            _for_template(self.tokenizer, messages), add_generation_prompt=True, tokenize=True, return_dict=True, **self.options
        )
        return list(encoded["input_ids"])

    def suffix(self, messages: Sequence[Message]) -> list[int]:
        """Ids after an answer: the end of its turn, what is said then, the opening of the next answer."""
        before: list[Message] = [{"role": "user", "content": "x"}, {"role": "assistant", "content": _PROBE}]
        text = _text(self.tokenizer, [*before, *messages], self.options)
        return list(self.tokenizer(text.rpartition(_PROBE)[2], add_special_tokens=False)["input_ids"])

    def follow(self, answer: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """`suffix`, without the end of the turn where the answer closed it itself."""
        suffix = self.suffix(messages)
        return suffix[1:] if answer and answer[-1] in self.stop_ids and suffix[:1] == [answer[-1]] else suffix


def is_prefix_preserving(tokenizer: Any, options: Mapping[str, Any] | None = None) -> bool:
    """Whether a conversation rendered later begins with what it was rendered as before, thinking included."""
    messages: list[Message] = [{"role": "user", "content": "task"}]
    for thought, reply in (("", "first"), ("<think>\nwhy\n</think>\n\n", "second"), ("<think>\nhow\n</think>\n\n", "third")):
        so_far = _text(tokenizer, messages, options or {})
        messages += [{"role": "assistant", "content": thought + reply}, {"role": "user", "content": "feedback"}]
        later = _text(tokenizer, messages, options or {})
        if not later.startswith(so_far + thought + reply):
            return False
    return True


def _text(tokenizer: Any, messages: Sequence[Message], options: Mapping[str, Any]) -> str:
    return tokenizer.apply_chat_template(
        _for_template(tokenizer, messages), add_generation_prompt=True, tokenize=False, **options
    )


def _for_template(tokenizer: Any, messages: Sequence[Message]) -> list[Message]:
    """The messages, with the system prompt put in front of the first user message where a template knows no system role."""
    if messages[0]["role"] != "system" or "system" in str(tokenizer.chat_template):
        return list(messages)
    system, first, *rest = messages
    return [{"role": "user", "content": f"{system['content']}\n\n{first['content']}"}, *rest]


def _stop_ids(tokenizer: Any) -> tuple[int, ...]:
    known = [
        tokenizer.eos_token_id,
        *(tokenizer.convert_tokens_to_ids(t) for t in ("<|im_end|>", "<|eot_id|>", "<end_of_turn>")),
    ]
    unknown = getattr(tokenizer, "unk_token_id", None)
    return tuple(dict.fromkeys(i for i in known if i is not None and i != unknown))
