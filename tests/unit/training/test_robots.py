"""The one trainer on robots, with a double of the simulator: what it does for language it does for them."""

import pytest

from tests.unit.agents.vla.doubles import Biased, simulators, small_policy
from wmrl_envs.errors import InvalidInput
from wmrl_train.config import load_config
from wmrl_train.run import checkpoint
from wmrl_train.run.report import write_report
from wmrl_train.run.rundir import RunDirectory
from wmrl_train.training.robots import evaluation, robot_parts
from wmrl_train.training.trainer import AuditStop, TooManyFailures, Trainer

SMALL = [
    "run.min_free_disk_mb=0", "train.steps=4", "train.save_every=2", "rollout.groups=4", "rollout.group_size=4", "rollout.retries=0",
    "optim.lr=3e-3", "correction.min_pairs=8", "correction.refit_every=8", "anchors.fraction=0.25", "eval.k=0",
]  # fmt: skip
PAID = ["libero.reward=http://a.double"]


def trainer(tmp_path, *overrides, name="run", reward_model=None, seed=0, **options):
    paid = PAID if reward_model is not None else ["libero.reward=null"]
    small = SMALL if reward_model is not None else [o for o in SMALL if not o.startswith(("anchors", "correction"))]
    cfg = load_config("libero", [*small, *paid, f"run.dir={tmp_path}", f"run.name={name}", *overrides])
    run = RunDirectory(cfg.run_dir)
    run.acquire()
    run.config_file.write_text(cfg.to_yaml())
    policy, pool = small_policy(seed), simulators(**{"limit": 1} | options)
    splits = {"train": {"colour": (0, 1)}, "held_out": {"colour": (2, 3)}}
    parts = robot_parts(policy, pool, reward_model, {"colour": (0, 1)}, evaluation(cfg, policy, pool, splits))
    return Trainer(cfg, parts, run)


def logs(work):
    """The logs without what a clock measured."""
    records = [r for log in ("rollouts.jsonl", "metrics.jsonl", "anchors.jsonl") for r in work.run_dir.read(log)]
    for record in records:
        record.get("eval", {}).pop("wall_s", None)
    return [{k: v for k, v in r.items() if not k.startswith("time/") and not k.endswith("cpu_s")} for r in records]


@pytest.mark.parametrize("corrected", [False, True])
def test_success_rises(tmp_path, corrected):
    work = trainer(tmp_path, "train.steps=25", reward_model=Biased() if corrected else None)
    work.run()
    success = [r["rollout/success"] for r in work.run_dir.read("metrics.jsonl")]
    assert sum(success[:3]) / 3 < 0.7
    assert sum(success[-3:]) / 3 > 0.8
    assert work.corrector.n_pairs == (100 if corrected else 0)
    assert work.corrector.ready == corrected
    work.close()


def test_a_run_s_directory_is_that_of_any_run(tmp_path):
    work = trainer(tmp_path, "eval.k=1", reward_model=Biased())
    result = work.run()
    work.close()
    records = list(work.run_dir.read("metrics.jsonl"))
    steps = [r for r in records if "eval" not in r]
    assert [r["step"] for r in steps] == [1, 2, 3, 4]
    assert [r["step"] for r in records if "eval" in r] == [0, 4]
    assert [r["eval"]["train"]["statuses"] for r in records if "eval" in r] == [{"ok": 2}] * 2
    assert {s["groups/anchors"] for s in steps} == {1.0}
    assert steps[-1]["policy/version"] == 4
    assert steps[-1]["policy/mismatch_kl"] < 1e-8
    assert steps[-1]["time/execute_s"] >= 0
    assert steps[-1]["ledger/executions_avoided"] == 0, "every episode is simulated"
    assert steps[-1]["ledger/executions_paid"] == 4 * 16
    before = result["before"]["train"]
    assert before["low"] <= before["avg"] <= before["high"]
    assert set(result["after"]) == {"train", "held_out", "wall_s"}
    rollouts = list(work.run_dir.read("rollouts.jsonl"))
    assert len(rollouts) == 4 * 16
    for record in rollouts:
        assert record["propensity"] == 0.25
        assert record["start"] in (0, 1)
        assert (record["turns"][0]["true"] is not None) == record["anchored"]
    anchors = list(work.run_dir.read("anchors.jsonl"))
    assert len(anchors) == work.corrector.n_pairs == 16
    page = write_report(work.run_dir.path).read_text()
    assert "Calibration on the anchors" in page
    assert "http://a.double" in page


