"""`report.html`: a run's logs as one self-contained page (no scripts, no requests; everything an agent wrote is escaped)."""

from __future__ import annotations

import base64
import io
import itertools
import os
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.correction import Recalibrator
from wmrl_envs.errors import InvalidInput, MissingExtra, WmrlError
from wmrl_envs.text import clean
from wmrl_train.config import Config, CorrectionConfig, load_config
from wmrl_train.run import changes
from wmrl_train.run.changes import sentence
from wmrl_train.run.rundir import RunDirectory
from wmrl_train.run.worth import compared, verdict

_SOURCES = {
    "reward/executed": "executed (anchor groups)", "reward/calibrated": "calibrated prediction",
    "reward/predicted": "raw prediction",
}  # fmt: skip
_LANES = ("generate", "predict", "execute", "learn")
_AUDIT = {
    "anchor/audit_bias": "mean calibrated prediction minus truth",
    "anchor/audit_rank_correlation": "rank correlation within groups",
    "anchor/audit_top_decile_residual": "calibrated prediction minus truth among the highest predictions",
    "anchor/audit_cusum": "CUSUM statistic",
    "anchor/audit_alarm": "alarm",
}


def write_report(run: str | Path) -> Path:
    """Write `report.html` of a run directory and return its path.

    Raises:
        InvalidInput: the directory holds no run.
    """
    directory = RunDirectory(run)
    if not directory.has_run:
        raise InvalidInput(
            f"{run} holds no run: expected a directory with config.yaml and metrics.jsonl, as `wmrl train` writes it."
        )
    try:
        from jinja2 import Environment, FileSystemLoader
    except ImportError:
        raise MissingExtra("jinja2", "train", "the report") from None
    template = Environment(loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True).get_template(
        "report.html.j2"
    )
    directory.check()
    config = load_config(directory.config_file)
    try:
        content = _content(directory, config)
    except WmrlError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # the logs' lines are objects, but of something else
        raise InvalidInput(
            f"The logs in {directory.path} hold a record that is not of `wmrl train` ({type(error).__name__}: {error}): "
            "expected them as the run wrote them; remove what was added or changed."
        ) from error
    page = template.render(content)
    target = directory.path / "report.html"
    try:
        descriptor, partial = tempfile.mkstemp(dir=directory.path, prefix=".report-")  # a new file: nothing lies in its place
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(clean(page))  # half characters of a program's output fit in no file
        os.chmod(partial, 0o644)
        os.replace(partial, target)
    except OSError as error:
        raise InvalidInput(f"{target} cannot be written ({error.strerror}): make room or the folder writable.") from None
    return target


def _content(directory: RunDirectory, config: Config) -> dict[str, Any]:
    records = list(directory.read("metrics.jsonl"))
    steps = [r for r in records if "eval" not in r]
    evaluations = {r["step"]: {s: v for s, v in r["eval"].items() if isinstance(v, dict)} for r in records if "eval" in r}
    pairs = list(directory.read("anchors.jsonl"))
    last = steps[-1] if steps else {}
    names = sorted({task for e in evaluations.values() for split in e.values() for task in split.get("by_task", {})})
    scores = {
        step: {t: v for split in e.values() for t, v in split.get("by_task", {}).items()} for step, e in evaluations.items()
    }
    return {
        "name": config.run.name, "seed": config.run.seed, "steps": len(steps), "planned": config.train.steps,
        "groups": config.rollout.groups, "group_size": config.rollout.group_size,
        "world_model": config.world_model.kind if config.agent.name != "vla" else config.libero.reward or "none",
        "k": config.eval.k, "evaluations": evaluations,
        "splits": list(dict.fromkeys(s for e in evaluations.values() for s in e)),
        "by_task": [{"name": n, "scores": [scores[step].get(n) for step in evaluations]} for n in names],
        "figures": _figures(steps, evaluations, pairs, config.correction), "ledger": _ledger(last),
        "failures": _failures(directory),
        "audit": [(text, f"{last[key]:.3f}") for key, text in _AUDIT.items() if last.get(key) is not None],
        "changed": [(r["step"], sentence(r["changed"])) for r in directory.read(changes.LOG)],
        "worth": _worth(pairs), "best": _best(directory), "config": config.to_yaml(),
    }  # fmt: skip


