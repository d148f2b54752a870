"""Really executes about 1,800 programs on the 18 built-in competitions.

Two things come of it: the reference leaderboards (`wmrl_envs/tasks/boards/<slug>.csv`), from the programs of the grammar and those
written by hand, and the corpus of executed programs on which the fidelity of world models is measured (`executed.jsonl.xz`
beside this file), which also holds mutations of working programs and whole scripts, the grammar's (`scripts.py`) and other styles (`whole.py`).

    python benchmarks/boards/build.py run      # appends to runs/boards/executed.jsonl; stop and start again as you like
    python benchmarks/boards/build.py write    # writes boards and corpus from what has been executed so far
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from mutations import mutated
from scripts import scripts
from strong import STRONG
from whole import whole_scripts

from wmrl_envs.execution import ExecutionLimits, make_sandbox
from wmrl_envs.execution.base import Job, Sandbox
from wmrl_envs.outcome import ExecutionStatus
from wmrl_envs.tasks import list_competitions, load_competition, scaffold, task_context
from wmrl_envs.tasks.scoring import read_answers, text_columns
from wmrl_envs.tasks.validation import SubmissionError, read_table
from wmrl_train.agents.brief import Brief
from wmrl_train.warm_start.grammar import write_program

HERE = Path(__file__).parent
SHARD = Path("runs/boards/executed.jsonl")
CORPUS = HERE / "executed.jsonl.xz"
BOARDS = HERE.parents[1] / "wmrl_envs" / "tasks" / "boards"
PROGRAMS, BROKEN, FEW_ROWS = 64, 0.2, 1000
TIMEOUT_S = 20.0  # of CPU time, which for these single-threaded programs is the wall clock of a quiet machine
LIMITS = ExecutionLimits(timeout_s=20 * TIMEOUT_S, memory_mb=2048, processes=32)
STOP = f"import resource as _r\n_r.setrlimit(_r.RLIMIT_CPU, ({TIMEOUT_S + 2:.0f}, {TIMEOUT_S + 4:.0f}))\ndel _r\n"  # an endless loop ends soon
QUICK_S = 3.0  # programs to mutate are quick ones
ON_BOARDS = ("grammar", "strong")
TAIL = 2000  # characters of stderr kept


def plan(slug: str) -> Iterator[dict[str, Any]]:
    """The programs of one task that make its board, half of them with 1,000 training rows."""
    brief, _ = _brief(slug)
    seen = set()
    for i in range(PROGRAMS):
        program = write_program(brief, f"board.{i}", BROKEN, by_name=i % 4 < 2)
        rows = FEW_ROWS if i % 2 else None
        if (program.code, rows) not in seen:
            seen.add((program.code, rows))
            yield _item("grammar", program.fault, rows, program.code)
    for name, code in STRONG[slug].items():
        yield _item(f"strong:{name}", None, None, code)


def plan_more(slug: str) -> Iterator[dict[str, Any]]:
    """Mutations of what worked when executed, and whole scripts."""
    brief, names = _brief(slug)
    working = [
        r for r in executed() if (r["task"], r["origin"], r["status"]) == (slug, "grammar", "ok") and r["cpu_s"] < QUICK_S
    ]
    for mutation, code, rows in mutated(working, names, f"mutation.{slug}"):
        yield _item(f"mutation:{mutation.aspect}", mutation.name, rows, code)
    columns = task_context(load_competition(slug), timeout_s=TIMEOUT_S).submission_columns
    for fault, code in scripts(brief, names, columns, f"script.{slug}"):
        yield _item("script", fault, None, code) | {"scaffold": None}


def plan_whole(slug: str) -> Iterator[dict[str, Any]]:
    """Whole scripts in other styles than the grammar's."""
    brief, names = _brief(slug)
    columns = task_context(load_competition(slug), timeout_s=TIMEOUT_S).submission_columns
    for author, name, code in whole_scripts(slug, brief.category, brief.metric, names, columns):
        yield _item(f"whole:{author}", name, None, code) | {"scaffold": None}


def _item(origin: str, fault: str | None, max_rows: int | None, code: str) -> dict[str, Any]:
    return {"origin": origin, "fault": fault, "max_rows": max_rows, "scaffold": "sklearn", "code": code}


def _brief(slug: str) -> tuple[Brief, dict[str, Any]]:
    competition = load_competition(slug)
    names = scaffold.describe(competition)
    return Brief.of(slug, competition.spec.category, competition.spec.metric_name, names), names


