"""What a run would take, without running it: memory of the policy and a simulator of a step's wall clock."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path

from wmrl_envs.errors import InvalidInput
from wmrl_train.config import Config


@dataclass(frozen=True)
class Durations:
    """Seconds of the stages of one group: generate its trajectories, predict them, execute one program; `learn_s` is per step."""

    generate_s: float
    predict_s: float
    execute_s: float
    learn_s: float


def simulate(config: Config, durations: Durations, steps: int = 50) -> dict[str, float]:
    """Steady-state wall clock of a step under `config`'s anchor fraction, lag and execution workers.

    The generation lane takes a step's groups one after the other, the prediction lane follows it, and the executions of anchor
    groups run on `execution.workers` (4 if null) from the moment their group is generated; a step waits for those that
    started `anchors.lag` steps before.

    Returns:
        `step_s`, `generation_busy` (share of the wall clock in which the generation lane works or the learner does), `executions` a step.
    """
    m, n, turns = config.rollout.groups, config.rollout.group_size, config.tasks.max_turns
    workers = config.execution.workers or 4
    anchors = max(config.anchors.min_groups, round(config.anchors.fraction * m))
    free = [0.0] * workers
    clock, busy, done = 0.0, 0.0, []
    for step in range(steps):
        finished = clock
        for group in range(m):
            clock += durations.generate_s
            busy += durations.generate_s
            if group < anchors:
                for _ in range(n * turns):
                    first = min(range(workers), key=free.__getitem__)
                    free[first] = max(free[first], clock) + durations.execute_s
                    finished = max(finished, free[first])
        clock += durations.predict_s * m
        done.append(finished)
        due = step - config.anchors.lag
        if due >= 0:
            clock = max(clock, done[due])
        clock += durations.learn_s
        busy += durations.learn_s
    return {"step_s": clock / steps, "generation_busy": busy / clock, "executions": float(anchors * n * turns)}


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


def estimate(config: Config) -> list[str]:
    """Lines for `wmrl train --dry-run`."""
    from wmrl_train.models import model_path

    lines = []
    count = parameters(model_path(config.policy.model))
    if count is None:
        lines.append(f"memory: {config.policy.model} is not on this machine, so its size is unknown")
    else:
        trained = count if config.policy.lora is None else None
        reference = count if config.optim.kl_coef > 0 and config.policy.lora is None else 0
        gib = 4 * (count + reference + 3 * (trained or 0)) / 2**30
        rest = "adapters train" if trained is None else "gradient and two moments"
        lines.append(
            f"memory: {count / 1e6:.1f} M weights; about {gib:.2f} GiB of float32 weights, reference, {rest}, without activations"
        )
    m, n, turns, steps = config.rollout.groups, config.rollout.group_size, config.tasks.max_turns, config.train.steps
    anchors = max(config.anchors.min_groups, round(config.anchors.fraction * m))
    programs = m * n * turns * steps
    paid = anchors * n * turns * steps
    lines.append(f"programs: at most {programs}, of which {paid} are executed and {programs - paid} only predicted")
    worst_s = paid * config.execution.timeout_s / (config.execution.workers or 1)
    lines.append(f"executions: at most {worst_s / 3600:.1f} h if every one ran into its limit of {config.execution.timeout_s:g} s"
                 f"{'' if config.execution.workers else ' one at a time'}; all executed: {worst_s * programs / max(paid, 1) / 3600:.1f} h")  # fmt: skip
    return lines
