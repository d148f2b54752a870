"""What `anchors.lag` buys: how busy the generation lane is when executions take four times as long as a step.

    python -m benchmarks.lag [--policy demo|sleeping] [--steps 24] [--json out.json]

The trainer, its threads and the clock are real; executions are not: they sleep, so that they take as long as wanted and no core.
`--policy demo`: the demo's policy, competitions, world model and learner. First a few steps with executions that take no time,
to learn what a step takes on this machine; then executions of four such steps, with each lag.
`--policy sleeping`: generation and learning sleep too (1.25 s a step, executions of 5 s), for a machine that has other things to do:
what is measured is what the trainer itself makes of the waiting.
Beside every measurement is what `wmrl_train.training.simulation` says for the same durations. The first step of a run (which loads and
starts things), those before the first deferred anchors land, and the last one (which waits for all of them) are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.doubles import FakeWorldModel, ToyAgent, ToyEnv, tiny_model
from wmrl_envs.engine import Generation, Prompt
from wmrl_envs.execution.base import Job, Sandbox
from wmrl_envs.outcome import Execution, ExecutionStatus
from wmrl_train.config import Config, load_config
from wmrl_train.engines.transformers import TransformersEngine
from wmrl_train.run.rundir import RunDirectory
from wmrl_train.training import build as assemble
from wmrl_train.training.build import text_parts
from wmrl_train.training.parts import Parts
from wmrl_train.training.simulation import Durations, simulate
from wmrl_train.training.trainer import Trainer

RATIO = 4.0  # seconds of an execution over those of a step
LAGS = (0, 1, 4)
GROUP_SIZE, GROUP_S, LEARN_S = 4, 0.125, 0.25  # of the sleeping policy, eight groups a step


class SleepingSandbox(Sandbox):
    """A test double of a sandbox: every program takes `seconds` and submits the sample submission."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def run_job(self, job: Job) -> Execution:
        time.sleep(self.seconds)
        sample = (job.data_dir / "sample_submission.csv").read_bytes()
        return Execution(ExecutionStatus.OK, 0, submission=sample, wall_s=self.seconds)

    def close(self) -> None:
        pass


@contextmanager
def demo(overrides: list[str], execution_s: float) -> Iterator[tuple[Config, Parts]]:
    """The demo with a sandbox that sleeps."""
    fixed = ["execution.cache=false", "execution.workers=64", "rollout.group_size=2", "rollout.max_new_tokens=60"]
    config = load_config("demo", [*fixed, *overrides])
    usual, assemble._sandbox = assemble._sandbox, lambda config: SleepingSandbox(execution_s)
    try:
        yield config, assemble.build(config)
    finally:
        assemble._sandbox = usual


class SleepingEngine(TransformersEngine):
    """A test double of an engine: takes GROUP_S for the prompts of a group, whatever it does meanwhile."""

    def generate(self, prompts: Sequence[Prompt], *arguments: Any, **more: Any) -> list[Generation]:
        until = time.monotonic() + GROUP_S * len(prompts) / GROUP_SIZE
        made = super().generate(prompts, *arguments, **more)
        time.sleep(max(0.0, until - time.monotonic()))
        return made


@contextmanager
def sleeping(overrides: list[str], execution_s: float) -> Iterator[tuple[Config, Parts]]:
    """The test doubles of `tests.doubles`, all asleep."""
    fixed = [
        f"rollout.group_size={GROUP_SIZE}", "rollout.max_new_tokens=4", "agent.name=program", "tasks.max_turns=1", "correction.min_pairs=8",
    ]  # fmt: skip
    model, tokenizer = tiny_model()
    parts = text_parts(
        model, tokenizer, SleepingEngine(model, tokenizer), ToyAgent(tokenizer), lambda task: ToyEnv(task, delay_s=execution_s),
        FakeWorldModel(), ["a", "b", "c"], execution_workers=64,
    )  # fmt: skip
    yield load_config({}, [*fixed, *overrides]), parts


def measure(policy: str, steps: int, lag: int, execution_s: float) -> tuple[Config, list[dict[str, float]]]:
    """Metrics of the steps between the first and the last."""
    with tempfile.TemporaryDirectory() as folder:
        overrides = [
            f"run.dir={folder}", f"train.steps={steps}", "train.save_every=100000", "eval.k=0", f"anchors.lag={lag}", "run.min_free_disk_mb=0",
        ]  # fmt: skip
        with (demo if policy == "demo" else sleeping)(overrides, execution_s) as (config, parts):
            run = RunDirectory(config.run_dir)
            run.acquire()
            trainer = Trainer(config, parts, run)
            if policy == "sleeping":
                trainer.learner.update = slowed(trainer.learner.update)  # type: ignore[method-assign]
            try:
                trainer.run()
                return config, list(run.read("metrics.jsonl"))[1 + lag : -1]
            finally:
                trainer.close()
                run.release()


def slowed(update: Callable[..., dict[str, float]]) -> Callable[..., dict[str, float]]:
    def wrapped(*arguments: Any) -> dict[str, float]:
        until = time.monotonic() + LEARN_S
        learned = update(*arguments)
        time.sleep(max(0.0, until - time.monotonic()))
        return learned

    return wrapped


def mean(records: list[dict[str, float]], key: str) -> float:
    return statistics.mean(r[f"time/{key}_s"] for r in records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", choices=("demo", "sleeping"), default="demo")
    parser.add_argument("--steps", type=int, default=24, help="of the runs with deferred anchors; a quarter of it without")
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    if a.policy == "demo":
        config, free = measure(a.policy, 6, 0, 0.0)
        lanes = {lane: mean(free, lane) for lane in ("generate", "predict", "learn")}
        execution_s = RATIO * mean(free, "step")
    else:
        lanes = {"generate": 8 * GROUP_S, "predict": 0.0, "learn": LEARN_S}
        execution_s = RATIO * (8 * GROUP_S + LEARN_S)
    durations = Durations(lanes["generate"] / 8, lanes["predict"] / 8, execution_s, lanes["learn"])
    print(f"a step without waiting: {execution_s / RATIO:.2f} s; executions: {execution_s:.2f} s")
    print("| anchors.lag | seconds a step | generation lane busy | simulated: seconds a step | busy |")
    print("|---|---|---|---|---|")
    runs = []
    for lag in LAGS:
        config, records = measure(a.policy, a.steps if lag else max(4, a.steps // 4), lag, execution_s)
        busy = sum(r["time/generate_s"] + r["time/learn_s"] for r in records) / sum(r["time/step_s"] for r in records)
        said = simulate(config, durations, workers=64)
        runs.append({"lag": lag, "steps": len(records), "step_s": mean(records, "step"), "busy": busy, "simulated": said})
        print(
            f"| {lag} | {mean(records, 'step'):.2f} | {busy:.1%} | {said['step_s']:.2f} | {said['generation_busy']:.1%} |",
            flush=True,
        )
    result = {
        "policy": a.policy,
        "execution_s": execution_s,
        "durations": vars(durations),
        "runs": runs,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    if a.json:
        a.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
