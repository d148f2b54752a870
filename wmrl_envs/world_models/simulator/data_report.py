"""The verified data report: what a look at the public files really shows, for the prompt of the simulator.

Class balance or distribution of the target, missing values, cardinalities, and the scores of two trivial baselines on a
split of the training data. Computed once a task from public files only, cached under `paths.home()/data_reports`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

from wmrl_envs import paths
from wmrl_envs.context import TaskContext
from wmrl_envs.errors import InvalidInput
from wmrl_envs.tasks import load_competition

log = logging.getLogger(__name__)
VERSION = 1
ROWS = 5000  # rows looked at
COLUMNS = 40  # columns listed; of a wider table the rest is summed up
FOLDS = 3


class DataReports:
    """Gives the report of a context's task as text; "" for a task without a train.csv. A callable, so that it fits `report=`.

    Args:
        data_dir: where prepared competitions lie (default: `paths.data_dir()`).
    """

    def __init__(self, data_dir: str | Path | None = None):
        self.data_dir = Path(data_dir) if data_dir is not None else paths.data_dir()
        self._known: dict[str, str] = {}

    def __call__(self, context: TaskContext) -> str:
        if context.task not in self._known:
            self._known[context.task] = self._report(context)
        return self._known[context.task]

    def _report(self, context: TaskContext) -> str:
        if not context.task or "/" in context.task or context.task.startswith("."):
            raise InvalidInput(f"{context.task!r} is no name of a task.")
        public = self.data_dir / context.task / "data" / "public"
        if not public.is_dir():  # another layout, or not prepared: then this says how to
            public = load_competition(context.task, self.data_dir).public_dir
        train = public / "train.csv"
        if not train.is_file():
            return ""
        stat = train.stat()
        key = f"{VERSION}|{train}|{stat.st_size}|{stat.st_mtime_ns}|{context.target_columns}|{context.metric}"
        file = paths.home() / "data_reports" / f"{hashlib.sha256(key.encode()).hexdigest()[:20]}.json"
        if file.is_file():
            return str(json.loads(file.read_text())["text"])
        text = describe(train, context)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps({"task": context.task, "text": text}))
        os.replace(part, file)
        return text


def describe(train: Path, context: TaskContext) -> str:
    """The report of one task from its train.csv."""
    import pandas as pd

    frame = pd.read_csv(train, nrows=ROWS, low_memory=False)
    targets = [t for t in context.target_columns if t in frame.columns]
    features = [c for c in frame.columns if c not in targets and c not in context.id_columns]
    lines = [f"train.csv, first {len(frame)} rows, {len(features)} feature columns"]
    lines += [_target_line(frame[t]) for t in targets[:10]]
    lines += [f"- {c}: {_column(frame[c])}" for c in features[:COLUMNS]]
    if len(features) > COLUMNS:
        rest = frame[features[COLUMNS:]]
        lines.append(f"- {rest.shape[1]} more columns: {int(rest.isna().any().sum())} of them with missing values")
    if len(targets) == 1 and features:
        lines += _baselines(frame, features, targets[0])
    return "\n".join(lines)


def _target_line(column: Any) -> str:
    if column.dtype.kind == "f" or (column.dtype.kind in "iu" and column.nunique() > 20):
        q = column.quantile([0, 0.25, 0.5, 0.75, 1]).tolist()
        return (
            f"target {column.name}: number, min/quartiles/max {'/'.join(f'{v:.4g}' for v in q)}, mean {column.mean():.4g}, "
            f"skew {column.skew():.2f}"
        )
    shares = column.value_counts(normalize=True)
    shown = ", ".join(f"{value!s:.40} {share:.1%}" for value, share in shares.head(12).items())
    return f"target {column.name}: {len(shares)} classes: {shown}{' ...' if len(shares) > 12 else ''}"


def _column(column: Any) -> str:
    missing = f", {column.isna().mean():.1%} missing" if column.isna().any() else ""
    if column.dtype.kind in "iuf":
        return f"number, {column.nunique()} values, {column.min():.4g} to {column.max():.4g}{missing}"
    return (
        f"text or category, {column.nunique()} values, {column.dropna().astype(str).str.len().mean():.0f} characters "
        f"on average{missing}"
    )


def _baselines(frame: Any, features: list[str], target: str) -> list[str]:
    """Cross-validated scores of a constant and of one shallow tree on integer-coded columns, in plain units."""
    import numpy as np
    from sklearn.dummy import DummyClassifier, DummyRegressor
    from sklearn.model_selection import cross_val_score
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    y = frame[target]
    keep = y.notna()
    y = y[keep]
    coded = {
        c: frame[c][keep] if frame[c].dtype.kind in "iuf" else frame[c][keep].astype("category").cat.codes
        for c in features[:200]
    }
    x = np.column_stack([np.asarray(v, dtype=float) for v in coded.values()])
    number = y.dtype.kind == "f" or (y.dtype.kind in "iu" and y.nunique() > 20)
    models: tuple[Any, ...]
    if number:
        models, scoring, unit = (DummyRegressor(), DecisionTreeRegressor(max_depth=4, random_state=0)), "r2", "R2"
    else:
        if y.value_counts().min() < FOLDS:
            return []
        models = (DummyClassifier(strategy="prior"), DecisionTreeClassifier(max_depth=4, random_state=0))
        scoring, unit = "balanced_accuracy", "balanced accuracy"
    constant, tree = (float(cross_val_score(m, x, y, cv=FOLDS, scoring=scoring).mean()) for m in models)
    return [f"baselines ({FOLDS}-fold, {unit}): constant {constant:.3f}, tree of depth 4 on integer-coded columns {tree:.3f}"]
