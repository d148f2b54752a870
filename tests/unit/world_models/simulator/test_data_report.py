import numpy as np
import pandas as pd
import pytest

from tests.unit.world_models.world_model_cases import script
from wmrl_envs.errors import DataNotBuilt, InvalidInput
from wmrl_envs.world_models.simulator.data_report import DataReports


@pytest.fixture
def reports(tmp_path, monkeypatch):
    monkeypatch.setenv("WMRL_HOME", str(tmp_path / "home"))
    return DataReports(tmp_path / "data")


def write(reports, task, columns=3, rows=300):
    rng = np.random.default_rng(0)
    x = pd.DataFrame({f"c{i}": rng.normal(size=rows) for i in range(columns)})
    x["kind"] = rng.choice(["a", "b"], rows)
    x.loc[:29, "kind"] = None
    x.insert(0, "id", [f"r{i}" for i in range(rows)])
    x["label"] = (x["c0"] > 0.5).astype(int)
    folder = reports.data_dir / task / "data" / "public"
    folder.mkdir(parents=True)
    x.to_csv(folder / "train.csv", index=False)


def test_it_says_balance_missing_values_and_baselines(reports):
    write(reports, "credit")
    text = reports(script())
    assert "target label: 2 classes" in text
    assert "10.0% missing" in text
    assert "constant 0.500" in text
    tree = float(text.rsplit(" ", 1)[1])
    assert tree > 0.9


def test_it_is_computed_once(reports, monkeypatch):
    write(reports, "credit")
    text = reports(script())
    monkeypatch.setattr("wmrl_envs.world_models.simulator.data_report.describe", lambda *a: pytest.fail("computed again"))
    assert DataReports(reports.data_dir)(script()) == text


def test_a_table_of_thousands_of_columns_stays_short(reports):
    write(reports, "credit", columns=3000, rows=60)
    text = reports(script())
    assert len(text) < 6000
    assert "more columns" in text


def test_a_task_that_is_not_prepared_says_what_to_do(reports):
    with pytest.raises(DataNotBuilt, match="wmrl tasks prepare builtin"):
        reports(script(task="credit-default"))


def test_a_task_name_is_never_a_path(reports):
    with pytest.raises(InvalidInput, match="no name of a task"):
        reports(script(task="../private"))
