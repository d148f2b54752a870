"""From a configuration to the parts of a trainer: model, engine, agent, tasks, sandbox, world model, evaluation."""

from __future__ import annotations

import difflib
import inspect
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from wmrl_envs.engine import Engine, Generation, Prompt, Sampling
from wmrl_envs.envs.mle_dojo import MLEDojoEnv
from wmrl_envs.errors import InvalidInput, WmrlError
from wmrl_envs.execution.base import ExecutionLimits, Sandbox
from wmrl_envs.tasks.choose import choose_tasks
from wmrl_envs.world_models.protocols import OutcomeModel
from wmrl_train.config import Config, TasksConfig
from wmrl_train.config.imported import FAILURES, imported, reason
from wmrl_train.engines.models import check_model, model_path
from wmrl_train.episodes.agent import Agent
from wmrl_train.learn.learner import Learner
from wmrl_train.learn.ranks import Ranks
from wmrl_train.training.trainer import Parts

log = logging.getLogger(__name__)


def build(config: Config, ranks: Ranks | None = None) -> Parts:
    """Everything `config` names, with a learner over all `ranks`. Nothing is left running if a part fails.

    Raises:
        InvalidInput, DataNotBuilt, MissingExtra, IsolationError: one sentence on what is wrong and how to fix it.
    """
    if config.agent.name == "vla":
        raise InvalidInput(
            "agent.name=vla is not trained by this trainer: see wmrl_train.vla_run, `wmrl train libero` or `wmrl grpo`."
        )
    path = check_model(config.policy.model)  # before anything slow is imported or started
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    train = resolve_tasks(config.tasks, config.tasks.train, "tasks.train")
    held_out = resolve_tasks(config.tasks, config.tasks.held_out, "tasks.held_out") if config.eval.held_out else []
    with ExitStack() as undo:
        model, tokenizer, engine = _policy(config, path)
        undo.callback(engine.close)
        agent = _agent(config, tokenizer)
        sandbox = _sandbox(config)
        undo.callback(sandbox.close)
        kwargs = _known_options(MLEDojoEnv, "tasks.options", env_kwargs(config)) | {"sandbox": sandbox}
        workers = config.execution.workers or sandbox.slots
        world_model = _world_model(config, model, tokenizer, engine)
        evaluate = _evaluation(config, engine, agent, {"train": train, "held_out": held_out}, kwargs, workers)
        undo.pop_all()
    from wmrl_train.evaluation.attempts import make_env

    return Parts(
        model, tokenizer, engine, agent, lambda task: make_env(task, **kwargs), world_model, train, evaluate, workers,
        close=[engine.close, sandbox.close], make_learner=_make_learner(ranks or Ranks()),
    )  # fmt: skip


def _make_learner(ranks: Ranks) -> Callable[[Any, Config], Learner]:
    if ranks.size == 1:
        return Learner.from_config
    from wmrl_train.learn.sharded import ShardedLearner

    return partial(ShardedLearner.from_config, ranks=ranks)


def resolve_tasks(config: TasksConfig, wanted: str | Sequence[str], key: str) -> list[str]:
    """Slugs of prepared tasks (see `choose_tasks`); how many of a split are left out is in the log."""
    prepared, missing = choose_tasks(wanted, config.data_dir, config.source, key)
    if missing:
        log.warning("%s: %d tasks of %r are not prepared and are left out (`wmrl tasks prepare`).", key, len(missing), wanted)
    return prepared


def env_kwargs(config: Config) -> dict[str, Any]:
    """Keyword arguments of the environments, the sandbox apart."""
    tasks, execution = config.tasks, config.execution
    return {
        "data_dir": tasks.data_dir, "max_turns": tasks.max_turns, "reward_mode": tasks.reward_mode, "scaffold": tasks.scaffold,
        "observation_tokens": tasks.observation_tokens, "max_rows": tasks.max_rows, "timeout_s": execution.timeout_s,
        "limits": ExecutionLimits(timeout_s=execution.timeout_s, memory_mb=execution.memory_mb), **tasks.options,
    }  # fmt: skip


