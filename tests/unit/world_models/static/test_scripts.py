"""Whole scripts as people write them: what works is not failed, and beside each a sibling that really fails is."""

import pytest

from tests.unit.world_models.world_model_cases import program, script
from wmrl_envs.outcome import ExecutionStatus
from wmrl_envs.world_models.static.model import ASPECTS, StaticWorldModel
from wmrl_envs.world_models.static.rules.table import RULES

START = """import os
import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import LabelEncoder, OneHotEncoder, StandardScaler
train = pd.read_csv(os.environ["DATA_DIR"] + "/train.csv")
test = pd.read_csv(os.environ["DATA_DIR"] + "/test.csv")
y = train["label"]
"""
END = """
out = pd.DataFrame({"id": test["id"], "label": p})
out.to_csv(os.environ["SUBMISSION_PATH"], index=False)
"""
FOREST = """
m = RandomForestClassifier(n_estimators=20).fit(train[use], y)
p = m.predict_proba(test[use])[:, 1]
"""


@pytest.fixture
def predict(index):
    model = StaticWorldModel(index=index)
    return lambda code, **changes: model.predict([program(code)], [script(**changes)])[0]


ENCODED = {
    "label encoder in a loop": """
use = ["age", "home", "job"]
for c in ["home", "job"]:
    le = LabelEncoder()
    train[c] = le.fit_transform(train[c].astype(str))
    test[c] = le.transform(test[c].astype(str))
""",
    "label encoder over columns found at run time": """
use = [c for c in train.columns if c not in ("id", "label", "start", "income")]
for c in [c for c in use if not pd.api.types.is_numeric_dtype(train[c])]:
    le = LabelEncoder().fit(pd.concat([train[c], test[c]]))
    train[c], test[c] = le.transform(train[c]), le.transform(test[c])
""",
    "columns that nobody can name": """
use = ["age", "home"]
for c in helper.columns_to_encode(train):
    train[c] = helper.encode(train[c])
    test[c] = helper.encode(test[c])
""",
    "map": """
use = ["age", "home"]
for d in (train, test):
    d["home"] = d["home"].map({"rent": 0, "own": 1}).fillna(-1)
""",
    "factorize": """
use = ["age", "home"]
both = pd.concat([train, test])
codes, levels = pd.factorize(both["home"])
train["home"], test["home"] = codes[: len(train)], codes[len(train):]
""",
    "codes of a category": """
use = ["age", "home"]
for d in (train, test):
    d["home"] = d["home"].astype("category").cat.codes
""",
    "get_dummies": """
train = pd.get_dummies(train, columns=["home"])
test = pd.get_dummies(test, columns=["home"]).reindex(columns=train.columns, fill_value=0)
use = [c for c in train.columns if c.startswith("home_")]
""",
    "in a branch that may have run": """
use = ["age", "home"]
if os.path.exists("/tmp/encoded"):
    train["home"] = train["home"].str.len()
    test["home"] = test["home"].str.len()
""",
}


@pytest.mark.parametrize("code", ENCODED.values(), ids=ENCODED)
def test_a_column_that_was_turned_into_numbers_is_no_text(predict, code):
    helper = "import importlib\nhelper = importlib.import_module('json')\n" if "helper" in code else ""
    assert predict(START + helper + code + FOREST + END).status is ExecutionStatus.OK


@pytest.mark.parametrize(
    "code",
    [
        'use = ["age", "home"]',
        'use = [c for c in train.columns if c not in ("id", "label", "income")]',
        # since pandas 3 a column of texts is of dtype "str"
        'use = ["age", "home"]\nfor c in use:\n    if train[c].dtype == "object":\n        train[c] = train[c].astype("category").cat.codes',
    ],
)
def test_a_column_of_texts_is_still_refused(predict, code):
    outcome = predict(START + code + "\n" + FOREST + END)
    assert (outcome.error_type, outcome.status) == ("ValueError", ExecutionStatus.AGENT_ERROR)


