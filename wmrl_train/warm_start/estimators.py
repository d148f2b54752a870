"""The estimators a program may use, with the parameter values it may give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Options = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Estimator:
    """One scikit-learn estimator.

    Attributes:
        options: keyword -> values to choose from, as they are written in the program.
        dense: refuses sparse input. takes_nan: accepts missing values. multi_output: fits several targets at once.
        slow: more than linear in the number of rows. proba: has predict_proba. weighted: has class_weight.
    """

    name: str
    module: str
    options: Options = field(default_factory=dict)
    dense: bool = False
    takes_nan: bool = False
    multi_output: bool = False
    slow: bool = False
    proba: bool = True
    weighted: bool = False


ALWAYS_GIVEN = ("loss", "max_depth", "n_estimators", "max_iter")
"""Parameters that are always written out: their defaults are too slow for a time limit of seconds."""

CLASSIFIERS = (
    Estimator("LogisticRegression", "linear_model", {"C": (0.001, 0.01, 0.1, 1, 10), "max_iter": (100, 300)}, weighted=True),
    Estimator(
        "SGDClassifier",
        "linear_model",
        {"loss": ("'log_loss'",), "alpha": (0.0001, 0.001, 0.01), "max_iter": (5, 20, 60)},
        weighted=True,
    ),
    Estimator("GaussianNB", "naive_bayes", dense=True),
    Estimator("KNeighborsClassifier", "neighbors", {"n_neighbors": (1, 3, 5, 15, 50)}),
    Estimator("DecisionTreeClassifier", "tree", {"max_depth": (1, 2, 3, 5, 8, 15)}, takes_nan=True, weighted=True),
    Estimator(
        "RandomForestClassifier",
        "ensemble",
        {"n_estimators": (10, 30, 100, 200), "max_depth": (3, 6, 12, None), "min_samples_leaf": (1, 3, 10)},
        takes_nan=True,
        weighted=True,
    ),
    Estimator(
        "ExtraTreesClassifier",
        "ensemble",
        {"n_estimators": (10, 50, 150), "max_depth": (4, 10, None)},
        takes_nan=True,
        weighted=True,
    ),
    Estimator(
        "HistGradientBoostingClassifier",
        "ensemble",
        {"max_iter": (10, 30, 100), "learning_rate": (0.03, 0.1, 0.3), "max_leaf_nodes": (4, 15, 31)},
        dense=True,
        takes_nan=True,
    ),
    Estimator("LinearDiscriminantAnalysis", "discriminant_analysis", dense=True),
    Estimator("SVC", "svm", {"C": (0.1, 1, 10), "kernel": ("'rbf'", "'linear'")}, slow=True, proba=False),
    Estimator(
        "MLPClassifier", "neural_network", {"hidden_layer_sizes": ("(16,)", "(64,)", "(64, 32)"), "max_iter": (10, 30, 80)}
    ),
    Estimator("AdaBoostClassifier", "ensemble", {"n_estimators": (20, 60)}, dense=True),
    Estimator("DummyClassifier", "dummy", takes_nan=True),
)

REGRESSORS = (
    Estimator("Ridge", "linear_model", {"alpha": (0.01, 0.1, 1, 10, 100)}, multi_output=True),
    Estimator("Lasso", "linear_model", {"alpha": (0.001, 0.01, 0.1, 1)}, multi_output=True),
    Estimator("LinearSVR", "svm", {"C": (0.03, 0.3, 3)}),
    Estimator("SVR", "svm", {"C": (0.3, 1, 5), "kernel": ("'rbf'", "'linear'")}, slow=True),
    Estimator("KNeighborsRegressor", "neighbors", {"n_neighbors": (1, 3, 7, 20, 60)}, multi_output=True),
    Estimator("DecisionTreeRegressor", "tree", {"max_depth": (1, 2, 4, 8, 15)}, takes_nan=True, multi_output=True),
    Estimator(
        "RandomForestRegressor",
        "ensemble",
        {"n_estimators": (10, 30, 80), "max_depth": (3, 6, 12), "min_samples_leaf": (1, 3, 10)},
        takes_nan=True,
        multi_output=True,
    ),
    Estimator(
        "ExtraTreesRegressor",
        "ensemble",
        {"n_estimators": (10, 30, 80), "max_depth": (4, 10, 20)},
        takes_nan=True,
        multi_output=True,
    ),
    Estimator(
        "HistGradientBoostingRegressor",
        "ensemble",
        {"max_iter": (10, 30, 100, 200), "learning_rate": (0.03, 0.1, 0.3), "max_leaf_nodes": (4, 15, 31)},
        dense=True,
        takes_nan=True,
    ),
    Estimator(
        "MLPRegressor",
        "neural_network",
        {"hidden_layer_sizes": ("(16,)", "(64,)"), "max_iter": (10, 30, 80)},
        multi_output=True,
    ),
    Estimator("DummyRegressor", "dummy", takes_nan=True, multi_output=True),
)
