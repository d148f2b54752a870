"""Anchors inside groups, anchors after the rollout, and the memory of executed programs, in the one Trainer."""

import json

import pytest

from tests.doubles import FakeWorldModel, ToyEnv, toy_score
from tests.unit.training.test_trainer import config, logs, trainer
from wmrl_envs.errors import InvalidInput
from wmrl_train.run import checkpoint
from wmrl_train.run.rundir import RunDirectory

PLACES = pytest.mark.parametrize("place", ["members", "favourites"])


def inside(tmp_path, place, **more):
    return config(tmp_path, **{"anchors__place": place, "rollout__max_new_tokens": 6, **more})


def rollouts(cfg):
    return list(RunDirectory(cfg.run_dir).read("rollouts.jsonl"))


def by_group(cfg):
    groups = {}
    for record in rollouts(cfg):
        groups.setdefault(record["group"], []).append(record)
    return groups


def picked(record):
    return [turn for turn in record["turns"] if turn["picked"]]


@PLACES
def test_one_member_of_every_group_is_executed_at_a_quarter_of_four(tmp_path, tiny, place):
    cfg = inside(tmp_path, place, anchors__memory="false")
    work = trainer(cfg, tiny)
    work.run()
    work.close()
    for group in by_group(cfg).values():
        assert sum(len(picked(r)) for r in group) <= 1
        assert any(picked(r) for r in group) or all(r["turns"][0]["problem"] for r in group)
    executed = [turn for r in rollouts(cfg) for turn in picked(r)]
    assert all(turn["true"] == toy_score(turn["code"]) for turn in executed)
    assert work.ledger.executions_paid + work.ledger.executions_cached == len(executed)


def test_the_favourite_is_the_one_predicted_best(tmp_path, tiny):
    cfg = inside(tmp_path, "favourites", anchors__random_share=0.0, anchors__memory="false")
    work = trainer(cfg, tiny)
    work.run()
    for group in by_group(cfg).values():
        best = max((r["turns"][0]["calibrated"] or 0.0) for r in group)
        for record in group:
            for turn in picked(record):
                assert turn["picked"] == "favourite"
                assert turn["calibrated"] == best
    assert work.corrector.n_pairs == 0  # favourites are no random sample
    work.close()


def test_the_pool_gets_random_picks_only(tmp_path, tiny):
    cfg = inside(tmp_path, "favourites", anchors__random_share=0.5)
    work = trainer(cfg, tiny)
    work.run()
    turns = [turn for r in rollouts(cfg) for turn in picked(r)]
    at_random = sum(turn["picked"] == "random" for turn in turns)
    assert 0 < at_random < len(turns)
    assert work.corrector.n_pairs == at_random
    work.close()


def test_a_member_is_paid_the_best_that_is_known_of_it(tmp_path, tiny):
    cfg = inside(tmp_path, "favourites")
    trainer(cfg, tiny).run()
    for record in rollouts(cfg):
        (turn,) = record["turns"]
        expected = turn["true"] if turn["true"] is not None else turn["calibrated"] or 0.0
        assert record["reward"] == pytest.approx(expected)


def test_a_share_below_one_member_a_group_draws_the_groups(tmp_path, tiny):
    cfg = inside(tmp_path, "members", anchors__fraction=0.125, anchors__memory="false", train__steps=8)
    work = trainer(cfg, tiny)
    work.run()
    work.close()
    counts = [sum(len(picked(r)) for r in group) for group in by_group(cfg).values()]
    assert set(counts) <= {0, 1}
    assert sum(counts) == pytest.approx(len(counts) / 2, abs=2)
    propensities = {turn["propensity"] for r in rollouts(cfg) for turn in picked(r)}
    assert all(p <= 0.51 for p in propensities)


@PLACES
def test_equal_seeds_give_equal_runs_and_a_resumed_one_the_same(tmp_path, tiny, place):
    whole = inside(tmp_path, place, name="whole", tasks__max_turns=2)
    work = trainer(whole, tiny, env=lambda task: ToyEnv(task, max_turns=2))
    work.run()
    work.close()
    again = inside(tmp_path, place, name="again", tasks__max_turns=2)
    first = trainer(again, tiny, env=lambda task: ToyEnv(task, max_turns=2))
    while first.step < 4:
        first._train_step()
    first.save()
    first._train_step()  # lost
    first.close()
    first.run_dir.release()
    second = trainer(again, tiny, env=lambda task: ToyEnv(task, max_turns=2))
    second.load(checkpoint.latest(again.run_dir / "checkpoints"))
    second.run()
    second.close()
    assert json.dumps(logs(whole)) == json.dumps(logs(again))


