import json

import pytest

from tests.unit.world_models.world_model_cases import program, tabular
from wmrl_envs.errors import InvalidInput
from wmrl_envs.outcome import ExecutionStatus, Outcome
from wmrl_envs.world_models.ensemble import MIN_PAIRS, EnsembleWorldModel


class Fixed:
    """A test double: a world model whose score is a function of the code."""

    def __init__(self, score):
        self.score, self.seen = score, 0

    def predict(self, solutions, contexts):
        return [Outcome(ExecutionStatus.OK, self.score(s.code), source="predicted", p_valid=0.9) for s in solutions]

    def update(self, solutions, contexts, outcomes):
        self.seen += len(outcomes)


def test_mean_worst_and_spread():
    members = [Fixed(lambda code: 0.2), Fixed(lambda code: 0.6)]
    mean = EnsembleWorldModel(members).predict([program("a")], [tabular()])[0]
    worst = EnsembleWorldModel(members, "worst").predict([program("a")], [tabular()])[0]
    assert (mean.score, worst.score) == (pytest.approx(0.4), 0.2)
    assert mean.spread == pytest.approx(0.2)
    assert mean.details["member_scores"] == [0.2, 0.6]


def test_a_member_that_fails_for_reasons_of_ours_has_no_say():
    class Lost(Fixed):
        def predict(self, solutions, contexts):
            return [Outcome(ExecutionStatus.INFRA_ERROR, source="predicted")] * len(solutions)

    for combine in ("mean", "worst", "stacking"):
        outcome = EnsembleWorldModel([Fixed(lambda code: 0.5), Lost(None)], combine).predict([program("a")], [tabular()])[0]
        assert (outcome.status, outcome.score) == (ExecutionStatus.OK, 0.5)
    assert EnsembleWorldModel([Lost(None)] * 2).predict([program("a")], [tabular()])[0].is_infra_error


@pytest.mark.parametrize("score", [float("nan"), 5.0, -1.0])
def test_a_score_that_is_none_is_refused(score):
    with pytest.raises(InvalidInput, match="expected an Outcome with a score in"):
        EnsembleWorldModel([Fixed(lambda code: score)]).predict([program("a")], [tabular()])


def test_the_spread_of_a_task_is_where_the_members_lately_disagreed():
    ensemble = EnsembleWorldModel([Fixed(lambda code: 0.2), Fixed(lambda code: 0.6)])
    assert ensemble.spread(tabular().task) == 0
    ensemble.predict([program("a")], [tabular()])
    assert ensemble.spread(tabular().task) == pytest.approx(0.2)
    assert ensemble.spread("never seen") == pytest.approx(0.2)
    other = EnsembleWorldModel([Fixed(lambda code: 0.2), Fixed(lambda code: 0.6)])
    other.load_state_dict(json.loads(json.dumps(ensemble.state_dict())))
    assert other.spread(tabular().task) == ensemble.spread(tabular().task)


def test_stacking_learns_whom_to_trust():
    good, noise = Fixed(lambda code: len(code) / 100), Fixed(lambda code: (len(code) * 37 % 100) / 100)
    model = EnsembleWorldModel([good, noise], "stacking")
    assert model.weights == pytest.approx([0.5, 0.5])
    codes = [program("x" * n) for n in range(2, 2 + 2 * MIN_PAIRS)]
    truth = [Outcome(ExecutionStatus.OK, len(c.code) / 100) for c in codes]
    model.update(codes, [tabular()] * len(codes), truth)
    assert model.weights[0] > 0.8
    assert good.seen == noise.seen == len(codes)
    other = EnsembleWorldModel([good, noise], "stacking")
    other.load_state_dict(json.loads(json.dumps(model.state_dict())))
    assert other.predict(codes, [tabular()] * len(codes)) == model.predict(codes, [tabular()] * len(codes))


def test_predictions_and_infrastructure_failures_teach_nothing():
    member = Fixed(lambda code: 0.5)
    model = EnsembleWorldModel([member], "stacking")
    outcomes = [Outcome(ExecutionStatus.OK, 1.0, source="predicted"), Outcome(ExecutionStatus.INFRA_ERROR)]
    model.update([program("a")] * 2, [tabular()] * 2, outcomes)
    assert member.seen == 0
    assert model.state_dict()["pairs"] == []


@pytest.mark.parametrize(("members", "combine"), [([], "mean"), ([Fixed(lambda c: 0.5)], "median")])
def test_bad_ensembles_are_refused(members, combine):
    with pytest.raises(InvalidInput):
        EnsembleWorldModel(members, combine)


def test_a_member_that_miscounts_is_named():
    class Short(Fixed):
        def predict(self, solutions, contexts):
            return []

    with pytest.raises(InvalidInput, match="Short gave 0 predictions for 1"):
        EnsembleWorldModel([Short(lambda c: 0.5)]).predict([program("a")], [tabular()])
