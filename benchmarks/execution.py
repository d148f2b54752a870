"""What isolation costs and what the warm path saves: `python benchmarks/execution.py [--rounds 7] [--output FILE]`.

All ways run in turn, round by round, so that a busy machine slows all of them; ratios of medians are what to look at.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from wmrl_envs.errors import WmrlError
from wmrl_envs.execution import ExecutionLimits, Job, ProcessSandbox, Sandbox, make_sandbox
from wmrl_envs.execution.environment import load_environment
from wmrl_envs.execution.process.client import SINGLE_THREADED
from wmrl_envs.execution.selftest import tier_report

EMPTY = "pass"
FIT = """
import os
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
table = pd.read_csv(os.path.join(os.environ["DATA_DIR"], "train.csv"))
features = [name for name in table if name.startswith("x")]
model = LogisticRegression(max_iter=200).fit(table[features], table["y"])
pd.DataFrame({"id": np.arange(len(table)), "y": model.predict_proba(table[features])[:, 1]}).to_csv(
    os.environ["SUBMISSION_PATH"], index=False)
"""
LIMITS = ExecutionLimits(timeout_s=300)


def write_data(folder: Path, rows: int = 1000, columns: int = 10) -> None:
    """A small table: `columns` features and a label that a linear model can learn."""
    draw = random.Random(0)
    lines = [",".join([*(f"x{i}" for i in range(columns)), "y"])]
    for _ in range(rows):
        x = [draw.gauss(0, 1) for _ in range(columns)]
        lines.append(",".join([*(f"{value:.5f}" for value in x), str(int(x[0] + x[1] + draw.gauss(0, 1) > 0))]))
    (folder / "train.csv").write_text("\n".join(lines))


def plain(python: Path, data: Path) -> Callable[[str], None]:
    """`python script.py` in the sandbox's environment, without any sandbox."""

    def run(code: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "script.py"
            script.write_text(code)
            env = {**os.environ, **SINGLE_THREADED, "DATA_DIR": str(data), "SUBMISSION_PATH": f"{folder}/submission.csv"}
            subprocess.run([python, script], env=env, check=True, capture_output=True)

    return run


def sandboxed(box: Sandbox, data: Path) -> Callable[[str], None]:
    """The same in a sandbox."""

    def run(code: str) -> None:
        result = box.run(code, data, LIMITS)
        assert result.status == "ok", result

    return run


def measure(ways: dict[str, Callable[[str], None]], code: str, rounds: int) -> dict[str, list[float]]:
    """Wall seconds of every way, after one run of each that does not count."""
    for run in ways.values():
        run(code)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            began = time.perf_counter()
            run(code)
            seconds[name].append(time.perf_counter() - began)
    return seconds


def throughput(box: Sandbox, data: Path, jobs: int = 200, workers: int = 2) -> float:
    """Executions a second of the fitting script."""
    began = time.perf_counter()
    results = box.run_many([Job(FIT, data, LIMITS)] * jobs, concurrency=workers)
    took = time.perf_counter() - began
    failed = [result for result in results if getattr(result, "status", None) != "ok"]
    assert not failed, failed[0]
    return jobs / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=200, help="executions of the throughput measurement (0: leave it out)")
    parser.add_argument("--output", type=Path, default=Path("runs/benchmarks/execution.json"))
    arguments = parser.parse_args()
    environment = load_environment()
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        data.chmod(0o755)
        write_data(data)
        boxes: dict[str, Sandbox] = {"warm": ProcessSandbox()}
        for tier, failures in tier_report(environment).items():
            if not failures:
                boxes[f"cold, {tier}"] = ProcessSandbox(warm=False, tier=tier)
        try:
            boxes["docker"] = make_sandbox("docker", image="host")
        except WmrlError as error:
            console.print(f"docker is left out: {error}")
        ways = {"plain python": plain(environment.python, data)} | {name: sandboxed(box, data) for name, box in boxes.items()}
        try:
            results = {
                name: measure(ways, code, arguments.rounds) for name, code in (("empty script", EMPTY), ("fit a model", FIT))
            }
            rate = throughput(boxes["warm"], data, arguments.jobs) if arguments.jobs else None
        finally:
            for box in boxes.values():
                box.close()
    medians = {script: {way: statistics.median(s) for way, s in seconds.items()} for script, seconds in results.items()}
    table = Table("way", *(column for script in medians for column in (f"{script}, median ms", "least ms", "plain / this")))
    for way in ways:
        row = []
        for script, seconds in results.items():
            median = medians[script][way]
            row += [
                f"{1000 * median:.0f}",
                f"{1000 * min(seconds[way]):.0f}",
                f"{medians[script]['plain python'] / median:.2f}",
            ]
        table.add_row(way, *row)
    console.print(table)
    if rate is not None:
        console.print(f"throughput, warm, 2 workers: {rate:.1f} executions/s ({arguments.jobs} of the fitting script)")
    machine = {
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "kernel": platform.release(),
        "python": environment.python_version,
    }
    record = {"machine": machine, "seconds": results, "medians": medians, "executions_per_s": rate}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(record, indent=1))
    console.print(f"saved to {arguments.output}")


if __name__ == "__main__":
    main()
