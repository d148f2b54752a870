"""From a prompt (token ids or chat messages) to the ids an engine continues."""

from __future__ import annotations

from typing import Any

from wmrl_envs.engine import Prompt
from wmrl_envs.errors import InvalidInput
from wmrl_train.engines.template import template_of


def encode(prompt: Prompt, tokenizer: Any, max_context: int) -> list[int]:
    """Token ids of a prompt, with room for at least one token after them.

    Raises:
        InvalidInput: messages for a tokenizer without a chat template, an empty prompt, a prompt that fills the context.
    """
    if len(prompt) and isinstance(prompt[0], dict):
        if not getattr(tokenizer, "chat_template", None):
            raise InvalidInput("This tokenizer has no chat template, so it cannot encode messages; give token ids instead.")
        ids = template_of(tokenizer).ids(prompt)  # type: ignore[arg-type]
    else:
        ids = [int(i) for i in prompt]  # type: ignore[arg-type]
    if not ids:
        raise InvalidInput("generate() got an empty prompt; expected at least one token.")
    if len(ids) >= max_context:
        raise InvalidInput(f"A prompt of {len(ids)} tokens leaves no room in a context of {max_context} tokens.")
    return ids
