import copy
import os
import signal
import threading
import time

import pytest

from tests.doubles import FakeWorldModel, ToyAgent, ToyEnv
from wmrl_envs.errors import InvalidInput
from wmrl_train.config import load_config
from wmrl_train.engines.transformers import TransformersEngine
from wmrl_train.learn.learner import NonFiniteLoss
from wmrl_train.run import checkpoint
from wmrl_train.run.rundir import RunDirectory
from wmrl_train.training.build import text_parts
from wmrl_train.training.trainer import Interrupted, TooManyFailures, Trainer, task_at

SMALL = {
    "rollout": {"groups": 4, "group_size": 4, "max_new_tokens": 12},
    "train": {"steps": 6, "save_every": 2},
    "correction": {"min_pairs": 8, "refit_every": 4},
    "optim": {"lr": 3e-3},
    "anchors": {"fraction": 0.25},
    "run": {"min_free_disk_mb": 0},
    "agent": {"name": "program"},
}


def config(tmp_path, name="toy", **overrides):
    values = copy.deepcopy(SMALL)
    values["run"] |= {"dir": str(tmp_path), "name": name}
    return load_config(values, [f"{key.replace('__', '.')}={value}" for key, value in overrides.items()])


def trainer(cfg, tiny, env=ToyEnv, world_model="fake", evaluate=None):
    model = copy.deepcopy(tiny[0])
    run = RunDirectory(cfg.run_dir)
    run.acquire()
    run.config_file.write_text(cfg.to_yaml())
    parts = text_parts(
        model, tiny[1], TransformersEngine(model, tiny[1]), ToyAgent(tiny[1]), env,
        FakeWorldModel() if world_model == "fake" else world_model, ["a", "b", "c"], evaluate=evaluate, execution_workers=2,
    )  # fmt: skip
    return Trainer(cfg, parts, run)


def logs(cfg):
    """The logs without what a clock measured."""
    run = RunDirectory(cfg.run_dir)
    result = []
    for log in ("rollouts.jsonl", "metrics.jsonl", "anchors.jsonl"):
        result += [{k: v for k, v in r.items() if not k.startswith("time/") and not k.endswith("cpu_s")} for r in run.read(log)]
    return result


def test_the_loop_raises_the_really_executed_score(tmp_path, tiny):
    cfg = config(tmp_path, train__steps=30, optim__lr=1e-2, optim__kl_coef=0.01, rollout__group_size=8)
    result = trainer(cfg, tiny)
    result.run()
    executed = [r["reward/executed"] for r in RunDirectory(cfg.run_dir).read("metrics.jsonl")]
    assert sum(executed[-6:]) / 6 > sum(executed[:6]) / 6 + 0.15, executed
    assert result.corrector.ready
    assert result.ledger.executions_avoided > 2 * result.ledger.executions_paid > 0
    result.close()


def test_run_directory_and_metrics(tmp_path, tiny):
    cfg = config(tmp_path)
    work = trainer(cfg, tiny, evaluate=lambda step: {"train": {"avg": 0.1 * step, "best": 1.0, "valid": 0.5, "tasks": 3}})
    result = work.run()
    work.close()
    assert {p.name for p in cfg.run_dir.iterdir()} >= {
        "config.yaml",
        "rollouts.jsonl",
        "metrics.jsonl",
        "anchors.jsonl",
        "checkpoints",
    }
    records = list(work.run_dir.read("metrics.jsonl"))
    steps = [r for r in records if "eval" not in r]
    assert [r["step"] for r in steps] == [1, 2, 3, 4, 5, 6]
    assert [r["step"] for r in records if "eval" in r] == [0, 6]
    assert (result["before"]["train"]["avg"], result["after"]["train"]["avg"]) == (0.0, pytest.approx(0.6))
    last = steps[-1]
    assert last["policy/version"] == 6
    assert last["groups/anchors"] == 1
    assert last["policy/mismatch_kl"] < 1e-8
    assert last["time/step_s"] >= last["time/generate_s"] > 0
    rollouts = list(work.run_dir.read("rollouts.jsonl"))
    assert len(rollouts) == 6 * 16
    for record in rollouts:
        assert record["turns"][0]["version"] == record["step"] - 1
    anchors = list(work.run_dir.read("anchors.jsonl"))
    assert len(anchors) == work.corrector.n_pairs
    assert last["ledger/executions_paid"] == len(anchors)
    executed = [(r["task"], t["code"]) for r in rollouts for t in r["turns"] if t["status"] and not t["problem"] and t["code"]]
    assert last["ledger/executions_distinct"] == len(set(executed)) > 0
    assert work.parts.world_model.updates, "the world model learns from executions"


