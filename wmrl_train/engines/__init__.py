"""Engines: where completions come from. `make_engine` picks one by name; each is imported when it is asked for."""

from __future__ import annotations

from typing import Any

from wmrl_envs.engine import Engine
from wmrl_envs.errors import InvalidInput

ENGINES = ("transformers", "vllm", "openai")


def make_engine(name: str, model: str, **options: Any) -> Engine:
    """An engine by name: "transformers" (in this process), "vllm" (in this process, GPU), "openai" (any compatible server).

    Args:
        name: one of `ENGINES`.
        model: a model directory; for "openai" the name the server knows it by.
        **options: of the engine's constructor.
    """
    if name == "transformers":
        from wmrl_train.engines.transformers import TransformersEngine

        return TransformersEngine.from_pretrained(model, **options)
    if name == "vllm":
        from wmrl_train.engines.vllm import VllmEngine

        return VllmEngine(model, **options)
    if name == "openai":
        from wmrl_train.engines.openai import OpenAIEngine

        return OpenAIEngine(model, **options)
    raise InvalidInput(f"Unknown engine {name!r}: expected one of {', '.join(ENGINES)}.")
