import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wmrl_envs.errors import InvalidInput
from wmrl_train.evaluation.table import aggregate


@dataclass(frozen=True)
class Episode:
    """A scored episode, as `aggregate` takes it."""

    task: str
    category: str
    score: float | None
    valid: bool = False
    statuses: tuple[str, ...] = ()


SCORE = st.floats(0, 1, allow_nan=False)


def test_the_overall_value_is_the_mean_of_categories_not_of_tasks_or_episodes():
    episodes = [Episode(f"tab{i}", "tabular", 1.0, True) for i in range(9)]
    episodes += [Episode("txt", "text", 0.0)] * 3 + [Episode("img", "image", s, s > 0) for s in (0.0, 0.5, 1.0)]
    table = aggregate(episodes)
    assert {row.name: row.avg for row in table.categories} == {"tabular": 1.0, "text": 0.0, "image": 0.5}
    assert table.overall.avg == pytest.approx(0.5)
    assert table.overall.best == pytest.approx(2 / 3)
    assert table.overall.all == pytest.approx(1 / 3)
    assert table.overall.valid == pytest.approx((1 + 0 + 2 / 3) / 3)
    assert (table.overall.tasks, table.overall.episodes, table.overall.failed) == (11, 15, 0)


def test_a_failure_of_ours_is_counted_apart_and_is_no_zero():
    table = aggregate([Episode("a", "tabular", 0.8, True), Episode("a", "tabular", None), Episode("b", "tabular", None)])
    a, b = table.tasks
    assert (a.avg, a.episodes, a.failed) == (0.8, 1, 1)
    assert math.isnan(b.avg)
    assert table.overall.avg == 0.8
    assert (table.overall.tasks, table.overall.failed) == (1, 2)
    assert json.loads(json.dumps(table.as_dict(), allow_nan=False))["tasks"]["b"]["avg"] is None


def test_nothing_scored_gives_nan_and_no_crash():
    assert math.isnan(aggregate([]).overall.avg)
    assert math.isnan(aggregate([Episode("a", "text", None)]).overall.low)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(SCORE, min_size=1, max_size=6), min_size=1), st.randoms())
def test_order_does_not_matter_and_the_values_are_ordered(scores, shuffler):
    episodes = [Episode(task, "xy"[ord(task) % 2], s, s > 0) for task, many in scores.items() for s in many]
    table = aggregate(episodes, resamples=50)
    shuffler.shuffle(episodes)
    assert aggregate(episodes, resamples=50) == table
    for row in (*table.tasks, table.overall):
        assert row.all <= row.avg + 1e-12
        assert row.avg <= row.best + 1e-12
        assert row.low <= row.high


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    rng, hits = np.random.default_rng(0), 0
    for i in range(200):
        episodes = [Episode(t, c, float(s), True) for t, c in [("a", "x"), ("b", "x"), ("c", "y")] for s in rng.random(30)]
        row = aggregate(episodes, resamples=300, seed=i).overall
        hits += row.low <= 0.5 <= row.high
    assert 0.88 <= hits / 200 <= 0.99


@pytest.mark.parametrize("score", [1.5, -0.1, float("nan")])
def test_a_score_outside_the_unit_interval_is_refused(score):
    with pytest.raises(InvalidInput, match="fractions in"):
        aggregate([Episode("a", "text", score)])


def test_a_task_in_two_categories_and_a_wrong_confidence_are_refused():
    with pytest.raises(InvalidInput, match="two categories"):
        aggregate([Episode("a", "text", 0.1), Episode("a", "image", 0.1)])
    with pytest.raises(InvalidInput, match="confidence"):
        aggregate([], confidence=1.0)


@pytest.mark.parametrize("score", ["high", 1.5, -0.1, float("nan"), [0.5]])
def test_a_score_that_is_no_fraction_is_named(score):
    with pytest.raises(InvalidInput, match="task 'a' has a score of"):
        aggregate([Episode("a", "text", 0.5), Episode("a", "text", score)])


def test_statuses_are_counted_by_task_and_over_all_lost_episodes_included():
    episodes = [Episode("a", "text", 0.5, True, ("ok", "timeout")), Episode("a", "text", None, False, ("infra_error",))]
    episodes += [Episode("b", "tabular", 0.0, False, ("timeout", "timeout"))]
    table = aggregate(episodes)
    assert table.overall.statuses == {"timeout": 3, "ok": 1, "infra_error": 1}
    assert {row.name: row.statuses for row in table.tasks} == {
        "a": {"infra_error": 1, "ok": 1, "timeout": 1},
        "b": {"timeout": 2},
    }
    assert table.as_dict()["tasks"]["b"]["statuses"] == {"timeout": 2}
