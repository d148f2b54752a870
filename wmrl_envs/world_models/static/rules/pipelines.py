"""The structure of scikit-learn pipelines: steps, parts, inner estimators, and what stacking their outputs gives."""

from __future__ import annotations

from typing import Any

from wmrl_envs.world_models.static.values import UNKNOWN, Data, Dict, Obj, Seq

FACTORIES = {
    "make_pipeline": "sklearn.pipeline.Pipeline",
    "make_union": "sklearn.pipeline.FeatureUnion",
    "make_column_transformer": "sklearn.compose.ColumnTransformer",
}
PIPELINES = {"Pipeline", "make_pipeline"}
TRANSFORMERS_BY_COLUMN = {"ColumnTransformer", "make_column_transformer"}
UNIONS = {"FeatureUnion", "make_union"}
VECTORIZERS = {"TfidfVectorizer", "CountVectorizer", "HashingVectorizer"}
ENCODERS = {"OneHotEncoder", "OrdinalEncoder", "TargetEncoder"}
SCALERS = {
    "StandardScaler",
    "MinMaxScaler",
    "MaxAbsScaler",
    "RobustScaler",
    "QuantileTransformer",
    "PowerTransformer",
    "Normalizer",
}
META = {  # meta-estimator -> arguments that hold inner estimators
    "VotingClassifier": "estimators",
    "VotingRegressor": "estimators",
    "StackingClassifier": "estimators",
    "StackingRegressor": "estimators",
    "BaggingClassifier": "estimator",
    "BaggingRegressor": "estimator",
    "CalibratedClassifierCV": "estimator",
    "MultiOutputRegressor": "estimator",
    "MultiOutputClassifier": "estimator",
    "OneVsRestClassifier": "estimator",
    "TransformedTargetRegressor": "regressor",
    "GridSearchCV": "estimator",
    "RandomizedSearchCV": "estimator",
    "HalvingGridSearchCV": "estimator",
    "HalvingRandomSearchCV": "estimator",
    "ClassifierChain": "estimator",
    "RegressorChain": "estimator",
}
ACCEPTS_ANYTHING = {"DummyClassifier", "DummyRegressor"}  # they never look at X, whatever their tags say
ALSO_MULTI_OUTPUT = {"MLPRegressor", "MLPClassifier", "BaggingRegressor"}  # more than their tags say
TYPICAL_CARDINALITY = 10.0


def steps_of(obj: Obj) -> list[Any] | None:
    """The steps of a pipeline, or None if they are not known."""
    if obj.name == "make_pipeline":
        return list(obj.args) if obj.complete else None
    steps = obj.get("steps", 0)
    if not isinstance(steps, Seq):
        return None
    if not all(isinstance(s, Seq) and len(s.items) == 2 for s in steps.items):
        return None
    return [s.items[1] for s in steps.items]


def parts_of(obj: Obj) -> list[tuple[Any, Any]] | None:
    """(transformer, columns) of a column transformer, or None if not known."""
    size, items = (2, obj.args) if obj.name == "make_column_transformer" else (3, None)
    if items is None:
        listed = obj.get("transformers", 0)
        if not isinstance(listed, Seq):
            return None
        items = listed.items
    if not obj.complete or not all(isinstance(s, Seq) and len(s.items) == size for s in items):
        return None
    return [(s.items[-2], s.items[-1]) for s in items]


def inner_of(obj: Obj) -> list[Any]:
    """The estimators inside a meta-estimator."""
    value = obj.get(META[obj.name], 0)
    if isinstance(value, Seq):
        return [i.items[1] if isinstance(i, Seq) and len(i.items) == 2 else i for i in value.items]
    return [value] if isinstance(value, Obj) else []


def final_of(value: Any) -> Any:
    """The estimator that decides what comes out: the last step of a pipeline, the model inside a meta-estimator."""
    for _ in range(8):
        if isinstance(value, Obj) and value.name in PIPELINES:
            steps = steps_of(value)
            value = steps[-1] if steps else UNKNOWN
        elif isinstance(value, Obj) and value.name in META and inner_of(value):
            value = inner_of(value)[0]
        else:
            return value
    return UNKNOWN


def stack(outputs: list[Any], rows: str | None, threshold: float) -> Any:
    """Columns side by side: sparse if a part is and the share of non-zeros is below the threshold."""
    known = [o for o in outputs if isinstance(o, Data)]
    if len(known) < len(outputs):
        return Data("array", rows=rows, sparse=None if any(k.sparse for k in known) else False, ndim=2)
    flags = [k.sparse for k in known]
    width = sum(k.width or TYPICAL_CARDINALITY for k in known)
    sparse: bool | None = any(flags)
    if sparse:
        exact = all(k.width and (k.filled or not k.sparse) for k in known)
        filled = sum(nonzeros(k) for k in known)
        density = filled / max(width, 1.0)
        margin = 1.05 if exact else 4.0  # widths of vocabularies and of thinned encodings are guesses
        sparse = True if density < threshold / margin else (None if density < threshold * margin else False)
    nan = True if any(k.nan is True for k in known) else (None if any(k.nan is None for k in known) else False)
    text = True if any(k.text is True for k in known) else (None if any(k.text is None for k in known) else False)
    low = min((k.low for k in known if k.low is not None), default=None) if all(k.low is not None for k in known) else None
    return Data(
        "array", rows=rows, nan=nan, text=text, sparse=sparse, width=width, ndim=2, low=low, scaled=all(k.scaled for k in known)
    )


def nonzeros(part: Data) -> float:
    """Non-zero entries a row."""
    width = part.width or TYPICAL_CARDINALITY
    if not part.sparse:
        return width
    return part.filled or (min(width, 30.0) if width > 200 else width / TYPICAL_CARDINALITY)


def search_size(model: Obj) -> float:
    """How often a meta-estimator fits its inner estimator."""
    folds = model.get("cv", None, 5)
    folds = folds if isinstance(folds, int) and not isinstance(folds, bool) else 5
    if model.name.endswith("SearchCV"):
        if model.name == "RandomizedSearchCV":
            n = model.get("n_iter", None, 10)
            return folds * float(n if isinstance(n, int) else 10)
        grid, size = model.get("param_grid", 1), 1.0
        if isinstance(grid, Dict):
            for values in grid.items.values():
                size *= len(values.items) if isinstance(values, Seq) else 3
        return folds * size
    if model.name.startswith("Bagging"):
        n = model.get("n_estimators", 1, 10)
        return float(n if isinstance(n, int) else 10)
    return float(folds) if model.name.startswith(("Stacking", "Calibrated")) else 1.0


def cannot_be_negative(model: Obj) -> bool:
    """Averages of training targets cannot leave their range."""
    return model.name.startswith(("RandomForest", "ExtraTrees", "DecisionTree", "KNeighbors", "Dummy", "Bagging", "ExtraTree"))


def display(model: Obj) -> str:
    return "Pipeline" if model.name in PIPELINES else model.name
