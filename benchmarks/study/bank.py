"""The execution bank: 500 distinct programs for each of the 18 built-in competitions, each really executed once.

    python benchmarks/study/bank.py run      # appends to runs/bank/<slug>.jsonl; stop and start again as you like
    python benchmarks/study/bank.py write    # writes the bank, benchmarks/study/bank.jsonl.xz, from what has been executed
    python benchmarks/study/bank.py check    # executes 200 of them again, live, and says what differs

The programs are samples of the grammar the small policy was taught (`wmrl_train.warm_start.grammar`), with its share of mistakes.
Times are CPU seconds: programs are single-threaded, and a wall clock would measure how busy the machine was.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from wmrl_envs.envs.mle_dojo import MLEDojoEnv
from wmrl_envs.execution import ExecutionBank, ExecutionLimits, make_sandbox
from wmrl_envs.execution.recorded.bank import describe, fingerprint
from wmrl_envs.outcome import ExecutionStatus, Solution
from wmrl_envs.tasks import list_competitions, load_competition, scaffold
from wmrl_train.agents.brief import Brief
from wmrl_train.warm_start.grammar import write_program

HERE = Path(__file__).parent
SHARDS, BANK, RESULTS = Path("runs/bank"), HERE / "bank.jsonl.xz", HERE.parents[1] / "docs" / "results"
PROGRAMS, BROKEN, MAX_ROWS = 500, 0.15, 1000
UNUSUAL = 0.125  # share of programs in the other way of naming columns than the policy was taught for this task
TIMEOUT_S, MEMORY_MB, PATIENCE = 6.0, 1024, 3.0  # of CPU time; the wall clock may take PATIENCE times as long
TAIL = 1500  # characters of stderr kept


def plan(slug: str) -> Iterator[dict[str, Any]]:
    """Distinct programs of one task, in a fixed order."""
    competition = load_competition(slug)
    brief = Brief.of(slug, competition.spec.category, competition.spec.metric_name, scaffold.describe(competition, MAX_ROWS))
    trained = slug in list_competitions("train", "builtin")
    rng, seen = random.Random(f"bank {slug}"), set()
    for i in range(PROGRAMS * 20):
        program = write_program(brief, f"bank.{i}", BROKEN, by_name=trained != (rng.random() < UNUSUAL))
        if program.code not in seen:
            seen.add(program.code)
            yield {"fault": program.fault, "code": program.code}
        if len(seen) == PROGRAMS:
            return


def environment(slug: str, box: Any, timeout_s: float) -> MLEDojoEnv:
    """The competition as the study plays it, with this limit of the wall clock."""
    limits = ExecutionLimits(timeout_s=timeout_s, memory_mb=MEMORY_MB)
    return MLEDojoEnv(slug, max_turns=1, sandbox=box, scaffold="sklearn", max_rows=MAX_ROWS, timeout_s=timeout_s, limits=limits)


def execute(env: MLEDojoEnv, item: dict[str, Any]) -> dict[str, Any] | None:
    """Run and grade one program; None if the machine was too busy to measure it."""
    outcome, run = env.run(Solution(item["code"], env.slugs[0]))
    if run is None or outcome.is_infra_error:
        raise RuntimeError(f"{env.slugs[0]}: {outcome.error}")
    record = {"status": outcome.status.value, "exit_code": run.exit_code, "stderr": run.stderr[-TAIL:]}
    if run.cpu_s > TIMEOUT_S:
        record = {"status": "timeout", "exit_code": run.exit_code, "stderr": ""}
    elif run.status is ExecutionStatus.TIMEOUT:
        return None
    elif outcome.status is ExecutionStatus.OK:
        record["raw_score"] = outcome.raw_score
    elif outcome.error is not None:  # the grader refused the submission
        record |= {"error": outcome.error, "feedback": outcome.feedback}
    elif run.submission_problem is not None:
        record["problem"] = run.submission_problem
    times = {"cpu_s": round(min(run.cpu_s, TIMEOUT_S), 3), "wall_s": round(run.wall_s, 3)}
    return {**item, **record, **times, "peak_memory_mb": round(run.peak_memory_mb)}


def run(workers: int, programs: int) -> None:
    """Execute what is missing, a hundred programs a task at a time, so that a bank stopped early is still balanced."""
    SHARDS.mkdir(parents=True, exist_ok=True)
    with make_sandbox("process") as box, ThreadPoolExecutor(workers) as pool:
        (SHARDS / "environment.json").write_text(json.dumps({"lock": box.lock}))
        for until in range(100, programs + 100, 100):
            for slug in list_competitions(source="builtin"):
                shard = SHARDS / f"{slug}.jsonl"
                lines = shard.read_text(encoding="utf-8").splitlines() if shard.exists() else []
                done = {json.loads(line)["code"] for line in lines}
                todo = [item for item in list(plan(slug))[: min(until, programs)] if item["code"] not in done]
                if not todo:
                    continue
                env = environment(slug, box, TIMEOUT_S * PATIENCE)
                left = 0
                with shard.open("a", encoding="utf-8") as out:
                    for record in pool.map(partial(execute, env), todo):
                        if record is None:
                            left += 1
                            continue
                        out.write(json.dumps(record) + "\n")
                        out.flush()
                print(
                    f"{slug}: {len(done) + len(todo) - left} programs{f', {left} left for later' if left else ''}", flush=True
                )


def write() -> None:
    """The bank from the shards; a wall clock of its own would be that of a busy machine, so it is the CPU time."""
    records, data = [], {}
    for slug in list_competitions(source="builtin"):
        shard = SHARDS / f"{slug}.jsonl"
        of_task = [json.loads(line) for line in shard.read_text(encoding="utf-8").splitlines()] if shard.exists() else []
        records += [{"task": slug, **r, "wall_s": r["cpu_s"]} for r in of_task]
        data[slug] = fingerprint(load_competition(slug).public_dir)
        times = sorted(r["cpu_s"] for r in of_task)
        failed = Counter(r["status"] for r in of_task if r["status"] != "ok")
        print(f"{slug:20s} {len(of_task):4d} programs, {sum(times):6.0f} CPU s, {dict(failed)}")
    env = environment("credit-default", None, TIMEOUT_S)
    conditions = {
        **describe(env.job(Solution("", "credit-default"))), "data": data,
        "lock": json.loads((SHARDS / "environment.json").read_text())["lock"],
    }  # fmt: skip
    ExecutionBank.write(BANK, conditions, records)
    print(
        f"{BANK}: {len(records)} programs, {sum(r['cpu_s'] for r in records) / 3600:.2f} CPU h, {BANK.stat().st_size / 1e6:.1f} MB"
    )


def check(programs: int, workers: int) -> None:
    """Execute a sample again, live, and compare: statuses, metric values, CPU seconds."""
    bank = ExecutionBank(BANK)
    rng = random.Random("check")
    sample = rng.sample([(task, code) for task in bank.tasks for code in bank.programs(task)], programs)

    def both(item: tuple[str, str]) -> tuple[dict[str, Any] | None, Any]:
        env = environment(item[0], box, TIMEOUT_S * PATIENCE)
        recorded = replayed[item[0]].execute(Solution(item[1], item[0]))
        return execute(env, {"task": item[0], "code": item[1]}), recorded

    replayed = {task: environment(task, make_sandbox("replay", store=BANK), TIMEOUT_S) for task in bank.tasks}
    with make_sandbox("process") as box, ThreadPoolExecutor(workers) as pool:
        pairs = [(live, recorded) for live, recorded in pool.map(both, sample) if live is not None]
    same = sum(live["status"] == recorded.status.value for live, recorded in pairs)
    valid = [(live["raw_score"], r.raw_score) for live, r in pairs if live["status"] == r.status.value == "ok"]
    drift = sorted(abs(a - b) / max(abs(b), 1e-9) for a, b in valid if a is not None and b is not None)
    cost = sum(live["cpu_s"] for live, _ in pairs) / sum(recorded.cpu_s for _, recorded in pairs)
    result = {
        "executed_again": len(pairs), "equal_status": same / len(pairs), "valid": len(valid),
        "equal_metric": sum(d < 1e-9 for d in drift) / len(drift), "largest_relative_drift": drift[-1], "cpu_ratio": round(cost, 3),
    }  # fmt: skip
    (RESULTS / "bank_check.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "write", "check"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--programs", type=int, default=PROGRAMS)
    arguments = parser.parse_args()
    match arguments.what:
        case "run":
            run(arguments.workers, arguments.programs)
        case "write":
            write()
        case "check":
            check(min(arguments.programs, 200), arguments.workers)
