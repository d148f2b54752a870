"""Post-train a research agent from Python: a configuration, a world model of your own, and what came of it.

    make setup                               # or: pip install '.[train]'; wmrl sandbox build; wmrl tasks prepare builtin
    python examples/post_train_agent.py --steps 20

It says nothing until it is done, which takes some minutes: `tail -f runs/post-train-agent/metrics.jsonl` shows the steps. From
the command line, with progress, and with this folder on the path: `PYTHONPATH=examples wmrl train laptop train.steps=20
world_model.kind=post_train_agent:CautiousModel`.
"""

import argparse
from pathlib import Path

from wmrl_envs.world_models.static.model import StaticWorldModel
from wmrl_train.config import load_config
from wmrl_train.run.report import write_report
from wmrl_train.run.rundir import RunDirectory
from wmrl_train.training.build import build
from wmrl_train.training.trainer import Trainer


class CautiousModel(StaticWorldModel):
    """Anything with `predict(solutions, contexts) -> outcomes` is a world model: this one trusts long programs less."""

    def predict(self, solutions, contexts):
        outcomes = super().predict(solutions, contexts)
        return [o.with_score(o.score * (0.9 if len(s.code) > 2000 else 1.0)) for o, s in zip(outcomes, solutions, strict=True)]


def main(steps=20, folder="runs", overrides=()):
    """Train; the mean reward of executed groups in each step that had one."""
    config = load_config(
        "laptop",
        [f"train.steps={steps}", f"run.dir={folder}", "run.name=post-train-agent", "anchors.fraction=0.25",
         "world_model.kind=post_train_agent:CautiousModel", "eval.k=2", *overrides],
    )  # fmt: skip
    run = RunDirectory(config.run_dir)
    run.set_aside()  # an earlier run of this name keeps its files; `wmrl train --resume` would go on with it
    run.acquire()  # one process at a time
    run.config_file.write_text(config.to_yaml())
    try:
        trainer = Trainer(config, build(config), run)
        try:
            trainer.run()
        finally:
            trainer.close()
        executed = [line["reward/executed"] for line in run.read("metrics.jsonl") if line.get("reward/executed") is not None]
        print(f"executed reward: {executed[0]:.3f} at first, {executed[-1]:.3f} at last; {write_report(run.path)}")
    finally:
        run.release()
    return executed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=Path("runs"))
    given = parser.parse_args()
    main(given.steps, given.folder)
