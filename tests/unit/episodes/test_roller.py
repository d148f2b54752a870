import threading
import time

import numpy as np
import pytest

from tests.doubles import FakeWorldModel, ToyAgent, ToyEnv, toy_score
from wmrl_envs.context import FileInfo, TaskContext
from wmrl_envs.correction import Corrector
from wmrl_envs.engine import Sampling
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.outcome import BoardPosition, ExecutionStatus, Feedback, Outcome, Position, Solution, SubmissionProblem
from wmrl_train.engines.transformers import TransformersEngine
from wmrl_train.episodes.records import Group, GroupPlan
from wmrl_train.episodes.roller import Roller


class Halving(Corrector):
    def calibrate(self, predicted, tasks=None):
        return np.asarray(predicted) / 2


def roller(tiny, env=ToyEnv, world_model=None, engine=None, agent=None, **options):
    return Roller(
        engine or TransformersEngine(*tiny),
        agent or ToyAgent(tiny[1]),
        env,
        FakeWorldModel() if world_model is None else world_model,
        Halving(),
        **({"sampling": Sampling(max_new_tokens=12), "group_size": 4, "retries": 1, "execution_workers": 4} | options),
    )


def plans(n=4, anchored=(1,), step=0):
    return [GroupPlan(100 + i, step, f"task-{i % 3}", seed=7 + i, anchored=i in anchored) for i in range(n)]


def test_anchor_groups_have_both_scores_and_others_only_predictions(tiny):
    groups = roller(tiny).collect(plans())
    assert [g.plan.id for g in groups] == [100, 101, 102, 103]
    for group in groups:
        assert len(group.trajectories) == 4
        for trajectory in group.trajectories:
            (turn,) = trajectory.turns
            if turn.problem is None:
                assert turn.predicted == FakeWorldModel()._score(turn.code)
                assert turn.calibrated == turn.predicted / 2
            assert turn.true == (
                toy_score(turn.code) if group.plan.anchored and not turn.problem else 0.0 if group.plan.anchored else None
            )
    assert len(groups[1].pairs()) == sum(t.turns[0].problem is None for t in groups[1].trajectories)
    assert not groups[0].pairs()
    assert [o.score for _, _, o in groups[1].executed] == [true for _, true in groups[1].pairs()]


def test_rows_are_token_exact_over_several_turns(tiny):
    engine = TransformersEngine(*tiny)
    groups = roller(tiny, env=lambda task: ToyEnv(task, max_turns=3), engine=engine).collect(plans())
    agent = ToyAgent(tiny[1])
    for group in groups:
        for member, trajectory in enumerate(group.trajectories):
            assert len(trajectory.turns) == 3
            (row,) = trajectory.rows
            assert len(row.ids) == len(row.sampled) == len(row.logprobs)
            ids, at = agent.begin(f"task {group.plan.task}", None), 0
            for number, turn in enumerate(trajectory.turns):
                assert row.ids[at : at + len(ids)] == ids, "the given ids are those of the agent"
                assert not any(row.sampled[at : at + len(ids)])
                at += len(ids)
                assert turn.prompt_tokens == at
                completion = row.ids[at : at + turn.completion_tokens]
                assert all(row.sampled[at : at + turn.completion_tokens])
                at += turn.completion_tokens
                ids = agent.extend(turn.feedback, tuple(completion))
                assert number < 2 or at == len(row.ids), "nothing follows the last turn"
            assert trajectory.score("predicted", "improvement") == max(t.predicted or 0 for t in trajectory.turns)
            assert member < 4


def test_an_equal_plan_gives_an_equal_rollout_whatever_the_clock(tiny):
    slow = roller(tiny, env=lambda task: ToyEnv(task, max_turns=2, delay_s=0.02), execution_workers=1).collect(plans())
    fast = roller(tiny, env=lambda task: ToyEnv(task, max_turns=2), execution_workers=8).collect(plans())
    assert [g.as_dict() for g in slow] == [g.as_dict() for g in fast]
    other = roller(tiny).collect([GroupPlan(1, 0, "task-0", seed=8, anchored=False)])
    assert len({t.turns[0].code for t in other[0].trajectories}) == 4


def test_a_failure_of_ours_is_retried_then_drops_the_group_and_no_other(tiny):
    healed = roller(tiny, env=lambda task: ToyEnv(task, broken=lambda n: n == 1)).collect(plans())
    assert all(g.failure is None for g in healed)
    dropped = roller(tiny, env=lambda task: ToyEnv(task, broken=lambda n: task == "task-1")).collect(plans())
    assert [g.failure for g in dropped if g.plan.id != 101] == [None] * 3
    assert "the sandbox broke" in dropped[1].failure
    assert not dropped[1].pairs()
    assert not dropped[1].executed


