"""The README's picture, score against executions, from the stored runs of the study: `python benchmarks/study/picture.py`."""

from __future__ import annotations

import numpy as np
from tables import DOCS, Arm, arms_of, categories, load

CURVES = {  # arm -> (label, colour)
    "real": ("every program really run", "#4c566a"),
    "same-budget": ("as few real runs, nothing predicted", "#bf616a"),
    "wmrl-longer": ("WMRL: most predicted, one group in eight really run", "#2e7d32"),
}


def executions(arm: Arm, step: int) -> float:
    """Programs really run up to `step`, mean over the seeds."""
    if step == 0:
        return 0.0
    ledgers = [run["ledgers"][str(step)] for run in arm.runs]
    return float(np.mean([ledger["executions_paid"] + ledger["executions_cached"] for ledger in ledgers]))


def main() -> None:
    """Write docs/figures/score_against_executions.png."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    arms = arms_of(load("main"), categories(), list(CURVES))
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.6), sharex=True)
    for axis, split, title in zip(axes, ("train", "held_out"), ("tasks trained on", "tasks never trained on"), strict=True):
        for name, (label, colour) in CURVES.items():
            arm = arms[name]
            steps = sorted(map(int, arm.runs[0]["evaluations"]))
            scores = [arm.scores(split, str(step)) for step in steps]
            error = [s.std(ddof=1) / np.sqrt(len(s)) for s in scores]
            axis.errorbar([executions(arm, step) for step in steps], [s.mean() for s in scores], error,
                          marker="o", ms=4, capsize=2, color=colour, label=label)  # fmt: skip
        axis.set(title=title, xlabel="programs really run while training", ylabel="leaderboard position, %")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(DOCS / "figures" / "score_against_executions.png", dpi=110)


if __name__ == "__main__":
    main()
