"""Remembered executions: what finds them, what never enters, who may write."""

import contextlib
import json
import multiprocessing
import sqlite3
import threading
import zlib
from dataclasses import asdict, replace
from unittest import mock

import diskcache
import pytest

from tests.unit.execution.conftest import LIMITS
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.execution import ExecutionLimits, Job, ReplaySandbox, Sandbox, make_sandbox
from wmrl_envs.execution.recorded.store import CachedSandbox, ExecutionStore, NotRecorded
from wmrl_envs.outcome import Execution, ExecutionStatus, RecordedGrade


class CountingSandbox(Sandbox):
    """A test double: answers at once, counts its runs, and fails like ours where asked to."""

    tier = "double"

    def __init__(self, lock="lock-1"):
        self.runs, self._lock = [], lock

    @property
    def lock(self):
        return self._lock

    def run_job(self, job):
        self.runs.append(job.code)
        if job.code == "ours":
            raise InfrastructureError("broken")
        if job.code == "status":
            return Execution(ExecutionStatus.INFRA_ERROR)
        return Execution(ExecutionStatus.OK, exit_code=0, stdout=f"{len(self.runs)}\ud7ff\n", submission=b"\x00\xff", wall_s=12.5, cpu_s=3.0,
                         peak_memory_mb=7.0, tier=self.tier)  # fmt: skip

    def close(self):
        pass


@pytest.fixture
def store(tmp_path):
    return ExecutionStore(tmp_path / "store")


def test_the_same_run_is_done_once_and_charged_its_recorded_cost(store, data_dir):
    inner = CountingSandbox()
    with CachedSandbox(inner, store=store) as box:
        first, second = box.run("a", data_dir, LIMITS), box.run("a", data_dir, LIMITS)
        assert inner.runs == ["a"]
        assert (first.cached, second.cached) == (False, True)
        assert second.wall_s == 12.5
        assert second == Execution(**{**first.__dict__, "cached": True})


@pytest.mark.parametrize("change", ["code", "limits", "cpu_s", "prelude", "env", "data", "lock"])
def test_any_difference_is_another_run(store, data_dir, change):
    inner = CountingSandbox()
    box = CachedSandbox(inner, store=store)
    job = {"code": "a", "data_dir": data_dir, "limits": LIMITS, "prelude": "", "env": {}}
    box.run(**job)
    if change == "data":
        (data_dir / "train.csv").write_text("other")
    elif change == "lock":
        inner._lock = "lock-2"
    else:
        job |= {
            "code": {"code": "b"},
            "limits": {"limits": ExecutionLimits()},
            "cpu_s": {"limits": replace(LIMITS, cpu_s=6)},
            "prelude": {"prelude": "x"},
            "env": {"env": {"A": "1"}},
        }[change]
    box.run(**job)
    assert len(inner.runs) == 2


def test_data_counts_by_content_not_by_place_or_time(store, data_dir, tmp_path):
    inner = CountingSandbox()
    box = CachedSandbox(inner, store=store)
    box.run("a", data_dir, LIMITS)
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "train.csv").write_bytes((data_dir / "train.csv").read_bytes())
    assert box.run("a", other, LIMITS).cached


def test_failures_of_ours_never_enter(store, data_dir):
    box = CachedSandbox(CountingSandbox(), store=store)
    for _ in range(2):
        with pytest.raises(InfrastructureError):
            box.run("ours", data_dir, LIMITS)
        assert box.run("status", data_dir, LIMITS).status is ExecutionStatus.INFRA_ERROR
    assert len(box.inner.runs) == 4


def test_read_mode_records_nothing(store, data_dir):
    box = CachedSandbox(CountingSandbox(), "read", store)
    box.run("a", data_dir, LIMITS)
    box.run("a", data_dir, LIMITS)
    assert len(box.inner.runs) == 2