def execute(slug: str, box: Sandbox, lock: str, item: dict[str, Any]) -> dict[str, Any]:
    """Run one program and grade it; everything about it in one JSON-able record."""
    competition = load_competition(slug)
    variables = scaffold.environment(competition, item["max_rows"])
    prelude = STOP + (scaffold.PRELUDE if item["scaffold"] else "")
    run = box.run_job(Job(item["code"], competition.public_dir, LIMITS, prelude, variables))
    status, raw, problem = run.status, None, run.submission_problem
    if run.cpu_s > TIMEOUT_S:
        status = ExecutionStatus.TIMEOUT
    elif status is ExecutionStatus.TIMEOUT:
        print(f"{slug}: {run.wall_s:.0f} s for {run.cpu_s:.0f} s of work: too busy a machine to measure, left for later")
    if status is ExecutionStatus.OK and run.submission is None:
        status = ExecutionStatus.INVALID_SUBMISSION
    elif status is ExecutionStatus.OK and run.submission is not None:
        try:
            truth = read_answers(competition.private.answers, competition.spec)
            table = read_table(run.submission, text_columns(competition.spec))
            raw = float(competition.spec.metric(truth, table))
        except SubmissionError as error:
            if not error.agents_own:
                raise
            status, problem = ExecutionStatus.INVALID_SUBMISSION, error.details
    return {
        "task": slug,
        **item,
        "status": status.value,
        "exit_code": run.exit_code,
        "problem": problem,
        "raw_score": raw,
        "stderr": run.stderr[-TAIL:],
        "wall_s": round(run.wall_s, 3),
        "cpu_s": round(run.cpu_s, 3),
        "peak_memory_mb": round(run.peak_memory_mb),
        "tier": run.tier,
        "timeout_s": TIMEOUT_S,
        "memory_mb": LIMITS.memory_mb,
        "environment": lock,
    }


PLANS = (plan, plan_more, plan_whole)


def key(record: dict[str, Any]) -> tuple[Any, ...]:
    return record["task"], record["max_rows"], record["code"]


def executed(measured: bool = True) -> list[dict[str, Any]]:
    """What has been executed so far: the published corpus, then the shard of this machine.

    `measured` leaves out what ran out of time only because the machine was busy.
    """
    lines = lzma.decompress(CORPUS.read_bytes()).decode().splitlines() if CORPUS.exists() else []
    if SHARD.exists():
        lines += SHARD.read_text(encoding="utf-8").splitlines()
    records: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in map(json.loads, lines):
        if key(record) not in records or was_measured(record):
            records[key(record)] = {"scaffold": "sklearn"} | record
    return [r for r in records.values() if not measured or was_measured(r)]


def was_measured(record: dict[str, Any]) -> bool:
    """Whether a program that ran out of time did so by its own work, not because the machine was busy."""
    return record["status"] != "timeout" or record["cpu_s"] > TIMEOUT_S


def run(workers: int, tasks: list[str], plans: Sequence[Callable[[str], Iterator[dict[str, Any]]]] = PLANS) -> None:
    """Execute what is missing, then try again what was not measured."""
    SHARD.parent.mkdir(parents=True, exist_ok=True)
    for measured in (False, True):
        done = {key(r) for r in executed(measured)}
        with make_sandbox("process") as box, SHARD.open("a", encoding="utf-8") as shard, ThreadPoolExecutor(workers) as pool:
            lock = box.environment.digest
            for slug in tasks:
                for planned in plans:
                    items = {key({"task": slug, **item}): item for item in planned(slug)}
                    todo = [item for k, item in items.items() if k not in done]
                    for record in pool.map(partial(execute, slug, box, lock), todo):
                        shard.write(json.dumps(record) + "\n")
                        shard.flush()
                    print(slug, len(todo), "executed", flush=True)


def write() -> None:
    """Write the corpus, in a fixed order, and the boards: the distinct metric values of valid programs, best first."""
    records = sorted(executed(), key=lambda r: (r["task"], r["origin"], r["max_rows"] or 0, r["code"]))
    text = "".join(json.dumps(r, sort_keys=True) + "\n" for r in records)
    CORPUS.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    BOARDS.mkdir(parents=True, exist_ok=True)
    for slug in list_competitions(source="builtin"):
        spec = load_competition(slug).spec
        of_task = [r for r in records if r["task"] == slug and r["origin"].split(":")[0] in ON_BOARDS]
        scores = {round(r["raw_score"], 6) for r in of_task if r["raw_score"] is not None and r["raw_score"] == r["raw_score"]}
        if not scores:
            print(f"{slug:20s} nothing executed yet")
            continue
        rows = [f"{i},{score:g}" for i, score in enumerate(sorted(scores, reverse=spec.higher_is_better), 1)]
        (BOARDS / f"{slug}.csv").write_text("\n".join(["rank,score", *rows]) + "\n")
        valid = sum(r["raw_score"] is not None for r in of_task)
        print(f"{slug:20s} {len(of_task):4d} executed, {valid:3d} valid, {len(rows):3d} entries, best {rows[0].split(',')[1]}")
    print(f"{CORPUS.name}: {len(records)} programs, {CORPUS.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "write"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=[p.__name__ for p in PLANS], help="one kind of program")
    parser.add_argument("--tasks", nargs="*", default=list_competitions(source="builtin"))
    arguments = parser.parse_args()
    plans = [p for p in PLANS if arguments.only in (None, p.__name__)]
    run(arguments.workers, arguments.tasks, plans) if arguments.what == "run" else write()
