"""Tables and figures of the study from its stored results: writes docs/reproduction.md and its figures.

python benchmarks/study/tables.py                              # from docs/results/study
python benchmarks/study/tables.py --quick runs/reproduce.jsonl # prints the main table of a reduced run
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from arms import LIVE, NAMES, SENSITIVITY, SMOLLM2
from run import RESULTS
from scipy import stats

DOCS = RESULTS.parents[1]
PAPER = {  # GPU-hours, MLE-Dojo, DSBench of the 4B model (Table 1)
    "real": (883, 15.2, 25.7), "world-model": (269, 12.9, 23.1), "wmrl": (286, 16.4, 28.8),
}  # fmt: skip
LANES = ("generate", "predict", "execute", "learn")
Run = dict[str, Any]


def load(name: str) -> list[Run]:
    path = RESULTS / f"{name}.jsonl" if not name.endswith(".jsonl") else Path(name)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def categories() -> dict[str, str]:
    from wmrl_envs.tasks import list_competitions, load_competition

    return {slug: load_competition(slug).spec.category for slug in list_competitions(source="builtin")}


def score(evaluation: dict[str, Any], split: str, category: dict[str, str]) -> float:
    """Mean over categories of the mean over their tasks, as in the paper's Table 1."""
    by_category: dict[str, list[float]] = {}
    for task, value in evaluation[split]["by_task"].items():
        by_category.setdefault(category[task], []).append(value)
    return float(np.mean([np.mean(values) for values in by_category.values()]))


class Arm:
    """All runs of an arm, by seed."""

    def __init__(self, runs: Sequence[Run], category: dict[str, str]):
        self.runs = sorted(runs, key=lambda r: r["seed"])
        self.seeds = [r["seed"] for r in self.runs]
        self._category = category

    def scores(self, split: str, step: str | None = None) -> np.ndarray:
        """One a seed, in percent; at the last evaluation, or at `step`."""
        found = []
        for run in self.runs:
            at = step or max(run["evaluations"], key=int)
            found.append(100 * score(run["evaluations"][at], split, self._category))
        return np.array(found)

    def ledger(self, key: str) -> float:
        return float(np.mean([run["ledgers"][max(run["ledgers"], key=int)][key] for run in self.runs]))

    def cpu_s(self) -> float:
        return sum(self.ledger(f"{lane}_cpu_s") for lane in LANES)


def interval(values: np.ndarray) -> str:
    """Mean and half-width of the 95 % t-interval."""
    if len(values) < 2:
        return f"{values.mean():.1f}"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.1f} ± {half:.1f}"


def against(arm: Arm, other: Arm, split: str) -> str:
    """Paired difference to another arm over the seeds both have, with the p-value of the paired t-test."""
    shared = sorted(set(arm.seeds) & set(other.seeds))
    a, b = (np.array([s for s, seed in zip(x.scores(split), x.seeds, strict=True) if seed in shared]) for x in (arm, other))
    if len(shared) < 2 or np.allclose(a, b):
        return ""
    return f"{(a - b).mean():+.1f} (p = {stats.ttest_rel(a, b).pvalue:.2g})"


def arms_of(runs: Sequence[Run], category: dict[str, str], order: Sequence[str]) -> dict[str, Arm]:
    found = {name: [r for r in runs if r["arm"] == name] for name in order}
    return {name: Arm(members, category) for name, members in found.items() if members}


def main_table(arms: dict[str, Arm]) -> list[str]:
    """Table 1: score against compute."""
    first = next(iter(arms.values()))
    rows = [
        "| arm | held out, avg@8 % | against real | trained on, avg@8 % | executions | CPU s: generate + predict + execute + learn | compute, real = 1 |",
        "|---|---|---|---|---|---|---|",
        f"| untrained | {interval(first.scores('held_out', '0'))} | | {interval(first.scores('train', '0'))} | 0 | 0 | 0 |",
    ]
    real = arms.get("real")
    for name, arm in arms.items():
        lanes = " + ".join(f"{arm.ledger(f'{lane}_cpu_s'):.0f}" for lane in LANES)
        ratio = f"{arm.cpu_s() / real.cpu_s():.3f}" if real else ""
        versus = against(arm, real, "held_out") if real and name != "real" else ""
        rows.append(
            f"| {NAMES.get(name, name)} | {interval(arm.scores('held_out'))} | {versus} | {interval(arm.scores('train'))} | "
            f"{arm.ledger('executions_paid'):.0f} | {lanes} | {ratio} |"
        )
    return rows


