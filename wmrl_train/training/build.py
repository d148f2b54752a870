"""From a configuration to the parts of a trainer: model, engine, agent, tasks, sandbox, world model, evaluation."""

from __future__ import annotations

import inspect
import itertools
import logging
import math
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from wmrl_envs.correction import Corrector
from wmrl_envs.engine import Engine, Sampling
from wmrl_envs.envs.executable import ExecutableEnv
from wmrl_envs.envs.make import make_env
from wmrl_envs.envs.mle_dojo import MLEDojoEnv
from wmrl_envs.errors import InvalidInput, WmrlError
from wmrl_envs.execution.base import Sandbox
from wmrl_envs.tasks.choose import choose_tasks
from wmrl_envs.world_models.protocols import OutcomeModel, Priced
from wmrl_train.config import Config, TasksConfig
from wmrl_train.config.environment import env_kwargs
from wmrl_train.config.imported import FAILURES, imported, reason
from wmrl_train.config.options import known_options
from wmrl_train.engines.load import FrozenBase, load_policy
from wmrl_train.engines.models import check_model, model_path
from wmrl_train.episodes.agent import Agent
from wmrl_train.episodes.roller import Roller
from wmrl_train.learn.learner import Learner
from wmrl_train.learn.ranks import Ranks
from wmrl_train.training.parts import Parts
from wmrl_train.training.tryout import try_out_text

log = logging.getLogger(__name__)


def build(config: Config, ranks: Ranks | None = None, on_episode: Callable[[int, int], None] | None = None) -> Parts:
    """Everything `config` names, with a learner over all `ranks`. Nothing is left running if a part fails.

    `on_episode` hears of every finished episode of an evaluation: (how many of it are done, how many there are).

    Raises:
        InvalidInput, DataNotBuilt, MissingExtra, IsolationError: one sentence on what is wrong and how to fix it.
    """
    if config.agent.name == "vla":
        from wmrl_train.config.robots import check_robots
        from wmrl_train.training.robots import build_robots

        check_robots(config)
        if ranks is not None and ranks.size > 1:
            raise InvalidInput(f"{ranks.size} processes: the policy of a robot is trained by one; start it without torchrun.")
        return build_robots(config)
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
        kwargs = known_options(MLEDojoEnv, "tasks.options", env_kwargs(config)) | {"sandbox": sandbox}
        workers = config.execution.workers or sandbox.slots
        world_model = _world_model(config, model, tokenizer, engine)
        close = [engine.close, sandbox.close, *([world_model.close] if isinstance(world_model, Priced) else [])]
        evaluate = _evaluation(config, engine, agent, {"train": train, "held_out": held_out}, kwargs, workers, on_episode)
        undo.pop_all()
    return text_parts(
        model, tokenizer, engine, agent, lambda task: make_env(task, **kwargs), world_model, train,
        execution_workers=workers, ranks=ranks, evaluate=evaluate, close=close,
    )  # fmt: skip


def text_parts(
    model: Any,
    tokenizer: Any,
    engine: Engine,
    agent: Agent,
    make_env: Callable[[str], ExecutableEnv],
    world_model: OutcomeModel | None,
    tasks: Sequence[str],
    *,
    execution_workers: int = 1,
    ranks: Ranks | None = None,
    **more: Any,
) -> Parts:
    """The parts of a trainer whose agent writes text: its roller is `Roller`, its learner `Learner` (or `ShardedLearner`).

    Args:
        model: the policy.
        tokenizer: of the policy.
        engine: samples with the policy.
        agent: makes prompts of observations, and programs of samples.
        make_env: task -> environment.
        world_model: predicts outcomes; None if every group is an anchor.
        tasks: to train on.
        execution_workers: executions at a time.
        ranks: the processes that learn together; None: this one.
        more: further fields of `Parts`.
    """

    def make_roller(config: Config, corrector: Corrector) -> Roller:
        rollout = config.rollout
        return Roller(
            engine, agent, make_env, world_model, corrector,
            sampling=Sampling(rollout.temperature, rollout.top_p, rollout.max_new_tokens),
            group_size=rollout.group_size, max_context=rollout.max_context, generation_workers=rollout.generation_workers,
            prediction_workers=rollout.prediction_workers, execution_workers=execution_workers, retries=rollout.retries,
        )  # fmt: skip

    def make_learner(model: Any, config: Config) -> Learner:
        if ranks is None or ranks.size == 1:
            return Learner.from_config(model, config)
        from wmrl_train.learn.sharded import ShardedLearner

        return ShardedLearner.from_config(model, config, ranks=ranks)

    def try_out(trainer: Any) -> None:
        try_out_text(trainer.config, engine, agent, make_env, tasks)(trainer)

    return Parts(model, tokenizer, engine, world_model, tasks, make_roller, make_learner, try_out=try_out, **more)


