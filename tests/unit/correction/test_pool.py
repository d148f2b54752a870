"""The pool of anchor pairs."""

import json

import numpy as np
import pytest

from wmrl_envs.correction import AnchorPool


def test_records_round_trip_through_jsonl_exactly():
    rng = np.random.default_rng(0)
    a, b = AnchorPool(), AnchorPool()
    for g in range(5):
        a.add(rng.random(8), rng.random(8), group=f"g{g}", task="x" if g % 2 else None)
    lines = [json.dumps(row) for row in a.records()]
    b.extend(json.loads(line) for line in lines)
    assert list(a.records()) == list(b.records())
    assert a.state_dict() == b.state_dict()


def test_a_full_pool_forgets_the_oldest_pairs():
    pool = AnchorPool(max_pairs=10)
    for i in range(25):
        pool.add([i / 100], [0.5], group=i)
    assert [row["group"] for row in pool.records()] == list(range(15, 25))
    assert sorted(pool.predicted.tolist()) == [i / 100 for i in range(15, 25)]
    assert pool.n_seen == 25
    again = AnchorPool(max_pairs=10)
    again.load_state_dict(json.loads(json.dumps(pool.state_dict())))
    for p in (pool, again):
        p.add([0.9], [0.9], group="new")
    assert list(pool.records()) == list(again.records())


def test_by_task():
    pool = AnchorPool()
    pool.add([0.1, 0.2, 0.3], [0.4, 0.5, 0.6], group=0, task=["a", "b", "a"])
    assert {task: true.tolist() for task, _, true in pool.by_task()} == {"a": [0.4, 0.6], "b": [0.5]}


def test_groups_may_come_as_a_matrix():
    pool = AnchorPool()
    pool.add(np.full((2, 3), 0.1), np.full((2, 3), 0.2), group=["a", "b"], task=["x", "y"])
    assert [(row["group"], row["task"]) for row in pool.records()] == [("a", "x")] * 3 + [("b", "y")] * 3


def test_labels_must_fit():
    with pytest.raises(ValueError, match="2 labels"):
        AnchorPool().add([0.1, 0.2, 0.3], [0.1, 0.2, 0.3], group=["a", "b"])


def test_insertion_costs_the_same_at_any_size(monkeypatch):
    """Amortised: what growing copies is at most the size of the pool, and a full pool copies nothing."""
    copied, grow = [], AnchorPool._grow
    monkeypatch.setattr(AnchorPool, "_grow", lambda pool: (copied.append(len(pool)), grow(pool))[1])
    pool = AnchorPool(max_pairs=60_000)
    scores = np.full(1000, 0.5)
    for _ in range(60):
        pool.add(scores, scores, group=1)
    assert 0 < sum(copied) < 2 * 60_000
    columns, grown = pool._columns, len(copied)
    for _ in range(40):
        pool.add(scores, scores, group=1)
    assert pool._columns is columns
    assert len(copied) == grown
