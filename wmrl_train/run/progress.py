"""Live progress of a run: a table that updates in a terminal, one plain line a step everywhere else. Scores are percentages
here.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from wmrl_envs.text import visible
from wmrl_train.run.terminal import Terminal

LANES = ("generate", "predict", "execute", "learn")
_RECENT = 8  # steps in the table


class Column(NamedTuple):
    """A column of the live table: what its head says, the metric, and digits after the point; None for a score, which is shown
    in percent.
    """

    head: str
    key: str
    digits: int | None

    def cell(self, values: Mapping[str, float]) -> str:
        value = values.get(self.key)
        return _percent(value, sign=False) if self.digits is None else _number(value, self.digits)


_STEP = Column("step", "step", 0)
_COLUMNS = (
    _STEP,
    Column("reward %", "reward/mean", None),
    Column("executed", "reward/executed", None),
    Column("predicted", "reward/predicted", None),
    Column("calibrated", "reward/calibrated", None),
    Column("anchors", "groups/anchors", 0),
    Column("pairs", "anchor/n_pairs", 0),
    Column("rho", "anchor/rho", 2),
    Column("eta2", "anchor/eta2", 2),
    *(Column(f"{lane} s", f"time/{lane}_s", 1) for lane in LANES),
    Column("step s", "time/step_s", 1),
)
_FIRST = ("step", "reward %", "executed", "step s", "calibrated", "anchors", "pairs", "rho", "predicted", "execute s",
          "learn s", "generate s", "eta2", "predict s")  # fmt: skip
"""Heads by how much they say: a narrow terminal has the first of them, whole, rather than all of them cut short."""


def columns(width: int) -> list[Column]:
    """Those of the live table that a terminal of `width` characters has room for.

    >>> [column.head for column in columns(40)]
    ['step', 'reward %', 'executed']
    """
    left = width - 1
    chosen: set[str] = set()
    for head in _FIRST:
        needed = max(len(head), 6) + 3  # padding and a border
        if needed > left and len(chosen) > 1:
            break
        left -= needed
        chosen.add(head)
    return [column for column in _COLUMNS if column.head in chosen]


class Progress:
    """Shows steps, evaluations, samples and notes; use it as a context manager.

    Args:
        steps: of the whole run.
        name: of the run.
        console: where to (default: standard error, so that standard output stays for results).
    """

    def __init__(self, steps: int, name: str, console: Console | None = None):
        self.console = console or Terminal(stderr=True)
        self._steps = steps
        self._live: Live | None = None
        roomy = self.console.width >= 72
        parts: list[str | ProgressColumn] = [
            TextColumn(escape(visible(name[:20]))), BarColumn(bar_width=None if roomy else 8),
            MofNCompleteColumn(), TimeRemainingColumn(),
        ]  # fmt: skip
        if roomy:
            parts += [TextColumn("left")]
        self._bar = Bar(*parts, console=self.console)
        self._task = self._bar.add_task("", total=steps)
        self._recent: list[tuple[int, dict[str, float]]] = []
        self._evaluating = ""
        self._told = 0.0

    @classmethod
    def quiet(cls) -> Progress:
        """One that shows nothing."""
        return cls(1, "", Console(file=io.StringIO()))

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self._live = Live(self._view(), console=self.console, refresh_per_second=2, transient=True)
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()  # erased, and printed once more as it stood: Ctrl-C cannot leave two
            self._live = None
            if self._recent:
                self.console.print(self._view())

    def note(self, text: str) -> None:
        self.console.print(visible(text), highlight=False, markup=False, soft_wrap=not self.console.is_terminal)

    def step(self, step: int, values: Mapping[str, float]) -> None:
        """A finished step with its metrics."""
        self._bar.update(self._task, completed=step)
        self._recent = [*self._recent, (step, dict(values) | {"step": step})][-_RECENT:]
        if self._live is None:
            self.note(line(step, self._steps, values))
        self._refresh()

    def samples(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """A table of sampled solutions (in a terminal only; `rollouts.jsonl` has them all)."""
        if self._live is None:
            return
        table = Table(title="sampled solutions", show_lines=True)
        for column in ("task", "reward %", "source", "status", "program"):
            table.add_column(column)
        for row in rows:
            code = Syntax(visible(row["code"])[:600], "python", word_wrap=True)
            task, source, status = (escape(visible(row[key])) for key in ("task", "source", "status"))
            table.add_row(task, _percent(row["reward"], sign=False), source, status, code)
        self.console.print(table)

    def episode(self, done: int, total: int) -> None:
        """An evaluation under way: live in a terminal, a line a quarter elsewhere."""
        self._evaluating = f"evaluating: {done} of {total} episodes" if done < total else ""
        quarter = int(4 * done / total)
        if self._live is None and 0 < quarter < 4 and quarter != self._told:
            self.note(f"  {done} of {total} episodes evaluated")
        self._told = quarter
        self._refresh()

    def evaluation(self, step: int, result: Mapping[str, Any]) -> None:
        """The result of an evaluation: one line a split."""
        self._evaluating = ""
        for split, table in result.items():
            if isinstance(table, Mapping):
                scores = ", ".join(
                    f"{name} {_percent(table[key])}" for name, key in (("avg@k", "avg"), ("best@k", "best"), ("valid", "valid"))
                )
                failed = {status: n for status, n in table.get("statuses", {}).items() if status != "ok"}
                ended = (
                    "; programs that failed: " + ", ".join(f"{n} {status}" for status, n in failed.items()) if failed else ""
                )
                self.note(f"  step {step}, {split}: {scores}{ended}")

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self._view())

    def _view(self) -> Group:
        shown = columns(self.console.width)
        table = Table(expand=False)
        for column in shown:
            table.add_column(column.head, justify="right", no_wrap=True)
        for _, values in self._recent:
            table.add_row(*(column.cell(values) for column in shown))
        parts: list[Any] = [self._bar]
        if self._evaluating:
            parts.append(Text(self._evaluating, no_wrap=True, overflow="crop"))
        return Group(*parts, *([table] if self._recent else []))


def line(step: int, steps: int, v: Mapping[str, float]) -> str:
    """A step as one plain line.

    >>> values = {"reward/mean": 0.5, "groups/anchors": 1, "anchor/rho": 2, "time/step_s": 7.25}
    >>> line(3, 40, values)  # doctest: +NORMALIZE_WHITESPACE
    'step 3/40  reward 50.0 % (executed -, predicted -, calibrated -)  anchors 1  pairs -  rho 2.00  eta2 -
    7.2 s (generate -, predict -, execute -, learn -)'
    """
    sources = ", ".join(f"{name} {_percent(v.get(f'reward/{name}'))}" for name in ("executed", "predicted", "calibrated"))
    lanes = ", ".join(f"{lane} {_number(v.get(f'time/{lane}_s'), 1)}" for lane in LANES)
    return (
        f"step {step}/{steps}  reward {_percent(v.get('reward/mean'))} ({sources})  "
        f"anchors {_number(v.get('groups/anchors'), 0)}  pairs {_number(v.get('anchor/n_pairs'), 0)}  "
        f"rho {_number(v.get('anchor/rho'), 2)}  eta2 {_number(v.get('anchor/eta2'), 2)}  "
        f"{_number(v.get('time/step_s'), 1)} s ({lanes})"
    )


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None, sign: bool = True) -> str:
    return "-" if value is None else f"{100 * value:.1f}{' %' if sign else ''}"


def final_table(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, ledger: Mapping[str, Any], k: int, width: int = 140
) -> Group:
    """Before and after, and what it cost: the end of a run. Scores are percentages, gains percentage points.

    Args:
        before: the evaluation before training, {split: its row}; None if there is none.
        after: the evaluation after training, likewise.
        ledger: of the run.
        k: samples a task.
        width: characters there is room for; intervals need 72, the shares of valid programs 104.
    """
    intervals, valid = width >= 72, width >= 104
    result = Table(title=f"really executed, avg@{k} in %" + (", [95 % interval]" if intervals else ""), title_justify="left")
    for name in (
        "split",
        *(("tasks",) if intervals else ()),
        "before",
        "after",
        "gain",
        *(("valid before", "valid after") if valid else ()),
    ):
        result.add_column(name, justify="left" if name == "split" else "right", no_wrap=True)
    for split in dict(before or {}) | dict(after or {}):
        b, a = (before or {}).get(split), (after or {}).get(split)
        if not isinstance(b or a, Mapping):
            continue
        gain = f"{100 * (a['avg'] - b['avg']):+.1f}" if a and b and None not in (a["avg"], b["avg"]) else "-"
        shares = [f"{x['valid']:.0%}" if x and x["valid"] is not None else "-" for x in (b, a)] if valid else []
        scores = [_with_interval(x) if intervals else _percent((x or {}).get("avg"), sign=False) for x in (b, a)]
        number = [str((a or b)["tasks"])] if intervals else []  # type: ignore[index]
        result.add_row(split, *number, *scores, gain, *shares)
    cost = Table(title="cost ledger of the training steps", title_justify="left", show_header=False)
    cost.add_column()
    cost.add_column(justify="right")
    paid, avoided = ledger["executions_paid"], ledger["executions_avoided"]
    mean_s = ledger["execution_s"] / paid if paid else 0.0
    for name, text in (
        ("executions paid", f"{paid}"),
        ("answered from the cache", f"{ledger['executions_cached']}"),
        ("different programs executed", f"{ledger.get('executions_distinct', '-')}"),
        ("executions avoided", f"{avoided}" + (f" (about {avoided * mean_s:.0f} s at {mean_s:.2f} s each)" if paid else "")),
        *((f"CPU seconds, {lane}", f"{ledger[f'{lane}_cpu_s']:.1f}") for lane in LANES),
        ("tokens sampled", f"{ledger['tokens']}"),
        ("groups dropped", f"{ledger['dropped_groups']}"),
    ):
        cost.add_row(name, text)
    return Group(result, cost) if result.row_count else Group(cost)  # nothing was evaluated


def _with_interval(row: Mapping[str, Any] | None) -> str:
    if row is None or row["avg"] is None:
        return "-"
    interval = f" [{100 * row['low']:.1f}, {100 * row['high']:.1f}]" if row.get("low") is not None else ""
    return f"{100 * row['avg']:.1f}{interval}"