def test_replay_answers_from_the_store_alone(store, data_dir):
    recorded = CachedSandbox(CountingSandbox(), store=store).run("a", data_dir, LIMITS)
    with make_sandbox("replay", store=store.folder) as replay:
        assert isinstance(replay, ReplaySandbox)
        run = replay.run("a", data_dir, LIMITS)
        assert (run.tier, run.cached, run.wall_s, run.cpu_s) == ("replay", True, 12.5, 3.0)
        assert run.submission == recorded.submission
        with pytest.raises(NotRecorded, match="no execution of this program"):
            replay.run("b", data_dir, LIMITS)
        with pytest.raises(InvalidInput, match="does not exist"):
            replay.run("a", data_dir / "absent", LIMITS)
    with pytest.raises(NotRecorded):
        ReplaySandbox(store.folder, environment_lock="lock-2").run("a", data_dir, LIMITS)


def test_a_store_with_pickles_is_refused(store, data_dir):
    box = CachedSandbox(CountingSandbox(), store=store)
    job = Job("a", data_dir, LIMITS)
    with diskcache.Cache(str(store.folder)) as foreign:
        foreign.set(store._key(job, "lock-1"), {"status": "ok"})
    with pytest.raises(InvalidInput, match="pickled"):
        box.run_job(job)


@pytest.mark.parametrize(
    "entry",
    [
        b"garbage",
        "text",
        *(
            zlib.compress(text.encode())
            for text in ('{"status": "ok"}', "[1]", '"a"', '{"submission": 5, "status": "ok"}', '{"submission": null, "status": "?"}',
                         '{"submission": null, "status": "ok", "more": 1}', "[" * 10**5)
        ),
    ],
)  # fmt: skip
def test_a_damaged_entry_counts_as_none(store, data_dir, entry, caplog):
    job = Job("a", data_dir, LIMITS)
    store._cache.set(store._key(job, "lock-1"), entry)
    assert CachedSandbox(CountingSandbox(), store=store).run_job(job).status is ExecutionStatus.OK
    assert "damaged entry" in caplog.text
    assert store.get(job, "lock-1").cached  # written anew


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), sqlite3.DatabaseError("malformed"), diskcache.Timeout("locked")]
)
@pytest.mark.parametrize("method", ["get", "set"])
def test_a_store_that_fails_loses_no_execution(store, data_dir, monkeypatch, caplog, method, error):
    recorded = CachedSandbox(CountingSandbox(), store=store)
    recorded.run("a", data_dir, LIMITS)
    monkeypatch.setattr(store._cache, method, mock.Mock(side_effect=error))
    store._fingerprints.clear()
    box = CachedSandbox(CountingSandbox(), store=store)
    assert box.run("b", data_dir, LIMITS).status is ExecutionStatus.OK
    assert f"The execution store {store.folder}" in caplog.text
    replay = ReplaySandbox(store)
    if method == "set":
        assert replay.run("a", data_dir, LIMITS).status is ExecutionStatus.OK
    else:
        with pytest.raises(InfrastructureError, match="cannot be read"):
            replay.run("a", data_dir, LIMITS)


