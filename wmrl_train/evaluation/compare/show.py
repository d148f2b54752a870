"""A comparison on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wmrl_train.evaluation.compare.differences import Comparison, Difference
from wmrl_train.evaluation.compare.sides import Point, Side, settings_that_differ


def show(console: Console, sides: Sequence[Side], comparisons: Sequence[Comparison]) -> None:
    """Print what differs in the settings, the runs, and the paired differences of each side with the first.

    Args:
        console: where it is printed.
        sides: what is compared.
        comparisons: of the others with the first.
    """
    differ = settings_that_differ(sides)
    if differ:
        view = Table("setting", *(escape(side.name) for side in sides), title="What differs", title_justify="left")
        for key, values in differ:
            view.add_row(escape(key), *map(escape, values))
        console.print(view)
    else:
        console.print("The settings are the same.")
    if any(side.points for side in sides):
        console.print(curves(sides))
    for side in sides:
        console.print(escape(endings(side)), highlight=False)
    for comparison in comparisons:
        console.print(differences(comparison))
        if comparison.left_out:
            names = ", ".join(comparison.left_out[:5]) + (", ..." if len(comparison.left_out) > 5 else "")
            console.print(escape(f"{len(comparison.left_out)} tasks only one of them has are left out: {names}"))


def curves(sides: Sequence[Side]) -> Table:
    """The evaluations of every run, in order: mean scores against training steps and what had been paid."""
    view = Table("run", "split", title="Evaluations during runs", title_justify="left")
    for column in ("step", "executions", "CPU s", "score", "gain"):
        view.add_column(column, justify="right", no_wrap=True)
    for side in sides:
        for split in dict.fromkeys(name for point in side.points for name in point.scores):
            points = [point for point in side.points if split in point.scores]
            for point in _some(points):
                first, score = points[0].scores[split], point.scores[split]
                gain = "" if point is points[0] else signed(score - first)
                paid = (str(point.step), f"{point.executions:.0f}", f"{point.cpu_s:.0f}")
                view.add_row(escape(side.name), escape(split), *paid, percent(score), gain)
    return view


def _some(points: Sequence[Point], most: int = 12) -> list[Point]:
    """At most so many, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]


def endings(side: Side) -> str:
    """How the programs or episodes of a side ended."""
    counts = ", ".join(f"{count} {status}" for status, count in side.statuses.items())
    return f"{side.name}: {counts or 'nothing recorded'}"


def differences(comparison: Comparison) -> Table:
    """Percent and percentage points, as reports have them."""
    title = f"{comparison.second} against {comparison.first}: paired differences, intervals over {comparison.over}"
    view = Table("task", title=escape(title), title_justify="left")
    for name in ("first", "second", "difference", "95 % interval", "pairs", "better", "worse"):
        view.add_column(name, justify="right", no_wrap=True)
    for row in comparison.tasks:
        view.add_row(*_cells(row))
    if comparison.overall is None:
        view.add_row("no task in common", *["-"] * 7)
    else:
        view.add_section()
        view.add_row(*_cells(comparison.overall), style="bold")
    return view


def _cells(row: Difference) -> list[str]:
    return [
        escape(row.name), percent(row.first), percent(row.second), signed(row.difference), interval(row), str(row.pairs),
        str(row.better),
        str(row.worse),
    ]  # fmt: skip


def interval(row: Difference) -> str:
    """In percentage points."""
    return "-" if row.low is None or row.high is None else f"{signed(row.low)} to {signed(row.high)}"


def percent(value: float) -> str:
    """A fraction in percent.

    >>> percent(0.4567)
    '45.7'
    """
    return f"{100 * value:.1f}"


def signed(value: float) -> str:
    """A difference of fractions in percentage points.

    >>> signed(0.0123), signed(-0.5), signed(-0.00001)
    ('+1.2', '-50.0', '+0.0')
    """
    return f"{round(100 * value, 1) + 0.0:+.1f}"
