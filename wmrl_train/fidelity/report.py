"""The files of `wmrl fidelity`: `fidelity.json` with every figure, `fidelity.html` with tables and plots."""

from __future__ import annotations

import html
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wmrl_envs.world_models.simulator import prompts

PUBLISHED = "61.5 % (arXiv 2601.05930: a large language model given such a data report, 18,438 pairs of its own corpus)"
ROWS = (  # key of a measurement, label, format
    ("n", "programs", "d"),
    ("pairs_learnt", "executed pairs learnt from", "d"),
    ("validity_auc", "validity AUC", ".3f"),
    ("validity_agreement", "validity agrees", ".1%"),
    ("false_fail_rate", "false fails on working programs", ".1%"),
    ("false_pass_rate", "false passes on failing programs", ".1%"),
    ("spearman", "Spearman of the score", ".3f"),
    ("within_group_spearman", "Spearman within groups of 8", ".3f"),
    ("pairwise_accuracy_valid", "pairwise accuracy, valid programs", ".1%"),
    ("within_task_correlation", "correlation within tasks", ".3f"),
    ("within_task_slope", "slope within tasks", ".2f"),
    ("rmse", "root mean square error", ".3f"),
    ("mean_absolute_error", "mean absolute error of the score", ".3f"),
    ("cpu_s_per_program", "CPU seconds of execution a program", ".3f"),
    ("cpu_share", "share of full execution's CPU", ".1%"),
    ("seconds_per_program", "seconds a program", ".4f"),
)
RULE_COLUMNS = ("rule", "fired", "on failing programs", "caught", "false fails")
_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:right}
td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}h1,h2,h3{line-height:1.2}.note{color:#666}"""


def write(folder: Path, reports: Mapping[str, Mapping[str, Any]], notes: Sequence[str] = ()) -> None:
    """Write both files into `folder` (each replaced as a whole)."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "prompt_version": prompts.VERSION,
        "published_pairwise_accuracy": PUBLISHED,
        "notes": list(notes),
        "models": reports,
    }
    _replace(folder / "fidelity.json", json.dumps(document, indent=1))
    _replace(folder / "fidelity.html", page(reports, notes))


def _replace(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def show(reports: Mapping[str, Mapping[str, Any]], folder: Path, notes: Sequence[str] = ()) -> None:
    """The main figures as a table on the terminal."""
    from rich.table import Table

    from wmrl_train.run.terminal import Terminal

    columns = list(_measurements(reports))
    table = Table(title="fidelity", caption=f"pairwise accuracy published elsewhere: {PUBLISHED}")
    table.add_column("")
    for name, _ in columns:
        table.add_column(name, justify="right")
    for key, label, form in ROWS:
        table.add_row(label, *(_number(m.get(key), form) for _, m in columns))
    console = Terminal()
    console.print(table)
    for name, figures in columns:
        if figures.get("by_rule"):
            console.print(_rules_table(name, figures["by_rule"]))
            break  # what the rules find does not change with pairs, only how much they are trusted
    for note in notes:
        console.print(note, highlight=False)
    console.print(f"report: {folder / 'fidelity.html'}", soft_wrap=True, highlight=False)


def _rules_table(name: str, rules: Mapping[str, Mapping[str, int]]) -> Any:
    from rich.table import Table

    table = Table(title=f"by rule ({name})")
    for column in RULE_COLUMNS:
        table.add_column(column, justify="right" if column != RULE_COLUMNS[0] else "left")
    for rule, row in rules.items():
        table.add_row(rule, *(str(row[k]) for k in ("fired", "failed", "caught", "false_fails")))
    return table


def _measurements(reports: Mapping[str, Mapping[str, Any]]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    for model, report in reports.items():
        for name, figures in report["measurements"].items():
            yield f"{model}, {name}", figures


def page(reports: Mapping[str, Mapping[str, Any]], notes: Sequence[str] = ()) -> str:
    """The HTML report; complete in one file, everything from outside escaped."""
    columns = list(_measurements(reports))
    head = ["", *(name for name, _ in columns)]
    parts = ["<h1>Fidelity of world models</h1>", *(f"<p class=note>{html.escape(n)}</p>" for n in notes)]
    for model, report in reports.items():
        parts.append(f"<p class=note>{html.escape(model)}: split {html.escape(report['split'])}, seed {report['seed']}</p>")
    rows = [[label, *(_number(m.get(key), form) for _, m in columns)] for key, label, form in ROWS]
    parts += [_table(head, rows), f"<p class=note>Pairwise accuracy published elsewhere: {html.escape(PUBLISHED)}</p>"]
    for name, figures in columns:
        parts += [f"<h2>{html.escape(name)}</h2>", *_sections(figures)]
    return f"<!doctype html><meta charset=utf-8><title>Fidelity</title><style>{_STYLE}</style>" + "\n".join(parts)


def _sections(m: Mapping[str, Any]) -> list[str]:
    calibration = m["calibration"]
    errors = ", ".join(
        f"{label} {_number(calibration[key], '.3f')}"
        for key, label in (("ece_before", "before"), ("ece_after", "after recalibration"))
        if calibration.get(key) is not None
    )
    parts = ["<h3>Calibration</h3>", _calibration_plot(calibration), f"<p>Expected calibration error: {errors}</p>"]
    failures = m["failures_by_class"].items()
    parts += [
        "<h3>Failures by class of error</h3>",
        _table(["class", "programs", "missed"], [[k, v["all"], v["missed"]] for k, v in failures]),
    ]
    blamed = m["false_fails_by_class"].items()
    if blamed:
        parts += ["<h3>False fails by predicted class</h3>", _table(["class", "programs"], [[k, v] for k, v in blamed])]
    for key, title in (("by_origin", "By origin"), ("by_fault", "By planted fault or mutation")):
        rows = [[k, v["n"], v["failed"], v["predicted"], v["false_fails"]] for k, v in m[key].items()]
        parts += [f"<h3>{title}</h3>", _table(["", "programs", "really failed", "predicted to fail", "false fails"], rows)]
    rules = [[k, v["fired"], v["failed"], v["caught"], v["false_fails"]] for k, v in (m.get("by_rule") or {}).items()]
    if rules:
        parts += ["<h3>By rule</h3>", _table(list(RULE_COLUMNS), rules)]
    feedback = m["feedback"]
    rows = [[k.replace("_", " "), _number(v, "d" if isinstance(v, int) else ".1%")] for k, v in feedback.items()]
    parts += ["<h3>Feedback on failures</h3>", _table(["", ""], rows)]
    for key, title in (("by_category", "By category"), ("by_task", "By task")):
        keys = ("n", "validity_auc", "false_fail_rate", "within_group_spearman", "pairwise_accuracy_valid")
        forms = ("d", ".3f", ".1%", ".3f", ".1%")
        rows = [[name, *(_number(v[k], f) for k, f in zip(keys, forms, strict=True))] for name, v in m[key].items()]
        parts += [f"<h3>{title}</h3>", _table(["", *(k.replace("_", " ") for k in keys)], rows)]
    if "queries" in m:
        rows = [[k, v] for k, v in m["queries"].items()] + [
            [f"tokens a query, {k}", f"{v:.0f}"] for k, v in m["tokens_per_query"].items()
        ]
        parts += ["<h3>Queries</h3>", _table(["", ""], rows)]
    return parts


def _number(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)


def _table(head: list[str], rows: list[list[Any]]) -> str:
    cells = lambda tag, row: "".join(f"<{tag}>{html.escape(str(c))}</{tag}>" for c in row)  # noqa: E731
    return f"<table><tr>{cells('th', head)}</tr>" + "".join(f"<tr>{cells('td', row)}</tr>" for row in rows) + "</table>"


def _calibration_plot(calibration: Mapping[str, Any]) -> str:
    """Mean executed score against mean predicted score in ten bins, before and after recalibration, as SVG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="#aaa", linewidth=1)
    for key, label in (("before", "before"), ("after", "after recalibration")):
        points = calibration.get(key) or []
        if points:
            x, y = [p["predicted"] for p in points], [p["true"] for p in points]
            axes.plot(x, y, marker="o", label=label)
    axes.set(xlabel="mean predicted score", ylabel="mean executed score", xlim=(0, 1), ylim=(0, 1))
    axes.legend()
    figure.tight_layout()
    out = io.StringIO()
    figure.savefig(out, format="svg")
    text = out.getvalue()
    return text[text.index("<svg") :]