def paper_table(arms: dict[str, Arm]) -> list[str]:
    """The paper's Table 1 beside ours, as ratios of compute and differences of score to real execution."""
    rows = ["| | paper: GPU-hours | ratio | MLE-Dojo, against real | DSBench, against real | ours: compute ratio | held out, against real |",
            "|---|---|---|---|---|---|---|"]  # fmt: skip
    hours, dojo, bench = PAPER["real"]
    for name, (h, d, b) in PAPER.items():
        ours = arms.get(name)
        ratio = f"{ours.cpu_s() / arms['real'].cpu_s():.3f}" if ours else ""
        versus = (against(ours, arms["real"], "held_out") or "0") if ours else ""
        rows.append(f"| {NAMES[name]} | {h} | {h / hours:.3f} | {d - dojo:+.1f} | {b - bench:+.1f} | {ratio} | {versus} |")
    return rows


def ablation_table(arms: dict[str, Arm]) -> list[str]:
    """Table 3: what each correction adds to the plain mixture."""
    rows = ["| arm | held out | against the mixture | trained on | against the mixture |", "|---|---|---|---|---|"]
    for name in ("world-model", "mixture", "debias", "denoise", "wmrl", "cv", "auto"):
        if name in arms and "mixture" in arms:
            arm, base = arms[name], arms["mixture"]
            held, train = ("", "") if name == "mixture" else (against(arm, base, s) for s in ("held_out", "train"))
            rows.append(
                f"| {NAMES[name]} | {interval(arm.scores('held_out'))} | {held} | {interval(arm.scores('train'))} | {train} |"
            )
    return rows


def structured_table(arms: dict[str, Arm], plain: dict[str, Arm]) -> list[str]:
    """How far each arm falls for the planted error."""
    rows = ["| arm | held out | trained on | without the error | dummies written in the last 5 steps | runs with an alarm | first alarm, step | executions |",
            "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for name, arm in arms.items():
        error, _, plain_name = name.removesuffix("-act").partition("-")
        base = plain.get(plain_name)
        share = np.array([100 * np.mean(run["dummies"][-5:]) for run in arm.runs])
        alarms = [next((i + 1 for i, a in enumerate(run["curves"]["anchor/audit_alarm"]) if a), None) for run in arm.runs]
        first = [a for a in alarms if a is not None]
        label = NAMES[plain_name] + (", acts on alarms" if name.endswith("-act") else "")
        label += ", no planted error" if error == "honest" else ""
        rows.append(
            f"| {label} | {interval(arm.scores('held_out'))} | {interval(arm.scores('train'))} | {interval(base.scores('train')) if base else ''} | "
            f"{interval(share)} % | {len(first)} of {len(alarms)} | {np.median(first) if first else ''} | {arm.ledger('executions_paid'):.0f} |"
        )
    return rows


def live_table(arms: dict[str, Arm]) -> list[str]:
    """The arms without the trie, executing live, beside the same steps under the trie."""
    rows = ["| arm | live: held out | live: trained on | live: valid, held out | trie: held out | trie: trained on | trie: valid, held out |",
            "|---|---|---|---|---|---|---|"]  # fmt: skip
    names = [n.removeprefix("live-") for n in arms if n.startswith("live-") and f"trie-{n.removeprefix('live-')}" in arms]
    for name in (["untrained"] if names else []) + names:
        cells = []
        for kind in ("live", "trie"):
            arm, step = arms[f"{kind}-{names[0] if name == 'untrained' else name}"], "0" if name == "untrained" else None
            valid = [100 * r["evaluations"][step or max(r["evaluations"], key=int)]["held_out"]["valid"] for r in arm.runs]
            cells += [interval(arm.scores("held_out", step)), interval(arm.scores("train", step)), f"{np.mean(valid):.0f} %"]
        rows.append(f"| {NAMES[name]} | {' | '.join(cells)} |")
    return rows


def small_table(arms: dict[str, Arm]) -> list[str]:
    """SmolLM2-135M under the trie."""
    rows = ["| arm | held out | trained on | executions | CPU s |", "|---|---|---|---|---|"]
    for i, (name, arm) in enumerate(arms.items()):
        if i == 0:
            rows.append(
                f"| untrained | {interval(arm.scores('held_out', '0'))} | {interval(arm.scores('train', '0'))} | 0 | 0 |"
            )
        rows.append(f"| {NAMES[name.removeprefix('smollm2-')]} | {interval(arm.scores('held_out'))} | {interval(arm.scores('train'))} | "
                    f"{arm.ledger('executions_paid'):.0f} | {arm.cpu_s():.0f} |")  # fmt: skip
    return rows


def sensitivity_table(arms: dict[str, Arm], reference: Arm) -> list[str]:
    rows = ["| setting | held out | against the default | trained on | against the default | executions | CPU s |", "|---|---|---|---|---|---|---|",
            f"| default | {interval(reference.scores('held_out'))} | | {interval(reference.scores('train'))} | | "
            f"{reference.ledger('executions_paid'):.0f} | {reference.cpu_s():.0f} |"]  # fmt: skip
    for name, arm in arms.items():
        rows.append(
            f"| {name} | {interval(arm.scores('held_out'))} | {against(arm, reference, 'held_out')} | {interval(arm.scores('train'))} | "
            f"{against(arm, reference, 'train')} | {arm.ledger('executions_paid'):.0f} | {arm.cpu_s():.0f} |"
        )
    return rows


def figures(arms: dict[str, Arm]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharex=True)
    for axis, split, title in zip(axes, ("held_out", "train"), ("held-out tasks", "tasks trained on"), strict=True):
        for name in ("real", "world-model", "mixture", "wmrl", "cv", "same-budget"):
            if name not in arms:
                continue
            arm = arms[name]
            steps = sorted(arm.runs[0]["evaluations"], key=int)
            x = [np.mean([_cost(run, int(step)) for run in arm.runs]) for step in steps]
            y = [arm.scores(split, step) for step in steps]
            axis.errorbar(x, [v.mean() for v in y], [v.std(ddof=1) / np.sqrt(len(v)) if len(v) > 1 else 0 for v in y],
                          marker="o", ms=3, capsize=2, label=NAMES[name])  # fmt: skip
        axis.set(title=title, xlabel="CPU seconds of the run (all lanes)", ylabel="avg@8, %", xscale="symlog")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(DOCS / "figures" / "study_curves.png", dpi=110)
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.4))
    curves = ("anchor/rho", "anchor/eta2", "anchor/abs_error")
    labels = ("rho", "eta2: residual over within-group variance", "|predicted - true| of the anchors")
    for axis, curve, label in zip(axes, curves, labels, strict=True):
        for name in ("mixture", "wmrl", "wmrl-learning"):
            if name in arms:
                values = np.array(
                    [[np.nan if v is None else v for v in run["curves"][curve]] for run in arms[name].runs], float
                )
                axis.plot(1 + np.arange(values.shape[1]), np.nanmean(values, axis=0), label=NAMES[name])
        axis.set(title=label, xlabel="step")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(DOCS / "figures" / "study_rho.png", dpi=110)


