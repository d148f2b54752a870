"""Bias and noise of the study's world model over the whole execution bank, before and after the monotone map.

python benchmarks/study/world_model.py     # writes docs/results/study/world_model.json
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

import numpy as np
from arms import BANK
from bank import TIMEOUT_S, environment
from run import RESULTS
from scipy.stats import spearmanr

from wmrl_envs.correction import Recalibrator
from wmrl_envs.execution import ExecutionBank, make_sandbox
from wmrl_envs.outcome import Solution
from wmrl_envs.world_models.static.model import StaticWorldModel

ESTIMATOR = re.compile(r"\b(\w+(?:Classifier|Regressor|Regression|NB|Ridge|Lasso|SVR|SVC|Analysis))\(")
PAIRS, DRAWS = 240, 50  # anchor pairs of a run of 30 steps, and how often a map is fitted to as many drawn at random


def predictions() -> list[dict[str, Any]]:
    """Every program of the bank with its predicted and its true score."""
    bank, model, records = ExecutionBank(BANK), StaticWorldModel(learn=False), []
    with make_sandbox("replay", store=BANK) as box:
        for task in bank.tasks:
            env = environment(task, box, TIMEOUT_S)
            env.reset(seed=0)
            context, codes = env.context(), bank.programs(task)
            predicted = model.predict([Solution(code, task) for code in codes], [context] * len(codes))
            for code, guess in zip(codes, predicted, strict=True):
                outcome = env.execute(Solution(code, task))
                found = ESTIMATOR.findall(code)
                records.append({
                    "task": task, "category": context.category, "estimator": found[-1] if found else "none", "predicted": guess.score,
                    "true": outcome.score, "predicted_ok": guess.status.value == "ok", "ok": outcome.status.value == "ok",
                    "status": outcome.status.value, "cpu_s": outcome.cpu_s,
                })  # fmt: skip
    return records


def within_task(values: np.ndarray, task: np.ndarray) -> np.ndarray:
    """Values less the mean of their task: what an advantage sees."""
    _, which = np.unique(task, return_inverse=True)
    return values - (np.bincount(which, values) / np.bincount(which))[which]


def calibration(predicted: np.ndarray, true: np.ndarray, bins: int = 10) -> float:
    """Expected calibration error: mean over bins of predictions of |mean true - mean predicted|, weighted by their counts."""
    which = np.minimum((predicted * bins).astype(int), bins - 1)
    return float(sum(abs((true - predicted)[which == b].sum()) for b in range(bins)) / len(true))


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    task = np.array([r["task"] for r in records])
    p, t = (np.array([r[key] for r in records]) for key in ("predicted", "true"))
    ok, says = (np.array([r[key] for r in records]) for key in ("ok", "predicted_ok"))
    rng = np.random.default_rng(0)
    maps: dict[str, Any] = {"none": _describe(p, t, task)}
    for direction in ("inverse", "regression"):
        drawn = []
        for _ in range(DRAWS):
            chosen = rng.choice(len(p), PAIRS, replace=False)
            f = Recalibrator(min_pairs=PAIRS, direction=direction)
            f.update(p[chosen], t[chosen])
            drawn.append(_describe(f.transform(p), t, task))
        maps[direction] = {key: round(float(np.mean([d[key] for d in drawn])), 4) for key in drawn[0]}
    levels = np.minimum((t * 10).astype(int), 9)
    by_estimator = defaultdict(list)
    for r in records:
        by_estimator[r["estimator"]].append(r["predicted"] - r["true"])
    return {
        "programs": len(records), "valid": round(float(ok.mean()), 4), "false_fails": round(float((~says & ok).sum() / ok.sum()), 4),
        "false_passes": round(float((says & ~ok).sum() / (~ok).sum()), 4), "cpu_s": round(sum(r["cpu_s"] for r in records)),
        "spearman_within_task": round(float(np.mean([spearmanr(p[task == s], t[task == s])[0] for s in sorted(set(task))])), 4),
        "maps": maps,
        "by_true_level": [
            {"true": round(float(t[levels == b].mean()), 3), "predicted": round(float(p[levels == b].mean()), 3),
             "noise": round(float(p[levels == b].std()), 3), "programs": int((levels == b).sum())} for b in sorted(set(levels.tolist()))
        ],
        "by_estimator": {
            name: {"over_scored_by": round(float(np.mean(errors)), 3), "programs": len(errors)}
            for name, errors in sorted(by_estimator.items(), key=lambda item: -np.mean(item[1])) if len(errors) >= 30
        },
    }  # fmt: skip


def _describe(p: np.ndarray, t: np.ndarray, task: np.ndarray) -> dict[str, float]:
    a, b = within_task(p, task), within_task(t, task)
    return {
        "bias": round(float((p - t).mean()), 4),
        "calibration_error": round(calibration(p, t), 4),
        "rmse": round(float(np.sqrt(((p - t) ** 2).mean())), 4),
        "advantage_slope": round(float((a * b).sum() / (b * b).sum()), 4),  # 1: advantages of the right size on average
        "advantage_correlation": round(float(np.corrcoef(a, b)[0, 1]), 4),
    }


if __name__ == "__main__":
    result = summary(predictions())
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "world_model.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
