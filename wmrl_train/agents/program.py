"""`ProgramAgent`: prompts for the small policy, which completes a one-line comment with a program for the `sklearn` scaffold."""

from __future__ import annotations

from typing import Any

from wmrl_envs.errors import InvalidInput
from wmrl_envs.world_models.base import TaskContext
from wmrl_train.warm_start.brief import Brief, again, prompt
from wmrl_train.warm_start.tokenizer import known_tasks

SUCCESS = "Submission successful"  # the line of the feedback that says that the last program was scored


class ProgramAgent:
    """The agent of the small policy (see `wmrl_train.agents.base.Agent`).

    The prompt is a comment made from the task's context alone, such as `# hpc-job-speed, qwk, ord, num, cat, tabular`; the
    observation text is not read. The completion is the program, to the end token. A later turn is prompted by `# ran, again`
    or `# failed, again`; the conversation so far stays in the context.
    """

    def __init__(self, tokenizer: Any, max_new_tokens: int = 120):
        if tokenizer.eos_token_id is None:
            raise InvalidInput("ProgramAgent: the tokenizer has no end token; expected one made by `wmrl warm-start`.")
        self.max_new_tokens = max_new_tokens
        self.stop_ids: tuple[int, ...] = (tokenizer.eos_token_id,)
        self._tokenizer = tokenizer
        self._known = known_tasks(tokenizer)

    def begin(self, observation: str, context: TaskContext) -> list[int]:
        return self._ids(prompt(Brief.from_context(context), known=context.task in self._known))

    def extend(self, observation: str, completion_ids: tuple[int, ...]) -> list[int]:
        closed = bool(completion_ids) and completion_ids[-1] in self.stop_ids
        return ([] if closed else list(self.stop_ids)) + self._ids(again(failed=SUCCESS not in observation))

    def act(self, text: str) -> str:
        return text

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]