def _cost(run: Run, step: int) -> float:
    if step == 0:
        return 0.0
    at = max((s for s in run["ledgers"] if int(s) <= step), key=int)
    return sum(run["ledgers"][at][f"{lane}_cpu_s"] for lane in LANES)


def sections() -> dict[str, list[str]]:
    """Every generated block by the name of its place in the document."""
    category = categories()
    main = arms_of(load("main"), category, list(NAMES))
    structured = load("structured")
    planted = arms_of(structured, category, sorted({r["arm"] for r in structured}, key=[r["arm"] for r in structured].index))
    sensitivity = arms_of(load("sensitivity"), category, list(SENSITIVITY))
    figures(main)
    world = json.loads((RESULTS / "world_model.json").read_text())
    return {
        "main": main_table(main), "paper": paper_table(main), "ablation": ablation_table(main),
        "structured": structured_table(planted, main),
        "live": live_table(arms_of(load("live"), category, list(LIVE))),
        "smollm2": small_table(arms_of(load("smollm2"), category, list(SMOLLM2))),
        "sensitivity": sensitivity_table(sensitivity, main["wmrl"]) if "wmrl" in main else [],
        "seeds": [f"{len(main['wmrl'].runs)} seeds an arm{_fewer(main)}; {sum(r['cpu_s'] for r in load('main')) / 3600:.1f} CPU hours for the {len(load('main'))} runs "
                  "of the main table, replays and evaluations included."],
        "world-model": ["| | bias | calibration error | rmse | advantage slope | advantage correlation |", "|---|---|---|---|---|---|",
                        *(f"| {name} | {' | '.join(str(v) for v in m.values())} |" for name, m in world["maps"].items())],
        "levels": ["| true score | programs | mean prediction | noise |", "|---|---|---|---|",
                   *(f"| {r['true']} | {r['programs']} | {r['predicted']} | {r['noise']} |" for r in world["by_true_level"])],
        "estimators": ["| estimator | over-scored by | programs |", "|---|---|---|",
                       *(f"| {n} | {e['over_scored_by']:+} | {e['programs']} |" for n, e in list(world["by_estimator"].items())[:5])],
    }  # fmt: skip


def _fewer(arms: dict[str, Arm]) -> str:
    most = max(len(arm.runs) for arm in arms.values())
    fewer = [f"{NAMES[name]}: {len(arm.runs)}" for name, arm in arms.items() if len(arm.runs) < most]
    return f" ({'; '.join(fewer)})" if fewer else ""


def write() -> None:
    """Put every block between its marks in docs/reproduction.md; the text around them is written by hand."""
    path = DOCS / "reproduction.md"
    text = path.read_text(encoding="utf-8")
    for name, lines in sections().items():
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(start)
        if not rest:
            raise SystemExit(f"{path} has no place for {name!r}: expected a line {start.strip()}")
        text = before + start + "\n".join(lines) + "\n" + end + rest.partition(end)[2]
    path.write_text(text, encoding="utf-8")
    print(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", help="results of a reduced run: print its main table only")
    quick = parser.parse_args().quick
    if quick:
        print("\n".join(main_table(arms_of(load(quick), categories(), list(NAMES)))))
    else:
        write()