def test_a_pipeline_in_a_search_encodes_by_itself(predict):
    code = """
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
pre = ColumnTransformer([("n", "passthrough", ["age"]), ("c", OneHotEncoder(handle_unknown="ignore"), ["home"])])
search = GridSearchCV(Pipeline([("pre", pre), ("m", RandomForestClassifier())]), {"m__max_depth": [3, 6]}, cv=3)
search.fit(train.drop(columns=["label"]), y)
p = search.best_estimator_.predict_proba(test)[:, 1]
"""
    assert predict(START + code + END).status is ExecutionStatus.OK
    wrong = predict(START + code.replace("m__max_depth", "model__max_depth") + END)
    assert (wrong.error_type, "Invalid parameter 'model'" in wrong.feedback) == ("ValueError", True)


BEST = """
best = None
for c in [0.1, 1.0, 10.0]:
    m = LogisticRegression(C=c).fit(train[["age"]], y)
    score = m.score(train[["age"]], y)
    if {test}:
        best = (score, m)
p = best[1].predict_proba(test[["age"]])[:, 1]
"""


@pytest.mark.parametrize(
    "condition",
    ["best is None or score > best[0]", "not best or score > best[0]", "best is not None and score > best[0] or best is None"],
)
def test_what_stands_behind_or_is_not_looked_at_while_the_name_is_none(predict, condition):
    assert predict(START + BEST.replace("{test}", condition) + END).status is ExecutionStatus.OK


def test_without_the_guard_the_none_is_met(predict):
    assert predict(START + BEST.replace("{test}", "score > best[0]") + END).error_type == "TypeError"


SEVERAL = """
targets = ["age", "label"]
Y = train[targets].values
X, T = train[["income"]].fillna(0).values, test[["income"]].fillna(0).values
"""


@pytest.mark.parametrize("column", ["Y[:, 1]", "Y[:, j]", "Y[:, -1]", "train[targets].iloc[:, 1]", "Y.T[1]"])
def test_a_column_of_several_targets_is_one_target(predict, column):
    code = f"for j in range(2):\n    m = LogisticRegression().fit(X, {column})\np = m.predict_proba(T)[:, 1]\n"
    assert predict(START + SEVERAL + code + END).status is ExecutionStatus.OK


def test_several_targets_at_once_are_refused_by_a_model_of_one(predict):
    outcome = predict(START + SEVERAL + "p = LogisticRegression().fit(X, Y).predict(T)" + END)
    assert (outcome.error_type, "1d array" in outcome.feedback) == ("ValueError", True)


@pytest.mark.parametrize(
    ("use", "fails"),
    [
        ("p = probs[1][:, 1]", False),
        ("p = [q[:, 1] for q in probs][1]", False),
        ("p = np.column_stack([q[:, 1] for q in probs])[:, 1]", False),
        ("p = probs[:, 1]", True),
    ],
)
def test_probabilities_of_several_targets_are_a_list(predict, use, fails):
    code = f"probs = RandomForestClassifier().fit(X, Y).predict_proba(T)\n{use}\n"
    assert (predict(START + SEVERAL + code + END).error_type == "TypeError") is fails


INDEXED = """
m = LogisticRegression().fit(train[["age"]], y)
p = m.predict_proba(test[["age"]])[:, 1]
"""


@pytest.mark.parametrize(
    ("ending", "fails"),
    [
        ('out = pd.DataFrame({"label": p}, index=test["id"])\nout.to_csv(PATH)', False),
        ('out = pd.DataFrame({"label": p})\nout.index = test["id"]\nout.to_csv(PATH, index_label="id")', False),
        ('out = pd.DataFrame({"label": p}, index=test["id"])\nout.index.name = "id"\nout.to_csv(PATH)', False),
        ('out = test.set_index("id").assign(label=p)[["label"]]\nout.to_csv(PATH)', False),
        (
            'test = pd.read_csv(os.environ["DATA_DIR"] + "/test.csv", index_col="id")\ntest["label"] = p\ntest[["label"]].to_csv(PATH)',
            False,
        ),
        ('out = pd.DataFrame({"label": p})\nout.to_csv(PATH)', True),
        ('out = pd.DataFrame({"id": test["id"], "label": p})\nout.to_csv(PATH)', True),
        ('out = pd.DataFrame({"label": p}, index=test["id"])\nout.to_csv(PATH, index=False)', True),
    ],
)
def test_an_index_named_after_the_id_is_a_column_of_the_file(predict, ending, fails):
    outcome = predict(START + INDEXED + ending.replace("PATH", 'os.environ["SUBMISSION_PATH"]'))
    assert (outcome.status is ExecutionStatus.INVALID_SUBMISSION) is fails, outcome.feedback


