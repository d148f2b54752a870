"""`ProgramAgent`: prompts for the small policy, which completes a one-line comment with a program for the `sklearn`
scaffold.
"""

from __future__ import annotations

from typing import Any

from wmrl_envs.context import TaskContext
from wmrl_envs.errors import InvalidInput
from wmrl_envs.execution.recorded.bank import ExecutionBank
from wmrl_train.agents.brief import Brief, again, known_tasks, prompt
from wmrl_train.episodes.trie import Trie

SUCCESS = "Submission successful"  # the line of the feedback that says that the last program was scored


class ProgramAgent:
    """The agent of the small policy (see `wmrl_train.episodes.agent.Agent`).

    The prompt is a comment made from the task's context alone, such as `# hpc-job-speed, qwk, ord, num, cat, tabular`; the
    observation text is not read. The completion is the program, to the end token. A later turn is prompted by `# ran, again`
    or `# failed, again`; the conversation so far stays in the context.

    Args:
        tokenizer: of the policy. max_new_tokens: longest program.
        programs: an execution bank (its file); the policy then writes only programs of it (see `wmrl_train.episodes.trie`).
    """

    def __init__(self, tokenizer: Any, max_new_tokens: int = 120, programs: str | None = None):
        if tokenizer.eos_token_id is None:
            raise InvalidInput("ProgramAgent: the tokenizer has no end token; expected one made by `wmrl warm-start`.")
        self.max_new_tokens = max_new_tokens
        self.stop_ids: tuple[int, ...] = (tokenizer.eos_token_id,)
        self._tokenizer = tokenizer
        self._known = known_tasks(tokenizer)
        self._tries: dict[str, Trie] = {}
        if programs is not None:
            self._bank = ExecutionBank(programs)
            self.trie = self._trie

    def begin(self, observation: str, context: TaskContext) -> list[int]:
        return self._ids(prompt(Brief.from_context(context), known=context.task in self._known))

    def extend(self, observation: str, completion_ids: tuple[int, ...]) -> list[int]:
        closed = bool(completion_ids) and completion_ids[-1] in self.stop_ids
        return ([] if closed else list(self.stop_ids)) + self._ids(again(failed=SUCCESS not in observation))

    def act(self, text: str) -> str:
        return text

    def _trie(self, context: TaskContext) -> Trie:
        """The programs of the bank for this task, as token ids that end with the end token."""
        if context.task not in self._tries:
            programs = self._tokenizer(self._bank.programs(context.task), add_special_tokens=False)["input_ids"]
            short = [[*ids, self.stop_ids[0]] for ids in programs if len(ids) < self.max_new_tokens]
            if not short:
                raise InvalidInput(
                    f"No program of {context.task} in {self._bank.where} has fewer than {self.max_new_tokens} tokens: raise "
                    "rollout.max_new_tokens."
                )
            self._tries[context.task] = Trie(short)
        return self._tries[context.task]

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]
