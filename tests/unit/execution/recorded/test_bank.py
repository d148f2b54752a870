"""The bank is a file of recorded, graded executions; the fixtures write small ones by hand."""

import json
import lzma
from dataclasses import replace

import pytest

from wmrl_envs.errors import InvalidInput
from wmrl_envs.execution import ExecutionBank, ExecutionLimits, Job, make_sandbox
from wmrl_envs.execution.recorded.bank import NotRecorded, describe, fingerprint
from wmrl_envs.outcome import ExecutionStatus, RecordedGrade

LIMITS = ExecutionLimits(timeout_s=6, memory_mb=1024)
COSTS = {"exit_code": 0, "stderr": "", "wall_s": 0.5, "cpu_s": 0.4, "peak_memory_mb": 90}
RECORDS = [
    {"task": "one", "code": "good", "status": "ok", "raw_score": 0.75, **COSTS},
    {"task": "one", "code": "bad", "status": "agent_error", **COSTS, "exit_code": 1, "stderr": "NameError: z"},
    {"task": "one", "code": "refused", "status": "invalid_submission", "error": "Kind: why", "feedback": "told so", **COSTS},
    {"task": "one", "code": "nothing", "status": "invalid_submission", **COSTS},
    {"task": "one", "code": "pipe", "status": "invalid_submission", "problem": "is a FIFO", **COSTS},
    {"task": "two", "code": "good", "status": "timeout", **COSTS},
]


@pytest.fixture
def data(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.csv").write_text(f"id,{name}\n1,2\n")
    return tmp_path


def job(data, code, task="one", **changes):
    return replace(Job(code, data / task, LIMITS, "prelude", {"MAX_ROWS": "10", "METRIC": "rmse"}), **changes)


@pytest.fixture
def path(data):
    conditions = describe(job(data, "")) | {"lock": "L", "data": {t: fingerprint(data / t) for t in ("one", "two")}}
    ExecutionBank.write(data / "small.jsonl.xz", conditions, RECORDS)
    return data / "small.jsonl.xz"


@pytest.fixture
def box(path):
    with make_sandbox("replay", store=path) as box:
        yield box


def test_a_recorded_program_is_answered_at_its_recorded_cost_and_is_no_cache_hit(box, data):
    run = box.run_job(job(data, "good"))
    assert (run.status, run.graded, run.cpu_s, run.wall_s, run.tier) == (
        ExecutionStatus.OK,
        RecordedGrade(raw_score=0.75),
        0.4,
        0.5,
        "replay",
    )
    assert not run.cached


def test_equal_programs_of_two_tasks_are_told_apart_by_their_data(box, data):
    assert box.run_job(job(data, "good", "two")).status is ExecutionStatus.TIMEOUT


def test_failures_keep_what_the_agent_is_told(box, data):
    assert box.run_job(job(data, "bad")).stderr == "NameError: z"
    assert box.run_job(job(data, "refused")).graded == RecordedGrade(error="Kind: why", feedback="told so")
    missing, pipe = box.run_job(job(data, "nothing")), box.run_job(job(data, "pipe"))
    assert (missing.status, missing.submission_problem, missing.graded) == (ExecutionStatus.OK, None, None)
    assert (pipe.status, pipe.submission_problem) == (ExecutionStatus.INVALID_SUBMISSION, "is a FIFO")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"limits": ExecutionLimits(timeout_s=7, memory_mb=1024)}, "timeout_s=6"),
        ({"limits": ExecutionLimits(timeout_s=6, memory_mb=512)}, "memory_mb=1024"),
        ({"env": {"METRIC": "rmse"}}, "max_rows='10'"),
        ({"prelude": "another"}, "prelude="),
    ],
)
def test_other_conditions_are_not_answered(box, data, changes, says):
    with pytest.raises(NotRecorded, match=says):
        box.run_job(job(data, "good", **changes))


def test_other_data_and_unknown_programs_are_not_answered(box, data):
    (data / "three").mkdir()
    (data / "three" / "train.csv").write_text("id,one\n1,3\n")
    with pytest.raises(NotRecorded, match="other data"):
        box.run_job(job(data, "good", "three"))
    with pytest.raises(NotRecorded, match="no execution of this program"):
        box.run_job(job(data, "never seen"))