def test_a_resumed_run_equals_an_uninterrupted_one_bit_by_bit(tmp_path, tiny):
    whole = config(tmp_path, "whole")
    first = trainer(whole, tiny)
    first.run()
    cut = config(tmp_path, "cut")
    second = trainer(cut, tiny)
    original, calls = second._train_step, []

    def killed():
        original()
        calls.append(1)
        if len(calls) == 5:  # after the checkpoint of step 4: the lines of step 5 are written and must not stay
            raise RuntimeError("kill")

    second._train_step = killed
    with pytest.raises(RuntimeError, match="kill"):
        second.run()
    second.close()
    second.run_dir.release()
    third = trainer(cut, tiny)
    third.load(checkpoint.latest(third.run_dir.checkpoints))
    assert third.step == 4
    third.run()
    assert logs(whole) == logs(cut)
    for a, b in zip(first.parts.model.state_dict().values(), third.parts.model.state_dict().values(), strict=True):
        assert a.equal(b)
    assert first.corrector.state_dict() == third.corrector.state_dict()


def evaluations(cfg):
    return {r["step"]: r["eval"]["train"]["avg"] for r in RunDirectory(cfg.run_dir).read("metrics.jsonl") if "eval" in r}


def scored(made):
    """A test double of an evaluation that notes when it was asked; no two of its results are equal."""

    def evaluate(step):
        made.append(step)
        return {"train": {"avg": len(made) / 100, "best": 1.0, "valid": 1.0, "tasks": 3}}

    return evaluate


def test_a_run_resumed_with_more_steps_keeps_every_evaluation_it_paid_for(tmp_path, tiny):
    made, cfg = [], config(tmp_path, train__steps=2, eval__every=1)
    first = trainer(cfg, tiny, evaluate=scored(made))
    first.run()
    first.close()
    first.run_dir.release()
    paid = evaluations(cfg)
    assert list(paid) == made == [0, 1, 2]
    longer = config(tmp_path, train__steps=4, eval__every=1)
    second = trainer(longer, tiny, evaluate=scored(made))
    second.load(checkpoint.latest(second.run_dir.checkpoints))
    second.run()
    assert made == [0, 1, 2, 3, 4], "none is made twice"
    assert evaluations(cfg) == paid | {3: 0.04, 4: 0.05}


def test_an_evaluation_that_a_kill_prevented_is_made_by_the_resumed_run(tmp_path, tiny):
    cfg = config(tmp_path, train__steps=4, eval__every=2)

    def killed(step):
        if step == 2:
            raise RuntimeError("kill")
        return scored([])(step)

    first = trainer(cfg, tiny, evaluate=killed)
    with pytest.raises(RuntimeError, match="kill"):
        first.run()
    first.close()
    first.run_dir.release()
    made = []
    second = trainer(cfg, tiny, evaluate=scored(made))
    second.load(checkpoint.latest(second.run_dir.checkpoints))
    second.run()
    assert made == [2, 4]


def test_a_signal_after_the_last_step_says_that_training_is_finished(tmp_path, tiny):
    def interrupted(step):
        if step == 2:
            signal.raise_signal(signal.SIGTERM)
        return scored([])(step)

    work = trainer(config(tmp_path, train__steps=2), tiny, evaluate=interrupted)
    with pytest.raises(Interrupted, match="Training is finished, all 2 steps are saved"):
        work.run()
    work.close()
    work.run_dir.release()
    without = trainer(config(tmp_path, "without", train__steps=2, eval__k=0), tiny)
    record = without._record
    without._record = lambda *a: (record(*a), without.step == 2 and signal.raise_signal(signal.SIGTERM))
    without.run()  # nothing is left to do: no interruption to speak of
    assert checkpoint.latest(without.run_dir.checkpoints).step == 2


def test_equal_seeds_give_equal_runs_and_others_do_not(tmp_path, tiny):
    runs = [config(tmp_path, f"r{i}", run__seed=seed, train__steps=2) for i, seed in enumerate([0, 0, 1])]
    for cfg in runs:
        trainer(cfg, tiny).run()
    assert logs(runs[0]) == logs(runs[1])
    assert logs(runs[0]) != logs(runs[2])