def load_policy(config: Config, device: str) -> tuple[Any, Any]:
    """The policy and its tokenizer; equal on every process, new adapters included."""
    import torch

    from wmrl_train.engines.transformers import load_model

    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    torch.manual_seed(config.run.seed)
    policy = config.policy
    # Weights stay float32 also for dtype bfloat16 (autocast): a learning rate of 1e-6 would vanish in bfloat16 weights.
    model, tokenizer = load_model(check_model(policy.model), device=device)
    if policy.lora is not None:
        from peft import LoraConfig, get_peft_model

        lora = LoraConfig(
            r=policy.lora.r, lora_alpha=policy.lora.alpha, lora_dropout=policy.lora.dropout,
            target_modules=policy.lora.target_modules, task_type="CAUSAL_LM",
        )  # fmt: skip
        model = get_peft_model(model, lora).eval()
    return model, tokenizer


def _policy(config: Config, path: Path) -> tuple[Any, Any, Engine]:
    from wmrl_train.engines import make_engine
    from wmrl_train.engines.transformers import TransformersEngine

    policy = config.policy
    model, tokenizer = load_policy(config, policy.device)
    engine: Engine
    if policy.replicas is not None:
        from wmrl_train.engines.ray import RayEngine

        options = {"dtype": policy.dtype} | policy.engine_options
        placement: dict[str, Any] = {"workers": policy.replicas, "gpus": policy.replica_gpus}
        engine = RayEngine(policy.engine, str(path), tokenizer, options=options, **placement)
    elif policy.engine == "transformers":
        given = _known_options(TransformersEngine, "policy.engine_options", policy.engine_options)
        engine = TransformersEngine(model, tokenizer, **({"batch_size": config.rollout.batch_size} | given))
    else:
        engine = make_engine(policy.engine, str(path), **({"dtype": policy.dtype} | policy.engine_options))
    return model, tokenizer, engine


def _agent(config: Config, tokenizer: Any) -> Agent:
    options: dict[str, Any] = {"max_new_tokens": config.rollout.max_new_tokens} | config.agent.options
    if config.agent.name == "program":
        from wmrl_train.agents.program import ProgramAgent

        return ProgramAgent(tokenizer, **_known_options(ProgramAgent, "agent.options", options))
    from wmrl_train.agents.research import ResearchAgent

    options = {"max_turns": config.tasks.max_turns, "timeout_s": config.execution.timeout_s} | options
    return ResearchAgent(tokenizer, **_known_options(ResearchAgent, "agent.options", options))


def _sandbox(config: Config) -> Sandbox:
    from wmrl_envs import execution

    settings = config.execution
    kinds = {"docker": "DockerSandbox", "ray": "RaySandbox", "replay": "ReplaySandbox"}
    receiver = getattr(execution, kinds.get(settings.sandbox, "ProcessSandbox"))
    options = _known_options(receiver, "execution.options", settings.options)
    cache: Any = "read-write" if settings.cache else "off"
    return execution.make_sandbox(settings.sandbox, cache=cache, store=settings.store, **options)


def _world_model(config: Config, model: Any, tokenizer: Any, engine: Engine) -> OutcomeModel | None:
    settings = config.world_model
    if settings.kind == "none":
        return None
    if settings.kind == "static":
        from wmrl_envs.world_models.static.model import StaticWorldModel

        return StaticWorldModel(**_known_options(StaticWorldModel, "world_model.options", settings.options))
    if settings.kind == "ensemble":
        from wmrl_envs.world_models.ensemble import EnsembleWorldModel

        each = [config.model_copy(update={"world_model": member}) for member in settings.members]
        members = [_world_model(one, model, tokenizer, engine) for one in each]
        given = _known_options(EnsembleWorldModel, "world_model.options", settings.options)
        return EnsembleWorldModel([m for m in members if m is not None], **given)
    if ":" in settings.kind:
        return _own_world_model(settings.kind, settings.options)
    from wmrl_envs.world_models.simulator.model import SimulatorWorldModel
    from wmrl_train.engines import make_engine

    options = _known_options(SimulatorWorldModel, "world_model.options", settings.options)
    own = config.policy.engine == "transformers" and config.policy.replicas is None  # the learner's own weights
    if settings.engine == "policy" and config.policy.lora is not None and own:
        return SimulatorWorldModel(FrozenBase(engine, model), **options)  # one set of weights, three roles
    kind = config.policy.engine if settings.engine == "policy" else settings.engine
    name = settings.model or config.policy.model
    frozen = make_engine(kind, name if kind == "openai" else str(model_path(name)), **settings.engine_options)
    return SimulatorWorldModel(frozen, **options)


