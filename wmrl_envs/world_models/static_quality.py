"""How good would a valid program be? A prior from general experience, corrected online by a Gaussian process on anchor pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MAX_PAIRS = 1024  # the newest are kept
# Expected score (0 = constant prediction, 1 = a tuned solution) of an estimator with ordinary settings.
PRIOR: Mapping[str, Mapping[str, float]] = {
    "tabular": {
        "HistGradientBoosting": 0.70, "GradientBoosting": 0.70, "XGB": 0.72, "LGBM": 0.72, "CatBoost": 0.72, "RandomForest": 0.62,
        "ExtraTrees": 0.60, "AdaBoost": 0.58, "LogisticRegression": 0.55, "LinearDiscriminantAnalysis": 0.55, "SVM": 0.48,
        "MLP": 0.45, "Ridge": 0.45, "Lasso": 0.38, "GaussianNB": 0.42, "SGD": 0.40, "KNeighbors": 0.40, "DecisionTree": 0.48,
        "LinearSV": 0.38, "Dummy": 0.0,
    },
    "text": {
        "Ridge": 0.50, "LogisticRegression": 0.50, "SVM": 0.48, "LinearSV": 0.48, "SGD": 0.42, "ExtraTrees": 0.40, "RandomForest": 0.38,
        "LinearDiscriminantAnalysis": 0.40, "HistGradientBoosting": 0.38, "MLP": 0.35, "KNeighbors": 0.28, "Lasso": 0.25,
        "AdaBoost": 0.22, "DecisionTree": 0.22, "GaussianNB": 0.15, "MultinomialNB": 0.45, "ComplementNB": 0.45, "Dummy": 0.0,
    },
    "image": {
        "SVM": 0.68, "ExtraTrees": 0.58, "RandomForest": 0.56, "HistGradientBoosting": 0.60, "LogisticRegression": 0.52, "MLP": 0.52,
        "KNeighbors": 0.50, "SGD": 0.42, "LinearDiscriminantAnalysis": 0.42, "GaussianNB": 0.28, "Ridge": 0.40, "DecisionTree": 0.22,
        "AdaBoost": 0.25, "Lasso": 0.30, "Dummy": 0.0,
    },
}  # fmt: skip
TREES = ("RandomForest", "ExtraTrees", "DecisionTree")


def prior_score(f: Mapping[str, float], category: str, family: str) -> float:
    """Expected score of a valid program before any pair has been seen. `family` is that of the metric (`metric_family`)."""
    model = next((k[6:] for k in f if k.startswith("model:")), "")
    if not model:
        return 0.4
    if model == "Dummy":
        return 0.01
    score = PRIOR.get(category, PRIOR["tabular"]).get(model, 0.45)
    depth = 10 ** f.get("hp:max_depth", 1.5)
    if model in TREES and depth <= 3:
        score -= 0.15 if depth > 1 else 0.25
    if model == "DecisionTree" and depth > 12:
        score -= 0.05
    if model in ("RandomForest", "ExtraTrees"):
        score += 0.04 * (f.get("hp:n_estimators", 2.0) - 1.7)
    if model == "HistGradientBoosting":
        learnt = 10 ** (f.get("hp:max_iter", 2.0) + f.get("hp:learning_rate", -1.0))  # iterations x rate: 10 at the defaults
        score -= 0.22 * max(0.0, 0.8 - math.log10(max(learnt, 0.01)))
    if model in ("LogisticRegression", "SVM", "LinearSV"):
        score -= 0.08 * abs(f.get("hp:C", 0.0) - (0.5 if model == "SVM" else 0.0))
    if model == "Lasso":
        score -= 0.12 * max(0.0, f.get("hp:alpha", 0.0) + 2.5)
    if model == "MLP":
        score += 0.10 * (f.get("hp:max_iter", 2.0) - 1.5)
    if model == "KNeighbors":
        score -= 0.12 * abs(f.get("hp:n_neighbors", 0.7) - 0.9)
    scaled = any(
        f.get(f"step:{s}")
        for s in ("StandardScaler", "MinMaxScaler", "RobustScaler", "QuantileTransformer", "PowerTransformer")
    )
    if model in ("SVM", "MLP", "KNeighbors", "SGD", "LinearSV", "Lasso") and category == "tabular" and not scaled:
        score -= 0.15
    for kind, weight in (("num", 0.20), ("cat", 0.12), ("text", 0.30 if category == "text" else 0.08)):
        if f.get(f"has:{kind}"):
            score -= weight * (1.0 - f.get(f"uses:{kind}", 1.0))
    score += 0.03 * min(f.get("derived", 0.0), 2.0)
    if family == "non-negative":
        score += 0.12 if f.get("log_target") else -0.08
    if f.get("out:label-for-ranking"):
        score -= 0.30
    if family == "labels" and category != "image" and f.get("hp:balanced"):
        score += 0.04
    if f.get("few_features") or f.get("step:few-features"):
        score -= 0.06
    if f.get("step:few-components"):
        score -= 0.10
    return min(max(score, 0.02), 0.97)


class QualityHead:
    """Prior plus a Gaussian process on the residuals of executed pairs; a refit costs O(pairs^3) and is put off until needed.

    Kernel: `a * k(program) + b * [same task] * k(program) + c * [same task]` with a Gaussian `k` on weighted features, so
    that what is learnt on one task carries over to others, less strongly than within the task.
    """

    def __init__(self, shared: float = 0.02, own: float = 0.03, level: float = 0.02, noise: float = 0.01):
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


def scale(name: str) -> float:
    """Weight of a feature in the distance between programs."""
    if name.startswith("model:"):
        return 1.0
    if name.startswith("hp:"):
        return 0.6
    if name.startswith("step:"):
        return 0.35
    if name.startswith("uses:"):
        return 0.8
    if name.startswith("has:"):
        return 0.3
    return {"log_target": 1.0, "out:label-for-ranking": 1.0, "log_cpu": 0.2, "log_width": 0.2, "derived": 0.3}.get(name, 0.4)
