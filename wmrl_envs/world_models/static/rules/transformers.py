"""What comes out of scikit-learn's transformers, and which data they refuse."""

from __future__ import annotations

from typing import Any

from wmrl_envs.world_models.static.rules.inputs import check_input, check_parameters, one_dimensional, tags_of
from wmrl_envs.world_models.static.rules.pipelines import (
    ENCODERS,
    PIPELINES,
    SCALERS,
    TRANSFORMERS_BY_COLUMN,
    TYPICAL_CARDINALITY,
    UNIONS,
    VECTORIZERS,
    parts_of,
    stack,
    steps_of,
)
from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import UNKNOWN, Column, Const, Data, Instance, Obj, Ref, Seq


def transform(run: State, step: Any, data: Any) -> Any:
    """What comes out of a transformer; UNKNOWN where that cannot be said."""
    if isinstance(step, Const):
        return data
    if isinstance(step, Instance):
        run.method(step, "fit", [data])
        return run.method(step, "transform", [data])
    if not isinstance(step, Obj) or not isinstance(data, Data):
        return UNKNOWN
    if step.name in PIPELINES:
        for inner in steps_of(step) or [UNKNOWN]:
            data = transform(run, inner, data)
        return data
    check_parameters(run, step)
    if step.name in TRANSFORMERS_BY_COLUMN:
        return _by_column(run, step, data)
    if step.name in UNIONS:
        listed = getattr(step.get("transformer_list", 0), "items", [])
        inner = step.args if step.name == "make_union" else [s.items[1] for s in listed if isinstance(s, Seq)]
        return stack([transform(run, i, data) for i in inner], data.rows, 2.0)
    if step.name in VECTORIZERS:
        return _vectorize(run, step, data)
    return _plain(run, step, data)


def _vectorize(run: State, step: Obj, data: Data) -> Data:
    if data.nan is True and data.kind != "frame":
        run.report("runtime.nan-text")
    if data.kind == "frame":
        text = (
            "blocks[0,:] has incompatible row dimensions: "
            "a text vectorizer was given a DataFrame, pass one column name as a string"
        )
        run.report("shapes.vectorizer", "ValueError", text=text)
    if data.text is False:
        kind = "float" if data.kind != "array" else "int"
        run.report("shapes.vectorizer", text=f"'{kind}' object has no attribute 'lower'")
    analyzer, limit = step.get("analyzer", None, "word"), step.get("max_features")
    grams = step.get("ngram_range")
    longest = grams.items[-1].value if isinstance(grams, Seq) and grams.items and isinstance(grams.items[-1], Const) else 1
    rows = float(run.count(data.rows) or 3000)
    longest = longest if isinstance(longest, int) else 1
    width = (25.0 if isinstance(analyzer, str) and analyzer.startswith("char") else 4.0) * rows**0.85 * max(1, longest) ** 0.8
    min_df = step.get("min_df")
    if isinstance(min_df, int) and min_df > 1:
        width /= 2.0 * min_df**0.8
    if isinstance(limit, int) and not isinstance(limit, bool):
        width = min(width, float(limit))
    return Data(
        "array", rows=data.rows, nan=False, text=False, sparse=True, width=max(width, 1.0), ndim=2, low=0.0, scaled=True
    )


