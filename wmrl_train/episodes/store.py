"""Trajectories of an evaluation on disk: one JSON line an episode, enough to grade it again without running anything."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from wmrl_envs.errors import InvalidInput
from wmrl_envs.outcome import Execution, ExecutionStatus, Outcome

STORED_BYTES = 4 << 20  # a submission that is larger when compressed is remembered by its hash alone


RECORDED = "recorded"  # in place of a hash: the grade of a bank that keeps no submissions


def _hash(data: bytes | None, execution: Execution | None) -> str | None:
    if data is None:
        return RECORDED if execution is not None and execution.graded is not None else None
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Turn:
    """One program: the answer it was read from, what became of it, and its submission (zlib, base64) where small enough.

    `score` is None after a failure of ours. `ran`: the program came to its end, so its submission can be graded again.
    """

    answer: str
    status: str
    score: float | None
    raw_score: float | None
    feedback: str
    wall_s: float
    ran: bool = False
    submission: str | None = None
    submission_sha256: str | None = None
    relative_gap: float | None = None

    @classmethod
    def of(cls, answer: str, outcome: Outcome, execution: Execution | None, feedback: str, gap: float | None = None) -> Turn:
        ours = outcome.is_infra_error
        data = execution.submission if execution is not None else None
        packed = zlib.compress(data, 6) if data is not None else b""
        return cls(
            answer=answer,
            status=outcome.status.value,
            score=None if ours else outcome.score,
            raw_score=None if ours else outcome.raw_score,
            feedback=feedback,
            wall_s=round(outcome.wall_s, 4),
            ran=execution is not None and execution.status in (ExecutionStatus.OK, ExecutionStatus.INVALID_SUBMISSION),
            submission=base64.b64encode(packed).decode() if data is not None and len(packed) <= STORED_BYTES else None,
            submission_sha256=_hash(data, execution),
            relative_gap=gap,
        )

    def submission_bytes(self) -> bytes | None:
        """The stored submission, or None (there was none, or it was too large to store).

        Raises:
            InvalidInput: what is stored is not what `of` stores.
        """
        try:
            return None if self.submission is None else zlib.decompress(base64.b64decode(self.submission))
        except (ValueError, zlib.error) as error:
            raise InvalidInput(
                f"A stored submission cannot be unpacked ({error}): expected zlib in base64, as `wmrl eval` writes it."
            ) from error


@dataclass
class Trajectory:
    """One episode of a task; its score is that of its best turn, its validity that any turn was accepted.

    Attributes:
        repeat: number of the episode among those of its task (of a robot: of its initial state).
        failure: one of ours that ended it: the episode has no score.
        init_state: index of the initial state of a robot. steps: of its simulator.
    """

    task: str
    category: str
    repeat: int
    seed: int
    turns: list[Turn] = field(default_factory=list)
    failure: str | None = None
    init_state: int | None = None
    steps: int | None = None

    @property
    def score(self) -> float | None:
        return None if self.failure is not None else max((turn.score or 0.0 for turn in self.turns), default=0.0)

    @property
    def valid(self) -> bool:
        return any(turn.status == ExecutionStatus.OK for turn in self.turns)

    @property
    def statuses(self) -> tuple[str, ...]:
        """How each turn ended (`ExecutionStatus`)."""
        return tuple(turn.status for turn in self.turns)

    @property
    def key(self) -> tuple[Any, ...]:
        """What an evaluation has one of: task, initial state if there are several, repeat."""
        return (self.task, self.repeat) if self.init_state is None else (self.task, self.init_state, self.repeat)

    def as_line(self) -> str:
        summary = {"task": self.task, "category": self.category, "repeat": self.repeat, "seed": self.seed}
        summary |= {"score": self.score, "valid": self.valid, "failure": self.failure, "statuses": self.statuses}
        if self.init_state is not None:
            summary |= {"init_state": self.init_state, "steps": self.steps}
        return json.dumps(summary | {"turns": [asdict(turn) for turn in self.turns]}, ensure_ascii=True)

    @classmethod
    def from_line(cls, line: str) -> Trajectory:
        record: dict[str, Any] = json.loads(line)
        turns = [Turn(**_checked(turn, _TURN)) for turn in record["turns"]]
        record.setdefault("repeat", record.get("attempt"))  # as it was called in earlier files
        known = _checked({name: record.get(name) if name in _OF_ROBOTS else record[name] for name in _TRAJECTORY}, _TRAJECTORY)
        made = cls(turns=turns, **known)
        _refuse_made_up(made)
        return made


_NUMBER, _TEXT = (int, float), (str, type(None))
_OF_ROBOTS: dict[str, Any] = {"init_state": (int, type(None)), "steps": (int, type(None))}
_TRAJECTORY: dict[str, Any] = {"task": str, "category": str, "repeat": int, "seed": int, "failure": _TEXT} | _OF_ROBOTS
_TURN: dict[str, Any] = {
    "answer": str, "status": str, "feedback": str, "wall_s": _NUMBER, "submission": _TEXT, "submission_sha256": _TEXT,
    "score": (*_NUMBER, type(None)), "raw_score": (*_NUMBER, type(None)), "relative_gap": (*_NUMBER, type(None)),
}  # fmt: skip


def _checked(record: dict[str, Any], types: dict[str, Any]) -> dict[str, Any]:
    """`record`, once the values it has are of these types: a word for a score would fail far from here."""
    for name, kind in types.items():
        if name in record and (not isinstance(record[name], kind) or isinstance(record[name], bool)):
            raise TypeError(f"{name}={record[name]!r} is of the wrong type")
        if isinstance(record.get(name), float) and not math.isfinite(record[name]) and name != "raw_score":
            raise ValueError(f"{name}={record[name]!r} is no finite number")
    return record


def _refuse_made_up(trajectory: Trajectory) -> None:
    """Refuse an episode that no evaluation can have written: a file from elsewhere is data, not a result."""
    if not trajectory.turns and trajectory.failure is None:
        raise ValueError("an episode without a turn and without a failure")
    for turn in trajectory.turns:
        ExecutionStatus(turn.status)
        if turn.score is not None and not 0 <= turn.score <= 1:
            raise ValueError(f"score={turn.score!r} is outside of [0, 1]")
        if turn.wall_s < 0:
            raise ValueError(f"wall_s={turn.wall_s!r} is below 0")
        nothing = turn.submission is None and turn.submission_sha256 is None
        if turn.score and nothing and trajectory.init_state is None:
            raise ValueError(f"score={turn.score!r} without a submission")


def append(path: Path, trajectory: Trajectory) -> None:
    """Add a line and force it to disk, so that a kill loses no finished episode.

    Raises:
        InvalidInput: the disk is full or gone; the lines before are intact.
    """
    try:
        with path.open("a", encoding="ascii") as file:
            file.write(trajectory.as_line() + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be written ({error.strerror}): make room and repeat the command, which goes on from there."
        ) from error


def read(path: Path, *, repair: bool = False) -> list[Trajectory]:
    """The trajectories in a file, oldest first; `repair` cuts off a last line that a kill left unfinished.

    Raises:
        InvalidInput: a line is no trajectory (the message has its number), or `path` is no file.
    """
    return list(_read(path, repair)) if path.exists() else []


def _read(path: Path, repair: bool) -> Iterator[Trajectory]:
    position = 0
    try:
        opened = path.open("rb")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror}): expected a file of `wmrl eval`.") from None
    with opened as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                yield Trajectory.from_line(line.decode())
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise InvalidInput(
                    f"{path}, line {number}: not a trajectory of `wmrl eval` ({type(error).__name__}: {error})."
                ) from error
            position += len(line)
    if repair and position < path.stat().st_size:
        os.truncate(path, position)
