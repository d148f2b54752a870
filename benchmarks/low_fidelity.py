"""Low fidelity against full execution, side by side in one run: what a prediction costs and how right it is, by size of the reduced copy.

For each built-in task, programs of the corpus (completions of the prelude, and whole scripts) are executed on all rows and predicted at
each size, in turns, so that all of them meet the same machine. Results are kept in a file as they come, so it can be interrupted.

    python benchmarks/low_fidelity.py --programs 4 --sizes 125,250,500
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from wmrl_envs import LowFidelityWorldModel
from wmrl_envs.envs.mle_dojo import MLEDojoEnv
from wmrl_envs.execution import ExecutionLimits, ProcessSandbox
from wmrl_envs.outcome import Outcome, Solution
from wmrl_train.fidelity.measure import Pair, measure
from wmrl_train.fidelity.models import STANDARD_TEST_ROWS, TEST_SHARE
from wmrl_train.fidelity.run import Executed, drawn, load_corpus

CORPUS = Path(__file__).parent / "boards" / "executed.jsonl.xz"
LIMITS = ExecutionLimits(timeout_s=600, cpu_s=20, memory_mb=4096)  # as the corpus was executed
EMPTY = "pass"
FULL = "all rows"
FIGURES = (
    ("n", "programs", "d"),
    ("validity_agreement", "validity agrees", ".1%"),
    ("false_fail_rate", "false fails", ".1%"),
    ("within_task_correlation", "correlation within tasks", ".3f"),
    ("within_task_slope", "slope", ".2f"),
    ("pairwise_accuracy_valid", "pairwise, valid", ".1%"),
    ("cpu_s_per_program", "CPU s a program", ".3f"),
    ("cpu_share", "CPU, all rows = 100 %", ".1%"),
    ("cpu_share_by_task", "the same, mean over tasks", ".1%"),
)


@dataclass(frozen=True)
class Row:
    """One program's outcomes by size, the empty program among them (kind "empty")."""

    kind: str
    task: str
    code: str
    outcomes: dict[str, Any]


def programs(n: int, seed: int) -> Iterator[tuple[str, Executed]]:
    """(kind, program): `n` of each kind a task, and an empty one for the prelude's floor."""
    found, _ = load_corpus(CORPUS)
    for task in dict.fromkeys(e.context.task for e in found):
        for kind in ("scaffold", "scripts"):
            pool = [e for e in found if e.context.task == task and (e.context.scaffold is None) == (kind == "scripts")]
            yield from ((kind, pool[i]) for i in drawn(pool, n, seed))
        first = next(e for e in found if e.context.task == task and e.context.scaffold)
        yield "empty", replace(first, solution=Solution(EMPTY, task))


def run(args: argparse.Namespace, box: ProcessSandbox) -> list[Row]:
    """Execute and predict what the file does not have yet."""
    rows = [Row(**json.loads(line)) for line in args.output.read_text().splitlines()] if args.output.exists() else []
    have = {(row.kind, row.task, row.code) for row in rows}
    models = {size: LowFidelityWorldModel(size, _test_rows(size), box, limits=LIMITS, workers=1, nice=0) for size in args.sizes}
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with args.output.open("a") as f:
        for kind, program in programs(args.programs, args.seed):
            if (kind, program.context.task, program.solution.code) in have:
                continue
            row = Row(kind, program.context.task, program.solution.code, _outcomes(kind, program, models, box))
            f.write(json.dumps(asdict(row)) + "\n")
            f.flush()
            rows.append(row)
    return rows


def _test_rows(size: int) -> int:
    return max(10, min(STANDARD_TEST_ROWS, round(TEST_SHARE * size)))


def _outcomes(kind: str, program: Executed, models: dict[int, LowFidelityWorldModel], box: ProcessSandbox) -> dict[str, Any]:
    task = program.context.task
    env = MLEDojoEnv(
        task, scaffold=None if kind == "scripts" else "sklearn", sandbox=box, limits=LIMITS, timeout_s=LIMITS.timeout_s
    )
    env.reset(seed=0)
    solution, context = Solution(program.solution.code, task), env.context()
    outcomes = {FULL: asdict(env.execute(solution))}
    for size, model in models.items():
        if kind == "empty":  # the first one pays for reading the data
            model.predict([Solution("pass  # once", task)], [context])
        outcomes[str(size)] = asdict(model.predict([solution], [context])[0])
    return outcomes


def figures(rows: list[Row], kind: str, size: str) -> dict[str, Any]:
    """Of the programs of a kind, predicted at a size."""
    pairs = [
        Pair(row.task, "", Outcome.from_dict(row.outcomes[size]), Outcome.from_dict(row.outcomes[FULL]))
        for row in rows
        if row.kind == kind and size in row.outcomes
    ]
    by_task = {task: [p for p in pairs if p.task == task] for task in {p.task for p in pairs}}
    shares = [sum(p.predicted.cpu_s for p in some) / sum(p.true.cpu_s for p in some) for some in by_task.values()]
    return measure(pairs) | {"cpu_share_by_task": statistics.mean(shares)}


def show(rows: list[Row], sizes: list[int]) -> None:
    """The tables."""
    console = Console(width=160)
    for kind in ("scaffold", "scripts"):
        full = statistics.mean(row.outcomes[FULL]["cpu_s"] for row in rows if row.kind == kind)
        table = Table("training rows", *(label for _, label, _ in FIGURES), title=f"{kind}: {full:.2f} CPU s on all rows")
        for size in map(str, sizes):
            found = figures(rows, kind, size)
            table.add_row(size, *("-" if found[key] is None else format(found[key], form) for key, _, form in FIGURES))
        console.print(table)
    floors = Table("training rows", "mean over tasks, CPU ms", "least", "most", title="an empty program after the prelude")
    for size in [FULL, *map(str, sizes)]:
        took = [1000 * row.outcomes[size]["cpu_s"] for row in rows if row.kind == "empty"]
        floors.add_row(size, f"{statistics.mean(took):.0f}", f"{min(took):.0f}", f"{max(took):.0f}")
    console.print(floors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=4, help="of each kind, a task")
    parser.add_argument("--sizes", type=lambda text: [int(n) for n in text.split(",")], default=[125, 250, 500])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("runs/benchmarks/low_fidelity.jsonl"))
    args = parser.parse_args()
    with ProcessSandbox() as box:
        rows = run(args, box)
    show(rows, args.sizes)


if __name__ == "__main__":
    main()
