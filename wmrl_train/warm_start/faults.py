"""Realistic mistakes, one kind for each thing a check of a world model looks at, and how each enters a program."""

from __future__ import annotations

import random
from typing import Any

from wmrl_train.warm_start.draft import Draft

FAULTS = {
    "column": "a column that is not there",
    "import": "a name used without its import",
    "module": "an import from a module that does not exist",
    "nan": "missing values given to an estimator that refuses them",
    "sparse": "sparse input for an estimator that needs dense",
    "proba": "labels where probabilities are wanted, or the other way round",
    "method": "a method the estimator does not have",
    "param": "a keyword the estimator does not have",
    "file": "a file that is not there",
    "rows": "features and target of different length",
    "timeout": "far too much work for the time limit",
    "syntax": "an unbalanced bracket or quote",
    "order": "a line that defines something is missing",
    "nosave": "no submission is written",
    "short": "predictions for only a part of the test rows",
}
"""Kind -> description. Some programs with a fault still run (a forgotten `predict_proba` is a valid, poor ROC AUC submission).
"""


def draw(rng: random.Random, broken: float) -> str | None:
    """A kind of mistake with probability `broken`, else None."""
    return rng.choice(list(FAULTS)) if rng.random() < broken else None


def spoil_parameters(draft: Draft, keywords: dict[str, Any]) -> dict[str, Any]:
    """The estimator's keywords with the faults `timeout` and `param` applied."""
    if draft.fault == "timeout" and "n_estimators" in keywords:
        return keywords | {"n_estimators": 9000}
    if draft.fault == "timeout" and "max_leaf_nodes" in draft.estimator.options:
        return keywords | {"max_iter": 20000, "learning_rate": 0.0001}
    if draft.fault == "param":
        wrong = draft.choose(["n_estimator", "depth", "lr", "penalty_", "n_jobs_"])
        return keywords | {wrong: draft.choose([1, 10, 100])}
    return keywords


def fit_arguments(draft: Draft, target: str) -> str:
    """Arguments of `fit`, with the fault `rows` applied."""
    if draft.fault != "rows":
        return f"X, {target}"
    return draft.choose([f"T, {target}", f"X[:500], {target}", f"X, {target}[1:]"])


def predict_method(draft: Draft, wants_probability: bool) -> str:
    """`predict` or `predict_proba`, with the faults `proba` and `method` applied."""
    if draft.fault == "method":
        return draft.choose(["predict_probability", "forecast", "inference", "predict_class"])
    return "predict_proba" if wants_probability != (draft.fault == "proba") else "predict"


def assemble(draft: Draft) -> str:
    """The text of the program: imports, then the body, with the faults of the text itself applied."""
    lines = [f"from sklearn.{module} import {', '.join(sorted(names))}" for module, names in sorted(draft.imports.items())]
    body, rng = draft.body, draft.rng
    match draft.fault:
        case "import":
            lines.pop(rng.randrange(len(lines)))
        case "module":
            lines[-1] = _misspelt(draft, lines[-1])
        case "order" if len(body) > 2:
            body.pop(rng.randrange(len(body) - 2))
        case "file":
            name = draft.choose(["extra.csv", "data.csv", "train_features.csv", "embeddings.csv"])
            body.insert(0, f"E = pd.read_csv(os.environ['DATA_DIR'] + '/{name}')")
        case "nosave":
            body[-1] = "p = " + body[-1].removeprefix("save(").removesuffix(")")
        case "short":
            body[-1] = body[-1].replace("(T)", f"(T[:{draft.choose([100, 200, 500])}])")
    code = "\n".join([*lines, *body]) + "\n"
    if draft.fault == "syntax":
        position = rng.choice([i for i, character in enumerate(code) if character in ")]'"])
        code = code[:position] + code[position + 1 :]
    return code


def _misspelt(draft: Draft, line: str) -> str:
    module = line.split()[1]
    wrong = {
        "sklearn.ensemble": "sklearn.ensembles",
        "sklearn.linear_model": "sklearn.linear_models",
        "sklearn.svm": "sklearn.svms",
    }
    return line.replace(module, wrong.get(module, draft.choose(["xgboost", "sklearn.models", "lightgbm.sklearn"])))