def test_failures_of_engine_and_world_model_are_retried_too(tiny):
    groups = roller(tiny, world_model=FakeWorldModel(broken=lambda n: n == 1)).collect(plans(anchored=()))
    assert all(g.failure is None for g in groups)
    groups = roller(tiny, world_model=FakeWorldModel(broken=lambda n: True)).collect(plans(anchored=()))
    assert all("the world model broke" in g.failure for g in groups)

    class BrokenEngine(TransformersEngine):
        def generate(self, *args):
            raise InfrastructureError("the engine broke")

    groups = roller(tiny, engine=BrokenEngine(*tiny)).collect(plans())
    assert all("the engine broke" in g.failure for g in groups)


def test_executions_overlap_with_each_other_and_with_the_rest(tiny):
    all_at_once = threading.Barrier(4)  # an execution that had to wait for another would break it

    class Together(ToyEnv):
        def execute(self, solution):
            all_at_once.wait(60)
            return super().execute(solution)

    work = roller(tiny, env=Together, execution_workers=4)
    (group,) = work.collect(plans(n=4, anchored=(0,)))[:1]
    assert group.failure is None
    lane = work.execution.take()
    assert lane.calls == 4
    assert lane.cpu_s == pytest.approx(0.25 * sum(1 for _ in range(4)), abs=0.26)


def test_a_full_context_ends_the_episode_and_a_hopeless_one_is_named(tiny):
    groups = roller(tiny, env=lambda task: ToyEnv(task, max_turns=9), max_context=40).collect(plans(n=1, anchored=()))
    for trajectory in groups[0].trajectories:
        assert 0 < len(trajectory.turns) < 9
    with pytest.raises(InvalidInput, match="context only 8"):
        roller(tiny, max_context=8).collect(plans(n=1, anchored=()))


def test_one_row_a_turn_where_the_template_rewrites_the_past(tiny):
    class Rewriting(ToyAgent):
        one_row_per_turn = True

        def render(self, observations, texts, context):
            return self._tokenizer("".join(f"<user>{o}<end>" for o in observations) + "<assistant>")["input_ids"]

    groups = roller(tiny, env=lambda task: ToyEnv(task, max_turns=3), agent=Rewriting(tiny[1])).collect(plans(n=1))
    for trajectory in groups[0].trajectories:
        assert [row.n_sampled for row in trajectory.rows] == [turn.completion_tokens for turn in trajectory.turns]
        assert all(row.sampled[-row.n_sampled :] for row in trajectory.rows)


def test_groups_survive_json(tiny):
    import json

    for group in roller(tiny, env=lambda task: ToyEnv(task, max_turns=2)).collect(plans()):
        again = Group.from_dict(json.loads(json.dumps(group.as_dict())))
        assert again.plan == group.plan
        assert again.trajectories == group.trajectories
        assert again.executed == group.executed
    files = (FileInfo("train.csv", 3, 2, {"x": "int"}),)
    position = Position(0.5, BoardPosition(1, 2, 0.5))
    told = Feedback(problem=SubmissionProblem("Kind", "why"), position=position)
    full = Outcome(ExecutionStatus.TIMEOUT, report=told, position=position, details={"rank": [1, 2]})
    context = TaskContext("t", files=files, id_columns=("id",), scaffold_names={"num": ["x"]}, history=(("a", "b"),))
    group.executed = [(Solution("1", "t"), context, full)]
    assert Group.from_dict(json.loads(json.dumps(group.as_dict()))).executed == group.executed


def test_environments_are_reused(tiny):
    made = []
    work = roller(tiny, env=lambda task: made.append(task) or ToyEnv(task))
    work.collect(plans())
    first = len(made)
    work.collect(plans(step=1))
    assert len(made) == first == 16
    work.close()


def test_a_group_under_way_is_taken_up_where_it_was(tiny):
    """Its first turn is neither sampled nor predicted again; what it executes and all that follows is the same."""
    import json
    import threading

    slow, plan = threading.Event(), plans(n=1, anchored=(0,))

    class Slow(ToyEnv):
        def execute(self, solution):
            slow.wait(30)
            return super().execute(solution)

    first = roller(tiny, env=lambda task: Slow(task, max_turns=2))
    (running,) = first.start(plan)
    while not running.sampled or running.sampled[0].predicted is None:
        time.sleep(0.01)
    saved = json.loads(json.dumps(running.as_dict()))
    assert "groups" not in saved
    slow.set()
    (whole,) = running.result()
    assert Group.from_dict(json.loads(json.dumps(running.as_dict()))["groups"][0]).trajectories == whole.trajectories

    class Counting(TransformersEngine):
        def generate(self, prompts, *arguments, **more):
            asked.append(len(prompts))
            return super().generate(prompts, *arguments, **more)

    asked, model = [], FakeWorldModel()
    again = roller(tiny, env=lambda task: ToyEnv(task, max_turns=2), engine=Counting(*tiny), world_model=model)
    (resumed,) = again.take_up(saved).result()
    assert (len(asked), model.calls) == (1, 1)
    assert resumed.trajectories == whole.trajectories

    other = roller(tiny, env=lambda task: ToyEnv(f"{task}-as-it-is-now", max_turns=2))
    (anew,) = other.take_up(saved).result()
    assert anew.trajectories[0].rows[0].ids != whole.trajectories[0].rows[0].ids, "another prompt is answered anew"
