"""Grade stored submissions again, with today's graders and boards. Runs no program and changes no stored trajectory."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.outcome import Execution, ExecutionStatus
from wmrl_train import eval_run, trajectories
from wmrl_train.evaluate import EvalResult
from wmrl_train.trajectories import Trajectory, Turn

RESCORED = "rescored.jsonl"


@dataclass(frozen=True)
class Rescored:
    """Old and new. `regraded`: submissions graded again; `changed`: of these, those whose score or status is another;
    `kept`: programs that ran but whose submission is not stored, so that their old score stands.
    """

    before: EvalResult
    after: EvalResult
    regraded: int
    changed: int
    kept: int


def run(folder: Path, *, data_dir: Path | None = None, as_json: bool = False) -> Rescored:
    """Rescore a folder, write `rescored.jsonl` into it, print the new table."""
    stored, settings = load(folder)
    where = str(data_dir.expanduser().resolve()) if data_dir else settings.env.get("data_dir")
    result = rescore(stored, where)
    with (folder / RESCORED).open("w", encoding="ascii") as file:
        file.writelines(t.as_line() + "\n" for t in result.after.trajectories)
    k = max((t.attempt for t in stored), default=0) + 1
    report = eval_run.as_dict(result.after, settings, k) | {
        "regraded": result.regraded,
        "changed": result.changed,
        "kept": result.kept,
        "avg_before": result.before.table.as_dict()["overall"]["avg"],
    }
    eval_run.show(result.after, report, as_json, f"{folder}, graded again", k)
    Console(stderr=True).print(
        f"{result.regraded} submissions graded again, {result.changed} changed, {result.kept} not stored; written to {folder / RESCORED}"
    )
    return result


def load(folder: Path) -> tuple[list[Trajectory], eval_run.Settings]:
    """The trajectories and settings of an evaluation; the last record of an attempt that was repeated."""
    if not (folder / eval_run.FILE).is_file():
        raise InvalidInput(f"{folder} holds no {eval_run.FILE}: expected the folder of a `wmrl eval`.")
    last = {t.key: t for t in trajectories.read(folder / eval_run.FILE)}
    try:
        settings = eval_run.Settings(**json.loads((folder / eval_run.SETTINGS).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput(
            f"{folder / eval_run.SETTINGS} cannot be read ({error}): expected the folder of a `wmrl eval`."
        ) from error
    return list(last.values()), settings


def rescore(stored: list[Trajectory], data_dir: str | None = None) -> Rescored:
    """Grade every stored submission of `stored` again.

    Raises:
        DataNotBuilt: the data of one of the tasks is not there.
    """
    counts = {"regraded": 0, "changed": 0, "kept": 0}
    after = [replace(t, turns=[_again(t.task, turn, data_dir, counts) for turn in t.turns]) for t in stored]
    return Rescored(EvalResult.of(stored), EvalResult.of(after), **counts)


def _again(task: str, turn: Turn, data_dir: str | None, counts: dict[str, int]) -> Turn:
    from wmrl_envs.tasks import grade, load_competition

    data = turn.submission_bytes()
    if data is None:
        counts["kept"] += turn.submission_sha256 is not None
        return turn
    competition = load_competition(task, data_dir)
    outcome = grade(competition, Execution(ExecutionStatus.OK, 0, submission=data, wall_s=turn.wall_s))
    if outcome.is_infra_error:
        raise InfrastructureError(f"Grading {task!r} again failed: {outcome.details.get('error', 'the grader crashed')}.")
    counts["regraded"] += 1
    counts["changed"] += turn.status != outcome.status or not _equal(turn.score, outcome.score)
    gap = None if turn.relative_gap is None else competition.relative_gap(outcome.raw_score)
    return replace(
        turn,
        status=outcome.status.value,
        score=outcome.score,
        raw_score=outcome.raw_score,
        relative_gap=gap,
    )


def _equal(a: float | None, b: float | None) -> bool:
    return a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9))
