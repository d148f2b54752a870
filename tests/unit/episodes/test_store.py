import json
from dataclasses import replace

import pytest

from wmrl_envs.errors import InvalidInput
from wmrl_envs.outcome import Execution, ExecutionStatus, Outcome
from wmrl_train.episodes import store as trajectories
from wmrl_train.episodes.store import Trajectory, Turn


def turn(status=ExecutionStatus.OK, score=0.5, submission=b"id,y\n1,2\n"):
    run = None if submission is None else Execution(status, 0, submission=submission)
    return Turn.of("print('λ')", Outcome(status, score, 0.7, "text", wall_s=1.25), run, "text")


def test_a_trajectory_survives_the_disk(tmp_path):
    path = tmp_path / "t.jsonl"
    a = Trajectory("t", "tabular", 0, 42, [turn(), turn(ExecutionStatus.TIMEOUT, 0.0, None)])
    b = Trajectory("t", "tabular", 1, 43, [turn(ExecutionStatus.INFRA_ERROR)], failure="ours")
    trajectories.append(path, a)
    trajectories.append(path, b)
    assert trajectories.read(path) == [a, b]
    assert (a.score, a.valid, b.score) == (0.5, True, None)
    assert b.turns[0].score is None
    assert a.turns[0].submission_bytes() == b"id,y\n1,2\n"


def test_a_large_submission_is_remembered_by_its_hash(monkeypatch):
    monkeypatch.setattr(trajectories, "STORED_BYTES", 10)
    kept = turn(submission=bytes(range(200)))
    assert kept.submission_bytes() is None
    assert len(kept.submission_sha256) == 64


def test_a_torn_last_line_is_ignored_and_repaired_and_a_bad_line_is_named(tmp_path):
    path = tmp_path / "t.jsonl"
    trajectories.append(path, Trajectory("t", "tabular", 0, 1, [turn()]))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"task": "t"')
    assert len(trajectories.read(path)) == 1
    assert path.read_bytes() != whole
    assert len(trajectories.read(path, repair=True)) == 1
    assert path.read_bytes() == whole
    path.write_bytes(whole + b"[1]\n")
    with pytest.raises(InvalidInput, match="line 2"):
        trajectories.read(path)


def test_an_absent_file_is_an_empty_evaluation(tmp_path):
    assert trajectories.read(tmp_path / "none.jsonl") == []


def line(**changes):
    record = json.loads(Trajectory("t", "tabular", 0, 42, [turn()]).as_line())
    record["turns"][0] |= changes.pop("turn", {})
    return json.dumps(record | changes).encode()


@pytest.mark.parametrize(
    "bad",
    [
        line(turn={"score": "high"}),
        line(turn={"wall_s": "long"}),
        line(turn={"submission": 5}),
        line(turn={"colour": "blue"}),
        line(turns=[7]),
        line(repeat="first"),
        line(task=None),
        b"[" * 100_000,
        b"\xff",
        b"5",
    ],
)
def test_a_line_that_is_no_trajectory_is_named(tmp_path, bad):
    path = tmp_path / "t.jsonl"
    path.write_bytes(line() + b"\n" + bad + b"\n")
    with pytest.raises(InvalidInput, match="line 2: not a trajectory"):
        trajectories.read(path)


def test_a_folder_is_no_file_of_trajectories(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        trajectories.read(tmp_path)


@pytest.mark.parametrize("stored", ["not base64!", "\u00e9", "aGVsbG8="])
def test_a_submission_that_cannot_be_unpacked_is_one_sentence(stored):
    with pytest.raises(InvalidInput, match="cannot be unpacked"):
        replace(turn(), submission=stored).submission_bytes()


def test_a_line_of_an_earlier_version_is_read(tmp_path):
    whole = Trajectory("t", "tabular", 3, 42, [turn()])
    record = json.loads(whole.as_line())
    record["attempt"] = record.pop("repeat")
    del record["statuses"]
    (tmp_path / "t.jsonl").write_text(json.dumps(record) + "\n")
    assert trajectories.read(tmp_path / "t.jsonl") == [whole]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"turn": {"score": True}}, "wrong type"),
        ({"turn": {"score": 7.5}}, "outside of"),
        ({"turn": {"score": float("nan")}}, "no finite number"),
        ({"turn": {"status": "splendid"}}, "splendid"),
        ({"turn": {"wall_s": float("inf")}}, "no finite number"),
        ({"turn": {"score": 1.0, "submission": None, "submission_sha256": None}}, "without a submission"),
        ({"turns": []}, "without a turn"),
        ({"repeat": True}, "wrong type"),
    ],
)
def test_an_episode_that_no_evaluation_can_have_written_is_refused(tmp_path, changes, message):
    path = tmp_path / "t.jsonl"
    path.write_bytes(line(**changes) + b"\n")
    with pytest.raises(InvalidInput, match=f"line 1.*{message}"):
        trajectories.read(path)


def test_a_grade_of_a_bank_that_keeps_no_submissions_is_taken(tmp_path):
    from wmrl_envs.outcome import RecordedGrade

    replayed = Execution(ExecutionStatus.OK, 0, graded=RecordedGrade(raw_score=0.7), tier="replay")
    made = Turn.of("print(1)", Outcome(ExecutionStatus.OK, 0.5, 0.7, "text", wall_s=1.0), replayed, "text")
    path = tmp_path / "t.jsonl"
    trajectories.append(path, Trajectory("t", "tabular", 0, 1, [made]))
    assert trajectories.read(path)[0].score == 0.5