def test_a_resumed_run_equals_an_uninterrupted_one_bit_by_bit(tmp_path):
    settings = ("optim.kl_coef=0.1", "optim.entropy_coef=0.01", "optim.epochs=2", "eval.k=1", "eval.every=1")
    whole = trainer(tmp_path, *settings, name="whole", reward_model=Biased())
    whole.run()
    cut = trainer(tmp_path, *settings, name="cut", reward_model=Biased())
    step, calls = cut._train_step, []

    def killed():
        step()
        calls.append(1)
        if len(calls) == 3:  # after the checkpoint of step 2: the lines of step 3 are written and must not stay
            raise RuntimeError("kill")

    cut._train_step = killed
    with pytest.raises(RuntimeError, match="kill"):
        cut.run()
    cut.close()
    cut.run_dir.release()
    again = trainer(tmp_path, *settings, name="cut", reward_model=Biased())
    again.load(checkpoint.latest(again.run_dir.checkpoints))
    assert again.step == 2
    again.run()
    assert logs(whole) == logs(again)
    for a, b in zip(whole.parts.model.model.state_dict().values(), again.parts.model.model.state_dict().values(), strict=True):
        assert a.equal(b)


@pytest.mark.parametrize("fusion", ["ivw", "cv", "dr", "auto", "none"])
def test_every_fusion_rule_trains_robots(tmp_path, fusion):
    work = trainer(tmp_path, f"correction.fusion={fusion}", reward_model=Biased())
    work.run()
    assert work.step == 4
    work.close()


@pytest.mark.parametrize("place", ["members", "favourites"])
def test_members_inside_groups_can_be_paid_by_the_simulator(tmp_path, place):
    work = trainer(tmp_path, f"anchors.place={place}", reward_model=Biased())
    work.run()
    work.close()
    for group in range(4 * 4):
        members = [r for r in work.run_dir.read("rollouts.jsonl") if r["group"] == group]
        assert [r["turns"][0]["picked"] is not None for r in members].count(True) == 1, "a quarter of four"
        for record in members:
            (turn,) = record["turns"]
            assert turn["true"] == (turn["raw_score"] if turn["picked"] else None)


def test_an_alarm_of_the_audit_acts_on_robots(tmp_path):
    """A reward model that is honest, and then pays what fails."""

    class Misleading(Biased):
        def score(self, episodes):
            self.calls += 1
            good, bad = (0.9, 0.1) if self.calls <= 6 else (0.6, 1.0)
            return [good if e.success else bad for e in episodes]

    work = trainer(
        tmp_path, "correction.on_alarm=act", "train.steps=40", "optim.lr=1e-7", "rollout.groups=8", reward_model=Misleading()
    )
    work.corrector.audit.baseline = 8  # groups; fewer than by default, for a quick test
    with pytest.raises(AuditStop):
        work.run()
    work.close()
    anchors = [r["groups/anchors"] for r in work.run_dir.read("metrics.jsonl")]
    assert max(anchors) > anchors[0], "an alarm raises the anchors before it stops"
    assert checkpoint.latest(work.run_dir.checkpoints).step == work.step


def test_a_reward_model_that_is_gone_stops_the_run_and_one_that_was_away_does_not(tmp_path):
    away = trainer(tmp_path, reward_model=Biased(broken=(2,)), name="away")
    away.run()
    assert [r["groups/dropped"] for r in away.run_dir.read("metrics.jsonl")] == [0, 3, 0, 0]
    assert away.corrector.n_pairs == 12
    gone = trainer(tmp_path, "train.steps=9", reward_model=Biased(broken=range(100)), name="gone")
    with pytest.raises(TooManyFailures, match="no server"):
        gone.run()
    assert gone.step == Trainer.PATIENCE - 1


def test_a_checkpoint_of_the_former_trainer_of_robots_is_refused(tmp_path):
    work = trainer(tmp_path)
    old = {"settings": {}, "logs": work.run_dir.sizes(), "parts": {}}
    checkpoint.save(work.run_dir.checkpoints, 3, model=work.parts.model, optimizer={"optimizer": {}}, state=old, keep=2)
    with pytest.raises(InvalidInput, match=r"start a new run with policy\.model=.*step-000003/policy"):
        work.load(checkpoint.latest(work.run_dir.checkpoints))


def test_deferred_anchors_are_refused_by_a_roller_that_cannot_defer(tmp_path):
    work = trainer(tmp_path, "anchors.lag=1", reward_model=Biased())
    with pytest.raises(InvalidInput, match=r"anchors\.lag=1: RobotRoller cannot defer"):
        work.run()
