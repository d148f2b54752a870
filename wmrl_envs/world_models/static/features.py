"""Features of a program: which model, which hyperparameters, which columns in which encoding, fit to the metric."""

from __future__ import annotations

import math
from typing import Any

from wmrl_envs.context import TaskContext
from wmrl_envs.world_models.static.cost import family_of, hidden_sizes
from wmrl_envs.world_models.static.rules.inputs import tags_of
from wmrl_envs.world_models.static.rules.pipelines import (
    PIPELINES,
    TRANSFORMERS_BY_COLUMN,
    UNIONS,
    VECTORIZERS,
    parts_of,
    steps_of,
)
from wmrl_envs.world_models.static.rules.submission import metric_family
from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import Const, Data, Obj, Seq

HYPERPARAMETERS = {  # name -> (default, logarithmic)
    "C": (1.0, True),
    "alpha": (1.0, True),
    "n_estimators": (100.0, True),
    "max_depth": (30.0, True),
    "min_samples_leaf": (1.0, True),
    "max_iter": (100.0, True),
    "learning_rate": (0.1, True),
    "max_leaf_nodes": (31.0, True),
    "n_neighbors": (5.0, True),
}


def describe_program(run: State, context: TaskContext, cpu_s: float) -> dict[str, float]:
    """Named numbers, most of them 0 or 1. `model:<family>` names the estimator; empty if no fit was seen."""
    if not run.fits:
        return {}
    last = run.fits[-1]
    model: Any = last.model
    f: dict[str, float] = {f"model:{family_of(model.name)}": 1.0, "classifier": float(_is_classifier(run, model))}
    for name, (default, log) in HYPERPARAMETERS.items():
        value = model.get(name)
        number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else default
        f[f"hp:{name}"] = math.log10(max(number, 1e-6)) if log else number
    f["hp:linear-kernel"] = float(model.get("kernel", None, "rbf") == "linear")
    f["hp:balanced"] = float(model.get("class_weight") == "balanced")
    f["hp:hidden"] = math.log10(1 + sum(hidden_sizes(model)))
    f["log_target"] = float(last.log_target)
    for name in _transformers(run):
        f[f"step:{name}"] = 1.0
    f |= _columns(run, context)
    width = last.inputs.width
    f["log_width"] = math.log10(width) if width else 1.5
    f["log_rows"] = math.log10(max(run.count(last.inputs.rows) or 3000, 1)) - 3.0
    f["sparse"] = 1.0 if last.inputs.sparse else 0.0
    f["derived"] = (
        float(len(run.env["num"].items) - len(context.scaffold_names.get("num") or ()))
        if isinstance(run.env.get("num"), Seq)
        else 0.0
    )
    f["log_cpu"] = math.log10(max(cpu_s, 1e-3))
    saved = next((s for s in run.saved if isinstance(s, Data)), None)
    family = metric_family(context.metric)
    meaning = saved.meaning if saved is not None else None
    f["out:proba"] = float(meaning == "proba")
    f["out:label-for-ranking"] = float(meaning == "label" and family in ("ranking", "top-k"))
    f["out:whole"] = float(meaning == "whole")
    f["augmented"] = float(last.inputs.rows is not None and "+" in last.inputs.rows)
    return f


def _is_classifier(run: State, model: Obj) -> bool:
    tags = tags_of(run, model)
    return bool(tags and tags["type"] == "classifier")


def _objects(value: Any, depth: int = 0) -> list[Obj]:
    if depth > 8 or not isinstance(value, (Obj, Seq)):
        return []
    inner = value.items if isinstance(value, Seq) else [*value.args, *value.kwargs.values()]
    return ([value] if isinstance(value, Obj) else []) + [o for i in inner for o in _objects(i, depth + 1)]


def _models(run: State) -> list[Obj]:
    return [v for v in run.env.values() if isinstance(v, Obj) and v.fitted_on is not None]


def _transformers(run: State) -> list[str]:
    names = []
    for obj in [o for m in _models(run) for o in _objects(m)]:
        if obj.name in VECTORIZERS:
            names.append("vectorizer")
            analyzer, grams = obj.get("analyzer"), obj.get("ngram_range")
            names += ["char"] if isinstance(analyzer, str) and analyzer.startswith("char") else ["words"]
            names += ["ngrams"] if isinstance(grams, Seq) else []
            limit = obj.get("max_features")
            names += ["few-features"] if isinstance(limit, int) and limit <= 300 else []
            names += ["counts"] if obj.name == "CountVectorizer" else []
            names += ["sublinear"] if obj.get("sublinear_tf") is True else []
            names += ["stop-words"] if isinstance(obj.get("stop_words"), str) else []
        elif obj.name not in PIPELINES | TRANSFORMERS_BY_COLUMN | UNIONS:
            names.append(obj.name)
            n = obj.get("n_components")
            if isinstance(n, int) and n <= 10:
                names.append("few-components")
    return names


def _columns(run: State, context: TaskContext) -> dict[str, float]:
    """Share of the numeric, categorical, text and date columns that reach the model."""
    used: set[str] = set()
    whole = False
    for model in _models(run):
        steps = steps_of(model) if model.name in PIPELINES else [model]
        by_column = [s for s in steps or [] if isinstance(s, Obj) and s.name in TRANSFORMERS_BY_COLUMN]
        for transformer in by_column:
            for _, spec in parts_of(transformer) or []:
                names = spec.strings() if isinstance(spec, Seq) else [spec.value] if isinstance(spec, Const) else None
                used.update(str(n) for n in names or [])
        if not by_column and model.fitted_on is not None:
            if model.fitted_on.kind == "frame" and model.fitted_on.columns is not None:
                used.update(model.fitted_on.columns)
            else:
                whole = True
    result = {}
    for kind in ("num", "cat", "text", "date"):
        names = [str(c) for c in context.scaffold_names.get(kind) or ()]
        result[f"has:{kind}"] = float(bool(names))
        result[f"uses:{kind}"] = 1.0 if whole and names else sum(n in used for n in names) / len(names) if names else 0.0
    return result
