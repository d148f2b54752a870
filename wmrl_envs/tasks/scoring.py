"""`score`: the metric's value of a submission's bytes. It runs in the grading process (`grader.py`),
or wherever it is called.
"""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from wmrl_envs.errors import WmrlError
from wmrl_envs.tasks.refusals import GroundTruthError, InvalidSubmission
from wmrl_envs.tasks.spec import TaskSpec
from wmrl_envs.tasks.validation import read_table

if TYPE_CHECKING:
    import pandas as pd


def score(spec: TaskSpec, answers: Path, data: bytes) -> float:
    """The value of the metric.

    Raises:
        InvalidSubmission: the agent's file cannot be graded. GroundTruthError: the answers cannot be read.
    """
    try:
        truth = read_answers(answers, spec)
    except (WmrlError, OSError, ValueError) as error:
        raise GroundTruthError(f"{type(error).__name__}: {error}") from error
    table = read_table(data, text_columns(spec), partial(spec.check_header, truth))
    return float(spec.metric(truth, table))


def text_columns(spec: TaskSpec) -> tuple[str, ...] | None:
    """Columns to read as text: the ids, or (None) all of them where the predictions are text."""
    from wmrl_envs.tasks.metrics import METRICS

    return None if METRICS[spec.metric_name].on_text else spec.facts.id_columns


def read_answers(path: Path, spec: TaskSpec) -> pd.DataFrame:
    """The answers as a table, kept in memory for the next grading. Do not change it.

    Raises:
        WmrlError: unreadable or empty.
    """
    stat = path.stat()
    return _cached_answers(str(path), stat.st_mtime_ns, stat.st_size, text_columns(spec))


@lru_cache(maxsize=32)
def _cached_answers(path: str, _mtime: int, _size: int, as_text: tuple[str, ...] | None) -> pd.DataFrame:
    try:
        frame = read_table(Path(path).read_bytes(), as_text)
    except InvalidSubmission as error:
        raise WmrlError(f"the answers could not be read: {error}") from error
    if not len(frame):
        raise WmrlError("the answers have no rows")
    return frame
