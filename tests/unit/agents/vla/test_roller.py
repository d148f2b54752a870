import numpy as np
import pytest

from tests.unit.agents.vla.doubles import Biased, simulators, small_policy
from wmrl_envs.correction import Corrector
from wmrl_train.agents.vla.roller import RobotRoller, start_at
from wmrl_train.config import load_config
from wmrl_train.episodes.records import GroupPlan

CONFIG = load_config("libero", ["rollout.groups=3", "rollout.group_size=4", "rollout.retries=1"])


def roller(reward_model=None, pool=None, corrector=None):
    return RobotRoller(
        small_policy(), pool or simulators(), reward_model, {"colour": (0, 1)}, CONFIG, corrector or Corrector(min_pairs=4)
    )


def plans(*anchored):
    return [GroupPlan(i, 0, "colour", 10 + i, a, 0.5) for i, a in enumerate(anchored)]


def test_a_group_has_one_start_and_only_anchors_know_their_success():
    made = roller(Biased()).collect(plans(True, False, False))
    assert [group.plan.id for group in made] == [0, 1, 2]
    for group in made:
        assert group.failure is None
        assert group.start in (0, 1)
        assert len(group.trajectories) == 4
        for (turn,) in (t.turns for t in group.trajectories):
            assert turn.predicted == pytest.approx(0.3 + 0.3 * turn.raw_score)
            assert turn.calibrated == turn.predicted  # the map is not ready
            assert turn.true == (turn.raw_score if group.plan.anchored else None)
    assert len(made[0].pairs()) == 4
    assert not made[1].pairs()


def test_rows_are_looks_with_what_was_seen():
    (group,) = roller().collect(plans(True))
    for t in group.trajectories:
        assert len(t.rows) == t.turns[0].steps // 2
        for row in t.rows:
            assert row.n_sampled == len(row.ids) == len(row.logprobs) == 1
            assert row.context["image"].shape == (16, 16, 3)
        assert t.turns[0].completion_tokens == len(t.rows)


def test_predictions_are_calibrated_by_the_map_in_force():
    corrector = Corrector(min_pairs=4)
    corrector.observe([0.3, 0.6, 0.3, 0.6], [0.0, 1.0, 0.0, 1.0], group=0)
    corrector.observe([0.3, 0.6, 0.3, 0.6], [0.0, 1.0, 0.0, 1.0], group=1)
    (group,) = roller(Biased(), corrector=corrector).collect(plans(False))
    for (turn,) in (t.turns for t in group.trajectories):
        assert turn.calibrated == pytest.approx(float(corrector.calibrate([turn.predicted])[0]))
        assert turn.calibrated != turn.predicted


def test_without_a_word_of_the_reward_model_only_anchors_are_left():
    first, second, third = roller(Biased(broken=(1, 2))).collect(plans(True, False, False))
    assert first.failure is None
    assert not first.pairs()
    assert "no server" in second.failure
    assert "no server" in third.failure


def test_a_reward_model_is_asked_again_and_a_lost_episode_takes_its_group_along():
    pool = simulators(1, crash_at=(1, 9))  # the first of eight episodes, and its second attempt
    made = roller(Biased(broken=(1,)), pool).collect(plans(False, False))
    assert "simulation failed" in made[0].failure
    assert made[1].failure is None
    assert all(t.turns[0].predicted is not None for t in made[1].trajectories)


def test_equal_plans_give_equal_groups_whatever_the_number_of_simulators():
    first, second = (roller(Biased(), simulators(count)).collect(plans(True, False, False)) for count in (1, 3))
    assert [[[row.ids for row in t.rows] for t in g.trajectories] for g in first] == [
        [[row.ids for row in t.rows] for t in g.trajectories] for g in second
    ]
    assert [g.start for g in first] == [g.start for g in second]


def test_starts_come_in_shuffled_passes():
    drawn = np.array([start_at(range(5), 0, i) for i in range(50)]).reshape(10, 5)
    assert all(sorted(row) == [0, 1, 2, 3, 4] for row in drawn.tolist())
    assert len({tuple(row) for row in drawn.tolist()}) > 5
