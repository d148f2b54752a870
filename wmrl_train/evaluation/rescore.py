"""Grade stored submissions again, with today's graders and boards. Runs no program and changes no stored trajectory."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wmrl_envs.envs.make import make_env
from wmrl_envs.envs.mle_dojo import MLEDojoEnv
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.execution.base import Sandbox
from wmrl_envs.execution.recorded.store import NotRecorded
from wmrl_envs.outcome import Execution, ExecutionStatus, Outcome, Solution
from wmrl_envs.tasks.catalog import report_category
from wmrl_train.episodes.store import Trajectory, Turn
from wmrl_train.evaluation import eval_programs
from wmrl_train.evaluation.eval_programs import Settings
from wmrl_train.evaluation.folder import EPISODES, SETTINGS, read_episodes, read_settings
from wmrl_train.evaluation.programs import EvalResult
from wmrl_train.run.terminal import Terminal

RESCORED = "rescored.jsonl"
_STATUS = {status.value for status in ExecutionStatus}


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
    stored, settings = load(folder, None if data_dir is None else str(data_dir.expanduser().resolve()))
    if not stored:
        raise InvalidInput(f"{folder} holds no episode that was executed: there is nothing to grade again.")
    result = rescore(stored, settings.env.get("data_dir"))
    with (folder / RESCORED).open("w", encoding="ascii") as file:
        file.writelines(t.as_line() + "\n" for t in result.after.trajectories)
    k = max(row.episodes + row.failed for row in result.after.table.tasks)
    report = eval_programs.as_dict(result.after, settings, k) | {
        "regraded": result.regraded,
        "changed": result.changed,
        "kept": result.kept,
        "avg_before": result.before.table.as_dict()["overall"]["avg"],
    }
    eval_programs.show(result.after, report, as_json, f"{folder}, graded again", k)
    Terminal(stderr=True).print(
        f"{result.regraded} submissions graded again, {result.changed} changed, {result.kept} not stored; written to "
        f"{folder / RESCORED}"
    )
    return result


def load(folder: Path, data_dir: str | None = None) -> tuple[list[Trajectory], Settings]:
    """What was executed in the folder of an evaluation or of a training run, and its settings (with `data_dir`, if given).

    Raises:
        InvalidInput: it is neither.
    """
    if (folder / EPISODES).is_file():
        try:
            settings = Settings(**read_settings(folder / SETTINGS))
        except TypeError as error:  # a setting of another version
            raise InvalidInput(
                f"{folder / SETTINGS} cannot be read ({error}): expected the folder of a `wmrl eval`."
            ) from error
        return read_episodes(folder), replace(settings, env=settings.env | ({"data_dir": data_dir} if data_dir else {}))
    if (folder / "rollouts.jsonl").is_file() and (folder / "config.yaml").is_file():
        return _load_run(folder, data_dir)
    raise InvalidInput(
        f"{folder} holds neither {EPISODES} nor rollouts.jsonl: expected the folder of an evaluation or of a run."
    )


def _load_run(folder: Path, data_dir: str | None) -> tuple[list[Trajectory], Settings]:
    """The executed episodes of a training run; their submissions come from the execution cache."""
    from wmrl_envs.execution import ReplaySandbox
    from wmrl_train.config import load_config
    from wmrl_train.config.environment import env_kwargs
    from wmrl_train.run.rundir import RunDirectory

    config = load_config(folder / "config.yaml")
    kwargs = env_kwargs(config) | ({"data_dir": data_dir} if data_dir else {})
    envs: dict[str, MLEDojoEnv] = {}
    found: list[Trajectory] = []
    number: Counter[str] = Counter()
    with ReplaySandbox() as box:
        for record in RunDirectory(folder).read("rollouts.jsonl"):
            turns = _executed(record, folder)
            if not turns:
                continue
            task = record["task"]
            if task not in envs:
                envs[task] = make_env(task, **kwargs | {"sandbox": box})
            number[task] += 1
            kind = report_category(task, envs[task].competition(task).category)
            recorded = [_recorded(envs[task], box, task, turn) for turn in turns]
            found.append(Trajectory(task, kind, number[task] - 1, 0, recorded))
    settings = Settings(str(folder), "executed episodes", env={"data_dir": kwargs["data_dir"]})
    return found, settings


_OF_TURN = {"true", "status", "raw_score", "execution_s", "problem", "code", "feedback"}


def _executed(record: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The executed turns of a line of rollouts.jsonl, once it is known to be that of programs (a run in a simulator has
    none).
    """
    turns = record.get("turns")
    if isinstance(record.get("task"), str) and isinstance(turns, list):
        executed = [turn for turn in turns if not isinstance(turn, dict) or turn.get("true", "") is not None]
        if all(isinstance(turn, dict) and turn.keys() >= _OF_TURN and turn["status"] in _STATUS for turn in executed):
            return executed
    raise InvalidInput(
        f"{folder / 'rollouts.jsonl'} has a record without the programs that were executed: expected a run of `wmrl train` "
        "that writes programs, as it was written."
    )


def _recorded(env: MLEDojoEnv, box: Sandbox, task: str, turn: dict[str, Any]) -> Turn:
    outcome = Outcome(ExecutionStatus(turn["status"]), turn["true"], turn["raw_score"], wall_s=turn["execution_s"])
    execution = None
    if turn["problem"] is None:
        with suppress(NotRecorded):  # the cache was off or has been deleted: then the score stands
            execution = box.run_job(env.job(Solution(turn["code"], task)))
    made = Turn.of(turn["code"], outcome, execution, turn["feedback"])
    lost = execution is None and outcome.status is ExecutionStatus.OK
    return replace(made, ran=True, submission_sha256="") if lost else made


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

    try:
        data = turn.submission_bytes()
    except InvalidInput as error:
        raise InvalidInput(f"{task}: {error}") from error
    if data is None:
        counts["kept"] += turn.submission_sha256 is not None
        return turn
    competition = load_competition(task, data_dir)
    outcome = grade(competition, Execution(ExecutionStatus.OK, 0, submission=data, wall_s=turn.wall_s))
    if outcome.is_infra_error:
        raise InfrastructureError(f"Grading {task!r} again failed: {outcome.error or 'the grader crashed'}.")
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
