"""Whole programs without a scaffold, as an agent writes them from the task's description: two working ones a task, each with
realistic bugs, above all in the submission file, which such a program writes itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from wmrl_train.agents.brief import Brief

BUGS_A_TASK = 7

_READ = """import os

import numpy as np
import pandas as pd

data_dir = os.environ["DATA_DIR"]
train = pd.read_csv(os.path.join(data_dir, "train.csv"))
test = pd.read_csv(os.path.join(data_dir, "test.csv"))
"""
_TABLE = """from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

numbers = <num>
categories = <cat>
numeric = Pipeline([("impute", SimpleImputer(strategy="median")), ("scale", StandardScaler())])
categorical = Pipeline([("impute", SimpleImputer(strategy="most_frequent")), ("onehot", OneHotEncoder(handle_unknown="ignore"))])
features = ColumnTransformer([("num", numeric, numbers), ("cat", categorical, categories)])
X, X_test = train[numbers + categories], test[numbers + categories]
"""
_CODES = """numbers = <num>
categories = <cat>
both = pd.concat([train[numbers + categories], test[numbers + categories]], ignore_index=True)
for column in categories:
    both[column] = both[column].astype("category").cat.codes
both = both.fillna(both.median())
X, X_test = both.iloc[: len(train)], both.iloc[len(train) :]
"""
_TEXTS = """from sklearn.feature_extraction.text import TfidfVectorizer

vectorizer = TfidfVectorizer(max_features=5000, ngram_range=<ngrams>, sublinear_tf=True)
X = vectorizer.fit_transform(train[<text>].fillna(""))
X_test = vectorizer.transform(test[<text>].fillna(""))
"""
_PICTURES = """with np.load(os.path.join(data_dir, "images.npz")) as images:
    X, X_test = images["train"], images["test"]
X = X.reshape(len(X), -1).astype("float32") / 255.0
X_test = X_test.reshape(len(X_test), -1).astype("float32") / 255.0
"""
_REDUCED = """from sklearn.decomposition import PCA

