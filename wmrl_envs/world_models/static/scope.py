"""What a program finds when it starts: the two paths, and with the scaffold the data and the names that its prelude defines."""

from __future__ import annotations

from typing import Any

from wmrl_envs.context import TaskContext
from wmrl_envs.world_models.static.rules.submission import metric_family
from wmrl_envs.world_models.static.values import Column, Const, Data, Ref, Seq


def names_before(context: TaskContext) -> tuple[dict[str, Any], dict[str, int]]:
    """Names that are defined before the program starts, and the number of rows behind the tags "train" and "test"."""
    names: dict[str, Any] = {"DATA_DIR": Const("$DATA_DIR"), "SUBMISSION_PATH": Const("$SUBMISSION_PATH")}
    given = context.scaffold_names
    rows: dict[str, int] = {"0": 0}
    train = next((f.rows for f in context.files if f.name == "train.csv" and f.rows), None)
    test = context.submission_rows or next((f.rows for f in context.files if f.name == "test.csv" and f.rows), None)
    train, test = given.get("rows", train), given.get("test_rows", test)
    if train:
        rows["train"] = train
    if test:
        rows["test"] = test
    if context.scaffold != "sklearn":
        return names, rows
    groups = {k: [str(c) for c in given.get(k) or ()] for k in ("num", "cat", "text", "date")}
    with_nan = given.get("nan")
    missing = None if with_nan is None else {str(c) for c in with_nan}
    levels = given.get("levels") or {}
    columns = {
        c: Column(
            text=k != "num",
            nan=False if k == "text" else None if missing is None else c in missing,
            date=k == "date",
            card=levels.get(c) if k == "cat" else None,
        )
        for k, group in groups.items()
        for c in group
    }
    image = given.get("image") is not None or (context.category == "image" and not columns)
    for tag, name in (("train", "X"), ("test", "T")):
        if image:
            names[name] = Data(
                "array",
                rows=tag,
                nan=False,
                text=False,
                ndim=2,
                width=_pixels(context),
                exact=_pixels(context) is not None,
                low=0.0,
                scaled=True,
            )
        else:
            names[name] = Data("frame", columns=dict(columns), rows=tag, ndim=2, default_index=True).summarised()
    several = len(context.target_columns) > 1
    continuous = given.get("target_kind", "reg") == "reg" and metric_family(context.metric) in ("number", "non-negative")
    meaning = "continuous" if continuous and not several else "target"
    names["y"] = Data(
        "frame" if several else "series",
        columns={c: Column(False, False) for c in context.target_columns} if several else None,
        rows="train",
        default_index=True,
        nan=False,
        text=False if continuous or several else None,
        ndim=2 if several else 1,
        width=float(len(context.target_columns)) if several else 1.0,
        meaning=meaning,
        low=0.0 if metric_family(context.metric) == "non-negative" else None,
    )
    for k, group in groups.items():
        names[k] = Seq([Const(c) for c in group])
    names |= {
        "np": Ref("numpy"),
        "pd": Ref("pandas"),
        "os": Ref("os"),
        "warnings": Ref("warnings"),
        "make_pipeline": Ref("sklearn.pipeline.make_pipeline"),
        "cols": Ref("sklearn.compose.make_column_transformer"),
        "save": Ref("scaffold.save"),
    }
    return names, rows


def _pixels(context: TaskContext) -> float | None:
    size = context.scaffold_names.get("image")
    return float(size[0] * size[1]) if isinstance(size, (list, tuple)) and len(size) == 2 else None