def _own_world_model(name: str, options: dict[str, Any]) -> OutcomeModel:
    """The user's world model `package.module:Class`, made with its options."""
    given, expected = f"world_model.kind={name!r}", "package.module:Class, a class with a method predict"
    cls: Any = imported(name, given, expected)
    if not (inspect.isclass(cls) and callable(getattr(cls, "predict", None))):
        raise InvalidInput(f"{given} is no world model ({type(cls).__name__}): expected {expected}.")
    known = _known_options(cls, "world_model.options", options)
    try:
        made: Any = cls(**known)
    except WmrlError:
        raise
    except FAILURES as error:
        raise InvalidInput(f"{given} could not be made with its options ({reason(error)}): see world_model.options.") from error
    return made


def _known_options(receiver: type, key: str, options: dict[str, Any]) -> dict[str, Any]:
    """`options`, once each is known to be an argument of `receiver`, which does not see them before a run is under way."""
    try:
        names = list(inspect.signature(receiver).parameters)
    except (TypeError, ValueError):  # a class of the user's that is written in C
        raise InvalidInput(f"{key}: {receiver.__name__} does not say which arguments it takes.") from None
    for name in options:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean '{key}.{near[0]}'?" if near else f"expected one of {', '.join(names)}."
            raise InvalidInput(f"Unknown configuration key '{key}.{name}': {hint}")
    return options


class FrozenBase:
    """The base model under a LoRA policy as an engine: the same weights, with the adapters switched off."""

    def __init__(self, engine: Any, model: Any):
        self._engine, self._model = engine, model
        self.tokenizer, self.version = engine.tokenizer, 0
        self.max_context = engine.max_context

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int] | None = None) -> list[Generation]:
        """As the engine's, without the adapters. Not to be called while the policy itself generates."""
        with self._engine.lock, self._model.disable_adapter():
            return self._engine.generate(prompts, sampling, seeds)

    def update_weights(self, weights: Iterable[tuple[str, Any]] = ()) -> None:
        raise InvalidInput("The base under the adapters is frozen: it takes no weights.")

    def close(self) -> None:
        self._engine.close()


def _evaluation(
    config: Config, engine: Engine, agent: Agent, splits: dict[str, list[str]], kwargs: dict[str, Any], workers: int
) -> Callable[[int], dict[str, Any]] | None:
    """Step -> {split: {"avg", "low", "high", "best", "valid", "tasks", "by_task"}}; always the same seeds, so that before and after pair up."""
    if config.eval.k == 0:
        return None

    def evaluate(step: int) -> dict[str, Any]:
        from wmrl_train.evaluation.attempts import evaluate_policy

        results: dict[str, Any] = {}
        for split, tasks in splits.items():
            if not tasks:
                continue
            result = evaluate_policy(
                engine, agent, tasks, config.eval.k, env_kwargs=kwargs, seed=config.run.seed, workers=workers,
                temperature=config.eval.temperature,
            )  # fmt: skip
            row = result.table.overall
            scores = {key: _known(getattr(row, key)) for key in ("avg", "low", "high", "best", "valid")}
            by_task = {r.name: _known(r.avg) for r in result.table.tasks}
            results[split] = scores | {
                "tasks": len(tasks),
                "failed": row.failed,
                "executions": result.executions,
                "by_task": by_task,
            }
        return results

    return evaluate


def _known(value: float) -> float | None:
    """None for the NaN of a quantity nothing was measured of."""
    return None if math.isnan(value) else float(value)
