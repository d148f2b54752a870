"""The AutoResearch agent (Appendix E): a system prompt of seven segments, the task overview, and the history of attempts.

The wording is ours; the structure is the paper's. A conversation grows by appending ids, so what was sampled is never encoded
again. Chat templates that rewrite earlier turns (the stock Qwen3.5 template drops past thinking) are found at start-up;
then every turn becomes a row of its own, rendered from the messages.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from wmrl_envs.context import TaskContext
from wmrl_envs.engine import Message
from wmrl_envs.envs.parse import extract_code
from wmrl_envs.errors import DataNotBuilt
from wmrl_train.agents.chat import ChatFormat

log = logging.getLogger(__name__)

SEGMENTS = {
    "role": (
        "You are an experienced machine-learning engineer in a competition. You have up to {turns} attempts to reach the "
        "highest Position Score you can. The Position Score is your percentile on the leaderboard, from 0 to 1, and more is "
        "better. Only an attempt whose program runs to its end and leaves a valid submission earns anything."
    ),
    "strategy": (
        "STRATEGY\nFirst get a valid submission: on attempt 1 write the simplest program you are sure of, in exactly the "
        "format asked for. It is your safety net.\nThen improve it step by step: take your last program that worked, keep it "
        "whole, and change one thing. Drop a change that fails or scores lower and try another one. Never begin from nothing "
        "again once something works."
    ),
    "contract": (
        "ENVIRONMENT\nYour program reads its inputs from the folder named by the environment variable DATA_DIR and must write "
        "its submission as CSV to the path named by SUBMISSION_PATH (os.environ['DATA_DIR'], os.environ['SUBMISSION_PATH']). "
        "The data folder is read-only and there is no network. Use no other absolute path; paths such as /kaggle/input do not "
        "exist here. A program is stopped after {timeout_s:g} seconds."
    ),
    "runtime": "RUNTIME\nPython {python} on Linux, {hardware}. {packages}",
    "format": (
        "ANSWER FORMAT\nEvery answer has two parts, in this order.\n1) ANALYSIS: two to four short sentences. Say what went "
        "wrong and the one change that repairs it, or the one change that should raise the score.\n2) CODE: one single "
        "```python block with a complete program that needs nothing from earlier answers."
    ),
    "feedback": (
        "FEEDBACK\nAfter each attempt you are shown what your program printed and, if its submission was valid, its raw score "
        "and its Position Score; otherwise the whole error message."
    ),
    "rules": (
        "RULES\nKeep a valid submission to fall back on, and replace it only by a program that runs and scores higher. The "
        "columns, the number of rows and the ids of the submission must be exactly those asked for. Write efficient code that "
        "ends well within the time limit."
    ),
}
TRIGGER = "Begin with attempt 1."


class ResearchAgent:
    """Whole programs by a chat model (see `wmrl_train.episodes.agent.Agent`).

    Args:
        tokenizer: of the model, with a chat template; None for servers that template themselves (then only `messages` and `act`
            work).
        max_new_tokens: tokens an answer.
        max_turns: attempts announced to the agent.
        timeout_s: limit announced; None takes the task's.
        observation_tokens: longest feedback in the model's own tokens; longer feedback loses its middle.
        installed: library -> version announced; None asks the sandbox's environment.
        hardware: announced.
        template_options: keywords of the chat template, such as `{"enable_thinking": False}`.
        template: a template in place of the model's own: "chatml" (shipped; for Qwen and others of its kind) or a file.

    Attributes:
        one_row_per_turn: the template rewrites earlier turns, so each turn is a row of its own.
    """

    def __init__(
        self,
        tokenizer: Any = None,
        max_new_tokens: int = 4096,
        *,
        max_turns: int = 4,
        timeout_s: float | None = None,
        observation_tokens: int = 1024,
        installed: Mapping[str, str] | None = None,
        hardware: str = "CPU only",
        template_options: Mapping[str, Any] | None = None,
        template: str | None = None,
    ):
        self.max_new_tokens = max_new_tokens
        self.stop_ids: tuple[int, ...] = ()
        self.one_row_per_turn = False
        self._tokenizer, self._max_turns, self._timeout_s = tokenizer, max_turns, timeout_s
        self._observation_tokens, self._installed, self._hardware = observation_tokens, installed, hardware
        if tokenizer is None:
            return
        self._chat = ChatFormat(tokenizer, template_options, template)
        self.stop_ids, self.one_row_per_turn = self._chat.stop_ids, self._chat.rewrites
        if self.one_row_per_turn:
            log.warning(
                "This chat template rewrites earlier turns, so a conversation cannot be continued token by token: every turn "
                "becomes a row of its own. A template that keeps them trains faster: agent.options.template=chatml for Qwen "
                "and others of its kind, or a file of your own."
            )

    # -- the prompt --------------------------------------------------------------------------------------------------
    def system_prompt(self, context: TaskContext) -> str:
        """The seven segments, filled in."""
        packages = self._packages()
        listed = ", ".join(f"{name} {version}" for name, version in sorted(packages.items()))
        values = {
            "turns": self._max_turns, "timeout_s": self._timeout_s or context.timeout_s, "python": "3.11",
            "hardware": self._hardware,
            "packages": f"Installed: {listed}. Nothing else "
            f"is installed." if listed else "Use the standard scientific libraries.",
        }  # fmt: skip
        return "\n\n".join(segment.format(**values) for segment in SEGMENTS.values())

    def messages(self, observation: str, context: TaskContext) -> list[Message]:
        """The opening of a conversation: system prompt, then the overview and the trigger."""
        return [
            {"role": "system", "content": self.system_prompt(context)},
            {"role": "user", "content": f"{observation}\n\n{TRIGGER}"},
        ]

    def begin(self, observation: str, context: TaskContext) -> list[int]:
        return self._chat.encode(self.messages(observation, context))

    def extend(self, observation: str, completion_ids: tuple[int, ...]) -> list[int]:
        return self._chat.follow(completion_ids, [{"role": "user", "content": self._cap(observation)}])

    def render(self, observations: Sequence[str], texts: Sequence[str], context: TaskContext) -> list[int]:
        """The prompt of the next turn rendered from the messages, for templates that rewrite the past."""
        messages = self.messages(observations[0], context)
        for text, observation in zip(texts, observations[1:], strict=True):
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": self._cap(observation)}]
        return self._chat.encode(messages)

    def act(self, text: str) -> str:
        """The program in an answer; an answer without one goes to the environment as it is, which says so."""
        return extract_code(text) or text

    # -- inside ------------------------------------------------------------------------------------------------------
    def _packages(self) -> Mapping[str, str]:
        if self._installed is None:
            from wmrl_envs.world_models.static.index.api import load_index

            try:
                self._installed = dict(load_index(None).versions)
            except DataNotBuilt:  # no sandbox on this machine: nothing is known about what runs the programs
                self._installed = {}
        return self._installed

    def _cap(self, observation: str) -> str:
        ids = self._tokenizer(observation, add_special_tokens=False)["input_ids"]
        if len(ids) <= self._observation_tokens:
            return observation
        half = max(1, (self._observation_tokens - 8) // 2)
        head, tail = self._tokenizer.decode(ids[:half]), self._tokenizer.decode(ids[-half:])
        return f"{head}\n[...]\n{tail}"
