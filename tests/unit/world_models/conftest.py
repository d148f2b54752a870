import pytest

from wmrl_envs.outcome import Solution
from wmrl_envs.world_models.api_index import load_index
from wmrl_envs.world_models.base import FileInfo, TaskContext


@pytest.fixture(scope="session")
def index():
    return load_index()


def tabular(metric="roc_auc", **changes):
    """A scaffolded tabular task with numeric, categorical and date columns, missing values in two of them."""
    names = {"num": ["age", "income"], "cat": ["home", "job"], "text": [], "date": ["start"], "nan": ["income", "job"]}
    names |= {"rows": 1000, "test_rows": 400, "target": ["label"], "target_kind": "bin", "image": None}
    columns = {"id": "str", "age": "int", "income": "float", "home": "str", "job": "str", "start": "str"}
    files = (
        FileInfo("train.csv", 10_000, 1000, {**columns, "label": "int"}),
        FileInfo("test.csv", 5_000, 400, columns),
        FileInfo("sample_submission.csv", 2_000, 400, {"id": "str", "label": "float"}),
    )
    given = {
        "task": "credit",
        "category": "tabular",
        "metric": metric,
        "files": files,
        "submission_columns": ("id", "label"),
        "id_columns": ("id",),
        "target_columns": ("label",),
        "submission_rows": 400,
        "timeout_s": 10.0,
        "scaffold": "sklearn",
        "scaffold_names": {**names, **changes.pop("names", {})},
    }
    return TaskContext(**{**given, **changes})


def script(**changes):
    """The same task for whole scripts."""
    return tabular(scaffold=None, scaffold_names={}, **changes)


def program(text, task="credit"):
    return Solution(code=text, task=task)