@pytest.mark.parametrize("damage", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_store_is_refused_with_what_to_do(tmp_path, damage):
    (tmp_path / "cache.db").write_bytes(damage)
    for make in (ExecutionStore, ReplaySandbox):
        with pytest.raises(InvalidInput, match=f"{tmp_path} cannot be opened .* delete this"):
            make(tmp_path)


def test_a_store_in_the_place_of_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", "a\0b"):
        with pytest.raises(InvalidInput, match="cannot be opened"):
            ExecutionStore(folder)


def test_a_replay_never_creates_a_store(tmp_path, monkeypatch, data_dir):
    (tmp_path / "good.jsonl.xz").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "mistyped", str(tmp_path / "empty"), tmp_path / "good.jsonl.xz" / "x"):
        with pytest.raises(InvalidInput, match="There is no execution store"):
            make_sandbox("replay", store=folder)
    monkeypatch.setenv("WMRL_HOME", str(tmp_path / "home"))
    with pytest.raises(InvalidInput, match="There is no execution store"):
        make_sandbox("replay")
    with pytest.raises(NotRecorded), ReplaySandbox() as replay:  # as `wmrl rescore` of a run without a cache
        replay.run("a", data_dir, LIMITS)
    with pytest.raises(InvalidInput, match="store=5"):
        ReplaySandbox(5)
    assert sorted(p.name for p in tmp_path.glob("**/*") if p.name.startswith(("mis", "cache", "home"))) == []


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("replay", {"cache": "x"}, "cache='x'"),
        ("replay", {"foo": 1}, "foo"),
        ("process", {"foo": 1}, "foo.*its options are environment, warm"),
        ("auto", {"foo": 1}, "foo"),
        ("docker", {"foo": 1}, "foo"),
    ],
)
def test_options_of_no_sandbox_are_refused(kind, options, says, store):
    with pytest.raises(InvalidInput, match=says):
        make_sandbox(kind, store=store.folder, **options)


def _write(folder, data_dir, number):
    box = CachedSandbox(CountingSandbox(), store=folder)
    for i in range(20):
        box.run(f"{i % 10}", data_dir, LIMITS)
        box.run(f"{number}-{i}", data_dir, LIMITS)
    box.close()


def test_concurrent_writers_are_safe(store, data_dir):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(store.folder, data_dir, n)) for n in range(2)]
    writers += [threading.Thread(target=_write, args=(store.folder, data_dir, n)) for n in (2, 3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    box = ReplaySandbox(store.folder)
    names = [f"{i}" for i in range(10)] + [f"{n}-{i}" for n in range(4) for i in range(20)]
    assert all(box.run(name, data_dir, LIMITS).submission == b"\x00\xff" for name in names)


def test_the_factory_wraps_the_real_sandbox(environment, data_dir, tmp_path):
    with make_sandbox("process", warm=False, cache="read-write", store=tmp_path / "s") as box:
        code = "import time\nprint(time.time())"
        assert box.run(code, data_dir, LIMITS).stdout == box.run(code, data_dir, LIMITS).stdout
        assert box.tier.removesuffix("+cgroup") in ("namespaces", "landlock")


def test_a_grade_that_was_recorded_comes_back_as_one(store, data_dir):
    graded = Execution(ExecutionStatus.OK, 0, graded=RecordedGrade(error="Kind: why", feedback="told so"))
    job = Job("a", data_dir, LIMITS)
    store.put(job, "lock", graded)
    assert store.get(job, "lock").graded == graded.graded


def _statements(folder, *statements):
    with contextlib.closing(sqlite3.connect(folder / "cache.db")) as connection:
        for statement in statements:
            connection.execute(*statement)
        connection.commit()


@pytest.fixture
def foreign(store, data_dir):
    """A store with one execution, and the statement that changes its entry."""
    job = Job("a", data_dir, LIMITS)
    store.put(job, "lock-1", Execution(ExecutionStatus.OK, 0, stdout="recorded"))
    store.close()
    return store.folder, job


@pytest.mark.parametrize("place", ["../victim", "absolute", "00/00/../../../victim", "aa/bb/{}.val"])
def test_a_file_name_in_a_store_reaches_no_file_outside_it(foreign, tmp_path, place, caplog):
    folder, job = foreign
    victim = tmp_path / "victim"
    victim.write_bytes(zlib.compress(json.dumps({"status": "ok", "stdout": "SECRET", "submission": None}).encode()))
    name = str(victim) if place == "absolute" else place.format("0" * 28)
    if place.startswith("aa"):  # a good name, behind a link
        (tmp_path / "elsewhere" / "bb").mkdir(parents=True)
        victim = victim.rename(tmp_path / "elsewhere" / name.removeprefix("aa/"))
        (folder / "aa").symlink_to(tmp_path / "elsewhere")
    _statements(folder, ("UPDATE Cache SET mode = 2, filename = ?, value = NULL", (name,)))
    with CachedSandbox(CountingSandbox(), store=folder) as box:
        run = box.run_job(job)
        assert (run.cached, run.stdout.strip()) == (False, "1\ud7ff")
        assert box.run_job(job).cached  # written anew over the entry with the file
    assert b"SECRET" in zlib.decompress(victim.read_bytes())
    assert "cannot be read" in caplog.text
    _statements(folder, ("UPDATE Cache SET mode = 2, filename = ?, value = NULL", (name,)))
    with pytest.raises(InfrastructureError, match="cannot be read"), ReplaySandbox(folder) as replay:
        replay.run_job(job)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO Settings VALUES ('disk_fetch', 'x')",
        "INSERT INTO Settings VALUES ('disk__directory', '/etc')",
        "UPDATE Settings SET value = 'x' WHERE key = 'size'",
        "CREATE TRIGGER strange AFTER INSERT ON Cache BEGIN DELETE FROM Cache; END",
        "CREATE VIEW more AS SELECT 1",
        "CREATE TABLE more (x)",
    ],
)
def test_a_database_that_is_more_than_a_store_is_refused(foreign, statement):
    _statements(foreign[0], (statement,))
    for make in (ExecutionStore, ReplaySandbox):
        with pytest.raises(InvalidInput, match=r"cannot be opened \(it"):
            make(foreign[0])


