"""What an alarm of the audit does to a run (`correction.on_alarm`)."""

import pytest

from tests.doubles import FakeWorldModel, toy_score
from tests.unit.training.test_trainer import config, trainer
from wmrl_train.run import checkpoint
from wmrl_train.training.trainer import AuditStop

HONEST = 6  # steps: warm-up, and the baseline of the audit


class Misleading(FakeWorldModel):
    """A test double of a world model that is honest for a while; then it adds `lie` of what a text lacks."""

    def __init__(self, lie):
        super().__init__(sigma=0.02)
        self.lie, self.steps = lie, 0

    def _score(self, code):
        lie = self.lie if self.steps >= HONEST else 0.0
        return min(1.0, super()._score(code) + lie * (1 - toy_score(code)))


def run(tmp_path, tiny, on_alarm):
    """A run with a world model that begins to lie, and what each step saw: (action in force, anchors, predicted groups left out)."""
    cfg = config(
        tmp_path, correction__on_alarm=on_alarm, rollout__groups=8, anchors__fraction=0.25, train__steps=HONEST + 14,
        train__save_every=1000, rollout__max_new_tokens=6, optim__lr="1e-6",
    )  # fmt: skip
    work = trainer(cfg, tiny, world_model=Misleading(0.2))
    work.corrector.audit.baseline = 8  # groups; fewer than by default, for a quick test
    seen, correct, observe = [], work._correct, work._observe

    def corrected(groups):
        advantages, rewards = correct(groups)
        anchored = [g.plan.anchored for g in groups]
        left_out = sum(not row.any() for row, anchor in zip(advantages, anchored, strict=True) if not anchor)
        seen.append((work.corrector.action, sum(anchored), left_out))
        return advantages, rewards

    def observed(groups):
        observe(groups)
        work.parts.world_model.steps += 1

    work._correct, work._observe = corrected, observed
    return work, seen


def test_an_alarm_raises_the_anchors_then_freezes_predicted_groups_then_stops(tmp_path, tiny):
    work, seen = run(tmp_path, tiny, "act")
    with pytest.raises(AuditStop, match=r"resume with correction\.on_alarm=warn"):
        work.run()
    actions = [action for action, _, _ in seen]
    assert actions == sorted(actions, key=["none", "raise", "freeze", "stop"].index)
    assert {"raise", "freeze"} <= set(actions)
    assert actions.index("raise") > HONEST, "no alarm before there is a reason"
    for action, anchors, left_out in seen:
        assert anchors == (2 if action == "none" else 4), seen
        if action == "freeze":
            assert left_out == 8 - anchors, "predicted groups teach nothing any more"
        else:
            assert left_out < 8 - anchors
    assert checkpoint.latest(work.run_dir.checkpoints).step == work.step == len(seen)
    assert list(work.run_dir.read("metrics.jsonl"))[-1]["step"] == work.step, "the step that rang is in the log"
    work.close()


def test_what_costs_nothing_is_done_by_default_and_the_rest_is_offered_with_its_price(tmp_path, tiny, caplog):
    work, seen = run(tmp_path, tiny, "free")
    with caplog.at_level("WARNING"):
        work.run()
    work.close()
    assert {anchors for _, anchors, _ in seen} == {2}, "no execution is added"
    for action, anchors, left_out in seen:
        assert (left_out == 8 - anchors) == (action in ("freeze", "stop"))
    assert any(action == "freeze" for action, _, _ in seen)
    assert "correction.on_alarm=act would execute about 8 more programs a step" in caplog.text
    assert "predicted groups are left out of the update" in caplog.text


def test_a_warning_changes_nothing(tmp_path, tiny):
    work, seen = run(tmp_path, tiny, "warn")
    work.run()
    work.close()
    assert len(seen) == HONEST + 14
    assert work.corrector.action != "none"
    assert {anchors for _, anchors, _ in seen} == {2}
    assert not any(left_out == 6 for _, _, left_out in seen)
