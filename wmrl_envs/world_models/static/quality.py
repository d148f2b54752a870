"""How good would a valid program be? A prior from general experience, corrected online by a Gaussian process on anchor
pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MAX_PAIRS = 1024  # the newest are kept
# Expected score (0 = constant prediction, 1 = a tuned solution) of an estimator with ordinary settings.
PRIOR: Mapping[str, Mapping[str, float]] = {
    "tabular": {
        "HistGradientBoosting": 0.78, "GradientBoosting": 0.78, "XGB": 0.80, "LGBM": 0.80, "CatBoost": 0.80,
        "RandomForest": 0.66,
        "ExtraTrees": 0.64, "AdaBoost": 0.56, "LogisticRegression": 0.58, "LinearDiscriminantAnalysis": 0.64, "SVM": 0.45,
        "MLP": 0.45, "Ridge": 0.48, "Lasso": 0.46, "GaussianNB": 0.45, "SGD": 0.38, "KNeighbors": 0.45, "DecisionTree": 0.48,
        "LinearSV": 0.45, "Dummy": 0.02,
    },
    "text": {
        "Ridge": 0.62, "LogisticRegression": 0.72, "SVM": 0.62, "LinearSV": 0.58, "SGD": 0.50, "ExtraTrees": 0.64,
        "RandomForest": 0.60,
        "LinearDiscriminantAnalysis": 0.60, "HistGradientBoosting": 0.56, "MLP": 0.45, "KNeighbors": 0.34, "Lasso": 0.46,
        "AdaBoost": 0.38, "DecisionTree": 0.36, "GaussianNB": 0.40, "MultinomialNB": 0.60, "ComplementNB": 0.60, "Dummy": 0.05,
    },
    "image": {
        "SVM": 0.80, "ExtraTrees": 0.62, "RandomForest": 0.58, "HistGradientBoosting": 0.62, "LogisticRegression": 0.56,
        "MLP": 0.62,
        "KNeighbors": 0.62, "SGD": 0.52, "LinearDiscriminantAnalysis": 0.45, "GaussianNB": 0.38, "Ridge": 0.42,
        "DecisionTree": 0.20,
        "AdaBoost": 0.28, "Lasso": 0.35, "Dummy": 0.02,
    },
}  # fmt: skip
TREES = ("RandomForest", "ExtraTrees", "DecisionTree")
NEEDS_SCALING = ("SVM", "MLP", "KNeighbors", "SGD", "LinearSV", "Lasso")
SCALERS = ("StandardScaler", "MinMaxScaler", "RobustScaler", "QuantileTransformer", "PowerTransformer")


OVERCONFIDENT: Mapping[str,
    float] = {  # how a logarithmic loss moves an estimator: it punishes confident errors, a constant has none
    "SGD": -0.25, "GaussianNB": -0.30, "KNeighbors": -0.25, "MLP": -0.10, "LinearDiscriminantAnalysis": -0.08,
    "DecisionTree": 0.0,
    "Dummy": 0.35, "ExtraTrees": 0.08, "RandomForest": 0.08, "SVM": 0.08, "LogisticRegression": 0.05,
}  # fmt: skip


BY_HAND, CONSTANT = 0.3, 0.1  # without an estimator: written by hand with numpy; so short that it can only hand in a constant
SHORT = 2.1  # log10 of the expressions of such a program


def family_score(model: str, category: str) -> float:
    """What an estimator with ordinary settings reaches, between a constant (0) and a tuned solution (1)."""
    return PRIOR.get(category, PRIOR["tabular"]).get(model, 0.45)


def prior_score(f: Mapping[str, float], category: str, family: str) -> float:
    """Expected score of a valid program before any pair has been seen. `family` is that of the metric (`metric_family`)."""
    model = next((k[6:] for k in f if k.startswith("model:")), "")
    if not model:
        return 0.4
    if model == "none":
        return CONSTANT if f.get("log_steps", 0.0) < SHORT else BY_HAND
    if f.get("out:codes"):
        return 0.02
    score = family_score(model, category)
    if family == "probabilities":
        score += OVERCONFIDENT.get(model, 0.0) - (0.25 if model == "DecisionTree" and f.get("hp:max_depth", 1.5) > 0.8 else 0.0)
    if model != "Dummy":
        score += 0.03 * f.get("blend", 0.0) + 0.05 * f.get("folded", 0.0) - 0.08 * f.get("guessed", 0.0)
        score += _setting(f, model) + _data_use(f, model, category) + _metric_fit(f, category, family)
    return min(max(score, 0.02), 0.97)


def _setting(f: Mapping[str, float], model: str) -> float:
    """How hyperparameters move an estimator off its ordinary level; numbers are log10 of the values."""
    depth, c, alpha = f.get("hp:max_depth", 1.5), f.get("hp:C", 0.0), f.get("hp:alpha", 0.0)
    change = 0.0
    if model in TREES and depth < 0.5:  # up to 3 levels
        change -= 0.15 if depth > 0.1 else 0.25
    match model:
        case "DecisionTree":
            change -= 0.05 if depth > 1.1 else 0.0
        case "RandomForest" | "ExtraTrees":
            change += 0.04 * (f.get("hp:n_estimators", 2.0) - 1.7)
        case "HistGradientBoosting":  # iterations x rate: 10 at the defaults
            learnt = f.get("hp:max_iter", 2.0) + f.get("hp:learning_rate", -1.0)
            change -= 0.30 * max(0.0, 0.8 - learnt)
        case "LogisticRegression" | "LinearSV":
            change -= 0.08 * abs(c)
        case "SVM":
            change -= 0.08 * abs(c - 0.5)
        case "Lasso":
            change -= 0.08 * max(0.0, alpha + 2.0)
        case "Ridge":
            change -= 0.10 * max(0.0, alpha - 0.3)
        case "MLP":
            change += 0.18 * (f.get("hp:max_iter", 2.0) - 1.5)
        case "KNeighbors":
            change -= 0.12 * abs(f.get("hp:n_neighbors", 0.7) - 0.9)
    return change


def _data_use(f: Mapping[str, float], model: str, category: str) -> float:
    """How much of the data is used, and how it is encoded."""
    change = 0.10 * f.get("log_rows", 0.0) + 0.03 * min(f.get("derived", 0.0), 2.0) + 0.08 * f.get("augmented", 0.0)
    for kind, weight in (("num", 0.20), ("cat", 0.12), ("text", 0.40 if category == "text" else 0.06)):
        if f.get(f"has:{kind}"):
            change -= weight * (1.0 - f.get(f"uses:{kind}", 1.0))
    if model in NEEDS_SCALING and category == "tabular" and not any(f.get(f"step:{s}") for s in SCALERS):
        change -= 0.15
    return change - 0.06 * f.get("step:few-features", 0.0) - 0.10 * f.get("step:few-components", 0.0)


def _metric_fit(f: Mapping[str, float], category: str, family: str) -> float:
    """Whether what is fitted and handed in is what the metric rewards."""
    change = -0.30 * f.get("out:label-for-ranking", 0.0)
    if family == "non-negative":
        change += 0.12 if f.get("log_target") else -0.08
    if family == "labels" and category != "image":
        change += 0.04 * f.get("hp:balanced", 0.0)
    return change


class QualityHead:
    """Prior plus a Gaussian process on the residuals of executed pairs; a refit costs O(pairs^3) and is put off until needed.

    Kernel: `a * k(program) + b * [same task] * k(program) + c * [same task]` with a Gaussian `k` on weighted features, so
    that what is learnt on one task carries over to others, less strongly than within the task.
    """

    def __init__(self, shared: float = 0.02, own: float = 0.05, level: float = 0.01, noise: float = 0.035):
        self.shared, self.own, self.level, self.noise = shared, own, level, noise
        self._pairs: list[tuple[str, dict[str, float], float]] = []  # task, features, residual
        self._solved: tuple[np.ndarray, list[str], np.ndarray, np.ndarray] | None = None
        self._names: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, task: str, features: Mapping[str, float], residual: float) -> None:
        """One executed valid program: its true score minus `prior_score`."""
        self._pairs.append((task, dict(features), float(residual)))
        del self._pairs[:-MAX_PAIRS]
        self._solved = None

    def correct(self, tasks: Sequence[str], features: Sequence[Mapping[str, float]]) -> tuple[np.ndarray, np.ndarray]:
        """Expected residual and its standard deviation, each of shape (n,)."""
        n = len(tasks)
        alone = math.sqrt(self.shared + self.own + self.level)
        if not self._pairs or n == 0:
            return np.zeros(n), np.full(n, alone)
        x, known, weights, inverse = self._fitted()
        k = self._kernel(self._matrix(features), list(tasks), x, known)
        mean = k @ weights
        variance = alone**2 - ((k @ inverse) * k).sum(1)
        return mean, np.sqrt(np.clip(variance, 1e-6, None))

    def _fitted(self) -> tuple[np.ndarray, list[str], np.ndarray, np.ndarray]:
        if self._solved is None:
            tasks = [t for t, _, _ in self._pairs]
            self._names = {}
            for _, f, _ in self._pairs:
                for name in f:
                    self._names.setdefault(name, len(self._names))
            x = self._matrix([f for _, f, _ in self._pairs])
            y = np.array([r for _, _, r in self._pairs])
            k = self._kernel(x, tasks, x, tasks) + self.noise * np.eye(len(y))
            inverse = np.linalg.inv(k)
            self._solved = (x, tasks, inverse @ y, inverse)
        return self._solved

    def _matrix(self, features: Sequence[Mapping[str, float]]) -> np.ndarray:
        m = np.zeros((len(features), len(self._names) + 1))
        for i, f in enumerate(features):
            for name, value in f.items():
                j = self._names.get(name)
                if j is not None:
                    m[i, j] = value * scale(name)
                elif name.startswith("model:"):
                    m[i, -1] = scale(name)
        return m

    def _kernel(self, a: np.ndarray, ta: list[str], b: np.ndarray, tb: list[str]) -> np.ndarray:
        squared = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2.0 * a @ b.T
        similar = np.exp(-0.5 * np.clip(squared, 0.0, None))
        same = np.array(ta, dtype=object)[:, None] == np.array(tb, dtype=object)[None]
        return self.shared * similar + same * (self.own * similar + self.level)

    def state_dict(self) -> dict[str, Any]:
        """JSON-able; loading it gives the same predictions bit for bit."""
        return {"pairs": [[t, dict(f), r] for t, f, r in self._pairs]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""
        self._pairs = [(str(t), {str(k): float(v) for k, v in f.items()}, float(r)) for t, f, r in state["pairs"]]
        self._solved = None


_SCALES = {"log_target": 0.6, "out:label-for-ranking": 0.6, "log_cpu": 0.12, "log_width": 0.12, "derived": 0.2}
_PREFIX_SCALES = {"model:": 0.6, "hp:": 0.35, "step:": 0.2, "uses:": 0.5, "has:": 0.2}


def scale(name: str) -> float:
    """Weight of a feature in the distance between programs."""
    prefix = name[: name.find(":") + 1]
    return _SCALES.get(name) or _PREFIX_SCALES.get(prefix, 0.25)
