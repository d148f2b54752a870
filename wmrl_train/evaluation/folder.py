"""The folder of an evaluation, of programs and of robots alike: locked, continued after a kill, one line an episode.

`settings.json` is what all its episodes have in common, `trajectories.jsonl` has the episodes, `table.json` the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from wmrl_envs.errors import InfrastructureError, InvalidInput, WmrlError
from wmrl_train.config.imported import source_digest
from wmrl_train.episodes import store
from wmrl_train.episodes.store import Trajectory, Turn

EPISODES, TABLE, SETTINGS = "trajectories.jsonl", "table.json", "settings.json"
OLD_ROBOT_EPISODES = "trials.jsonl"  # written by earlier versions, still read


class Folder:
    """A folder that this process holds the lock of; see `evaluation_folder`.

    Attributes:
        path: of the folder.
        done: its scored episodes, one a key.
    """

    def __init__(self, path: Path, done: list[Trajectory]):
        self.path, self.done = path, done

    def of(self, wanted: Container[tuple[Any, ...]]) -> list[Trajectory]:
        """The episodes that are there already, of those that are wanted."""
        return [t for t in self.done if t.key in wanted]

    def add(self, trajectory: Trajectory) -> None:
        """Store a finished episode; it is on disk when this returns."""
        store.append(self.path / EPISODES, trajectory)

    def write_table(self, table: Mapping[str, Any]) -> None:
        try:
            (self.path / TABLE).write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise InvalidInput(
                f"{self.path / TABLE} cannot be written ({error.strerror}): make room and repeat the command."
            ) from error


@contextmanager
def evaluation_folder(
    path: Path, settings: Mapping[str, Any], console: Console, may_change: Container[str] = ()
) -> Iterator[Folder]:
    """The folder of an evaluation with these settings, made or continued; nobody else can use it meanwhile.

    Args:
        path: of the folder.
        settings: JSON-able, compared with those that its episodes were made with and then stored.
        console: is told that an interrupted evaluation can be continued.
        may_change: settings that another call may give another value.

    Raises:
        InvalidInput: it is in use, cannot be written, or holds an evaluation with other settings.
    """
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    with locked(path):
        try:
            yield Folder(path, _resume(path, settings, may_change))
        except KeyboardInterrupt:
            console.print(f"stopped: what is finished is in {path}; the same command goes on from there")
            raise
        except WmrlError:
            _remove_unused(path, new)
            raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Make a folder and hold its lock.

    Raises:
        InvalidInput: another evaluation holds it, or it cannot be written.
    """
    lock = FileLock(path / ".lock", timeout=0)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise InvalidInput(f"{path} is in use by another evaluation: wait for it, or give another folder with --out.") from None
    except OSError as error:
        raise InvalidInput(f"Cannot write to {path} ({error.strerror}): give a folder of yours with --out.") from error
    try:
        yield
    finally:
        lock.release()


def _remove_unused(path: Path, new: list[Path]) -> None:
    """A refused evaluation leaves no folders: removes those that were made for it, if it has no episode."""
    if path in new and not (path / EPISODES).exists():
        with suppress(OSError):  # somebody else's file lies there
            for name in (SETTINGS, ".lock"):
                (path / name).unlink(missing_ok=True)
            for folder in new:
                folder.rmdir()


def _resume(path: Path, settings: Mapping[str, Any], may_change: Container[str]) -> list[Trajectory]:
    """The scored episodes; refuses a folder whose episodes were made with other settings."""
    file = path / SETTINGS
    done = [t for t in read_episodes(path, repair=True) if t.failure is None]
    if done and file.exists():
        refuse_other_settings(path, read_settings(file), settings, may_change)
    try:
        file.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written ({error.strerror}): give another folder with --out.") from error
    return done


def refuse_other_settings(
    path: Path, theirs: Mapping[str, Any], mine: Mapping[str, Any], may_change: Container[str] = ()
) -> None:
    """Raises InvalidInput for the first setting that differs. One that an earlier version did not store may be anything."""
    for key, value in theirs.items():
        if key not in may_change and mine.get(key) != value:
            raise InvalidInput(
                f"{path} holds an evaluation with {key}={value!r}, now {key}={mine.get(key)!r}: "
                "give another folder with --out, or the same settings to continue it."
            )


