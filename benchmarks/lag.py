"""What `anchors.lag` buys: how busy the generation lane is when executions take four times as long as a step.

    python benchmarks/lag.py [--steps 12] [--json out.json] [KEY=VALUE ...]

The demo's policy, competitions, world model and learner run for real, on this machine's clock; executions are the one thing
that does not: a sandbox that sleeps and hands back the sample submission, so that they take as long as wanted and no core.
First a few steps with executions that take no time, to learn what a step takes; then executions of four such steps, with each
lag. Beside every measurement is what `wmrl_train.simulation` says for the same durations.
The first step of a run (which loads and starts things) and the last one (which waits for all anchors) are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wmrl_envs.execution.base import Job, Sandbox
from wmrl_envs.outcome import Execution, ExecutionStatus
from wmrl_train import assemble
from wmrl_train.config import Config, load_config
from wmrl_train.rundir import RunDirectory
from wmrl_train.simulation import Durations, simulate
from wmrl_train.trainer import Trainer

RATIO = 4.0  # seconds of an execution over those of a step
LAGS = (0, 1, 4)


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


def settings(folder: str, overrides: list[str], steps: int, lag: int) -> Config:
    fixed = [
        f"run.dir={folder}", f"run.name=lag-{lag}", f"train.steps={steps}", "train.save_every=100000", "eval.k=0", f"anchors.lag={lag}",
        "execution.cache=false", "execution.workers=64", "rollout.group_size=2", "rollout.max_new_tokens=60",
    ]  # fmt: skip
    return load_config("demo", [*fixed, *overrides])


@contextmanager
def sandbox_of(seconds: float) -> Iterator[None]:
    usual, assemble._sandbox = assemble._sandbox, lambda config: SleepingSandbox(seconds)
    try:
        yield
    finally:
        assemble._sandbox = usual


def measure(overrides: list[str], steps: int, lag: int, execution_s: float) -> tuple[Config, list[dict[str, float]]]:
    """Metrics of the steps between the first and the last."""
    with tempfile.TemporaryDirectory() as folder, sandbox_of(execution_s):
        config = settings(folder, overrides, steps, lag)
        run = RunDirectory(config.run_dir)
        run.acquire()
        trainer = Trainer(config, assemble.build(config), run)
        try:
            trainer.run()
            return config, list(run.read("metrics.jsonl"))[1:-1]
        finally:
            trainer.close()
            run.release()


def mean(records: list[dict[str, float]], key: str) -> float:
    return statistics.mean(r[f"time/{key}_s"] for r in records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12, help="of each run")
    parser.add_argument("--json", type=Path)
    parser.add_argument("overrides", nargs="*", help="dotted overrides of the configuration")
    a = parser.parse_args()
    config, free = measure(a.overrides, min(a.steps, 6), 0, 0.0)
    step_s = mean(free, "step")
    execution_s = RATIO * step_s
    groups = config.rollout.groups
    durations = Durations(mean(free, "generate") / groups, mean(free, "predict") / groups, execution_s, mean(free, "learn"))
    print(f"a step without waiting: {step_s:.2f} s; executions: {execution_s:.2f} s")
    print("| anchors.lag | seconds a step | generation lane busy | simulated: seconds a step | busy |")
    print("|---|---|---|---|---|")
    rows = []
    for lag in LAGS:
        config, records = measure(a.overrides, a.steps if lag else min(a.steps, 6), lag, execution_s)
        records = records[lag:]  # the first deferred anchors land here
        busy = sum(r["time/generate_s"] + r["time/learn_s"] for r in records) / sum(r["time/step_s"] for r in records)
        said = simulate(config, durations)
        rows.append(
            {"lag": lag, "steps": len(records), "step_s": mean(records, "step"), "busy": busy, "simulated_step_s": said["step_s"],
             "simulated_busy": said["generation_busy"]}
        )  # fmt: skip
        print(
            f"| {lag} | {rows[-1]['step_s']:.2f} | {busy:.1%} | {said['step_s']:.2f} | {said['generation_busy']:.1%} |",
            flush=True,
        )
    result = {
        "free_step_s": step_s, "execution_s": execution_s, "durations": vars(durations), "runs": rows, "cores": os.cpu_count(),
        "load": os.getloadavg()[0], "configuration": config.to_yaml(),
    }  # fmt: skip
    if a.json:
        a.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
