"""What scikit-learn would do with a pipeline and some data: which combinations raise, and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wmrl_envs.world_models.static.index.api import ApiIndex
from wmrl_envs.world_models.static.rules.pipelines import (
    ACCEPTS_ANYTHING,
    ALSO_MULTI_OUTPUT,
    ENCODERS,
    META,
    PIPELINES,
    SCALERS,
    TRANSFORMERS_BY_COLUMN,
    TYPICAL_CARDINALITY,
    UNIONS,
    VECTORIZERS,
    Fit,
    cannot_be_negative,
    display,
    final_of,
    inner_of,
    parts_of,
    search_size,
    stack,
    steps_of,
)
from wmrl_envs.world_models.static.values import UNKNOWN, Column, Const, Data, Obj, Seq

Report = Callable[[str, str, str, str, float], None]  # rule, aspect, error type, message, confidence


class SklearnRules:
    """Follows data through estimators. `report` raises `ProgramEnds` for a certain failure and returns otherwise."""

    def __init__(self, index: ApiIndex, report: Report, rows: dict[str, int]):
        self.index, self.report, self.rows = index, report, rows

    # ---- lookups -----------------------------------------------------------------------------------------------
    def tags(self, obj: Obj) -> dict | None:
        entry = self.index.resolve(obj.path)
        return entry.get("tags") if isinstance(entry, dict) else None

    def has_method(self, value: Any, method: str) -> bool | None:
        """Whether an estimator (its last step, for a pipeline) offers a method; None if not known."""
        if not isinstance(value, Obj):
            return None
        if value.name in PIPELINES:
            steps = steps_of(value)
            return self.has_method(steps[-1], method) if steps else None
        entry = self.index.resolve(value.path)
        if not isinstance(entry, dict) or entry["t"] != "class":
            return None
        if method not in entry["members"]:
            return False
        if method == "predict_proba":
            if value.name in ("SVC", "NuSVC"):
                return value.get("probability") in (True, UNKNOWN)
            if value.name == "SGDClassifier":
                return value.get("loss", 0, "hinge") in ("log_loss", "modified_huber", UNKNOWN)
            if value.name in ("VotingClassifier",) and value.get("voting", 1, "hard") == "hard":
                return False
            if value.name in META and value.name not in ("CalibratedClassifierCV", "BaggingClassifier", "StackingClassifier"):
                inner = [self.has_method(i, method) for i in inner_of(value)]
                return False if False in inner else None
        return True

    def count(self, tag: str | None) -> int | None:
        parts = [self.rows.get(t) for t in tag.split("+")] if tag else [None]
        return sum(p for p in parts if p is not None) if all(p is not None for p in parts) else None

    # ---- fitting and predicting ------------------------------------------------------------------------------
    def check_lengths(self, x: Any, y: Any) -> None:
        if isinstance(x, Data) and isinstance(y, Data) and x.rows and y.rows and x.rows != y.rows:
            if "[?" in x.rows + y.rows and not (x.rows.startswith(y.rows) or y.rows.startswith(x.rows)):
                return  # both were filtered, in ways that cannot be compared
            n, m = self.count(x.rows), self.count(y.rows)
            if n is None or m is None or n != m:
                text = f"Found input variables with inconsistent numbers of samples: [{n or '?'}, {m or '?'}]"
                self.report("shapes.rows", "shapes", "ValueError", text, 0.97)

    def check_target(self, model: Obj, y: Any) -> None:
        tags = self.tags(model)
        if not tags or not isinstance(y, Data):
            return
        if tags["type"] == "classifier" and y.meaning in ("continuous", "log"):
            text = "Unknown label type: continuous. Maybe you are trying to fit a classifier, which expects discrete classes on a regression target with continuous values."
            self.report("shapes.target-type", "shapes", "ValueError", text, 0.95)
        if tags["type"] == "regressor" and y.text is True:
            self.report("shapes.target-text", "shapes", "ValueError", "could not convert string to float", 0.95)
        if (
            y.ndim == 2
            and tags["type"] in ("regressor", "classifier")
            and not tags.get("multi")
            and model.name not in ALSO_MULTI_OUTPUT
        ):
            n = self.count(y.rows)
            text = f"y should be a 1d array, got an array of shape ({n or '?'}, {int(y.width or 2)}) instead."
            self.report("shapes.multi-output", "shapes", "ValueError", text, 0.95)

    def check_input(self, model: Obj, data: Any) -> None:
        """NaN, sparse or text input that an estimator refuses."""
        if not isinstance(data, Data) or model.name in VECTORIZERS | ACCEPTS_ANYTHING:
            return
        tags = self.tags(model)
        if not tags:
            return
        if data.rows == "0":
            text = f"Found array with 0 sample(s) (shape=(0, {int(data.width or 1)})) while a minimum of 1 is required by {model.name}."
            self.report("shapes.empty", "shapes", "ValueError", text, 0.95)
        if data.width == 0:
            n = self.count(data.rows)
            text = (
                "at least one array or dtype is required"
                if data.kind == "frame"
                else f"Found array with 0 feature(s) (shape=({n or '?'}, 0)) while a minimum of 1 is required by {model.name}."
            )
            self.report("shapes.no-features", "shapes", "ValueError", text, 0.95)
        if data.text is True and not tags["string"]:
            strategy = model.get("strategy", None, "mean")
            if model.name != "SimpleImputer":
                self.report("shapes.text", "shapes", "ValueError", "could not convert string to float", 0.95)
            elif strategy in ("mean", "median"):
                text = f"Cannot use {strategy} strategy with non-numeric data:\ncould not convert string to float"
                self.report("shapes.text", "shapes", "ValueError", text, 0.95)
        if data.sparse is True and not tags["sparse"] and model.name not in ENCODERS:
            text = (
                "Sparse data was passed for X, but dense data is required. Use '.toarray()' to convert to a dense numpy array."
            )
            self.report("shapes.sparse", "shapes", "TypeError", text, 0.95)
        if data.sparse is None and not tags["sparse"]:
            text = (
                "Sparse data was passed for X, but dense data is required. Use '.toarray()' to convert to a dense numpy array."
            )
            self.report("shapes.sparse-likely", "shapes", "TypeError", text, 0.4)
        if data.sparse is True and model.name == "StandardScaler" and model.get("with_mean", None, True) is True:
            text = (
                "Cannot center sparse matrices: pass `with_mean=False` instead. See docstring for motivation and alternatives."
            )
            self.report("shapes.sparse-centre", "shapes", "ValueError", text, 0.95)
        if data.nan is True and not tags["nan"]:
            text = f"Input X contains NaN.\n{model.name} does not accept missing values encoded as NaN natively."
            self.report("runtime.nan", "runtime", "ValueError", text, 0.95)
        if data.nan is True and tags["nan"] and data.sparse is not False and tags["type"] in ("classifier", "regressor"):
            text = f"Input X contains NaN.\n{model.name} does not accept missing values encoded as NaN natively."
            self.report("runtime.nan-sparse", "runtime", "ValueError", text, 0.9 if data.sparse else 0.4)
        if tags.get("positive") and data.low is not None and data.low < 0:
            text = f"Negative values in data passed to {model.name} (input X)."
            self.report("runtime.negative", "runtime", "ValueError", text, 0.9)

    def fit(self, model: Any, x: Any, y: Any) -> list[Fit]:
        """`model.fit(x, y)`; returns the fits of final estimators."""
        if not isinstance(model, Obj):
            return []
        self.check_lengths(x, y)
        fits = self._fit(model, x, y, 1.0)
        model.fitted_on = x if isinstance(x, Data) else Data(rows=None)
        return fits

    def _fit(self, model: Any, x: Any, y: Any, times: float) -> list[Fit]:
        if not isinstance(model, Obj):
            return []
        if model.name in PIPELINES:
            steps = steps_of(model)
            if steps is None:
                return []
            for step in steps[:-1]:
                x = self.transform(step, x)
            return self._fit(steps[-1], x, y, times) if steps else []
        self._raise_problem(model)
        if model.name in META:
            times *= search_size(model)
            inner_y = y
            if model.name in ("MultiOutputRegressor", "MultiOutputClassifier", "OneVsRestClassifier") and isinstance(y, Data):
                times *= y.width or 1
                inner_y = y.but(ndim=1)
            fits = [f for inner in inner_of(model) for f in self._fit(inner, x, inner_y, times)]
            if model.name == "TransformedTargetRegressor" and "func" in model.kwargs:
                for f in fits:
                    f.log_target = True
            return fits
        self.check_input(model, x)
        self.check_target(model, y)
        tags = self.tags(model)
        if tags and tags["type"] in ("classifier", "regressor"):
            log_target = isinstance(y, Data) and y.meaning == "log"
            return [Fit(model, x if isinstance(x, Data) else Data(), times, log_target)]
        if model.name not in TRANSFORMERS_BY_COLUMN | UNIONS:
            return []
        self.transform(model, x)
        return []

    def predict(self, model: Obj, method: str, x: Any, targets: Data | None) -> Any:
        """`model.predict(x)` or `predict_proba`, `decision_function`."""
        if self.has_method(model, method) is False:
            if model.name in PIPELINES:
                text = "This 'Pipeline' has no attribute 'predict_proba'".replace("predict_proba", method)
            else:
                text = f"'{model.name}' object has no attribute '{method}'"
            self.report("api.method", "api", "AttributeError", text, 0.96)
        if model.fitted_on is None:
            text = f"This {display(model)} instance is not fitted yet. Call 'fit' with appropriate arguments before using this estimator."
            self.report("runtime.not-fitted", "runtime", "NotFittedError", text, 0.93)
        elif isinstance(x, Data):
            self._check_same_columns(model, x)
            self._check_dimensions(model, x)
        inputs = x
        if model.name in PIPELINES:
            for step in (steps_of(model) or [])[:-1]:
                inputs = self.transform(step, inputs)
        final = final_of(model)
        if isinstance(final, Obj):
            self.check_input(final, inputs)
        rows = x.rows if isinstance(x, Data) else None
        if method == "predict_proba":
            return Data("array", rows=rows, nan=False, text=False, ndim=2, meaning="proba", low=0.0)
        tags = self.tags(final) if isinstance(final, Obj) else None
        kind = {"classifier": "label", "regressor": "real"}.get((tags or {}).get("type") or "")
        several = targets is not None and targets.ndim == 2
        low = (
            0.0 if isinstance(final, Obj) and cannot_be_negative(final) and targets is not None and targets.low == 0.0 else None
        )
        return Data("array", rows=rows, nan=False, text=None, ndim=2 if several else 1, meaning=kind, low=low)

    def _check_same_columns(self, model: Obj, x: Data) -> None:
        seen = model.fitted_on
        if seen is None or seen.kind != "frame" or x.kind != "frame" or seen.columns is None or x.columns is None:
            return
        if seen.open or x.open or model.name in PIPELINES | TRANSFORMERS_BY_COLUMN:
            first = steps_of(model) if model.name in PIPELINES else [model]
            if seen.open or x.open or not first or getattr(first[0], "name", "") in TRANSFORMERS_BY_COLUMN | VECTORIZERS:
                return
        unseen, lost = sorted(set(x.columns) - set(seen.columns)), sorted(set(seen.columns) - set(x.columns))
        if unseen or lost:
            lines = ["The feature names should match those that were passed during fit."]
            lines += ["Feature names unseen at fit time:", *(f"- {c}" for c in unseen[:5])] if unseen else []
            lines += ["Feature names seen at fit time, yet now missing:", *(f"- {c}" for c in lost[:5])] if lost else []
            self.report("shapes.feature-names", "shapes", "ValueError", "\n".join(lines) + "\n", 0.93)

    def _check_dimensions(self, model: Obj, x: Data) -> None:
        """One row or column where a table is wanted; another number of features than in `fit`."""
        first = (steps_of(model) or [UNKNOWN])[0] if model.name in PIPELINES else model
        known = isinstance(first, Obj) and (first.name in TRANSFORMERS_BY_COLUMN or self.tags(first) is not None)
        if x.ndim == 1 and known and first.name not in VECTORIZERS | UNIONS | {"FunctionTransformer"}:
            text = "Expected 2D array, got 1D array instead. Reshape your data using array.reshape(1, -1) if it contains a single sample."
            self.report("shapes.one-dimensional", "shapes", "ValueError", text, 0.93)
        seen = model.fitted_on
        if seen is None or not (seen.kind == x.kind == "array" and seen.exact and x.exact and seen.ndim == x.ndim == 2):
            return
        if seen.width != x.width and seen.width and x.width:
            text = f"X has {x.width:.0f} features, but {display(model)} is expecting {seen.width:.0f} features as input."
            self.report("shapes.width", "shapes", "ValueError", text, 0.93)

    def _raise_problem(self, model: Obj) -> None:
        if model.problem:
            self.report("api.value", "api", *model.problem, 0.93)

    # ---- transforming ----------------------------------------------------------------------------------------
    def transform(self, step: Any, data: Any) -> Any:
        """What comes out of a transformer; UNKNOWN where that cannot be said."""
        if isinstance(step, Const):
            return data
        if not isinstance(step, Obj) or not isinstance(data, Data):
            return UNKNOWN
        if step.name in PIPELINES:
            for inner in steps_of(step) or [UNKNOWN]:
                data = self.transform(inner, data)
            return data
        self._raise_problem(step)
        if step.name in TRANSFORMERS_BY_COLUMN:
            return self._by_column(step, data)
        if step.name in UNIONS:
            inner = (
                step.args
                if step.name == "make_union"
                else [s.items[1] for s in getattr(step.get("transformer_list", 0), "items", []) if isinstance(s, Seq)]
            )
            outputs = [self.transform(i, data) for i in inner]
            return stack(outputs, data.rows, 2.0)
        if step.name in VECTORIZERS:
            return self._vectorize(step, data)
        return self._plain(step, data)

    def _vectorize(self, step: Obj, data: Data) -> Data:
        if data.nan is True:
            text = "np.nan is an invalid document, expected byte or unicode string."
            self.report("shapes.text-nan", "shapes", "ValueError", text, 0.9)
        if data.kind == "frame":
            text = "blocks[0,:] has incompatible row dimensions: a text vectorizer was given a DataFrame, pass one column name as a string"
            self.report("shapes.vectorizer-frame", "shapes", "ValueError", text, 0.85)
        if data.text is False:
            text = (
                "'float' object has no attribute 'lower'" if data.kind != "array" else "'int' object has no attribute 'lower'"
            )
            self.report("shapes.vectorizer-numbers", "shapes", "AttributeError", text, 0.9)
        analyzer, limit = step.get("analyzer", None, "word"), step.get("max_features")
        grams = step.get("ngram_range")
        longest = grams.items[-1].value if isinstance(grams, Seq) and grams.items and isinstance(grams.items[-1], Const) else 1
        rows = float(self.count(data.rows) or 3000)
        longest = longest if isinstance(longest, int) else 1
        width = (
            (25.0 if isinstance(analyzer, str) and analyzer.startswith("char") else 4.0) * rows**0.85 * max(1, longest) ** 0.8
        )
        min_df = step.get("min_df")
        if isinstance(min_df, int) and min_df > 1:
            width /= 2.0 * min_df**0.8
        if isinstance(limit, int) and not isinstance(limit, bool):
            width = min(width, float(limit))
        return Data(
            "array", rows=data.rows, nan=False, text=False, sparse=True, width=max(width, 1.0), ndim=2, low=0.0, scaled=True
        )

    def _plain(self, step: Obj, data: Data) -> Any:
        if data.kind == "series" and step.name in ENCODERS | {
            "SimpleImputer",
            "StandardScaler",
            "MinMaxScaler",
            "RobustScaler",
            "QuantileTransformer",
            "PCA",
        }:
            text = "Expected a 2-dimensional container but got <class 'pandas.Series'> instead. Pass a DataFrame containing a single row (i.e. single sample) or a single column (i.e. single feature) instead."
            self.report("shapes.one-dimensional", "shapes", "ValueError", text, 0.95)
        self.check_input(step, data)
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
            self._check_components(step, data)
            n = step.get("n_components", 0, 2)
            out.width, out.sparse, out.nan = (float(n) if isinstance(n, (int, float)) and n >= 1 else width), False, False
        elif name in ("MinMaxScaler", "Normalizer", "MaxAbsScaler", "Binarizer"):
            out.low = 0.0 if name == "MinMaxScaler" else data.low
        elif name == "StandardScaler":
            out.low = -1.0
        elif name == "PolynomialFeatures":
            out.width = None if width is None else width * (width + 3) / 2 + 1
        elif name == "FunctionTransformer":
            return data.but(columns=None, nan=None, low=None)
        elif name in ("SelectKBest", "SelectPercentile", "SelectFromModel", "VarianceThreshold", "RFE"):
            k = step.get("k", None, None)
            out.width = float(k) if isinstance(k, int) else width
        elif self.tags(step) is None or step.name not in (
            "RobustScaler",
            "QuantileTransformer",
            "PowerTransformer",
        ):
            out.sparse, out.nan, out.text, out.width = (data.sparse or None), None, None, None
            out.sparse = None if data.sparse else False
        return out

    def _check_components(self, step: Obj, data: Data) -> None:
        n, rows = step.get("n_components", 0, 2), self.count(data.rows)
        if not isinstance(n, int) or isinstance(n, bool) or data.width is None:
            return
        exact = data.kind == "frame" or data.exact
        if exact and n > data.width:
            if step.name == "TruncatedSVD":
                text = f"n_components({n}) must be <= n_features({int(data.width)})."
            else:
                text = f"n_components={n} must be between 0 and min(n_samples, n_features)={int(min(data.width, rows or data.width))} with svd_solver='full'"
            self.report("shapes.components", "shapes", "ValueError", text, 0.9)

    def _by_column(self, step: Obj, data: Data) -> Any:
        parts = parts_of(step)
        if parts is None:
            return UNKNOWN
        outputs: list[Any] = []
        used: set[str] = set()
        for transformer, spec in parts:
            names = (
                [spec.value]
                if isinstance(spec, Const) and isinstance(spec.value, str)
                else spec.strings()
                if isinstance(spec, Seq)
                else None
            )
            if names is None:
                outputs.append(
                    self.transform(transformer, data.but(columns=None, open=True, nan=None, text=None, width=None))
                    if data.kind == "frame"
                    else UNKNOWN
                )
                continue
            if names and data.kind == "array":
                text = "Specifying the columns using strings is only supported for dataframes."
                self.report("data.columns-of-array", "data", "ValueError", text, 0.95)
            lost = data.missing(names)
            if lost:
                shown = "{" + ", ".join(repr(c) for c in lost[:5]) + "}"
                text = f"Some column names are not columns of the dataframe: {shown}"
                self.report("data.column", "data", "ValueError", text, 0.96)
            used.update(names)
            if not names or (isinstance(transformer, Const) and transformer.value == "drop"):
                continue
            part = data.select(names)
            if isinstance(spec, Const):
                column = (part.columns or {}).get(names[0], Column())
                part = Data("series", rows=data.rows, nan=column.nan, text=column.text, width=1.0, ndim=1)
            outputs.append(self.transform(transformer, part))
        if step.get("remainder") == "passthrough" and data.columns is not None and not data.open:
            rest = [c for c in data.columns if c not in used]
            if rest:
                outputs.append(data.select(rest))
        threshold = step.get("sparse_threshold", None, 0.3)
        result = stack(outputs, data.rows, threshold if isinstance(threshold, (int, float)) else 0.3)
        if not outputs and isinstance(result, Data):
            result.width = 0.0
        return result
