"""Runs of `wmrl fidelity`: executed programs (stored or fresh), a world model, the measurements, the files."""

from __future__ import annotations

import json
import logging
import lzma
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_envs.context import TaskContext
from wmrl_envs.errors import InvalidInput
from wmrl_envs.execution.base import ExecutionLimits
from wmrl_envs.outcome import Execution, ExecutionStatus, Outcome, Solution
from wmrl_envs.tasks.feedback import SubmissionProblem, render, report
from wmrl_envs.world_models.protocols import LearningModel, OutcomeModel
from wmrl_train.fidelity.measure import Pair, by, by_fault, by_origin, by_rule, measure

log = logging.getLogger(__name__)
BATCH = 64
CONTENDED = 0.5


@dataclass(frozen=True)
class Executed:
    """One program that was really executed."""

    solution: Solution
    context: TaskContext
    outcome: Outcome
    split: str
    origin: str = ""
    fault: str | None = None


# ---- programs -------------------------------------------------------------------------------------------------------
def load_corpus(path: Path) -> tuple[list[Executed], list[str]]:
    """The programs of a stored corpus (`.jsonl` or `.jsonl.xz`, one record a line) with their outcomes, and notes on
    what was left out.

    Raises:
        InvalidInput: no such file, or a line that is no record.
        DataNotBuilt: the data of a task it names has not been prepared.
    """
    if not path.is_file():
        raise InvalidInput(
            f"corpus {str(path)!r} does not exist: give --corpus FILE (.jsonl or .jsonl.xz; the repository has one, an "
            f"installed package has none), or execute some now with --fresh N."
        )
    try:
        data = path.read_bytes()
        text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode("utf-8")
    except (OSError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise InvalidInput(f"corpus {str(path)!r} cannot be read ({error}): expected .jsonl or .jsonl.xz in UTF-8.") from None
    lines = enumerate(text.split("\n"), 1)  # splitlines() would also cut at U+2028 within a program
    records = [_record(line, f"{path}, line {i}") for i, line in lines if line.strip()]
    return _with_contexts([r for r in records if not _contended(r)]), _notes(records)


_NUMBER, _NONE = (int, float), type(None)
_FIELDS: dict[str, Any] = {
    "code": str, "task": str, "status": str, "stderr": str, "origin": str, "tier": str, "timeout_s": _NUMBER, "wall_s": _NUMBER,
    "cpu_s": _NUMBER, "exit_code": (int, _NONE), "max_rows": (int, _NONE), "raw_score": (*_NUMBER, _NONE), "problem": (str,
    _NONE),
    "fault": (str, _NONE),
}  # fmt: skip


def _record(line: str, where: str) -> dict[str, Any]:
    expected = f"{where}: expected a JSON record of an executed program"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{expected} ({error}).") from None
    if not isinstance(record, dict):
        raise InvalidInput(f"{expected}, an object; got a {type(record).__name__}.")
    for name, kind in _FIELDS.items():
        if name not in record or not isinstance(record[name], kind):
            raise InvalidInput(
                f"{expected}; it has {name}={record[name]!r}." if name in record else f"{expected}; it lacks {name!r}."
            )
    if record["status"] not in {status.value for status in ExecutionStatus}:
        raise InvalidInput(f"{expected}; it has status={record['status']!r}.")
    return record


def _with_contexts(records: Sequence[dict[str, Any]]) -> list[Executed]:
    from dataclasses import replace

    from wmrl_envs.tasks import load_competition, scaffold, task_context

    contexts: dict[Any, TaskContext] = {}
    boards: dict[str, Any] = {}
    splits: dict[str, str] = {}
    result = []
    for r in records:
        if r["status"] == ExecutionStatus.INFRA_ERROR:
            continue
        slug, loaded = r["task"], r.get("scaffold", "sklearn")
        key = (slug, r["max_rows"], r["timeout_s"], loaded)
        if key not in contexts:
            competition = load_competition(slug)
            context = task_context(competition, timeout_s=r["timeout_s"])
            if loaded:
                names = scaffold.describe(competition, r["max_rows"])
                context = replace(context, scaffold=loaded, scaffold_names=names)
            contexts[key] = context
            boards[slug], splits[slug] = competition.board, competition.split
        result.append(
            Executed(Solution(r["code"], slug), contexts[key], _outcome(r, boards[slug]), splits[slug], r["origin"], r["fault"])
        )
    return result


def _notes(records: Sequence[dict[str, Any]]) -> list[str]:
    n = sum(map(_contended, records))
    if not n:
        return []
    share = f"less than {CONTENDED:.0%} of the limit in CPU time"
    return [f"{n} of {len(records)} programs left out: stopped by the wall clock of a busy machine after {share}"]


def _contended(r: dict[str, Any]) -> bool:
    """Stopped by the wall clock on a busy machine, after less than half the limit in CPU time: says nothing about the
    program.
    """
    return r["status"] == ExecutionStatus.TIMEOUT and r["cpu_s"] < CONTENDED * r["timeout_s"]


def _outcome(r: dict[str, Any], board: Any) -> Outcome:
    status = ExecutionStatus(r["status"])
    ran = ExecutionStatus.OK if status is ExecutionStatus.INVALID_SUBMISSION else status
    run = Execution(ran, r["exit_code"], "", r["stderr"], wall_s=r["wall_s"], cpu_s=r["cpu_s"], tier=r["tier"])
    position = board.position(r["raw_score"]) if board is not None and r["raw_score"] is not None else None
    error = None
    if status is ExecutionStatus.INVALID_SUBMISSION and r["problem"]:
        error = SubmissionProblem("InvalidSubmissionError", "Submission validation failed", r["problem"])
    told = report(run, position=position, raw_score=r["raw_score"], error=error, limits=ExecutionLimits(r["timeout_s"]))
    score = position.score if position is not None and status is ExecutionStatus.OK else 0.0
    costs = {"wall_s": r["wall_s"], "cpu_s": r["cpu_s"], "tier": r["tier"]}
    return Outcome(status, score, r["raw_score"], render(told), report=told, position=position, **costs)


def execute_fresh(tasks: Sequence[str], programs: int, seed: int, max_rows: int | None, timeout_s: float) -> list[Executed]:
    """Really executes `programs` new programs of the grammar for each task."""
    from wmrl_envs.envs.mle_dojo import MLEDojoEnv
    from wmrl_envs.tasks import load_competition
    from wmrl_train.agents.brief import Brief
    from wmrl_train.warm_start.grammar import write_program

    result = []
    for slug in tasks:
        split = load_competition(slug).split
        env = MLEDojoEnv(slug, scaffold="sklearn", max_rows=max_rows, timeout_s=timeout_s)
        try:
            env.reset(seed=seed)
            context = env.context()
            for i in range(programs):
                program = write_program(Brief.from_context(context), f"fidelity.{seed}.{i}", 0.25)
                solution = Solution(program.code, slug)
                outcome = env.execute(solution)
                if not outcome.is_infra_error:
                    result.append(Executed(solution, context, outcome, split, "fresh", program.fault))
        finally:
            env.close()
        log.info("%s: %d programs executed", slug, programs)
    return result


def collect(
    *,
    corpus: Path,
    fresh: int,
    tasks: Sequence[str] | None,
    seed: int,
    limit: int | None,
    max_rows: int | None,
    timeout_s: float,
    programs: str = "all",
) -> tuple[list[Executed], list[str]]:
    """The programs to measure on, stored ones or `fresh` new ones for each task, and notes on what was left out.

    `programs`: "scripts" for whole ones only, "scaffold" for those that complete a prelude, "all".
    """
    if programs not in ("all", "scripts", "scaffold"):
        raise InvalidInput(f"--programs {programs!r}: expected all, scripts or scaffold.")
    notes: list[str] = []
    if fresh < 0 or (limit is not None and limit < 1):
        raise InvalidInput(f"--fresh {fresh}, --limit {limit}: expected numbers of programs of at least 1.")
    if fresh:
        from wmrl_envs.tasks import list_competitions

        found = execute_fresh(tasks or list_competitions(source="builtin"), fresh, seed, max_rows, timeout_s)
    else:
        found, notes = load_corpus(corpus)
        unknown = sorted(set(tasks or ()) - {e.context.task for e in found})
        if unknown:
            raise InvalidInput(f"--tasks {', '.join(unknown)}: the corpus {corpus} has no program of it.")
        found = [e for e in found if tasks is None or e.context.task in tasks]
    if programs != "all":
        found = [e for e in found if (e.context.scaffold is None) == (programs == "scripts")]
    if limit is not None and limit < len(found):
        found = [found[i] for i in sorted(drawn(found, limit, seed))]
    return found, notes


# ---- measuring ------------------------------------------------------------------------------------------------------
def predict(model: OutcomeModel, programs: Sequence[Executed]) -> tuple[list[Pair], float]:
    """Pairs in order, and the seconds a program took."""
    pairs: list[Pair] = []
    start = time.perf_counter()
    for i in range(0, len(programs), BATCH):
        batch = programs[i : i + BATCH]
        answers = model.predict([e.solution for e in batch], [e.context for e in batch])
        pairs += [
            Pair(e.context.task, e.context.category, a, e.outcome, e.origin, e.fault)
            for e, a in zip(batch, answers, strict=True)
        ]
    return pairs, (time.perf_counter() - start) / max(len(programs), 1)


def learn(model: OutcomeModel, programs: Sequence[Executed]) -> list[Pair]:
    """Update the model on programs in batches of 8, as anchor groups come; returns the pairs as predicted before each
    update.
    """
    pairs: list[Pair] = []
    for i in range(0, len(programs), 8):
        batch = programs[i : i + 8]
        pairs += predict(model, batch)[0]
        if isinstance(model, LearningModel):
            model.update([e.solution for e in batch], [e.context for e in batch], [e.outcome for e in batch])
    return pairs


def drawn(programs: Sequence[Executed], n: int, seed: int) -> list[int]:
    """Indices of `n` random programs."""
    return [int(i) for i in np.random.default_rng(seed).permutation(len(programs))[:n]]


def run_fidelity(make_model: Any, programs: Sequence[Executed], *, split: str, anchors: int, seed: int = 0) -> dict[str, Any]:
    """Three measurements of fresh models on the programs of `split` ("held_out", "train" or "all").

    * "no pairs": the prior.
    * "pairs of other tasks": after `anchors` executed programs of tasks that are not measured (left out for "all").
    * "pairs of the same tasks": after `anchors` executed programs of the measured tasks, measured on the rest.
    """
    chosen = [e for e in programs if split == "all" or e.split == split]
    others = [e for e in programs if e not in chosen] if split == "all" else [e for e in programs if e.split != split]
    if not chosen:
        raise InvalidInput(f"split={split!r}: the corpus has no program of it; expected one of train, held_out, all.")
    report: dict[str, Any] = {"split": split, "anchors": anchors, "seed": seed, "measurements": {}}
    model = make_model()
    pairs, seconds = predict(model, chosen)
    report["measurements"]["no pairs"] = _figures(pairs, [], seconds, model, seed)
    if anchors and isinstance(model, LearningModel):
        if others:
            model = make_model()
            seen = learn(model, [others[i] for i in drawn(others, anchors, seed)])
            pairs, seconds = predict(model, chosen)
            report["measurements"]["pairs of other tasks"] = _figures(pairs, seen, seconds, model, seed)
        if len(chosen) >= 2 * anchors:
            model, taken = make_model(), drawn(chosen, anchors, seed)
            seen = learn(model, [chosen[i] for i in taken])
            pairs, seconds = predict(model, [e for i, e in enumerate(chosen) if i not in set(taken)])
            report["measurements"]["pairs of the same tasks"] = _figures(pairs, seen, seconds, model, seed)
    return report


def _figures(pairs: list[Pair], seen: list[Pair], seconds: float, model: OutcomeModel, seed: int) -> dict[str, Any]:
    figures = measure(pairs, seen, seed)
    figures |= {"pairs_learnt": len(seen), "seconds_per_program": seconds}
    statistics = getattr(model, "statistics", None)
    if statistics:
        asked = max(statistics["generated"], 1)
        figures["queries"] = dict(statistics)
        figures["tokens_per_query"] = {"in": statistics["tokens_in"] / asked, "out": statistics["tokens_out"] / asked}
    figures["by_task"], figures["by_category"] = by(pairs, "task", seed), by(pairs, "category", seed)
    figures["by_fault"], figures["by_origin"], figures["by_rule"] = by_fault(pairs), by_origin(pairs), by_rule(pairs)
    return figures