def test_with_two_turns_the_favourites_best_turn_is_executed(tmp_path, tiny):
    cfg = inside(tmp_path, "favourites", anchors__random_share=0.0, anchors__memory="false")
    trainer(cfg, tiny, env=lambda task: ToyEnv(task, max_turns=2)).run()
    for record in rollouts(cfg):
        for turn in picked(record):
            assert turn["calibrated"] == max(t["calibrated"] or 0.0 for t in record["turns"])


def test_anchors_after_the_rollout_come_from_the_same_distribution(tmp_path, tiny):
    """Their episodes read the world model's feedback; then all their programs are executed."""
    cfg = config(tmp_path, anchors__when="after", anchors__memory="false")
    trainer(cfg, tiny, env=lambda task: ToyEnv(task, max_turns=2)).run()
    anchored = [r for r in rollouts(cfg) if r["anchored"]]
    assert anchored
    for record in anchored:
        for turn in record["turns"]:
            assert turn["true"] is not None
            assert turn["problem"] is not None or turn["feedback"] == "predicted"


# -- memory ------------------------------------------------------------------------------------------------------------
class Few(ToyEnv):
    """Only three programs can be written, so they repeat."""

    def propose(self, action):
        return super().propose(("abc", "ABC", "aBc")[len(action) % 3])


def test_a_program_is_executed_once_in_a_run(tmp_path, tiny):
    executions = []

    class Counting(Few):
        def execute(self, solution):
            executions.append((self.task, solution.code))
            return super().execute(solution)

    cfg = config(tmp_path)
    work = trainer(cfg, tiny, env=Counting)
    work.run()
    assert len(executions) == len(set(executions)) == work.ledger.executions_distinct
    assert work.ledger.executions_paid == len(executions)
    assert work.ledger.executions_cached > 0
    work.close()


def test_a_known_truth_is_not_a_prediction(tmp_path, tiny):
    cfg = config(tmp_path, train__steps=8)
    work = trainer(cfg, tiny, env=Few)
    work.run()
    remembered = [(r, t) for r in rollouts(cfg) for t in r["turns"] if t["remembered"]]
    assert remembered
    for record, turn in remembered:
        assert not record["anchored"]
        assert turn["true"] == toy_score(turn["code"])
        assert record["reward"] == turn["true"]
    anchors = sum(len(r["turns"]) for r in rollouts(cfg) if r["anchored"])
    assert work.corrector.n_pairs == anchors  # what is remembered is no new pair
    work.close()


def test_plain_grpo_remembers_too(tmp_path, tiny):
    cfg = config(tmp_path, anchors__fraction=1.0)
    work = trainer(cfg, tiny, env=Few, world_model=None)
    work.run()
    assert work.ledger.executions_distinct <= 9
    assert work.ledger.executions_paid <= 2 * 9  # two groups of one step may write the same program at the same time
    work.close()


def test_memory_can_be_switched_off(tmp_path, tiny):
    cfg = config(tmp_path, anchors__memory="false", anchors__fraction=1.0)
    work = trainer(cfg, tiny, env=Few, world_model=None)
    work.run()
    assert work.ledger.executions_paid == 6 * 16
    work.close()


def test_a_broken_execution_inside_a_group_loses_the_group_and_is_no_score(tmp_path, tiny):
    cfg = inside(tmp_path, "members", rollout__retries=0, anchors__memory="false")
    work = trainer(cfg, tiny, env=lambda task: ToyEnv(task, broken=lambda count: task == "a"))
    work.run()
    assert work.ledger.dropped_groups > 0
    assert all(r["task"] != "a" or not picked(r) for r in rollouts(cfg))
    work.close()


@pytest.mark.parametrize("setting", [{"anchors__place": "favourites"}, {"anchors__when": "after"}])
def test_what_is_executed_after_the_rollout_cannot_be_late(tmp_path, tiny, setting):
    with pytest.raises(InvalidInput, match="set lag to 0"):
        trainer(config(tmp_path, anchors__lag=2, **setting), tiny)


def test_the_world_model_learns_from_what_is_executed_inside_groups(tmp_path, tiny):
    model = FakeWorldModel()
    cfg = inside(tmp_path, "favourites")
    trainer(cfg, tiny, world_model=model).run()
    assert sum(map(len, model.updates)) == sum(len(picked(r)) for r in rollouts(cfg))
