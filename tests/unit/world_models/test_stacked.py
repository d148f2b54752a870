import json
from dataclasses import replace

import numpy as np
import pytest

from tests.unit.world_models.world_model_cases import program, tabular
from wmrl_envs.errors import InvalidInput
from wmrl_envs.outcome import ExecutionStatus, Outcome
from wmrl_envs.world_models.stacked import StackedWorldModel


def quality(code):
    """The true score of a program: its text says it."""
    return float(code.split()[0])


class Told:
    """A test double: says `score(quality)` if valid, and P(valid) by whether the program's text says that it works."""

    def __init__(self, score=lambda q: q, right=0.95):
        self.score, self.right, self.asked, self.seen = score, right, [], 0

    def predict(self, solutions, contexts):
        self.asked += [s.code for s in solutions]
        return [self._one(s.code) for s in solutions]

    def _one(self, code):
        p = self.right if "works" in code else 1 - self.right
        status = ExecutionStatus.OK if p >= 0.5 else ExecutionStatus.AGENT_ERROR
        return Outcome(
            status, min(max(p * self.score(quality(code)), 0), 1), feedback=f"by {id(self)}", source="predicted", p_valid=p
        )

    def update(self, solutions, contexts, outcomes):
        self.seen += len(outcomes)


class Paid(Told):
    """A test double of a member that executes."""

    cost_s, closed = 0.5, False

    def _one(self, code):
        return replace(super()._one(code), cpu_s=0.5, wall_s=1.0)

    def close(self):
        self.closed = True


def programs(n, seed=0):
    rng = np.random.default_rng(seed)
    return [
        program(f"{q:.3f} {'works' if rng.random() < 0.7 else 'fails'} {i}") for i, q in enumerate(rng.uniform(0.1, 0.9, n))
    ]


def executed(code):
    ok = "works" in code
    return Outcome(ExecutionStatus.OK if ok else ExecutionStatus.AGENT_ERROR, quality(code) if ok else 0.0)


def taught(stack, some, task="credit-default"):
    contexts = [tabular(task=task) for _ in some]
    stack.predict(some, contexts)
    stack.update(some, contexts, [executed(s.code) for s in some])
    return stack


def error(stack, some, task="credit-default"):
    outcomes = stack.predict(some, [tabular(task=task) for _ in some])
    return np.sqrt(np.mean([(o.score - executed(s.code).score) ** 2 for o, s in zip(outcomes, some, strict=True)]))


def test_without_pairs_it_answers_as_its_first_member():
    first, second = Told(lambda q: 0.8 * q), Told(lambda q: 1 - q, 0.5)
    some = programs(20)
    contexts = [tabular() for _ in some]
    ours, theirs = StackedWorldModel([first, second]).predict(some, contexts), first.predict(some, contexts)
    assert [o.score for o in ours] == pytest.approx([o.score for o in theirs])
    assert [o.p_valid for o in ours] == pytest.approx([o.p_valid for o in theirs])
    assert [(o.status, o.feedback) for o in ours] == [(o.status, o.feedback) for o in theirs]


def test_pairs_move_the_weight_to_the_member_that_is_right():
    stack = StackedWorldModel([Told(lambda q: 1 - q, 0.6), Told()])
    before = error(stack, programs(60, 1))
    taught(stack, programs(200))
    assert error(stack, programs(60, 1)) < 0.4 * before


def test_few_pairs_move_little():
    stack = taught(StackedWorldModel([Told(lambda q: 0.9 * q), Told(lambda q: 0.5)]), programs(3))
    assert error(stack, programs(60, 1)) < 0.15


def test_a_task_of_its_own_kind_gets_weights_of_its_own():
    class Two(Told):
        def __init__(self, good):
            super().__init__()
            self.good = good

        def predict(self, solutions, contexts):
            self.score = (lambda q: q) if contexts[0].task == self.good else (lambda q: 1 - q)
            return super().predict(solutions, contexts)

    stack = StackedWorldModel([Two("credit-default"), Two("loan-grade")])
    for task in ("credit-default", "loan-grade"):
        taught(stack, programs(150), task)
    assert error(stack, programs(50, 1), "credit-default") < 0.12
    assert error(stack, programs(50, 1), "loan-grade") < 0.12