def read_episodes(path: Path, *, repair: bool = False) -> list[Trajectory]:
    """The episodes of a folder, one a key: the last that was scored, else the last.

    Args:
        path: of the folder.
        repair: cut off a last line that a kill left unfinished.

    Raises:
        InvalidInput: a line is no episode.
    """
    last: dict[tuple[Any, ...], Trajectory] = {}
    for trajectory in [*_old_robot_episodes(path / OLD_ROBOT_EPISODES), *store.read(path / EPISODES, repair=repair)]:
        known = last.get(trajectory.key, trajectory)
        if (
            trajectory.failure is None
            and known.failure is None
            and (known.score, known.seed) != (trajectory.score, trajectory.seed)
        ):
            raise InvalidInput(
                f"{path} holds two episodes {trajectory.key} with scores {known.score} and {trajectory.score}, seeds "
                f"{known.seed} and {trajectory.seed}: expected one of each; remove the line that is not yours from {EPISODES}."
            )
        if trajectory.failure is None or known.failure is not None:
            last[trajectory.key] = trajectory
    return list(last.values())


def robot_episode(
    task: str, init_state: int, repeat: int, *, success: bool, steps: int, failure: str | None = None, wall_s: float = 0.0
) -> Trajectory:
    """The record of a robot's episode: one turn, whose score is its success.

    Args:
        task: its name.
        init_state: index of the initial state.
        repeat: number of the episode among those of the initial state.
        success: whether the task was done.
        steps: of the simulator.
        failure: of the simulator, by which the episode was lost.
        wall_s: seconds it simulated.
    """
    score = None if failure else float(success)
    status, text = ("infra_error", failure) if failure else ("ok", "success" if success else "")
    turn = Turn("", status, score, score, text or "", round(wall_s, 4))
    return Trajectory(task, "robot", repeat, 0, [turn], failure, init_state, steps)


def _old_robot_episodes(file: Path) -> list[Trajectory]:
    if not file.is_file():
        return []
    whole, _, _torn = file.read_bytes().rpartition(b"\n")
    try:
        return [_old_robot_episode(**json.loads(line)) for line in whole.splitlines()]
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput(f"{file} holds a line that is no episode ({error}): give another folder with --out.") from None


def _old_robot_episode(
    task: str, init_state: int, repeat: int, success: bool, steps: int = 0, infra: bool = False
) -> Trajectory:
    failure = "The simulator failed." if infra else None
    return robot_episode(task, init_state, repeat, success=success, steps=steps, failure=failure)


def read_settings(file: Path) -> dict[str, Any]:
    """The settings of a stored evaluation, as they were written.

    Raises:
        InvalidInput: no such file, or not of `wmrl eval`.
    """
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{file} is not JSON ({error}): give the folder of a `wmrl eval`, or another one.") from error
    env = settings.get("env", {}) if isinstance(settings, dict) else None
    if not (isinstance(env, dict) and isinstance(env.get("data_dir"), (str, type(None)))):
        raise InvalidInput(f"{file} does not hold the settings of a `wmrl eval`: give its folder as it was, or another one.")
    return settings


def default_folder(*parts: str | None) -> Path:
    """Where an evaluation goes that was given no folder: `runs/eval-` and what it is of."""
    name = re.sub(r"[^\w.-]+", "-", "-".join(("eval", *(p for p in parts if p))))
    return Path("runs") / name[:90].strip("-")


def fingerprint(agent: str) -> str | None:
    """Of the module of a `python:` agent, so that an edited agent is another one; None of other agents."""
    return source_digest(agent.removeprefix("python:")) if agent.startswith("python:") else None


def refuse_nothing_scored(trajectories: Iterable[Trajectory]) -> None:
    """A table without a number is no success.

    Raises:
        InfrastructureError: there are episodes, and every one was lost to a failure of ours.
    """
    failures = [t.failure for t in trajectories]
    lost = [failure for failure in failures if failure is not None]
    if lost and len(lost) == len(failures):
        raise InfrastructureError(
            f"Not one of {len(lost)} episodes could be scored: {lost[0]} The same command tries them again."
        )


@contextmanager
def progress(console: Console, total: int, done: Iterable[Trajectory]) -> Iterator[Callable[[Trajectory], None]]:
    """A live line on a terminal; a line every tenth of the way elsewhere. Yields what is told of every finished episode.

    Args:
        console: where it is shown.
        total: episodes wanted.
        done: those of them that are there already.
    """
    scores = [t.score for t in done if t.score is not None]
    count = len(scores)

    def note(trajectory: Trajectory) -> str:
        nonlocal count
        count += 1
        if trajectory.score is not None:
            scores.append(trajectory.score)
        return f"mean {100 * sum(scores) / len(scores):.1f} %" if scores else ""

    if not console.is_terminal:

        def plain(trajectory: Trajectory) -> None:
            text = note(trajectory)
            if count == total or count % max(1, total // 10) == 0:
                console.print(f"{count}/{total} episodes  {text}")

        yield plain
        return
    columns = (TextColumn("episodes"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        line = bar.add_task("", total=total, completed=count, note="")
        yield lambda trajectory: bar.update(line, advance=1, note=f"{note(trajectory)}  last: {trajectory.task}")