def _worth(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Raw beside calibrated predictions on the anchors, in points (hundredths of a score), with a sentence."""
    both = compared(pairs)
    if both is None:
        return None
    rows = [("mean prediction minus truth, points", "bias", 100.0, "+.1f"), ("root mean squared error, points", "rmse", 100.0,
        ".1f"),
            ("the same of advantages, points", "advantage_rmse", 100.0, ".1f"), ("correlation with the truth within groups",
            "order", 1.0, ".2f")]  # fmt: skip
    table = [
        (text, *("-" if getattr(w, key) is None else format(scale * getattr(w, key), form) for w in both))
        for text, key, scale, form in rows
    ]
    return {"rows": table, "sentence": verdict(*both)}


def _ledger(last: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "ledger/executions_paid" not in last:  # no step yet, or a run in a simulator, which pays for every episode
        return []
    paid, avoided, seconds = (last[f"ledger/{k}"] for k in ("executions_paid", "executions_avoided", "execution_s"))
    mean_s = seconds / paid if paid else 0.0
    rows = [
        ("executions paid", f"{paid} ({seconds:.0f} s of wall clock)"),
        ("different programs executed", f"{last.get('ledger/executions_distinct', '-')}"),
        ("answered from the execution cache", f"{last['ledger/executions_cached']}"),
        ("executions avoided", f"{avoided}" + (f" (about {avoided * mean_s:.0f} s at {mean_s:.2f} s each)" if paid else "")),
    ]
    rows += [(f"CPU seconds, {lane}", f"{last[f'ledger/{lane}_cpu_s']:.1f}") for lane in _LANES]
    rows += [
        ("tokens sampled", f"{last['ledger/tokens']}"),
        ("groups dropped (infrastructure)", f"{last['ledger/dropped_groups']}"),
    ]
    return rows


def _failures(directory: RunDirectory) -> list[dict[str, Any]]:
    counts: dict[str, list[bool]] = defaultdict(list)
    for record in directory.read("rollouts.jsonl"):
        for turn in record.get("turns", ()):
            if record["anchored"] and turn["status"] is not None:
                counts["no program" if turn["problem"] else turn["status"]].append(turn["predicted_status"] == "ok")
    ordered = sorted(counts.items(), key=lambda item: -len(item[1]))
    return [{"status": status, "count": len(flags), "predicted_ok": sum(flags) / len(flags)} for status, flags in ordered]


def _best(directory: RunDirectory, count: int = 12) -> list[dict[str, Any]]:
    """The best executed solution of each task."""
    best: dict[str, dict[str, Any]] = {}
    for record in directory.read("rollouts.jsonl"):
        for turn in record.get("turns", ()):
            if turn["code"] and turn["true"] and turn["true"] > best.get(record["task"], {"true": 0})["true"]:
                best[record["task"]] = turn | {"task": record["task"], "step": record["step"]}
    return sorted(best.values(), key=lambda s: -s["true"])[:count]


def _figures(
    steps: Sequence[Mapping[str, Any]],
    evaluations: Mapping[int, Any],
    pairs: Sequence[Mapping[str, Any]],
    correction: CorrectionConfig,
) -> list[dict[str, str]]:
    if not steps:
        return []
    measured = {key for step in steps for key in step}  # a run in a simulator times no lanes
    figures = [
        _curve(
            "Learning curve by reward source",
            "Mean score of a step's trajectories. Evaluations are k really executed samples a task.",
            steps,
            evaluations,
        ),
        _lines(
            "Anchor weight rho and disagreement eta2",
            "rho is 1 in warm-up, 2 right after it, and follows eta2.",
            steps,
            {"anchor/rho": "rho", "anchor/eta2": "eta2", "anchor/eta2_cal": "eta2 at the end of warm-up"},
        ),
    ]
    if "time/step_s" in measured:
        figures.append(
            _time(
                "Time by lane",
                "Seconds of a step in which each lane was busy; lanes overlap, so they may exceed the step.",
                steps,
            )
        )
    if "policy/entropy" in measured:
        figures.append(
            _lines(
                "Policy",
                "Entropy a token and KL to the initial policy, nats.",
                steps,
                {"policy/entropy": "entropy", "policy/kl": "KL"},
            )
        )
    if pairs:
        figures.insert(
            1,
            _calibration(
                "Calibration on the anchors",
                "Every anchor: what was predicted, what was true, and the map in force.",
                pairs,
                correction,
            ),
        )
    return figures


def _axes() -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure  # without pyplot: no global state, no display
    except ImportError:
        raise MissingExtra("matplotlib", "train", "the report") from None
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _done(figure: Any, axes: Any, title: str, caption: str) -> dict[str, str]:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg")
    return {"title": title, "caption": caption, "svg": base64.b64encode(buffer.getvalue()).decode()}


def _series(steps: Sequence[Mapping[str, Any]], key: str) -> tuple[list[int], list[float]]:
    found = [(s["step"], s[key]) for s in steps if s.get(key) is not None]
    return [x for x, _ in found], [y for _, y in found]


def _curve(title: str, caption: str, steps: Sequence[Mapping[str, Any]], evaluations: Mapping[int, Any]) -> dict[str, str]:
    figure, axes = _axes()
    for key, label in _SOURCES.items():
        x, y = _series(steps, key)
        if x:
            (drawn,) = axes.plot(x, y, alpha=0.3, linewidth=1)
            axes.plot(x, _smooth(y), color=drawn.get_color(), label=label)
    for split in dict.fromkeys(s for e in evaluations.values() for s in e):
        points = [(step, e[split]["avg"]) for step, e in evaluations.items() if split in e]
        axes.plot(*zip(*points, strict=True), "o--", label=f"evaluation, {split}")
    axes.set(xlabel="step", ylabel="score", ylim=(0, 1))
    return _done(figure, axes, title, caption)


def _smooth(values: Sequence[float], width: int = 5) -> list[float]:
    return [sum(values[max(0, i - width + 1) : i + 1]) / len(values[max(0, i - width + 1) : i + 1]) for i in range(len(values))]


def _lines(title: str, caption: str, steps: Sequence[Mapping[str, Any]], series: Mapping[str, str]) -> dict[str, str]:
    figure, axes = _axes()
    for key, label in series.items():
        x, y = _series(steps, key)
        if x:
            axes.plot(x, y, label=label)
    axes.set(xlabel="step")
    return _done(figure, axes, title, caption)


def _time(title: str, caption: str, steps: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    figure, axes = _axes()
    x = [s["step"] for s in steps]
    axes.stackplot(x, *[[s.get(f"time/{lane}_s", 0.0) for s in steps] for lane in _LANES], labels=_LANES, alpha=0.8)
    axes.plot(*_series(steps, "time/step_s"), color="black", linewidth=1, label="step")
    axes.set(xlabel="step", ylabel="seconds")
    return _done(figure, axes, title, caption)


def _final_map(correction: CorrectionConfig, pairs: Sequence[Mapping[str, Any]]) -> Recalibrator:
    """The map as it stood at the end: the logged pairs, group by group, through a recalibrator of the same settings."""
    fitted = Recalibrator(
        correction.min_pairs, correction.refit_every, correction.direction, correction.levels,
        per_task=correction.per_task, two_stage=correction.two_stage,
    )  # fmt: skip
    for group, members in itertools.groupby(pairs, key=lambda p: p["group"]):
        predicted, true = zip(*((p["predicted"], p["true"]) for p in members), strict=True)
        fitted.update(predicted, true, group=group)
    return fitted


def _calibration(title: str, caption: str, pairs: Sequence[Mapping[str, Any]], correction: CorrectionConfig) -> dict[str, str]:
    figure, axes = _axes()
    axes.plot([0, 1], [0, 1], color="grey", linewidth=1, linestyle=":")
    axes.scatter([p["predicted"] for p in pairs], [p["true"] for p in pairs], s=9, alpha=0.35, label="anchors")
    grid = np.linspace(0, 1, 101)
    axes.plot(grid, _final_map(correction, pairs).transform(grid), color="tab:red", label="map in force at the end")
    axes.set(xlabel="predicted score", ylabel="true score", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    return _done(figure, axes, title, caption)
