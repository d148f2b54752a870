"""Seconds a training step by lane, and what everything else costs, on the demo's own settings.

    python benchmarks/loop.py [--steps 10] [KEY=VALUE ...]

The first step is left out (it loads data and starts the sandbox's fork server). "other" is the wall clock of a step in which
neither a lane nor the learner worked: planning, corrections, records, the terminal.
"""

import argparse
import statistics
import tempfile

from wmrl_train.config import load_config
from wmrl_train.run.rundir import RunDirectory
from wmrl_train.training.build import build
from wmrl_train.training.trainer import Trainer

LANES = ("generate", "predict", "execute", "learn", "other", "step")


def measure(overrides: list[str], steps: int) -> list[dict[str, float]]:
    """Metrics of `steps` steps after a first one."""
    with tempfile.TemporaryDirectory() as folder:
        fixed = [f"run.dir={folder}", f"train.steps={steps + 1}", "eval.k=0", "execution.cache=false"]
        config = load_config("demo", [*fixed, *overrides])
        run = RunDirectory(config.run_dir)
        run.acquire()
        trainer = Trainer(config, build(config), run)
        try:
            trainer.run()
            return [record for record in run.read("metrics.jsonl") if record["step"] > 1]
        finally:
            trainer.close()
            run.release()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("overrides", nargs="*", help="dotted overrides of the configuration")
    arguments = parser.parse_args()
    records = measure(arguments.overrides, arguments.steps)
    means = {lane: statistics.mean(r[f"time/{lane}_s"] for r in records) for lane in LANES}
    print(f"mean of {len(records)} steps (lanes overlap, so they may sum to more than the step)")
    print("| lane | seconds a step | share of the step |")
    print("|---|---|---|")
    for lane, seconds in means.items():
        print(f"| {lane} | {seconds:.2f} | {seconds / means['step']:.1%} |")
    first, last = records[0], records[-1]
    cpu = {k: (last[f"ledger/{k}_cpu_s"] - first[f"ledger/{k}_cpu_s"]) / (len(records) - 1 or 1) for k in LANES[:4]}
    print("CPU seconds a step: " + ", ".join(f"{lane} {seconds:.2f}" for lane, seconds in cpu.items()))
    tokens = (last["ledger/tokens"] - first["ledger/tokens"]) / (len(records) - 1 or 1)
    print(f"{tokens:.0f} tokens a step, {tokens / means['generate']:.0f} tokens a second of generation")


if __name__ == "__main__":
    main()