def test_deferred_anchors_never_hold_up_a_step_and_join_later(tmp_path, tiny):
    cfg = config(tmp_path, anchors__lag=2)
    slow = trainer(cfg, tiny, env=lambda task: ToyEnv(task, delay_s=0.1))
    slow.run()
    steps = list(slow.run_dir.read("metrics.jsonl"))
    assert [r["groups/anchors"] for r in steps] == [0, 0, 1, 1, 1, 3]  # the last step waits for all
    late = [r for r in slow.run_dir.read("rollouts.jsonl") if r["anchored"]]
    assert {(r["sampled_at_step"], r["step"]) for r in late} == {(1, 3), (2, 4), (3, 5), (4, 6), (5, 6), (6, 6)}
    assert steps[2]["policy/mismatch_kl"] > 0, "late anchors are off-policy and enter with importance weights"
    slow.close()


def test_deferred_anchors_survive_a_checkpoint(tmp_path, tiny):
    """Also what a world model that learns will learn from them."""
    whole, cut = config(tmp_path, "whole", anchors__lag=2), config(tmp_path, "cut", anchors__lag=2)
    trainer(whole, tiny, world_model=Learning()).run()
    second = trainer(cut, tiny, world_model=Learning())
    for _ in range(3):
        second._train_step()
    second.save()
    second.run_dir.release()
    third = trainer(cut, tiny, world_model=Learning())
    third.load(checkpoint.latest(third.run_dir.checkpoints))
    assert [group.plan.step for _, anchors in third.pending for group in anchors.result()] == [1, 2]
    third.run()
    assert logs(whole) == logs(cut)


def test_a_checkpoint_does_not_wait_for_deferred_anchors(tmp_path, tiny):
    """They are executed again by the resumed run, whose metrics are those of an uninterrupted one."""
    whole, cut = config(tmp_path, "whole", anchors__lag=2), config(tmp_path, "cut", anchors__lag=2)
    trainer(whole, tiny, world_model=Learning()).run()
    go_on = threading.Event()

    class Waiting(ToyEnv):
        def execute(self, solution):
            go_on.wait(60)
            return super().execute(solution)

    second = trainer(cut, tiny, env=Waiting, world_model=Learning())
    second._train_step()
    second._train_step()
    second.save()
    assert not any(anchors.future.done() for _, anchors in second.pending)
    go_on.set()
    second.close()
    second.run_dir.release()
    third = trainer(cut, tiny, world_model=Learning())
    third.load(checkpoint.latest(third.run_dir.checkpoints))
    third.run()
    assert logs(whole) == logs(cut)


class Learning(FakeWorldModel):
    """A test double of a world model that learns: its predictions move with every execution it has seen."""

    seen = 0.0

    def _score(self, code):
        return min(1.0, super()._score(code) * (1 + self.seen / 100))

    def update(self, solutions, contexts, outcomes):
        self.seen += sum(outcome.score for outcome in outcomes)

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def test_dropped_groups_are_counted_and_the_rest_is_learnt_from(tmp_path, tiny):
    cfg = config(tmp_path, train__steps=3, anchors__fraction=1.0, rollout__retries=0)
    work = trainer(cfg, tiny, env=lambda task: ToyEnv(task, broken=lambda n: task == "b"))
    work.run()
    steps = list(work.run_dir.read("metrics.jsonl"))
    assert work.ledger.dropped_groups == sum(s["groups/dropped"] for s in steps) > 0
    assert all(r["task"] != "b" for r in work.run_dir.read("rollouts.jsonl"))


def test_a_run_in_which_nothing_works_stops(tmp_path, tiny):
    work = trainer(config(tmp_path, anchors__fraction=1.0), tiny, env=lambda task: ToyEnv(task, broken=lambda n: True))
    with pytest.raises(TooManyFailures, match="wmrl doctor"):
        work.run()


def test_plain_grpo_needs_no_world_model(tmp_path, tiny):
    work = trainer(config(tmp_path, world_model__kind="none", anchors__fraction=1.0, train__steps=2), tiny, world_model=None)
    work.run()
    assert work.ledger.executions_avoided == 0
    assert all(r["turns"][0]["predicted"] is None for r in work.run_dir.read("rollouts.jsonl"))


def test_world_model_only_executes_nothing(tmp_path, tiny):
    work = trainer(config(tmp_path, anchors__fraction=0, anchors__min_groups=0, train__steps=2), tiny)
    work.run()
    assert work.ledger.executions_paid == 0 < work.ledger.executions_avoided