def follow(config: Config, ranks: Ranks) -> None:
    """The whole life of a rank other than 0: wait for the start, load the policy, follow rank 0's learner.

    Ctrl-C reaches all ranks; rank 0 decides what is still saved and when the others may go.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if ranks.broadcast(False):
        from wmrl_train.learn.sharded import ShardedLearner

        model, _ = load_policy(config, device="cpu")  # a whole copy only until it is sharded
        ShardedLearner.from_config(model, config, ranks=ranks).follow()
    ranks.leave()


def resolve_tasks(config: TasksConfig, wanted: str | Sequence[str], key: str) -> list[str]:
    """Slugs of prepared tasks (see `choose_tasks`); how many of a split are left out is in the log."""
    prepared, missing = choose_tasks(wanted, config.data_dir, config.source, key)
    if missing:
        log.warning("%s: %d tasks of %r are not prepared and are left out (`wmrl tasks prepare`).", key, len(missing), wanted)
    return prepared


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
        given = known_options(TransformersEngine, "policy.engine_options", policy.engine_options)
        engine = TransformersEngine(model, tokenizer, **({"batch_size": config.rollout.batch_size} | given))
    else:
        engine = make_engine(policy.engine, str(path), **({"dtype": policy.dtype} | policy.engine_options))
    return model, tokenizer, engine


def _agent(config: Config, tokenizer: Any) -> Agent:
    options: dict[str, Any] = {"max_new_tokens": config.rollout.max_new_tokens} | config.agent.options
    if config.agent.name == "program":
        from wmrl_train.agents.program import ProgramAgent

        return ProgramAgent(tokenizer, **known_options(ProgramAgent, "agent.options", options))
    from wmrl_train.agents.research import ResearchAgent

    options = {"max_turns": config.tasks.max_turns, "timeout_s": config.execution.effective_s} | options
    return ResearchAgent(tokenizer, **known_options(ResearchAgent, "agent.options", options))


def _sandbox(config: Config) -> Sandbox:
    from wmrl_envs import execution

    settings = config.execution
    kinds = {"docker": "DockerSandbox", "ray": "RaySandbox", "replay": "ReplaySandbox"}
    receiver = getattr(execution, kinds.get(settings.sandbox, "ProcessSandbox"))
    options = known_options(receiver, "execution.options", settings.options)
    cache: Any = "read-write" if settings.cache else "off"
    return execution.make_sandbox(settings.sandbox, cache=cache, store=settings.store, **options)


def _world_model(config: Config, model: Any, tokenizer: Any, engine: Engine) -> OutcomeModel | None:
    settings = config.world_model
    if settings.kind == "none":
        return None
    if settings.kind == "static":
        from wmrl_envs.world_models.static.model import StaticWorldModel

        return StaticWorldModel(**known_options(StaticWorldModel, "world_model.options", settings.options))
    if settings.kind == "low_fidelity":
        return _low_fidelity(config)
    if settings.kind in ("ensemble", "stacked"):
        from wmrl_envs.world_models.ensemble import EnsembleWorldModel
        from wmrl_envs.world_models.stacked import StackedWorldModel

        kind: Any = EnsembleWorldModel if settings.kind == "ensemble" else StackedWorldModel
        given = known_options(kind, "world_model.options", settings.options)
        each = [config.model_copy(update={"world_model": member}) for member in settings.members]
        members = [_world_model(one, model, tokenizer, engine) for one in each]
        return kind([m for m in members if m is not None], **given)
    if ":" in settings.kind:
        return _own_world_model(settings.kind, settings.options)
    from wmrl_envs.world_models.simulator.model import SimulatorWorldModel
    from wmrl_train.engines import make_engine

    options = known_options(SimulatorWorldModel, "world_model.options", settings.options)
    own = config.policy.engine == "transformers" and config.policy.replicas is None  # the learner's own weights
    if settings.engine == "policy" and config.policy.lora is not None and own:
        return SimulatorWorldModel(FrozenBase(engine, model), **options)  # one set of weights, three roles
    kind = config.policy.engine if settings.engine == "policy" else settings.engine
    name = settings.model or config.policy.model
    frozen = make_engine(kind, name if kind == "openai" else str(model_path(name)), **settings.engine_options)
    return SimulatorWorldModel(frozen, **options)


def _low_fidelity(config: Config) -> OutcomeModel:
    """It executes in a sandbox of its own: that of the run may answer from a cache or a record, which has only full
    executions.
    """
    from wmrl_envs.world_models.low_fidelity import LowFidelityWorldModel

    settings, execution = config.world_model, config.execution
    sandbox = execution.sandbox if execution.sandbox in ("auto", "process", "docker") else "auto"
    own: dict[str, Any] = {
        "sandbox": sandbox, "seed": config.run.seed, "data_dir": config.tasks.data_dir, "workers": settings.workers,
        "limits": env_kwargs(config)["limits"],
    }  # fmt: skip
    return LowFidelityWorldModel(**(own | known_options(LowFidelityWorldModel, "world_model.options", settings.options)))


def _own_world_model(name: str, options: dict[str, Any]) -> OutcomeModel:
    """The user's world model `package.module:Class`, made with its options."""
    given, expected = f"world_model.kind={name!r}", "package.module:Class, a class with a method predict"
    cls: Any = imported(name, given, expected)
    if not (inspect.isclass(cls) and callable(getattr(cls, "predict", None))):
        raise InvalidInput(f"{given} is no world model ({type(cls).__name__}): expected {expected}.")
    known = known_options(cls, "world_model.options", options)
    try:
        made: Any = cls(**known)
    except WmrlError:
        raise
    except FAILURES as error:
        raise InvalidInput(f"{given} could not be made with its options ({reason(error)}): see world_model.options.") from error
    return made


