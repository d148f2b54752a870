"""`SimulatorWorldModel`: a language model asked eight single-aspect questions about each program (the paper's world model)."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

from cachetools import LRUCache

from wmrl_envs.context import TaskContext
from wmrl_envs.engine import Engine, Generation, Message, Prompt, Sampling, max_context
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.outcome import Outcome, Solution
from wmrl_envs.world_models.simulator import prompts
from wmrl_envs.world_models.simulator.outcome_of_verdicts import AggregationWeights, aggregate, no_program
from wmrl_envs.world_models.simulator.prompts import ALL_CHECKS, Layout
from wmrl_envs.world_models.simulator.truncate import TokenCounter, fit_case
from wmrl_envs.world_models.simulator.verdict import Verdict, json_schema, parse, unreadable

log = logging.getLogger(__name__)
PROMPT_OVERHEAD = 64  # tokens a chat template adds, at most


class SimulatorWorldModel:
    """Predicts outcomes by prompting an engine; learns nothing.

    All checks of all solutions go out as one batch; a query asked before is answered from memory.

    Args:
        engine: any `wmrl_envs.engine.Engine`.
        checks: which of `ALL_CHECKS` to ask.
        layout: "shared-prefix" (case first; a prefix cache then pays for the case once) or "paper" (check first).
        context_tokens: longest prompt; longer cases are cut by the rule of `truncate.fit_case`. Less if the engine's context is
            shorter.
        max_new_tokens: longest answer.
        temperature: 0 asks for the most probable answer.
        parse_retries: how often an answer that cannot be read is asked for again.
        engine_retries: how often a batch that the engine failed on is tried again before `InfrastructureError` is raised.
        weights: how verdicts become a score.
        installed: distribution -> version named in the prompt; None takes the sandbox's environment.
        hardware: named in the prompt.
        report: gives the verified data report of a task ("" for none), e.g. `data_report.DataReports`.
        cache_size: answers remembered.
    """

    def __init__(
        self,
        engine: Engine,
        checks: Sequence[str] = ALL_CHECKS,
        layout: Layout = "shared-prefix",
        context_tokens: int = 12_288,
        max_new_tokens: int = 1024,
        temperature: float = 0.0,
        parse_retries: int = 1,
        engine_retries: int = 2,
        weights: AggregationWeights | None = None,
        installed: Mapping[str, str] | None = None,
        hardware: str = "CPU only",
        report: Callable[[TaskContext], str] | None = None,
        cache_size: int = 65_536,
    ):
        unknown = [c for c in checks if c not in ALL_CHECKS]
        if unknown or not checks:
            raise InvalidInput(
                f"SimulatorWorldModel(checks={list(checks)!r}): expected one or more of {', '.join(ALL_CHECKS)}."
            )
        if layout not in get_args(Layout):
            raise InvalidInput(f"SimulatorWorldModel(layout={layout!r}): expected one of {', '.join(get_args(Layout))}.")
        for name, value in (("context_tokens", context_tokens), ("max_new_tokens", max_new_tokens)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidInput(f"SimulatorWorldModel({name}={value!r}): expected a whole number of tokens of at least 1.")
        self.engine, self.checks, self.layout = engine, tuple(dict.fromkeys(checks)), layout
        self.max_new_tokens = max_new_tokens
        limit = max_context(engine)
        self.context_tokens = context_tokens if limit is None else min(context_tokens, limit - max_new_tokens)
        if self.context_tokens < 256:
            raise InvalidInput(
                f"The engine's context of {limit} tokens leaves {self.context_tokens} for a prompt after "
                f"max_new_tokens={max_new_tokens}: lower max_new_tokens or take a model with a longer context."
            )
        self.temperature, self.parse_retries, self.engine_retries = temperature, parse_retries, engine_retries
        self.weights = weights or AggregationWeights()
        self.hardware, self.report = hardware, report
        self.statistics: Counter[str] = Counter()
        self._installed = dict(installed) if installed is not None else None
        self._python = "3.11"
        self._count = TokenCounter(getattr(engine, "tokenizer", None))
        self._cache: LRUCache[str, Verdict] = LRUCache(max(cache_size, 0))

    def predict(self, solutions: Sequence[Solution], contexts: Sequence[TaskContext]) -> list[Outcome]:
        """One predicted outcome a solution, in order.

        Raises:
            InfrastructureError: the engine failed on a batch, and on its retries.
        """
        if len(solutions) != len(contexts):
            raise InvalidInput(f"{len(solutions)} solutions with {len(contexts)} contexts: expected one for each solution.")
        asked = [(i, c) for i, s in enumerate(solutions) if s.problem is None for c in self.checks]
        cases = {i: self._case(solutions[i], contexts[i]) for i in dict.fromkeys(i for i, _ in asked)}
        queries = [self._messages(c, contexts[i], cases[i]) for i, c in asked]
        verdicts: list[dict[str, Verdict]] = [{} for _ in solutions]
        for (i, check), verdict in zip(asked, self._ask(queries), strict=True):
            verdicts[i][check] = verdict
        return [
            aggregate(s, c, v, self.weights) if s.problem is None else no_program(s)
            for s, c, v in zip(solutions, contexts, verdicts, strict=True)
        ]

    # ---- prompts ----------------------------------------------------------------------------------------------------
    @property
    def installed(self) -> dict[str, str]:
        """Distribution -> version, as named in the prompt."""
        if self._installed is None:
            from wmrl_envs.world_models.static.index.api import load_index

            index = load_index()
            self._python, self._installed = index.python, dict(index.versions)
        return self._installed

    def _system(self, context: TaskContext) -> str:
        told = dict(package.split("==", 1) for package in context.installed if "==" in package)
        return prompts.system_prompt(self._installed or told or self.installed, self._python, context.timeout_s, self.hardware)

    def _case(self, solution: Solution, context: TaskContext) -> str:
        report = self.report(context) if self.report is not None else ""
        longest = max((prompts.check_block(c) for c in self.checks), key=len)
        budget = self.context_tokens - self._count(self._system(context)) - self._count(longest) - PROMPT_OVERHEAD
        case, cut = fit_case(context, solution.code, report, budget, self._count)
        self.statistics["truncated"] += int(cut)
        return case

    def _messages(self, check: str, context: TaskContext, case: str) -> list[Message]:
        user = prompts.user_prompt(check, case, self.layout)
        return [{"role": "system", "content": self._system(context)}, {"role": "user", "content": user}]

    def _prompt(self, messages: list[Message]) -> Prompt:
        """Messages, or token ids for a tokenizer that has no chat template."""
        tokenizer = getattr(self.engine, "tokenizer", None)
        if tokenizer is None or getattr(tokenizer, "chat_template", "absent") is not None:
            return messages
        text = "\n\n".join(m["content"] for m in messages) + "\n\nJSON: "
        return list(tokenizer.encode(text))

    # ---- asking -----------------------------------------------------------------------------------------------------
    def _ask(self, queries: list[list[Message]]) -> list[Verdict]:
        """A verdict for each query; equal ones are asked once."""
        keys = [self._key(q) for q in queries]
        new: dict[str, list[Message]] = {k: q for k, q in zip(keys, queries, strict=True) if k not in self._cache}
        answers = {k: self._cache[k] for k in set(keys) if k in self._cache}
        self.statistics["queries"] += len(queries)
        self.statistics["cached"] += len(queries) - len(new)
        pending = dict(new)
        for attempt in range(self.parse_retries + 1):
            if not pending:
                break
            made = self._generate(list(pending.values()), attempt)
            failed: dict[str, list[Message]] = {}
            for key, generation in zip(pending, made, strict=True):
                verdict = parse(generation.text)
                if verdict is not None:
                    answers[key] = self._remember(key, verdict)
                else:
                    again: list[Message] = [
                        {"role": "assistant", "content": generation.text[:500]},
                        {"role": "user", "content": prompts.AGAIN},
                    ]
                    failed[key] = [*new[key], *again]
            self.statistics["reasked"] += len(failed) if attempt < self.parse_retries else 0
            pending = failed
        self.statistics["unparsed"] += len(pending)
        for key in pending:
            answers[key] = self._remember(key, unreadable())
        return [answers[k] for k in keys]

    def _generate(self, queries: list[list[Message]], attempt: int) -> list[Generation]:
        sampling = Sampling(self.temperature, 1.0, self.max_new_tokens, schema=json_schema())
        batch = [self._prompt(q) for q in queries]
        seeds = [int.from_bytes(hashlib.sha256(f"{attempt}|{self._key(q)}".encode()).digest()[:7], "big") for q in queries]
        error: Exception | None = None
        for trial in range(self.engine_retries + 1):
            try:
                made = self.engine.generate(batch, sampling, seeds)
                if len(made) != len(batch):
                    raise InfrastructureError(f"the engine gave {len(made)} answers to {len(batch)} prompts")
                if not all(isinstance(getattr(g, "text", None), str) for g in made):
                    raise InfrastructureError("the engine gave an answer without text")
            except InvalidInput:
                raise
            except Exception as failure:  # whatever an engine may raise is a failure of the infrastructure, never of the agent
                error = failure
                self.statistics["engine_failures"] += 1
                log.warning("engine failed on a batch of %d (attempt %d): %s", len(batch), trial + 1, failure)
                continue
            self.statistics["tokens_out"] += sum(len(g.ids) or self._count(g.text) for g in made)
            self.statistics["tokens_in"] += sum(self._count("".join(m["content"] for m in q)) for q in queries)
            self.statistics["generated"] += len(made)
            return list(made)
        raise InfrastructureError(
            f"The world model's engine failed on a batch of {len(batch)} prompts, {self.engine_retries + 1} times in a "
            f"row: {error}"
        ) from error

    def _key(self, query: list[Message]) -> str:
        content = [prompts.VERSION, getattr(self.engine, "version", 0), self.temperature, self.max_new_tokens, query]
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=dict).encode()).hexdigest()

    def _remember(self, key: str, verdict: Verdict) -> Verdict:
        if self._cache.maxsize > 0:
            self._cache[key] = verdict
        return verdict
