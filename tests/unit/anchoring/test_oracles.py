"""Grading and learning are separate, failures of ours are never scores, and everything is calibrated once."""

import numpy as np
import pytest

from tests.unit.wrappers.doubles import Down, Guess, HalfScores, LastObservation
from wmrl_envs import AnchoredVecEnv, WorldModelEnv
from wmrl_envs.anchoring.graded import Graded, pairs_of
from wmrl_envs.anchoring.outcomes import Asked, OutcomeOracle
from wmrl_envs.anchoring.rewards import Finished, RewardOracle
from wmrl_envs.context import Episode, TaskContext
from wmrl_envs.correction import Corrector
from wmrl_envs.info import KEYS
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution


class Half(Corrector):
    """Test double: the map halves; counts how often it is asked."""

    asked = 0

    def calibrate(self, predicted, tasks=None):
        self.asked += 1
        return np.asarray(predicted) / 2


def solution(action, anchored=False, group=0, problem=None, execute=None):
    true = execute or (lambda s: Outcome(ExecutionStatus.OK, score=s.action / 10, raw_score=s.action))
    return Asked(Solution(action=action, problem=problem), TaskContext("t"), true, anchored, group)


def test_predictions_are_calibrated_in_one_call_and_an_anchor_is_paid_its_truth():
    model, corrector = HalfScores(), Half()
    oracle = OutcomeOracle(model, corrector)
    predicted, anchor = oracle.grade([solution(4), solution(6, anchored=True, group=1)])
    assert (model.batches, corrector.asked) == ([2], 1)
    assert (predicted.predicted, predicted.calibrated, predicted.score, predicted.true) == (0.4, 0.2, 0.2, None)
    assert (anchor.predicted, anchor.calibrated, anchor.score, anchor.true) == (0.5, 0.25, 0.6, 0.6)
    assert predicted.used.score == 0.2  # told as it is paid
    assert corrector.n_pairs == 0
    assert model.learned == []
    oracle.learn([predicted, anchor])
    assert corrector.n_pairs == 1
    assert model.learned == [0.6]


def test_what_is_no_program_is_told_and_not_predicted():
    model = HalfScores()
    told = Outcome(ExecutionStatus.AGENT_ERROR, feedback="no program")
    (graded,) = OutcomeOracle(model, None).grade([solution(0, problem="no program", execute=lambda s: told)])
    assert (model.batches, graded.used, graded.score, graded.predicted, graded.true) == ([], told, 0.0, None, None)


def test_a_failure_of_ours_has_no_score_and_takes_the_pairs_of_its_group():
    broken = lambda s: Outcome(ExecutionStatus.INFRA_ERROR, error="the sandbox broke")  # noqa: E731
    asked = [solution(1, True, 7), solution(2, True, 7, execute=broken), solution(3, True, 8)]
    graded = OutcomeOracle(HalfScores(), None, retries=0).grade(asked)
    assert (graded[1].failed, graded[1].score, graded[1].true) == ("the sandbox broke", None, None)
    assert [pair.group for pair in pairs_of(graded)] == [8]
    assert graded[1].known({"score": 1.0}) == {"status": "infra_error", "wall_s": 0.0}


def test_without_an_answer_of_the_world_model_anchors_go_on_and_make_no_pair():
    asked = [solution(4), solution(6, anchored=True, group=1)]
    model = Down(HalfScores())
    lost, anchor = OutcomeOracle(model, None, retries=2).grade(asked)
    assert model.asked == 3
    assert lost.failed == "the server is gone"
    assert (anchor.failed, anchor.score, anchor.predicted) == (None, 0.6, None)
    assert not pairs_of([anchor])
    episodes = [Finished(Episode([1.0], task="t")), Finished(Episode([2.0], task="t"), true=0.5)]
    lost, anchor = RewardOracle(Down(LastObservation()), None, retries=0).grade(episodes)
    assert lost.failed == "the server is gone"
    assert (anchor.score, anchor.predicted) == (0.5, None)


def test_episodes_are_scored_in_one_batch():
    model, corrector = LastObservation(), Half()
    oracle = RewardOracle(model, corrector)
    graded = oracle.grade([Finished(Episode([4.0], task="t")), Finished(Episode([2.0], task="t"), true=0.5)])
    assert (model.calls, corrector.asked) == (1, 1)
    assert [g.score for g in graded] == [0.2, 0.5]
    oracle.learn(graded)
    assert corrector.n_pairs == 1


def test_every_solution_needs_a_world_model_or_an_anchor():
    with pytest.raises(ValueError, match="anchor every group, or pass a world model"):
        OutcomeOracle(None, None).grade([solution(1)])
    (graded,) = OutcomeOracle(None, None).grade([solution(1, anchored=True)])
    assert graded.score == 0.1


def test_the_info_of_a_single_environment_has_every_key_of_the_contract():
    info = Graded(score=0.5, wall_s=1.0).info({"best_score": 0.7})
    assert set(KEYS) <= set(info)
    assert (info["best_score"], info["weight"], info["score"]) == (0.7, 1.0, 0.5)
    assert info == Graded(score=0.5, wall_s=2.0).info({"best_score": 0.7})  # a measured duration equals every other
    assert Graded.lost("gone").info()["weight"] == 0


def test_an_outcome_model_on_an_environment_that_shows_its_simulator_is_refused():
    class Simulated(Guess):
        replaceable = False

    for make in (lambda: WorldModelEnv(Simulated(), HalfScores()), lambda: AnchoredVecEnv([Simulated], HalfScores())):
        with pytest.raises(ValueError, match="no function of an outcome"):
            make()
    from wmrl_envs.envs.libero_long import LiberoLongEnv

    assert not LiberoLongEnv.replaceable