def test_an_expensive_member_is_asked_for_the_share_that_the_budget_allows_where_the_cheap_one_doubts():
    class Unsure(Told):
        def _one(self, code):
            return (
                replace(super()._one(code), p_valid=0.5, status=ExecutionStatus.OK, score=0.4)
                if "doubt" in code
                else super()._one(code)
            )

    cheap, paid = Unsure(), Paid()
    stack = StackedWorldModel([paid, cheap], budget=0.25)
    some = [program(f"0.5 works {i}" + (" doubt" if i % 4 == 0 else "")) for i in range(40)]
    for start in range(0, 40, 10):
        outcomes = stack.predict(some[start : start + 10], [tabular()] * 10)
        assert [o.cpu_s > 0 for o in outcomes] == [0 in o.details["asked"] for o in outcomes]
    assert len(cheap.asked) == 40
    assert len(paid.asked) == 10
    assert sum("doubt" in code for code in paid.asked) == 8  # of 3, 2, 3, 2, with room for 2, 3, 2, 3


def test_a_budget_of_one_asks_for_all_and_of_none_for_nothing():
    for budget, n in ((1.0, 12), (0.0, 0)):
        paid = Paid()
        StackedWorldModel([paid, Told()], budget=budget).predict(programs(12), [tabular()] * 12)
        assert len(paid.asked) == n


def test_learning_asks_nobody():
    paid = Paid()
    stack = StackedWorldModel([paid, Told()], budget=0.5)
    some = programs(20)
    stack.predict(some, [tabular()] * 20)
    before = len(paid.asked)
    stack.update(some, [tabular()] * 20, [executed(s.code) for s in some])
    assert len(paid.asked) == before
    assert paid.seen == 20


def test_a_state_that_went_through_json_gives_the_same_predictions():
    stack, other = (StackedWorldModel([Paid(lambda q: q**2), Told(lambda q: 0.5)], budget=0.3) for _ in range(2))
    taught(stack, programs(50))
    other.load_state_dict(json.loads(json.dumps(stack.state_dict())))
    some = programs(30, 1)
    ours, theirs = (model.predict(some, [tabular()] * 30) for model in (stack, other))
    assert [(o.score, o.p_valid, o.cpu_s) for o in ours] == [(o.score, o.p_valid, o.cpu_s) for o in theirs]


def test_a_member_that_fails_for_reasons_of_ours_has_no_say():
    class Lost(Told):
        def predict(self, solutions, contexts):
            return [Outcome(ExecutionStatus.INFRA_ERROR, source="predicted")] * len(solutions)

    some = programs(5)
    stack = StackedWorldModel([Lost(), Told()])
    assert [o.status for o in stack.predict(some, [tabular()] * 5)] == [o.status for o in Told().predict(some, [tabular()] * 5)]
    assert StackedWorldModel([Lost()]).predict(some[:1], [tabular()])[0].is_infra_error


def test_closing_closes_what_executes():
    paid = Paid()
    StackedWorldModel([paid, Told()]).close()
    assert paid.closed


@pytest.mark.parametrize(
    ("members", "budget", "said"),
    [
        ([], 1.0, "at least one"),
        ([Told()], 1.5, "between 0 and 1"),
        ([Told()], 0.5, "beside one that does not"),
        ([Paid()], 0.5, "beside one"),
    ],
)
def test_bad_arguments_are_refused(members, budget, said):
    with pytest.raises(InvalidInput, match=said):
        StackedWorldModel(members, budget)


def test_a_state_of_another_stack_is_refused():
    with pytest.raises(InvalidInput, match="of 1 members, this stack has 2"):
        StackedWorldModel([Told(), Told()]).load_state_dict(StackedWorldModel([Told()]).state_dict())