def test_another_environment_is_not_answered_when_it_is_named(path, data):
    with make_sandbox("replay", store=path, environment_lock="M") as box, pytest.raises(NotRecorded, match="lock='L'"):
        box.run_job(job(data, "good"))


def test_equal_contents_give_an_equal_file(path, data):
    ExecutionBank.write(data / "again.jsonl.xz", ExecutionBank(path).conditions, reversed(RECORDS))
    assert (data / "again.jsonl.xz").read_bytes() == path.read_bytes()


def test_programs_are_listed_by_task(path):
    bank = ExecutionBank(path)
    assert bank.tasks == ["one", "two"]
    assert bank.programs("two") == ["good"]
    with pytest.raises(InvalidInput, match="expected one of one, two"):
        bank.programs("three")


@pytest.mark.parametrize(
    "content", [b"", b"no archive", lzma.compress(b""), lzma.compress(b'{"format": 99}\n'), lzma.compress(b"[]\n")]
)
def test_what_is_no_bank_is_refused_in_one_sentence(tmp_path, content):
    (tmp_path / "x.jsonl.xz").write_bytes(content)
    with pytest.raises(InvalidInput, match="is not an execution bank"):
        ExecutionBank(tmp_path / "x.jsonl.xz")


def packed(*lines):
    return lzma.compress(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines))


HEADER = {"format": 1, "data": {"one": "d"}}
GOOD = RECORDS[0]


@pytest.mark.parametrize("data", [None, ["one"], "one", {"one": 5}, {"one": None}])
def test_a_header_without_fingerprints_is_refused(tmp_path, data):
    (tmp_path / "x.jsonl.xz").write_bytes(packed({"format": 1, "data": data}))
    with pytest.raises(InvalidInput, match=r"x\.jsonl\.xz is not an execution bank .line 1: data="):
        ExecutionBank(tmp_path / "x.jsonl.xz")


@pytest.mark.parametrize(
    "record",
    [
        *(GOOD | {name: value} for name, value in (
            ("status", "fine"), ("status", "infra_error"), ("status", ["ok"]), ("status", None), ("raw_score", "0.5"),
            ("raw_score", float("nan")), ("raw_score", float("inf")), ("raw_score", True), ("wall_s", -1), ("wall_s", None),
            ("cpu_s", float("inf")), ("cpu_s", "1"), ("peak_memory_mb", -1), ("exit_code", 0.5), ("stderr", None), ("code", 5),
            ("task", "three"), ("task", ["one"]), ("error", 5), ("raw_score", 0.5),
        )),
        {key: value for key, value in GOOD.items() if key != "exit_code"},
        [], "a", 5, None, b"{", b"\xff\xfe\n", b"[" * 10**5, b"\n",
    ],
)  # fmt: skip
def test_a_damaged_record_is_refused_by_its_line(tmp_path, record):
    (tmp_path / "x.jsonl.xz").write_bytes(packed(HEADER, GOOD, GOOD, record))  # equal executions are one
    with pytest.raises(InvalidInput, match=r"x\.jsonl\.xz is not an execution bank .line 4: "):
        ExecutionBank(tmp_path / "x.jsonl.xz")


def test_an_archive_is_read_whole_or_not_at_all(tmp_path):
    whole = packed(HEADER, GOOD)
    for content in (whole + b"junk", whole[:-5], whole + whole):
        (tmp_path / "x.jsonl.xz").write_bytes(content)
        with pytest.raises(InvalidInput, match="is not an execution bank"):
            ExecutionBank(tmp_path / "x.jsonl.xz")


def test_a_bank_is_written_into_a_folder_that_is_made_or_not_at_all(tmp_path):
    ExecutionBank.write(tmp_path / "new" / "x.jsonl.xz", {"data": {"one": "d"}}, [GOOD])
    assert ExecutionBank(tmp_path / "new" / "x.jsonl.xz").programs("one") == ["good"]
    with pytest.raises(InvalidInput, match="cannot be written"):
        ExecutionBank.write(tmp_path / "new" / "x.jsonl.xz" / "y.jsonl.xz", {"data": {}}, [])


def test_a_missing_bank_says_how_to_make_one(tmp_path):
    with pytest.raises(InvalidInput, match="make bank"):
        make_sandbox("replay", store=tmp_path / "none.jsonl.xz")
