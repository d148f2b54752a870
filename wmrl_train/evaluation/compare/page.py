"""A comparison as one self-contained page: no scripts, no requests; everything that was read from a folder is escaped."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wmrl_envs.errors import InvalidInput, MissingExtra
from wmrl_train.evaluation.compare.differences import Comparison
from wmrl_train.evaluation.compare.show import interval, percent, signed
from wmrl_train.evaluation.compare.sides import Point, Side, settings_that_differ

_STYLES = ("o-", "s--", "^-.", "D:", "v-", "P--")
_AXES: dict[str, Callable[[Point], float]] = {
    "training steps": lambda point: point.step,
    "executions paid": lambda point: point.executions,
    "CPU seconds": lambda point: point.cpu_s,
}


def write_page(path: Path, sides: Sequence[Side], comparisons: Sequence[Comparison]) -> Path:
    """Write the page and return its path.

    Args:
        path: of the HTML file.
        sides: what is compared.
        comparisons: of the others with the first.

    Raises:
        InvalidInput: it cannot be written. MissingExtra: jinja2 or matplotlib is not installed.
    """
    try:
        from jinja2 import Environment, FileSystemLoader
    except ImportError:
        raise MissingExtra("jinja2", "train", "the page of a comparison") from None
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True)
    environment.filters |= {"percent": percent, "signed": signed, "interval": interval}
    page = environment.get_template("compare.html.j2").render(
        sides=sides, comparisons=comparisons, settings=settings_that_differ(sides), figures=_figures(sides)
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.tmp")
        partial.write_text(page, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written ({error.strerror}): give another file with --page.") from None
    return path


def _figures(sides: Sequence[Side]) -> list[dict[str, str]]:
    """Curves of the runs among the sides."""
    with_points = [side for side in sides if side.points]
    figures = [_scores(with_points, name, x) for name, x in _AXES.items()] if with_points else []
    with_rewards = [side for side in sides if side.rewards[0]]
    if with_rewards:
        figure, axes = _axes("training steps", "mean reward")
        for side, style in zip(with_rewards, _styles(), strict=False):
            axes.plot(*side.rewards, style[1:], label=side.name, alpha=0.8)
        caption = "What a step's episodes were paid: true where they were executed, calibrated predictions elsewhere."
        figures.append(_done(figure, axes, "Reward during training", caption))
    return figures


def _scores(sides: Sequence[Side], name: str, x: Callable[[Point], float]) -> dict[str, str]:
    figure, axes = _axes(name, "score (percent)")
    curves = [(side, split) for side in sides for split in dict.fromkeys(s for p in side.points for s in p.scores)]
    for (side, split), style in zip(curves, _styles(), strict=False):
        found = [(x(p), 100 * p.scores[split]) for p in side.points if split in p.scores]
        axes.plot(*zip(*found, strict=True), style, label=f"{side.name}, {split}", markersize=4)
    caption = (
        "Evaluations by real execution: mean over categories of the mean over tasks. Their own executions are not counted."
    )
    return _done(figure, axes, f"Score against {name}", caption)


def _styles() -> list[str]:
    return list(_STYLES) * 20


def _axes(x: str, y: str) -> tuple[Any, Any]:
    try:
        from matplotlib import style
        from matplotlib.figure import Figure  # without pyplot: no global state, no display
    except ImportError:
        raise MissingExtra("matplotlib", "train", "the page of a comparison") from None
    with style.context("tableau-colorblind10"):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(xlabel=x, ylabel=y)
    return figure, axes


def _done(figure: Any, axes: Any, title: str, caption: str) -> dict[str, str]:
    for line in axes.get_lines():  # a leading underscore hides a line, a dollar begins a formula
        line.set_label(" " + str(line.get_label()).replace("$", "\\$"))
    axes.legend(frameon=False, fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg")
    return {"title": title, "caption": caption, "svg": base64.b64encode(buffer.getvalue()).decode()}