def _plain(run: State, step: Obj, data: Data) -> Any:
    if data.kind == "series" and step.name in ENCODERS | SCALERS | {"SimpleImputer", "PCA"}:
        one_dimensional(run, data)
    check_input(run, step, data)
    width = data.width
    out = Data("array", rows=data.rows, nan=data.nan, text=False, sparse=data.sparse, width=width, ndim=2, low=None)
    name = step.name
    out.scaled = data.scaled or name in SCALERS | {"OneHotEncoder"}
    if name == "OneHotEncoder":
        columns = list((data.columns or {}).values())
        cards = [c.card or TYPICAL_CARDINALITY for c in columns]
        out.width = float(sum(cards)) if cards else (None if width is None else width * TYPICAL_CARDINALITY)
        out.filled = float(len(cards)) if cards and all(c.card for c in columns) and not step.get("min_frequency") else None
        out.nan, out.sparse, out.low = False, step.get("sparse_output", None, True) is not False, 0.0
    elif name == "OrdinalEncoder":
        out.nan = data.nan if "encoded_missing_value" not in step.kwargs else False
        out.sparse = False
    elif name == "TargetEncoder":
        out.nan, out.sparse = False, False
    elif name in ("SimpleImputer", "KNNImputer", "IterativeImputer"):
        out.nan, out.text = False, data.text
        out.kind = "array"
    elif name in ("PCA", "TruncatedSVD", "NMF"):
        n = step.get("n_components", 0, 2)
        out.width, out.sparse, out.nan = (float(n) if isinstance(n, (int, float)) and n >= 1 else width), False, False
    elif name in ("MinMaxScaler", "Normalizer", "MaxAbsScaler", "Binarizer"):
        out.low = 0.0 if name == "MinMaxScaler" else data.low
    elif name == "StandardScaler":
        out.low = -1.0
    elif name == "PolynomialFeatures":
        out.width = None if width is None else width * (width + 3) / 2 + 1
    elif name == "FunctionTransformer":
        function = step.get("func", 0, None)
        known = function is None or isinstance(function, Ref)  # a function of numpy, which works item by item
        return data.but(columns=None, nan=None, low=None) if known else UNKNOWN
    elif name in ("SelectKBest", "SelectPercentile", "SelectFromModel", "VarianceThreshold", "RFE"):
        k = step.get("k", None, None)
        out.width = float(k) if isinstance(k, int) else width
    elif tags_of(run, step) is None or step.name not in (
        "RobustScaler",
        "QuantileTransformer",
        "PowerTransformer",
    ):
        out.sparse, out.nan, out.text, out.width = (data.sparse or None), None, None, None
        out.sparse = None if data.sparse else False
    return out


def _by_column(run: State, step: Obj, data: Data) -> Any:
    parts = parts_of(step)
    if parts is None:
        return UNKNOWN
    outputs: list[Any] = []
    used: set[str] = set()
    for transformer, spec in parts:
        one = isinstance(spec, Const) and isinstance(spec.value, str)
        names = [spec.value] if one else spec.strings() if isinstance(spec, Seq) and spec.sure else None
        if names is None:
            outputs.append(
                transform(run, transformer, data.but(columns=None, open=True, nan=None, text=None, width=None))
                if data.kind == "frame"
                else UNKNOWN
            )
            continue
        if names and data.kind == "array":
            text = "Specifying the columns using strings is only supported for dataframes."
            run.report("data.column", "ValueError", text=text)
        lost = data.missing(names)
        if lost:
            shown = "{" + ", ".join(repr(c) for c in lost[:5]) + "}"
            text = f"Some column names are not columns of the dataframe: {shown}"
            run.report("data.column", "ValueError", text=text)
        used.update(names)
        if not names or (isinstance(transformer, Const) and transformer.value == "drop"):
            continue
        part = data.select(names)
        if isinstance(spec, Const):
            column = (part.columns or {}).get(names[0], Column())
            part = Data("series", rows=data.rows, nan=column.nan, text=column.text, width=1.0, ndim=1)
        outputs.append(transform(run, transformer, part))
    if step.get("remainder") == "passthrough" and any(spec is UNKNOWN or isinstance(spec, Obj) for _, spec in parts):
        return UNKNOWN  # which columns are left over is decided by a selector
    if step.get("remainder") == "passthrough" and data.columns is not None and not data.open:
        rest = [c for c in data.columns if c not in used]
        if rest:
            outputs.append(data.select(rest))
    threshold = step.get("sparse_threshold", None, 0.3)
    result = stack(outputs, data.rows, threshold if isinstance(threshold, (int, float)) else 0.3)
    if not outputs and isinstance(result, Data):
        result.width = 0.0
    return result
