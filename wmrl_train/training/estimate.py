"""What a run would take, without running it: data, memory and devices of the policy, programs, sandboxes, wall clock."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from wmrl_envs.errors import DataNotBuilt, InvalidInput
from wmrl_train.config import Config, EstimateConfig, load_config
from wmrl_train.training.simulation import Durations, anchors_a_step, sandboxes_needed, simulate, too_large

__all__ = ["Durations", "estimate", "measured", "parameters", "simulate"]

GPU_GIB = 80.0  # of the device the estimate counts in
LAGS = (0, 1, 4, 8)
FRACTIONS = (0.125, 0.25, 0.5, 1.0)


def estimate(config: Config, like: str | Path | None = None) -> list[str]:
    """Lines for `wmrl train --dry-run`.

    Args:
        config: of the run that is estimated.
        like: directory of a run whose measured times take the place of the configuration's `estimate` section.

    Raises:
        InvalidInput: a task nobody has heard of, or `like` holds no run with two steps.
    """
    if config.agent.name == "vla":
        if like is not None:
            raise InvalidInput(f"--like {like}: no wall clock is estimated for agent.name=vla; leave it out.")
        return list(_episodes(config))
    seconds = measured(like) if like is not None else config.estimate
    source = f"measured in {like}" if like is not None else "of the section estimate"
    try:
        return [*_tasks(config), *_memory(config), *_programs(config), *_clock(config, seconds, source)]
    except OverflowError:
        raise InvalidInput(
            f"train.steps={config.train.steps}, rollout.groups={config.rollout.groups}, "
            f"rollout.group_size={config.rollout.group_size}, tasks.max_turns={config.tasks.max_turns}: "
            "their product is too large to count with; choose smaller numbers."
        ) from None


def parameters(model: Path) -> int | None:
    """Number of weights in a model directory, from the headers of its safetensors files; None if there are none."""
    total = 0
    for file in model.glob("*.safetensors"):
        try:
            with file.open("rb") as handle:
                (length,) = struct.unpack("<Q", handle.read(8))
                header = json.loads(handle.read(length))
        except (struct.error, ValueError, OverflowError, MemoryError):
            raise InvalidInput(f"{file} is damaged: its header cannot be read; save or fetch the model again.") from None
        total += sum(math.prod(entry["shape"]) for key, entry in header.items() if key != "__metadata__")
    return total or None


def measured(run: str | Path) -> EstimateConfig:
    """Seconds a program of an earlier run's lanes, from its logs; the first step, which loads and starts things, is left
    out.
    """
    from wmrl_train.run.rundir import RunDirectory

    directory = RunDirectory(run)
    steps = [r for r in directory.read("metrics.jsonl") if "eval" not in r] if directory.has_run else []
    if len(steps) < 2:
        raise InvalidInput(f"--like {run}: expected the directory of a run with at least two steps.")
    config = load_config(directory.config_file)
    programs = config.rollout.groups * config.rollout.group_size * config.tasks.max_turns * (len(steps) - 1)
    try:
        executions = steps[-1]["ledger/executions_paid"]
        spent = {lane: sum(s[f"time/{lane}_s"] for s in steps[1:]) / programs for lane in ("generate", "predict", "learn")}
        return EstimateConfig(
            generate_s=spent["generate"],
            predict_s=spent["predict"],
            learn_s=spent["learn"],
            execute_s=steps[-1]["ledger/execution_s"] / executions if executions else None,
        )
    except (KeyError, TypeError, ValueError) as error:  # of a run in a simulator, which times no lanes
        raise InvalidInput(
            f"--like {run}: its metrics.jsonl has no times of lanes ({error}); name a run on programs."
        ) from None


def _episodes(config: Config) -> Iterator[str]:
    episodes = config.rollout.groups * config.rollout.group_size * config.train.steps
    paid = anchors_a_step(config) * config.rollout.group_size * config.train.steps
    yield (
        f"episodes: {episodes} of at most {config.libero.max_steps} simulator steps, on {config.libero.simulators} simulators "
        f"of 1 to 2.5 GB each; a reward model replaces their success, not their steps"
    )
    if config.libero.reward is not None:
        yield f"reward: {episodes} episodes are read by {config.libero.reward}; the success of {paid} is used too"
    from wmrl_train.config.robots import NO_EFFECT

    yield f"of no effect with agent.name=vla: {', '.join(NO_EFFECT)}"
    if not Path(config.policy.model).is_dir():
        yield f"policy: there is no folder {config.policy.model} yet: make it with `wmrl sft` or `wmrl import-minivla`"


def _tasks(config: Config) -> Iterator[str]:
    from wmrl_envs.tasks.choose import choose_tasks

    splits = {"tasks.train": config.tasks.train} | ({"tasks.held_out": config.tasks.held_out} if config.eval.held_out else {})
    for key, wanted in splits.items():
        prepared, missing = 0, ""
        for part in [wanted] if isinstance(wanted, str) else [[slug] for slug in wanted]:  # every name is looked at
            try:
                prepared += len(choose_tasks(part, config.tasks.data_dir, config.tasks.source, key)[0])
            except DataNotBuilt as error:
                missing = f" {error}"
        yield f"data: {key}: {prepared} tasks prepared.{missing}"


def _memory(config: Config) -> Iterator[str]:
    from wmrl_train.engines.models import model_path

    name = config.policy.model
    count = parameters(model_path(name))
    how = ""
    if count is None:
        in_name = re.search(r"(\d+(?:\.\d+)?)B\b", name)
        if in_name is None:
            yield f"memory: {name} is not on this machine, so its size is unknown"
            return
        count, how = int(float(in_name[1]) * 1e9), " (by its name)"
    full = config.policy.lora is None
    reference = count if config.optim.kl_coef > 0 and full else 0
    learner = 4 * (count + reference + (3 * count if full else 0)) / 2**30
    rest = "gradient and two moments" if full else "adapters train"
    line = (
        f"memory: {count / 1e6:.1f} M weights{how}; about {learner:.2f} GiB of float32 weights, reference, {rest}, "
        "without activations"
    )
    if config.policy.engine == "vllm":
        judges = [w for w in (config.world_model, *config.world_model.members) if w.kind == "simulator"]
        own = any(judge.engine in ("policy", "vllm") for judge in judges)
        sampler = 2 * count * (1 + own) / 2**30
        copies = "copies, of the policy and of the world model" if own else "copy"
        line += f"; {sampler:.2f} GiB more for vLLM's bfloat16 {copies}, without cache"
        yield line
        devices = math.ceil(1.25 * (learner + sampler) / GPU_GIB)
        yield (
            f"devices: {devices} GPU{'s' * (devices > 1)} of {GPU_GIB:g} GB, a quarter of the above added for activations and "
            "cache (an estimate, not measured)"
        )
    else:
        yield line


def _programs(config: Config) -> Iterator[str]:
    a_group = config.rollout.group_size * config.tasks.max_turns
    programs = config.rollout.groups * a_group * config.train.steps
    paid = anchors_a_step(config) * a_group * config.train.steps
    yield f"programs: at most {programs}, of which {paid} are executed and {programs - paid} only predicted"
    worst_s = paid * config.execution.effective_s / (config.execution.workers or 1)
    at_a_time = "" if config.execution.workers else " one at a time"
    yield (
        f"executions: at most {worst_s / 3600:.1f} h if every one ran into its limit of {config.execution.effective_s:g} "
        f"s{at_a_time}; "
        f"all executed: {worst_s * programs / max(paid, 1) / 3600:.1f} h"
    )


def _clock(config: Config, given: EstimateConfig, source: str) -> Iterator[str]:
    seconds = {key: value for key, value in given.model_dump().items() if value is not None}
    unknown = sorted(set(EstimateConfig.model_fields) - set(seconds))
    if unknown:
        keys = ", ".join(f"estimate.{key}" for key in unknown)
        yield f"wall clock: unknown without {keys}: set them, or name a run to take the times of with --like RUN_DIR"
        return
    table_lag = config.anchors.model_copy(update={"lag": max(config.anchors.lag, *LAGS)})
    if why := too_large(config.model_copy(update={"anchors": table_lag})):
        yield f"wall clock: unknown: {why}"
        return
    durations = Durations.per_program(config, seconds)
    yield "seconds a program, " + source + ": " + ", ".join(f"{key[:-2]} {value:.3g}" for key, value in seconds.items())
    step = simulate(config, durations)
    hours = step["step_s"] * config.train.steps / 3600
    yield (
        f"wall clock: {step['step_s']:.1f} s a step, generation lane busy {step['generation_busy']:.0%}; "
        f"{config.train.steps} steps: {hours:.2f} h, evaluations not counted"
    )
    workers = config.execution.workers or "one a core, counted as 4"
    yield (
        f"sandboxes: {workers} at a time; {sandboxes_needed(config, durations)} would do "
        "(a step within 5 % of its time with any number)"
    )
    yield (
        "seconds a step (generation lane busy), by share of anchor groups and anchors.lag, with as many sandboxes as are of "
        "use:"
    )
    yield "  anchors " + "".join(f"{f'lag {lag}':>16}" for lag in LAGS)
    for fraction in sorted({config.anchors.fraction, *FRACTIONS}):
        cells = []
        for lag in LAGS if fraction < 1 else LAGS[:1]:  # with nothing predicted there is nothing to learn from meanwhile
            anchors = config.anchors.model_copy(update={"fraction": fraction, "lag": lag})
            other = config.model_copy(update={"anchors": anchors})
            row = simulate(other, durations, workers=sandboxes_needed(other, durations))
            cells.append(f"{row['step_s']:.1f} ({row['generation_busy']:.0%})")
        yield f"  {fraction:<8g}" + "".join(f"{cell:>16}" for cell in cells)
