"""A run of the study: the policy writes programs of the execution bank only, and pays for them what they cost when they were executed."""

import json
import sys
from pathlib import Path

import pytest

from wmrl_envs.errors import WmrlError
from wmrl_envs.execution import ExecutionBank
from wmrl_envs.tasks import load_competition
from wmrl_train.config import load_config
from wmrl_train.run.rundir import RunDirectory
from wmrl_train.training.build import build
from wmrl_train.training.trainer import Trainer

STUDY = Path(__file__).parents[2] / "benchmarks" / "study"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDY))
    for name in ("arms", "planted", "run", "tables"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import run

    return run


@pytest.fixture
def prepared():
    try:
        return load_competition("credit-default")
    except WmrlError as error:  # data is not built by a test
        pytest.skip(f"needs `make setup`: {error}")


SMALL = [
    "tasks.train=[credit-default]",
    "tasks.held_out=[]",
    "eval.held_out=false",
    "rollout.groups=4",
    "rollout.group_size=4",
    "train.steps=2",
    "eval.k=2",
]


def test_every_program_is_of_the_bank_and_costs_what_it_cost(study, prepared, tmp_path):
    bank = ExecutionBank(study.BANK)
    recorded = {c: bank._records["credit-default"][c] for c in bank.programs("credit-default")}
    config = load_config("laptop", [*study.COMMON, *SMALL, f"run.dir={tmp_path}"])
    directory = RunDirectory(config.run_dir)
    directory.acquire()
    trainer = Trainer(config, build(config), directory)
    try:
        trainer.run()
    finally:
        trainer.close()
        directory.release()
    turns = [turn for r in directory.read("rollouts.jsonl") for turn in r["turns"]]
    assert len(turns) == 2 * 16
    assert {turn["code"] for turn in turns} <= set(recorded)
    executed = [turn for turn in turns if turn["true"] is not None]
    assert len(executed) == 2 * 4
    ledger = list(directory.read("metrics.jsonl"))[-2]
    assert ledger["ledger/executions_paid"] == 8
    assert ledger["ledger/execute_cpu_s"] == pytest.approx(sum(recorded[turn["code"]]["cpu_s"] for turn in executed))


def test_arms_differ_from_one_configuration_only_in_what_they_say(study):
    from arms import COMMON, STUDIES

    default = load_config("laptop", COMMON).model_dump()
    for arms in STUDIES.values():
        for name, overrides in arms.items():
            changed = load_config("laptop", [*COMMON, *overrides]).model_dump()
            said = {o.partition(".")[0] for o in overrides}
            assert {section for section in default if default[section] != changed[section]} <= said, name


def test_a_study_goes_on_where_it_stopped(study, prepared, tmp_path, capsys):
    out = tmp_path / "results.jsonl"
    for seeds in (1, 1, 2):
        study.main("main", ["mixture"], seeds, 1, SMALL, out)
    said = [line for line in capsys.readouterr().out.splitlines() if "to do" in line]
    assert [line.split()[0] for line in said] == ["1", "0", "1"]
    results = [json.loads(line) for line in out.read_text().splitlines()]
    assert [r["seed"] for r in results] == [0, 1]
    assert set(results[0]["evaluations"]) == {"0", "2"}


def test_the_planted_error_is_about_dummies_only(study):
    from planted import CLASS

    assert CLASS.search("m = DummyClassifier()")
    assert not CLASS.search("m = Ridge()  # no dummy")
