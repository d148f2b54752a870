"""Agents by name, for `wmrl eval`: `demo`, a model directory, `openai:URL`, `python:module:function`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_train.config import Config, load_config
from wmrl_train.config.imported import FAILURES, imported, place_and_reason
from wmrl_train.evaluation.policies import CallablePolicy, ChatPolicy, EnginePolicy, Policy


@dataclass
class NamedPolicy:
    """A policy, the arguments of the environment it is made for, and how to release it."""

    name: str
    policy: Policy
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    close: Callable[[], None] = lambda: None


def build(
    spec: str,
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    max_new_tokens: int | None = None,
    turns: int | None = None,
    model: str | None = None,
) -> NamedPolicy:
    """The policy a name stands for.

    Args:
        spec: `demo`; `python:module:function` (or a class without arguments, see `CallablePolicy`); `openai:URL` (key in
            OPENAI_API_KEY); a directory with a saved model, or with the checkpoint of a run.
        temperature: of the samples of a model; 0 is greedy.
        top_p: share of the probability that a saved model samples from, in (0, 1].
        max_new_tokens: of an answer of a model.
        turns: programs an episode, announced to a language model (default 4).
        model: name the server knows the model by; needed only where it serves several.

    Raises:
        InvalidInput: no such kind, module, function or directory.
    """
    kind, _, rest = spec.partition(":")
    if kind == "python" and rest:
        return NamedPolicy(spec, CallablePolicy(function_of(rest)))
    if kind == "openai" and rest:
        return _openai(spec, rest, model, temperature, max_new_tokens or 4096, turns or 4)
    if spec in ("demo", "smollm2") or Path(spec).is_dir():
        return _local(spec, temperature, top_p, max_new_tokens, turns)
    raise InvalidInput(
        f"--agent {spec!r}: expected demo, smollm2, openai:URL, python:module:function, or the directory of a saved model; "
        "there is no such directory."
    )


def function_of(path: str) -> Callable[..., Any]:
    """The function of the user's that `module:function` names, imported from the current folder or the installed packages.

    A class stands for an object of it, made without arguments.
    """
    if "" not in sys.path:
        sys.path.append("")  # the user's own modules lie where the command is run, and hide none of the installed ones
    given, expected = f"--agent 'python:{path}'", "python:module:function"
    found = imported(path, given, expected)
    if isinstance(found, type):
        try:
            found = found()
        except FAILURES as error:
            raise InvalidInput(f"{given}: {found.__name__}() raised {place_and_reason(error)}.") from error
    if not callable(found):
        raise InvalidInput(f"{given}: expected a function, got a {type(found).__name__}.")
    return found


def _openai(spec: str, url: str, model: str | None, temperature: float, max_new_tokens: int, turns: int) -> NamedPolicy:
    from wmrl_envs.servers import checked_url
    from wmrl_train.agents.research import ResearchAgent
    from wmrl_train.engines.openai import EXAMPLE, OpenAIEngine, checked_key

    url, key = checked_url(url, f"--agent {spec!r}", EXAMPLE), checked_key(os.environ.get("OPENAI_API_KEY"))
    engine = OpenAIEngine(model or _served_model(url, key), base_url=url, api_key=key)
    policy = ChatPolicy(
        engine,
        ResearchAgent(max_new_tokens=max_new_tokens, max_turns=turns),
        temperature=temperature,
        max_new_tokens=max_new_tokens,
    )
    return NamedPolicy(spec, policy, close=engine.close)


def _served_model(url: str, key: str | None) -> str:
    from wmrl_train.engines.openai import served_models

    try:
        names = [model["id"] for model in served_models(url, key)]
    except InfrastructureError as error:
        raise InfrastructureError(f"{error} Is the server up? Or name the model with --model.") from error
    if len(names) != 1:
        raise InvalidInput(f"The server at {url} serves {len(names)} models ({', '.join(names[:5])}): choose one with --model.")
    return names[0]


def _local(spec: str, temperature: float, top_p: float, max_new_tokens: int | None, turns: int | None) -> NamedPolicy:
    """A saved model in this process, with the settings of its run; a small policy without one has those of `laptop`."""
    from transformers.utils import logging as transformers_logging

    from wmrl_train.agents.brief import known_tasks
    from wmrl_train.agents.program import ProgramAgent
    from wmrl_train.config.environment import env_kwargs
    from wmrl_train.engines.transformers import TransformersEngine

    transformers_logging.disable_progress_bar()
    folder, config = _saved(spec)
    engine = TransformersEngine(*_load(folder, config))
    small = bool(known_tasks(engine.tokenizer))  # made by `wmrl warm-start`, like the demo policy
    if config is None and small:
        config = load_config("laptop")
    tokens = max_new_tokens or (4096 if config is None else config.rollout.max_new_tokens)
    agent: Any
    if small:
        agent = ProgramAgent(engine.tokenizer, tokens)
    else:
        from wmrl_train.agents.research import ResearchAgent

        options = {} if config is None else {"max_turns": config.tasks.max_turns} | config.agent.options
        if turns is not None:
            options["max_turns"] = turns
        agent = ResearchAgent(engine.tokenizer, **options | {"max_new_tokens": tokens})
    policy = EnginePolicy(engine, agent, temperature=temperature, top_p=top_p)
    return NamedPolicy(spec, policy, {} if config is None else env_kwargs(config), engine.close)


def _saved(spec: str) -> tuple[Path, Config | None]:
    """Folder of the weights, and the configuration they were trained with: of a model, of a checkpoint, of the newest one of a
    run.
    """
    from wmrl_train.engines.models import model_path
    from wmrl_train.run.checkpoint import latest

    folder = model_path(spec)
    if (folder / "checkpoints").is_dir():
        folder = latest(folder / "checkpoints").path
    if not (folder / "policy").is_dir():
        return folder, None
    run = folder.parent.parent / "config.yaml"
    return folder / "policy", load_config(run) if run.is_file() else None


def _load(folder: Path, config: Config | None) -> tuple[Any, Any]:
    """Model and tokenizer; adapters on the model they were trained on."""
    from wmrl_train.engines.models import model_path
    from wmrl_train.engines.transformers import load_model

    if not (folder / "adapter_config.json").is_file():
        return load_model(folder)
    if config is None:
        raise InvalidInput(
            f"{folder} holds adapters, and no config.yaml of a run says of which model: give the folder of the run."
        )
    from peft import PeftModel

    model, tokenizer = load_model(model_path(config.policy.model))
    return PeftModel.from_pretrained(model, folder).eval(), tokenizer