def test_a_store_behind_a_link_is_refused(foreign, tmp_path):
    folder, _ = foreign
    (folder / "cache.db").rename(tmp_path / "cache.db")
    (folder / "cache.db").symlink_to(tmp_path / "cache.db")
    for make in (ExecutionStore, ReplaySandbox):
        with pytest.raises(InvalidInput, match="a link or no file"):
            make(folder)


def test_an_entry_that_unpacks_without_end_counts_as_none(foreign, caplog):
    folder, job = foreign
    pack = zlib.compressobj(9)
    bomb = b"".join([*(pack.compress(b" " * (1 << 24)) for _ in range(4)), pack.flush()])
    _statements(folder, ("UPDATE Cache SET value = ?", (bomb,)))
    with CachedSandbox(CountingSandbox(), store=folder) as box:
        assert not box.run_job(job).cached
    assert "unpacks to more than" in caplog.text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"wall_s": "long"}, "wall_s='long'"),
        ({"wall_s": float("nan")}, "wall_s=nan"),
        ({"cpu_s": True}, "cpu_s=True"),
        ({"stdout": 5}, "stdout=5"),
        ({"exit_code": 0.5}, "exit_code=0.5"),
        ({"status": "infra_error"}, "status='infra_error'"),
        ({"graded": {"raw_score": 1.0}}, "a grade and no submission"),
        ({"status": "memory", "submission": "aWQ="}, "a submission although it ended with memory"),
        ({"tier": "fortress"}, "tier='fortress'"),
    ],
)
def test_an_entry_that_never_happened_is_executed_again(foreign, change, says, caplog):
    folder, job = foreign
    record = asdict(Execution(ExecutionStatus.OK, 0, tier="namespaces")) | change
    _statements(folder, ("UPDATE Cache SET value = ?", (zlib.compress(json.dumps(record).encode()),)))
    with CachedSandbox(CountingSandbox(), store=folder) as box:
        assert not box.run_job(job).cached
    assert says in caplog.text


def test_a_replay_changes_nothing_in_the_store(foreign):
    folder, job = foreign
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name == "cache.db"}
    folder.chmod(0o500)
    try:
        with ReplaySandbox(folder) as replay:
            assert replay.run_job(job).stdout == "recorded"
    finally:
        folder.chmod(0o700)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name == "cache.db"} == before
