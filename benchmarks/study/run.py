"""Runs the arms of a study, each with many seeds, through the ordinary trainer; one line of results a run.

python benchmarks/study/run.py main --seeds 10            # appends to docs/results/study/main.jsonl; goes on where it stopped
python benchmarks/study/run.py main --seeds 2 --arms wmrl,real --set train.steps=20 --out runs/quick.jsonl
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a run is one core; the runs are what is parallel

from arms import BANK, COMMON, STUDIES
from planted import CLASS

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "study"
CURVES = (
    "reward/mean", "reward/executed", "reward/predicted", "reward/calibrated", "anchor/rho", "anchor/eta2", "anchor/eta2_cal",
    "anchor/abs_error", "anchor/predicted", "anchor/true", "anchor/audit_alarm", "anchor/audit_bias", "policy/entropy",
    "rollout/distinct", "rollout/predicted_ok", "groups/zero_range", "groups/anchors",
)  # fmt: skip


def one_run(arm: str, seed: int, overrides: Sequence[str]) -> dict[str, Any]:
    """Train once; what the tables and figures need of it."""
    from wmrl_train.config import load_config
    from wmrl_train.run.rundir import RunDirectory
    from wmrl_train.training.build import build
    from wmrl_train.training.trainer import Trainer

    logging.disable(logging.WARNING)
    folder = Path(tempfile.mkdtemp(prefix="wmrl-study-"))
    config = load_config("laptop", [*overrides, f"run.dir={folder}", "run.name=run", f"run.seed={seed}"])
    run = RunDirectory(config.run_dir)
    run.acquire()
    began = time.process_time()
    try:
        trainer = Trainer(config, build(config), run)
        try:
            trainer.run()
        finally:
            trainer.close()
        lines = list(run.read("metrics.jsonl"))
        rollouts = list(run.read("rollouts.jsonl"))
    finally:
        run.release()
        shutil.rmtree(folder, ignore_errors=True)
    steps = [line for line in lines if "eval" not in line]
    tricked = [bool(CLASS.search(r["turns"][-1]["code"])) for r in rollouts]
    return {
        "arm": arm, "seed": seed, "cpu_s": round(time.process_time() - began, 1),
        "evaluations": {
            line["step"]: {split: {"by_task": table["by_task"], "valid": table["valid"]} for split, table in line["eval"].items()
                           if isinstance(table, dict)}
            for line in lines if "eval" in line
        },
        "ledgers": {line["step"]: {k.removeprefix("ledger/"): v for k, v in line.items() if k.startswith("ledger/")}
                    for line in steps if line["step"] % 5 == 0 or line is steps[-1]},
        "curves": {name: [_rounded(line.get(name)) for line in steps] for name in CURVES},
        "dummies": [_rounded(sum(t) / len(t)) for t in _by_step(rollouts, tricked)],
    }  # fmt: skip


def _by_step(rollouts: list[dict[str, Any]], values: list[bool]) -> list[list[bool]]:
    steps: dict[int, list[bool]] = {}
    for record, value in zip(rollouts, values, strict=True):
        steps.setdefault(record["step"], []).append(value)
    return [steps[step] for step in sorted(steps)]


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def main(study: str, arms: Sequence[str], seeds: int, workers: int, settings: Sequence[str], out: Path) -> None:
    """Run what is missing in `out`, seed by seed, so that a study stopped early has equally many seeds of every arm."""
    out.parent.mkdir(parents=True, exist_ok=True)
    kept = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []
    bank = hashlib.sha256(Path(BANK).read_bytes()).hexdigest()[:16]
    jobs = {}
    for seed in range(seeds):
        for arm in arms:
            overrides = [*COMMON, *STUDIES[study][arm], *settings]
            fixed = hashlib.sha256(json.dumps([bank, [o for o in overrides if BANK not in o]]).encode()).hexdigest()[:16]
            if not any((r["arm"], r["seed"], r["configuration"]) == (arm, seed, fixed) for r in kept):
                jobs[arm, seed] = overrides, fixed
    print(f"{len(jobs)} runs of study {study!r} to do, {len(kept)} are in {out}", flush=True)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool, out.open("a", encoding="utf-8") as file:
        futures = {pool.submit(one_run, *key, overrides): (key, fixed) for key, (overrides, fixed) in jobs.items()}
        for done, future in enumerate(as_completed(futures), 1):
            result = future.result() | {"configuration": futures[future][1]}
            file.write(json.dumps(result) + "\n")
            file.flush()
            print(f"{done}/{len(jobs)} {result['arm']} seed {result['seed']}: {result['cpu_s']:.0f} CPU s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=list(STUDIES))
    parser.add_argument("--arms", help="comma-separated; default: all")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further overrides, for all arms")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    chosen = given.arms.split(",") if given.arms else list(STUDIES[given.study])
    unknown = [arm for arm in chosen if arm not in STUDIES[given.study]]
    if unknown:
        parser.error(f"unknown arm {unknown[0]!r}: expected some of {', '.join(STUDIES[given.study])}")
    main(given.study, chosen, given.seeds, given.workers, given.set, given.out or RESULTS / f"{given.study}.jsonl")