NATURAL = {
    "missing values": ('p = LogisticRegression().fit(train[["income"]], y).predict(test[["income"]])', "ValueError"),
    "filled": ('p = LogisticRegression().fit(train[["income"]].fillna(0), y).predict(test[["income"]].fillna(0))', None),
    "filled in place on a copy": ('train["income"].fillna(0, inplace=True)\np = LogisticRegression().fit(train[["income"]], y).predict(test[["age"]])', "ValueError"),
    "gone keyword": ('train = train.fillna(method="ffill")\np = 0.5', "TypeError"),
    "mean of texts": ('print(train["home"].mean())\np = 0.5', "TypeError"),
    "mean of groups of texts": ('print(train.groupby("home").mean())\np = 0.5', "TypeError"),
    "mean of groups of numbers": ('print(train.groupby("home")[["age", "income"]].mean())\np = 0.5', None),
    "dates as texts": ('train["year"] = train["start"].dt.year\np = 0.5', "AttributeError"),
    "dates": ('train["year"] = pd.to_datetime(train["start"]).dt.year\np = 0.5', None),
    "shuffle forgotten": ("from sklearn.model_selection import KFold\nk = KFold(5, random_state=0)\np = 0.5", "ValueError"),
    "importances": ("from sklearn.ensemble import HistGradientBoostingClassifier as H\nm = H().fit(train[['age']], y)\nprint(m.feature_importances_)\np = 0.5", "AttributeError"),
    "required option": ("import argparse\na = argparse.ArgumentParser()\na.add_argument('--data', required=True)\na = a.parse_args()\np = 0.5", "SystemExit"),
    "option with a default": ("import argparse\na = argparse.ArgumentParser()\na.add_argument('--n-trees', type=int, default=3)\np = a.parse_args().n_trees / 10", None),
    "a package caught": ("try:\n    import lightgbm\nexcept ImportError:\n    lightgbm = None\np = 0.5", None),
    "a handler that passes it on": ("try:\n    import lightgbm\nexcept ImportError:\n    print('no')\n    raise\np = 0.5", "ModuleNotFoundError"),
    "an object of the program": ("class A:\n    def __init__(self, f):\n        self.f = f\n    def go(self):\n        return self.f['nothing']\np = A(train).go()", "KeyError"),
    "a frozen data class": ("from dataclasses import dataclass\n@dataclass(frozen=True)\nclass C:\n    n: int = 3\nc = C()\nc.n = 4\np = 0.5", "FrozenInstanceError"),
    "a loop left early": ("m = None\nfor c in (1, 2):\n    try:\n        m = LogisticRegression(C=c).fit(train[['age']], y)\n        break\n    except ValueError:\n        pass\nif m is None:\n    raise SystemExit(1)\np = m.predict(test[['age']])", None),
    "leaving with the value of main": ("import sys\ndef main():\n    pd.DataFrame({'id': test['id'], 'label': 0.5}).to_csv(os.environ['SUBMISSION_PATH'], index=False)\n    return 0\np = 0.5\nsys.exit(main())", None),
}  # fmt: skip


@pytest.mark.parametrize(("code", "kind"), NATURAL.values(), ids=NATURAL)
def test_what_people_get_wrong_beside_what_they_get_right(predict, code, kind):
    assert predict(START + code + "\n" + END).error_type == kind


def test_every_rule_has_a_row_with_an_aspect_and_a_probability():
    for rule in RULES.values():
        assert rule.aspect in ASPECTS
        assert 0 < rule.confidence < 1
        assert rule.id == rule.id.strip().lower()
