"""World models that execute on reduced copies, made from a configuration."""

from wmrl_envs import LowFidelityWorldModel, StackedWorldModel, StaticWorldModel
from wmrl_envs.outcome import ExecutionStatus, Outcome
from wmrl_train.config import load_config
from wmrl_train.episodes.roller import _paid_cpu_s
from wmrl_train.training.build import _world_model


def made(*overrides):
    return _world_model(load_config("laptop", list(overrides)), None, None, None)


def test_low_fidelity_is_made_with_the_limits_and_the_data_of_the_run(tmp_path):
    model = made(
        "world_model.kind=low_fidelity", "world_model.workers=2", "world_model.options={rows: 60, test_rows: 40}",
        "execution.sandbox=replay", "execution.memory_mb=700", f"tasks.data_dir={tmp_path}",
    )  # fmt: skip
    assert isinstance(model, LowFidelityWorldModel)
    assert model._workers == 2
    assert model._reducer._sizes == (61, 41)
    assert model._reducer._limits.memory_mb == 700
    assert model._reducer._data_dir == str(tmp_path)
    assert model._reducer._given == "auto"  # a record has full executions only
    model.close()


def test_stacked_has_its_members_in_the_order_of_trust():
    model = made(
        "world_model.kind=stacked",
        "world_model.members=[{kind: low_fidelity}, {kind: static}]",
        "world_model.options={budget: 0.5}",
    )
    assert isinstance(model, StackedWorldModel)
    assert [type(member) for member in model.members] == [LowFidelityWorldModel, StaticWorldModel]
    assert model.budget == 0.5
    model.close()


def test_what_was_run_before_is_not_paid_again():
    prediction = Outcome(ExecutionStatus.OK, 0.5, source="predicted", cpu_s=0.3)
    assert _paid_cpu_s(prediction) == 0.3
    assert _paid_cpu_s(Outcome(ExecutionStatus.OK, 0.5, source="predicted", cpu_s=0.3, cached=True)) == 0