pca = PCA(n_components=<components>, random_state=0)
X = pca.fit_transform(X)
X_test = pca.transform(X_test)
"""

BUGS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "script:file-elsewhere": (
        ('os.path.join(data_dir, "train.csv")', '"train.csv"'),
        ('os.environ["DATA_DIR"]', '"/kaggle/input"'),
        ('"images.npz"', '"images.npy"'),
        ('"test.csv"', '"test_features.csv"'),
    ),
    "script:variable-not-set": (('os.environ["DATA_DIR"]', 'os.environ["DATA_PATH"]'), ('os.environ["SUBMISSION_PATH"]', 'os.environ["OUTPUT"]')),
    "script:import-missing": (("import numpy as np\n", ""), ("import os\n", "")),
    "script:package-not-installed": (("import pandas as pd\n", "import pandas as pd\nimport lightgbm as lgb\n"), ("import pandas as pd\n", "import polars as pd\n")),
    "script:column-misspelt": (("<first>", "<wrong>"), ('train["<target>"]', 'train["target"]'), ('test["id"]', 'test["Id"]')),
    "script:target-in-test": (("numbers + categories]", 'numbers + categories + ["<target>"]]'), ('test["id"]', 'test["<target>"]')),
    "script:transform-refitted": (("X_test = vectorizer.transform(", "X_test = TfidfVectorizer().fit_transform("), ("X_test = pca.transform(", "X_test = PCA(n_components=5).fit_transform(")),
    "script:test-not-transformed": (("X_test = pca.transform(X_test)\n", ""), ('X_test = vectorizer.transform(test[<text>].fillna(""))', "X_test = test[[<text>]]"), ('.astype("category").cat.codes', "")),
    "script:missing-values-left": ((".fillna(both.median())", ""), ('("impute", SimpleImputer(strategy="median")), ', "")),
    "script:keyword-gone": (('handle_unknown="ignore"', 'handle_unknown="ignore", sparse=False'), ("max_features=5000", "max_feature=5000"), ("random_state=0)", "random_state=0, n_job=2)")),
    "script:never-fitted": (("model.fit(X, y)\n", ""),),
    "script:rows-differ": (("model.fit(X, y)", "model.fit(X[:-1], y)"), ("model.fit(X, y)", "model.fit(X_test, y)")),
    "submission:columns": (("<columns>", "<othercolumns>"), ('"id": test["id"]', '"ID": test["id"]'), ('submission = pd.DataFrame({"id": test["id"]', "submission = pd.DataFrame({")),
    "submission:index-written": ((", index=False", ""), (", index=False", ", index=False, header=False")),
    "submission:another-file": (('os.environ["SUBMISSION_PATH"]', '"submission.csv"'), ('os.environ["SUBMISSION_PATH"]', 'os.path.join(data_dir, "submission.csv")')),
    "submission:rows": (("submission.to_csv", "submission.head(100).to_csv"), ("submission.to_csv", "submission.iloc[:-1].to_csv"), ("submission.to_csv", "pd.concat([submission, submission]).to_csv")),
    "submission:missing-values": (("submission.to_csv", "submission.iloc[::50, 1:] = np.nan\nsubmission.to_csv"), ("submission.to_csv", "submission = submission.where(submission.index % 40 > 0)\nsubmission.to_csv")),
    "submission:ids": (('"id": test["id"]', '"id": np.arange(len(test))'), ('"id": test["id"]', '"id": train["id"][: len(test)]'), ('"id": test["id"]', '"id": [test["id"][0]] * len(test)')),
    "submission:never-written": (("submission.to_csv(os.environ", "print(submission.head())\n# submission.to_csv(os.environ"),),
    "harmless:rows-in-another-order": (("submission.to_csv", "submission = submission.sample(frac=1, random_state=0)\nsubmission.to_csv"),),
    "harmless:more-columns": (("submission.to_csv", 'submission["note"] = "v1"\nsubmission.to_csv'),),
    "harmless:from-the-sample": (("submission = pd.DataFrame(", 'sample = pd.read_csv(os.path.join(data_dir, "sample_submission.csv"))\nassert len(sample) == len(test)\nsubmission = pd.DataFrame('),),
    "harmless:in-a-main-block": (("model.fit(X, y)\n", 'if __name__ == "__main__":\n    print("rows", len(X))\n    model.fit(X, y)\n'),),
    "harmless:path-objects": (("import os\n", "import os\nfrom pathlib import Path\n"),),
}  # fmt: skip
"""Name -> one of these texts replaced by the other. What comes of it is decided by executing it."""


def scripts(brief: Brief, names: Mapping[str, Any], columns: tuple[str, ...], seed: str) -> Iterator[tuple[str | None, str]]:
    """Whole programs for a task, `columns` being those of its submission: (what was planted, code)."""
    rng = random.Random(seed)
    plain = [_script(brief, names, columns, rng, variant) for variant in range(2)]
    yield from ((None, code) for code in plain)
    bugs = list(BUGS)
    rng.shuffle(bugs)
    taken = 0
    for bug in bugs:
        code = rng.choice(plain)
        fitting = [(old, new) for old, new in _filled(BUGS[bug], brief, names, columns) if old in code and new is not None]
        if fitting and taken < BUGS_A_TASK:
            taken += 1
            yield bug, code.replace(*rng.choice(fitting))


def _script(brief: Brief, names: Mapping[str, Any], columns: tuple[str, ...], rng: random.Random, variant: int) -> str:
    regress = brief.target in ("reg", "mlabel")
    if brief.category == "image":
        part, dense = _PICTURES + (_REDUCED.replace("<components>", str(rng.choice([20, 40, 60]))) if variant else ""), True
    elif names["text"] and (brief.category == "text" or variant):
        part = _TEXTS.replace("<text>", _quoted(names["text"][0])).replace("<ngrams>", rng.choice(["(1, 1)", "(1, 2)"]))
        dense = False
    else:
        part, dense = (_CODES if variant else _TABLE), bool(variant)
        kinds = {"num": names["num"], "cat": [c for c in names["cat"] if names["levels"][c] < 100]}
        for kind, given in kinds.items():
            part = part.replace(f"<{kind}>", "[" + ", ".join(_quoted(c) for c in given) + "]")
    kind, estimator = _estimator(rng, regress, brief, dense)
    head = f"from sklearn.{kind} import {estimator.split('(')[0]}\n"
    targets = ", ".join(_quoted(c) for c in names["target"])
    y = f"train[[{targets}]]" if len(names["target"]) > 1 else f"train[{targets}]"
    model = f'Pipeline([("features", features), ("model", {estimator})])' if part.startswith(_TABLE[:30]) else estimator
    return f"{_READ}{head}{part}y = {y}\nmodel = {model}\nmodel.fit(X, y)\n" + _ending(brief, names, columns)


def _estimator(rng: random.Random, regress: bool, brief: Brief, dense: bool) -> tuple[str, str]:
    trees = rng.choice([30, 50])
    choices = [("ensemble", f"RandomForestRegressor(n_estimators={trees}, max_depth=8, random_state=0)")] if regress else [
        ("ensemble", f"RandomForestClassifier(n_estimators={trees}, max_depth=10, random_state=0)"),
        ("linear_model", "LogisticRegression(max_iter=200)"),
    ]  # fmt: skip
    if regress and not (dense and brief.category == "image"):
        choices.append(("linear_model", f"Ridge(alpha={rng.choice([1.0, 10.0])})"))
    if dense and brief.category == "tabular":
        choices.append(("ensemble", "HistGradientBoosting" + ("Regressor" if regress else "Classifier") + "(max_iter=60)"))
    return rng.choice(choices)


def _ending(brief: Brief, names: Mapping[str, Any], columns: tuple[str, ...]) -> str:
    key, target = _quoted(columns[0]), _quoted(names["target"][0])
    frame = f"submission = pd.DataFrame({{{key}: test[{key}], {target}: p}})\n"
    if brief.metric == "log_loss":
        text = "p = model.predict_proba(X_test)\n"
        frame = f"submission = pd.DataFrame(p, columns=model.classes_)\nsubmission.insert(0, {key}, test[{key}])\n"
    elif brief.metric == "roc_auc":
        text = "p = model.predict_proba(X_test)[:, 1]\n"
    elif brief.metric == "map_at_k":
        text = "best = np.argsort(-model.predict_proba(X_test), axis=1)[:, :3]\np = [' '.join(model.classes_[row]) for row in best]\n"
    elif brief.target == "mlabel":
        text = "p = model.predict(X_test)\n"
        frame = f"submission = pd.DataFrame(p, columns=y.columns)\nsubmission.insert(0, {key}, test[{key}])\n"
    elif brief.metric == "rmsle":
        text = "p = np.maximum(model.predict(X_test), 0.0)\n"
    else:
        text = "p = model.predict(X_test)\n"
    return f'{text}{frame}submission.to_csv(os.environ["SUBMISSION_PATH"], index=False)\n'


def _filled(
    rules: tuple[tuple[str, str], ...], brief: Brief, names: Mapping[str, Any], columns: tuple[str, ...]
) -> list[tuple[str, str | None]]:
    first = next((names[k][0] for k in ("num", "text") if names[k]), None)
    target = names["target"][0]
    known = {
        "<first>": None if first is None else _quoted(first), "<wrong>": None if first is None else _quoted(first.swapcase() + "_"),
        "<text>": _quoted(names["text"][0]) if names["text"] else None, "<target>": target,
        "<columns>": f"{_quoted(target)}: p", "<othercolumns>": '"prediction": p',
    }  # fmt: skip
    result: list[tuple[str, str | None]] = []
    for old, new in rules:
        filled = [old, new]
        for place, value in known.items():
            filled = [None if t is None or (place in t and value is None) else t.replace(place, value or "") for t in filled]
        result.append((filled[0] or "\0", filled[1]))
    return result


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
