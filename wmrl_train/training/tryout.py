"""Try-outs before the first step: what would end a run in its tenth hour is found in its first minute."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.engine import Sampling
from wmrl_envs.envs.executable import ExecutableEnv
from wmrl_envs.errors import InvalidInput, WmrlError
from wmrl_train.config import Config
from wmrl_train.episodes.agent import Agent, restriction
from wmrl_train.episodes.records import Row
from wmrl_train.episodes.seeds import seed_of

log = logging.getLogger(__name__)

_TOKENS = 8
#: Largest difference of a token's log-probability between sampler and learner, nats: rounding of the dtype, and room.
_TOLERANCE = {"float32": 0.02, "bfloat16": 0.7}


def prompts_that_fit(
    agent: Agent, make_env: Callable[[str], ExecutableEnv], tasks: Sequence[str], limit: int, too_long: str
) -> dict[str, tuple[list[int], Any]]:
    """Task -> (ids of its first prompt, context), of the tasks whose first prompt leaves room in the context.

    Args:
        agent: writes the prompts.
        make_env: task -> environment.
        tasks: to train on.
        limit: tokens of prompt and completion together.
        too_long: "refuse" raises for those that do not fit, "skip" leaves them out.

    Raises:
        InvalidInput: prompts that do not fit, all named at once; or none fits.
    """
    found: dict[str, tuple[list[int], Any]] = {}
    for task in dict.fromkeys(tasks):
        env = make_env(task)
        try:
            observation, _ = env.reset(seed=0)
            context = env.context()
            found[task] = agent.begin(observation, context), context
        finally:
            env.close()
    long = {task: len(ids) for task, (ids, _) in found.items() if len(ids) >= limit}
    if long and (too_long == "refuse" or len(long) == len(found)):
        listed = ", ".join(f"{task} ({length})" for task, length in long.items())
        raise InvalidInput(
            f"The first prompts of {len(long)} of {len(found)} tasks do not fit a context of {limit} tokens: {listed}. Raise "
            "rollout.max_context, take a model with a longer context, or leave them out with tasks.too_long=skip."
        )
    if long:
        log.warning("tasks.too_long=skip leaves out %d tasks whose prompts do not fit: %s", len(long), ", ".join(long))
    return {task: entry for task, entry in found.items() if task not in long}


def sampler_is_learner(engine: Any, learner: Any, agent: Agent, prompt: list[int], context: Any, config: Config) -> None:
    """A short sample has, under the learner, the log-probabilities that the sampler gave it.

    Raises:
        InvalidInput: it has not, or this model cannot be sampled: a cache of another kind, a model that computes differently
            token by token, weights that are not the policy's.
    """
    sampling = Sampling(config.rollout.temperature or 1.0, 1.0, _TOKENS, stop_ids=agent.stop_ids)
    name = type(getattr(engine, "model", None) or config.policy.model).__name__
    try:
        (made,) = engine.generate([prompt], sampling, [seed_of(config.run.seed, 5)], **restriction(agent, [context]))
        row = Row()
        row.add(prompt)
        row.add(made.ids, made.logprobs, made.choices)
        if not row.n_sampled:
            return
        theirs = np.array(row.logprobs)[np.array(row.sampled)]
        ours = learner.logprobs(row).float().cpu().numpy()
    except WmrlError:
        raise
    except Exception as error:  # whatever a model's own code says
        raise InvalidInput(
            f"A try-out sample of the policy failed in {name} ({type(error).__name__}: {' '.join(str(error).split())[:200]}): "
            "this architecture cannot be sampled and trained here; take one with an attention cache, or policy.engine=vllm."
        ) from error
    worst, allowed = float(np.abs(ours - theirs).max()), _TOLERANCE[config.policy.dtype]
    if not worst <= allowed:  # NaN too
        raise InvalidInput(
            f"A try-out sample has other log-probabilities under the learner than under the sampler (they differ by up to "
            f"{worst:.3g} nats, {allowed} is rounding): {name} would be trained on samples of another policy."
        )


def room_for_checkpoints(folder: Path, model: Any, save: int = 2) -> None:
    """Disk for `save` checkpoints: the weights, and two moments of what is trained.

    Raises:
        InvalidInput: there is less.
    """
    parameters = list(model.parameters())
    trained = sum(p.numel() for p in parameters if p.requires_grad)
    weights = trained if len({p.requires_grad for p in parameters}) == 2 else sum(p.numel() for p in parameters)
    needed = save * (weights * 4 + 2 * trained * 4)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise InvalidInput(
            f"{folder} has {free / 2**20:.0f} MiB free, and {save} checkpoints of this policy take about "
            f"{needed / 2**20:.0f} MiB: "
            "make room, or choose another run.dir."
        )


def try_out_text(
    config: Config, engine: Any, agent: Agent, make_env: Callable[[str], ExecutableEnv], tasks: Sequence[str]
) -> Callable[[Any], None]:
    """What a trainer of language runs before its first step; it may leave tasks out of the trainer's."""

    def try_out(trainer: Any) -> None:
        limit = min(config.rollout.max_context or 2**31, getattr(engine, "max_context", None) or 2**31)
        prompts = prompts_that_fit(agent, make_env, tasks, limit, config.tasks.too_long)
        trainer.parts = replace(trainer.parts, tasks=[task for task in tasks if task in prompts])
        room_for_checkpoints(trainer.run_dir.path, trainer.parts.model)
        if trainer.learner.ranks.size == 1:
            prompt, context = min(prompts.values(), key=lambda entry: len(entry[0]))
            sampler_is_learner(engine, trainer.learner, agent, prompt, context, config)

    return try_out
