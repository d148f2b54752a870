"""Features of a program: which model, which hyperparameters, which columns in which encoding, fit to the metric."""

from __future__ import annotations

import math
from typing import Any

from wmrl_envs.context import TaskContext
from wmrl_envs.world_models.static.cost import family_of, hidden_sizes
from wmrl_envs.world_models.static.quality import family_score
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
from wmrl_envs.world_models.static.values import Const, Data, Fit, Obj, Seq

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


def describe_program(run: State, context: TaskContext, cpu_s: float, steps: int) -> dict[str, float]:
    """Named numbers, most of them 0 or 1. `model:<family>` names the estimator ("none" if none was seen).

    Of a whole script that fits several the one counts that does best as a rule; where no fit could be followed, the classes it
    makes.
    """
    main = _main_fit(run, context)
    if main is None:
        return {"model:none": 1.0, "log_steps": math.log10(max(steps, 1))}
    model: Any = main.model
    f: dict[str, float] = {f"model:{family_of(model.name)}": 1.0, "classifier": float(_is_classifier(run, model))}
    for name, (default, log) in HYPERPARAMETERS.items():
        value = model.get(name)
        number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else default
        f[f"hp:{name}"] = math.log10(max(number, 1e-6)) if log else number
    f["hp:linear-kernel"] = float(model.get("kernel", None, "rbf") == "linear")
    f["hp:balanced"] = float(model.get("class_weight") == "balanced")
    f["hp:hidden"] = math.log10(1 + sum(hidden_sizes(model)))
    f["log_target"] = float(main.log_target)
    for name in _transformers(run, context):
        f[f"step:{name}"] = 1.0
    f |= _columns(run, context)
    width = main.inputs.width
    f["log_width"] = math.log10(width) if width else 1.5
    f["log_rows"] = math.log10(max(run.count(main.inputs.rows) or 3000, 1)) - 3.0
    f["sparse"] = 1.0 if main.inputs.sparse else 0.0
    given = context.scaffold_names.get("num") or ()
    derived = run.env.get("num")
    f["derived"] = float(len(derived.items) - len(given)) if context.scaffold and isinstance(derived, Seq) else 0.0
    f["log_cpu"] = math.log10(max(cpu_s, 1e-3))
    f |= _handed_in(run, context)
    f["augmented"] = float(main.inputs.rows is not None and "+" in main.inputs.rows)
    if not context.scaffold:
        families = {family_of(fit.model.name) for fit in run.fits if isinstance(fit.model, Obj)}
        f |= {"blend": float(min(max(len(families) - 1, 0), 2)), "folded": float(run.folded), "guessed": float(not run.fits)}
    return f


def _main_fit(run: State, context: TaskContext) -> Fit | None:
    if context.scaffold and run.fits:
        return run.fits[-1]
    fits = run.fits or [Fit(o, Data()) for o in run.made if (tags_of(run, o) or {}).get("type") in ("classifier", "regressor")]
    return max(fits, key=lambda fit: family_score(family_of(fit.model.name), context.category), default=None)


def _handed_in(run: State, context: TaskContext) -> dict[str, float]:
    """Labels where a ranking is wanted, rounded numbers, codes where labels are texts."""
    saved = next((s for s in run.saved if isinstance(s, Data)), None)
    family = metric_family(context.metric)
    meaning = saved.meaning if saved is not None else None
    codes = False
    if saved is not None and saved.kind == "frame" and saved.columns:
        kinds = next((i.columns for i in context.files if i.name == "train.csv"), {})
        found = [(c, saved.columns[c]) for c in context.target_columns if c in saved.columns]
        meaning = found[0][1].meaning if found else None
        codes = any(kinds.get(c) == "str" and column.text is False and column.meaning for c, column in found)
    return {
        "out:proba": float(meaning == "proba"),
        "out:label-for-ranking": float(meaning == "label" and family in ("ranking", "top-k")),
        "out:whole": float(meaning == "whole"),
        "out:codes": float(codes and family in ("labels", "top-k")),
    }


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


def _transformers(run: State, context: TaskContext) -> list[str]:
    names = []
    for obj in [o for m in _models(run) for o in _objects(m)] if context.scaffold else run.made:
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
    groups = _groups(context)
    for kind in ("num", "cat", "text", "date"):
        names = groups[kind]
        result[f"has:{kind}"] = float(bool(names))
        result[f"uses:{kind}"] = 1.0 if whole and names else sum(n in used for n in names) / len(names) if names else 0.0
    return result


def _groups(context: TaskContext) -> dict[str, list[str]]:
    """The columns of a task by kind: as the scaffold has them, else as the files say."""
    if context.scaffold:
        return {k: [str(c) for c in context.scaffold_names.get(k) or ()] for k in ("num", "cat", "text", "date")}
    columns = next((f.columns for f in context.files if f.name == "test.csv"), {})
    inputs = {c: kind for c, kind in columns.items() if c not in (*context.id_columns, *context.target_columns)}
    texts = [c for c, kind in inputs.items() if kind == "str"]
    only_text = context.category == "text"
    return {
        "num": [c for c in inputs if c not in texts],
        "cat": [] if only_text else texts,
        "text": texts if only_text else [],
        "date": [],
    }
