"""An execution as bytes, and back: what comes back is checked, since a store may be from elsewhere."""

from __future__ import annotations

import base64
import json
import math
import zlib
from dataclasses import asdict, fields
from typing import Any

from wmrl_envs.execution.base import ExecutionLimits
from wmrl_envs.outcome import Execution, ExecutionStatus, RecordedGrade

_NUMBERS = ("wall_s", "cpu_s", "setup_cpu_s", "peak_memory_mb")
_TEXTS = ("stdout", "stderr", "tier", "detail")
_NAMES = {f.name for f in fields(Execution)}


def encode(execution: Execution) -> bytes:
    """For `decode`."""
    record = asdict(execution)
    if execution.submission is not None:
        record["submission"] = base64.b64encode(execution.submission).decode()
    return zlib.compress(json.dumps(record).encode())


def decode(data: Any, limits: ExecutionLimits) -> Execution:
    """The execution, marked as cached.

    Raises:
        ValueError: it is none that could have happened under these limits, in words.
    """
    if not isinstance(data, bytes):
        raise ValueError(f"a {type(data).__name__}, expected bytes")
    # A submission grows by a third in base64, a character of output by five to six in JSON.
    most = int(limits.submission_mb * 2**20 * 1.4) + 32 * int(limits.output_bytes) + (1 << 20)
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(data, most)
        if unpacking.unconsumed_tail or not unpacking.eof:
            raise ValueError(f"unpacks to more than {most >> 20} MiB, or ends early")
        record = json.loads(text)
    except (zlib.error, RecursionError, MemoryError) as error:
        raise ValueError(f"cannot be unpacked ({type(error).__name__})") from None
    if not isinstance(record, dict) or not record.keys() <= _NAMES or "submission" not in record:
        raise ValueError("has other fields than an execution")
    status = ExecutionStatus(record["status"]) if isinstance(record.get("status"), str) else None
    if status is None or status is ExecutionStatus.INFRA_ERROR:
        raise ValueError(f"status={record.get('status')!r:.80}, expected how a program ended")
    _check(record)
    submission = record["submission"]
    graded = record.get("graded") and RecordedGrade(**record["graded"])
    if graded and graded.raw_score is not None and submission is None:
        raise ValueError("has a grade and no submission")
    if submission is not None:
        if status not in (ExecutionStatus.OK, ExecutionStatus.TIMEOUT):  # of the latter, what was there at the time limit
            raise ValueError(f"has a submission although it ended with {status}")
        submission = base64.b64decode(submission, validate=True)
    return Execution(**{**record, "status": status, "submission": submission, "cached": True, "graded": graded})


def _check(record: dict[str, Any]) -> None:
    for name in _NUMBERS:
        value = record.get(name, 0.0)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name}={value!r:.80}, expected a number of at least 0")
    for name in _TEXTS:
        if not isinstance(record.get(name, ""), str):
            raise ValueError(f"{name}={record[name]!r:.80}, expected a text")
    if not isinstance(record["submission"], (str, type(None))):
        raise ValueError("its submission is no text")
    if not isinstance(record.get("submission_problem"), (str, type(None))):
        raise ValueError("its submission_problem is no text")
    if record.get("exit_code") is not None and type(record["exit_code"]) is not int:
        raise ValueError(f"exit_code={record['exit_code']!r:.80}, expected a whole number")
    grade = record.get("graded")
    if grade is None:
        return
    if not isinstance(grade, dict) or not grade.keys() <= {f.name for f in fields(RecordedGrade)}:
        raise ValueError(f"graded={grade!r:.80}, expected a grade")
    raw = grade.get("raw_score")
    if raw is not None and (type(raw) not in (int, float) or not math.isfinite(raw)):
        raise ValueError(f"raw_score={raw!r:.80}, expected a finite number")
    if not all(isinstance(grade.get(name, ""), (str, type(None))) for name in ("error", "feedback")):
        raise ValueError("its grade has texts that are none")