def _evaluation(
    config: Config,
    engine: Engine,
    agent: Agent,
    splits: dict[str, list[str]],
    kwargs: dict[str, Any],
    workers: int,
    on_episode: Callable[[int, int], None] | None,
) -> Callable[[int], dict[str, Any]] | None:
    """Step -> {split: {"avg", "low", "high", "best", "valid", "tasks", "by_task"}}; always the same seeds, so that before and
    after pair up.
    """
    if config.eval.k == 0:
        return None

    def evaluate(step: int) -> dict[str, Any]:
        from wmrl_train.evaluation.programs import evaluate_policy

        results: dict[str, Any] = {}
        done, total = itertools.count(1), config.eval.k * sum(len(set(tasks)) for tasks in splits.values())

        def advance(_: Any) -> None:
            if on_episode is not None:
                on_episode(next(done), total)

        for split, tasks in splits.items():
            if not tasks:
                continue
            result = evaluate_policy(
                engine, agent, tasks, config.eval.k, env_kwargs=kwargs, seed=config.run.seed, workers=workers,
                temperature=config.eval.temperature, progress=advance,
            )  # fmt: skip
            row = result.table.overall
            scores = {key: _known(getattr(row, key)) for key in ("avg", "low", "high", "best", "valid")}
            by_task = {r.name: _known(r.avg) for r in result.table.tasks}
            results[split] = scores | {
                "tasks": len(tasks),
                "failed": row.failed,
                "executions": result.cost.executions,
                "statuses": row.statuses,
                "by_task": by_task,
            }
        return results

    return evaluate


def _known(value: float) -> float | None:
    """None for the NaN of a quantity nothing was measured of."""
    return None if math.isnan(value) else float(value)
