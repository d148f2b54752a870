"""Live progress of a run: a table that updates in a terminal, one plain line a step everywhere else."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.syntax import Syntax
from rich.table import Table

LANES = ("generate", "predict", "execute", "learn")


class Progress:
    """Shows steps, evaluations, samples and notes; use it as a context manager.

    Args:
        console: where to (default: standard error, so that standard output stays for results).
        steps: of the whole run.
        name: of the run.
    """

    def __init__(self, steps: int, name: str, console: Console | None = None):
        self.console = console or Console(stderr=True)
        self._name, self._steps = name, steps
        self._live: Live | None = None
        self._bar = Bar(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps, about"), TimeRemainingColumn(),
            TextColumn("left"), console=self.console,
        )  # fmt: skip
        self._task = self._bar.add_task(escape(name), total=steps)
        self._recent: list[tuple[int, dict[str, float]]] = []
        self._began = time.perf_counter()

    @classmethod
    def quiet(cls) -> Progress:
        """One that shows nothing."""
        return cls(1, "", Console(file=io.StringIO()))

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self._live = Live(self._view(), console=self.console, refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def note(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def step(self, step: int, values: Mapping[str, float]) -> None:
        """A finished step with its metrics."""
        self._bar.update(self._task, completed=step)
        self._recent = [*self._recent, (step, dict(values))][-8:]
        if self._live is not None:
            self._live.update(self._view())
        else:
            self.note(line(step, self._steps, values))

    def samples(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """A table of sampled solutions (in a terminal only; `rollouts.jsonl` has them all)."""
        if self._live is None:
            return
        table = Table(title="sampled solutions", show_lines=True)
        for column in ("task", "reward", "source", "status", "program"):
            table.add_column(column)
        for row in rows:
            code = Syntax(str(row["code"])[:600], "python", word_wrap=True)
            table.add_row(escape(row["task"]), f"{row['reward']:.3f}", row["source"], str(row["status"]), code)
        self.console.print(table)

    def evaluation(self, step: int, result: Mapping[str, Any]) -> None:
        """The result of an evaluation: one line a split."""
        for split, table in result.items():
            if isinstance(table, Mapping):
                scores = ", ".join(
                    f"{name} {_number(table[key])}" for name, key in (("avg@k", "avg"), ("best@k", "best"), ("valid", "valid"))
                )
                failed = {status: n for status, n in table.get("statuses", {}).items() if status != "ok"}
                ended = (
                    "; programs that failed: " + ", ".join(f"{n} {status}" for status, n in failed.items()) if failed else ""
                )
                self.note(f"  step {step}, {split}: {scores}{ended}")

    def _view(self) -> Group:
        table = Table(expand=False)
        for name in (
            "step",
            "reward",
            "executed",
            "predicted",
            "calibrated",
            "anchors",
            "pairs",
            "rho",
            "eta2",
            *(f"{lane} s" for lane in LANES),
            "step s",
        ):
            table.add_column(name, justify="right")
        for step, v in self._recent:
            table.add_row(str(step), *(_number(v.get(k)) for k in ("reward/mean", "reward/executed", "reward/predicted", "reward/calibrated")),
                          _number(v.get("groups/anchors"), 0), _number(v.get("anchor/n_pairs"), 0), _number(v.get("anchor/rho"), 2),
                          _number(v.get("anchor/eta2"), 2), *(_number(v.get(f"time/{lane}_s"), 1) for lane in LANES), _number(v.get("time/step_s"), 1))  # fmt: skip
        return Group(self._bar, table)


def line(step: int, steps: int, v: Mapping[str, float]) -> str:
    """A step as one plain line.

    >>> line(3, 40, {"reward/mean": 0.5, "groups/anchors": 1, "anchor/rho": 2, "time/step_s": 7.25})
    'step 3/40  reward 0.500 (executed -, predicted -, calibrated -)  anchors 1  pairs -  rho 2.00  eta2 -  7.2 s (generate -, predict -, execute -, learn -)'
    """
    sources = ", ".join(f"{name} {_number(v.get(f'reward/{name}'))}" for name in ("executed", "predicted", "calibrated"))
    lanes = ", ".join(f"{lane} {_number(v.get(f'time/{lane}_s'), 1)}" for lane in LANES)
    return (
        f"step {step}/{steps}  reward {_number(v.get('reward/mean'))} ({sources})  anchors {_number(v.get('groups/anchors'), 0)}  "
        f"pairs {_number(v.get('anchor/n_pairs'), 0)}  rho {_number(v.get('anchor/rho'), 2)}  eta2 {_number(v.get('anchor/eta2'), 2)}  "
        f"{_number(v.get('time/step_s'), 1)} s ({lanes})"
    )


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def final_table(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, ledger: Mapping[str, Any], k: int) -> Group:
    """Before and after, and what it cost: the end of a run."""
    result = Table(title=f"really executed, avg@{k}", title_justify="left")
    for name in ("competitions", "tasks", "before", "after", "gain", "valid before", "valid after"):
        result.add_column(name, justify="left" if name == "competitions" else "right")
    for split in dict(before or {}) | dict(after or {}):
        b, a = (before or {}).get(split), (after or {}).get(split)
        if not isinstance(b or a, Mapping):
            continue
        gain = f"{a['avg'] - b['avg']:+.3f}" if a and b and None not in (a["avg"], b["avg"]) else "-"
        cells = [
            _with_interval(b),
            _with_interval(a),
            gain,
            *(f"{x['valid']:.0%}" if x and x["valid"] is not None else "-" for x in (b, a)),
        ]
        result.add_row(split, str((a or b)["tasks"]), *cells)  # type: ignore[index]
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
    interval = f" [{row['low']:.3f}, {row['high']:.3f}]" if row.get("low") is not None else ""
    return f"{row['avg']:.3f}{interval}"