@pytest.mark.parametrize(("mode", "of"), [("score", lambda x: sum(x) / len(x)), ("improvement", max)])
def test_a_predicted_episode_is_paid_by_its_calibrated_turns(tmp_path, tiny, mode, of):
    """As the environment pays it: every turn calibrated, then the mean or the best of them."""
    work = trainer(config(tmp_path, tasks__reward_mode=mode), tiny, env=lambda task: ToyEnv(task, max_turns=2))
    work.run()
    assert work.corrector.ready, "the map must have bent something"
    bent = 0
    for record in work.run_dir.read("rollouts.jsonl"):
        turns = record["turns"]
        assert record["reward"] == pytest.approx(of([t["true" if record["anchored"] else "calibrated"] or 0.0 for t in turns]))
        bent += any(t["calibrated"] is not None and abs(t["calibrated"] - t["predicted"]) > 0.01 for t in turns)
    assert bent > 0


def test_nan_stops_the_run_and_keeps_the_checkpoint(tmp_path, tiny):
    work = trainer(config(tmp_path), tiny)
    work._train_step()
    work._train_step()
    work.save()
    correct = work._correct
    work._correct = lambda groups: tuple(x * (float("nan") if i == 0 else 1) for i, x in enumerate(correct(groups)))
    with pytest.raises(NonFiniteLoss, match=r"group (8|9|10|11) "):
        work.run()
    assert checkpoint.latest(work.run_dir.checkpoints).step == 2


def test_ctrl_c_in_a_rollout_saves_and_the_resumed_run_is_the_same(tmp_path, tiny):
    whole, cut = config(tmp_path, "whole", train__steps=4), config(tmp_path, "cut", train__steps=4, train__save_every=100)
    trainer(whole, tiny, env=lambda t: ToyEnv(t, delay_s=0.02)).run()
    work = trainer(cut, tiny, env=lambda t: ToyEnv(t, delay_s=0.02))
    collect = work.roller.collect

    def interrupted(plans):
        if plans[0].step == 2:
            threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
            time.sleep(5)
        return collect(plans)

    work.roller.collect = interrupted
    with pytest.raises(Interrupted, match="Interrupted at step 2 of 4"):
        work.run()
    work.close()
    work.run_dir.release()
    again = trainer(cut, tiny)
    again.load(checkpoint.latest(again.run_dir.checkpoints))
    again.run()
    assert logs(whole) == logs(cut)


def test_ctrl_c_with_deferred_anchors_loses_none_and_repeats_none(tmp_path, tiny):
    whole = config(tmp_path, "whole", train__steps=4, anchors__lag=1)
    cut = config(tmp_path, "cut", train__steps=4, train__save_every=100, anchors__lag=1)
    trainer(whole, tiny, world_model=Learning()).run()
    work = trainer(cut, tiny, world_model=Learning())
    start = work.roller.start

    def interrupted(plans, given=()):
        cohorts = start(plans, given)
        if plans[0].step == 2:
            cohorts[-1].result = lambda: os.kill(os.getpid(), signal.SIGINT) or time.sleep(5)
        return cohorts

    work.roller.start = interrupted
    with pytest.raises(Interrupted, match="Interrupted at step 2 of 4"):
        work.run()
    work.close()
    work.run_dir.release()
    again = trainer(cut, tiny, world_model=Learning())
    again.load(checkpoint.latest(again.run_dir.checkpoints))
    assert len(again.pending) == 1
    again.run()
    assert logs(whole) == logs(cut)


def test_ctrl_c_while_learning_finishes_the_step(tmp_path, tiny):
    work = trainer(config(tmp_path), tiny)
    update = work.learner.update

    def interrupted(samples):
        os.kill(os.getpid(), signal.SIGINT)
        return update(samples)

    work.learner.update = interrupted
    with pytest.raises(Interrupted, match="Interrupted at step 1 of 6"):
        work.run()
    assert checkpoint.latest(work.run_dir.checkpoints).step == 1


def test_tasks_come_in_shuffled_passes():
    tasks = ["a", "b", "c", "d", "e"]
    drawn = [task_at(tasks, 0, i) for i in range(50)]
    for start in range(0, 50, 5):
        assert sorted(drawn[start : start + 5]) == tasks
    assert drawn[:5] != drawn[5:10] or drawn[5:10] != drawn[10:15]
    with pytest.raises(InvalidInput, match="No tasks"):
        task_at([], 0, 0)
