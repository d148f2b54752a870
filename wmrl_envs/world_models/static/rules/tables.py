"""Functions that make tables and arrays: reading files, building frames, putting them together."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from typing import Any

from wmrl_envs.context import FileInfo
from wmrl_envs.world_models.static.rules import language, submission
from wmrl_envs.world_models.static.rules.arrays import concatenate
from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import UNKNOWN, Column, Const, Data, Dict, Many, Ref, Rows, Seq

DATA, SUBMISSION = "$DATA_DIR", "$SUBMISSION_PATH"
_RENAMED = ("names", "header", "index_col", "sep", "delimiter", "skiprows")
_TAGS = {"train.csv": "train", "test.csv": "test", "sample_submission.csv": "test"}
_ARRAY = re.compile(r"(\w+) \((\d+(?:, ?\d+)*),?\)")


def file_of(run: State, path: str) -> tuple[FileInfo | None, str]:
    """The file of the task behind a path, and its name in the data folder ("" for one outside)."""
    relative = posixpath.normpath(path[len(DATA) :].lstrip("/") or ".") if path.startswith(DATA) else ""
    return next((f for f in run.context.files if f.name == relative), None), relative


def read_csv(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`pandas.read_csv`."""
    path = args[0] if args else kwargs.get("filepath_or_buffer", UNKNOWN)
    unknown = Data("frame", open=True)
    if not isinstance(path, Const) or not isinstance(path.value, str):
        return unknown
    name = path.value
    if name in run.written or "://" in name:
        return unknown
    info, relative = file_of(run, name)
    if info is None:
        outside = not name.startswith((DATA, SUBMISSION))
        if run.context.files and (outside or relative):
            run.report("data.file", name=name)
        return unknown
    if not info.columns or any(k in kwargs for k in _RENAMED if k != "index_col"):
        return unknown
    columns = {c: column_kind(info, c, kind) for c, kind in info.columns.items()}
    chosen = kwargs.get("usecols")
    names = chosen.strings() if isinstance(chosen, Seq) and chosen.sure else None
    if chosen is not None and names is None:
        return unknown
    index = kwargs.get("index_col")
    dates = kwargs.get("parse_dates")
    for column in dates.strings() or [] if isinstance(dates, Seq) else []:
        if column in columns:
            columns[column] = Column(False, columns[column].nan, date=True, dtype="date")
    for column in set(run.context.target_columns) & columns.keys():
        columns[column] = _target(run, columns[column])
    left = {c: v for c, v in columns.items() if names is None or c in names}
    if isinstance(index, Const):
        label = list(left)[index.value] if isinstance(index.value, int) and index.value < len(left) else index.value
        left.pop(label, None)
    whole = not ({"nrows", "chunksize", "iterator"} & set(kwargs))
    if {"chunksize", "iterator"} & set(kwargs):
        return UNKNOWN
    tag = _TAGS.get(relative, relative) if whole else None
    return Data("frame", columns=left, rows=tag, ndim=2, default_index=index is None).summarised()


def _target(run: State, column: Column) -> Column:
    """A column that is to be predicted."""
    family = submission.metric_family(run.context.metric)
    continuous = column.dtype == "float" and family in ("number", "non-negative")
    return replace(
        column, meaning="continuous" if continuous else "target", low=0.0 if family == "non-negative" else column.low
    )


def column_kind(info: FileInfo, name: str, kind: str) -> Column:
    """A column of a file."""
    missing = None if info.missing is None else name in info.missing
    return Column(text=kind == "str", nan=missing, dtype=kind, low=0.0 if kind == "bool" else None)


def load(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`numpy.load`: the arrays of an archive of the task."""
    path = args[0] if args else UNKNOWN
    info = file_of(run, path.value)[0] if isinstance(path, Const) and isinstance(path.value, str) else None
    if info is None:
        return reads(run, args, kwargs)
    arrays = {k: _array_of(str(k), text, run) for k, text in info.columns.items()}
    return Dict(dict(arrays)) if arrays else UNKNOWN


def _array_of(name: str, text: str, run: State) -> Any:
    found = _ARRAY.match(text)
    if found is None:
        return UNKNOWN
    sizes = [int(n) for n in found.group(2).split(",")]
    tag = name if run.count(name) == sizes[0] else run.tag_of(sizes[0])
    dims = tuple(sizes[1:])
    width = float(dims[0]) if len(dims) == 1 else None
    low = 0.0 if found.group(1).startswith(("uint", "bool")) else None
    number = not found.group(1).startswith(("<U", "str", "object"))
    return Data(
        "array", rows=tag, nan=False if "int" in found.group(1) else None, text=False if number else None, ndim=len(sizes),
        width=width,
        exact=width is not None, dims=dims, low=low,
    )  # fmt: skip


def data_frame(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`pandas.DataFrame`."""
    source = args[0] if args else kwargs.get("data", UNKNOWN)
    columns = kwargs.get("columns", args[2] if len(args) > 2 else None)
    plain = "index" not in kwargs and len(args) < 2
    if isinstance(source, Dict):
        return _frame_of_dict(run, source, plain)
    names = columns.strings() if isinstance(columns, Seq) and columns.sure else None
    data = source if isinstance(source, Data) else Data(nan=None)
    if isinstance(source, Data) and source.kind == "frame":
        return source.but(default_index=False) if names is None else source.select(names)
    if names is not None:
        known = {n: Column(data.text, data.nan, meaning=data.meaning, low=data.low) for n in names}
        return Data("frame", columns=known, rows=data.rows, ndim=2, default_index=plain and data.kind == "array").summarised()
    unnamed = data is source and data.kind == "array" and columns is None
    return Data(
        "frame", open=True, rows=data.rows, ndim=2, unnamed=unnamed, nan=data.nan if unnamed else None, text=data.text,
        width=data.width,
        default_index=plain and data.kind == "array",
    )  # fmt: skip


def _frame_of_dict(run: State, source: Dict, plain: bool) -> Data:
    values = [v for v in source.items.values() if isinstance(v, Data) and v.rows]
    arrays = {v.rows for v in values if v.kind == "array" and v.ndim == 1}
    indexes = {v.rows for v in values if v.kind == "series"}
    sizes = [run.count(r) for r in arrays]
    if len(arrays) > 1 and None not in sizes and len(set(sizes)) > 1:
        run.report("shapes.beside", text="All arrays must be of the same length")
    elif len(arrays) == len(indexes) == 1 and arrays != indexes:
        n, m = (run.count(next(iter(rows))) for rows in (arrays, indexes))
        if n is not None and m is not None and n != m:
            run.report("shapes.beside", text=f"array length {n} does not match index length {m}")
    rows = next((v.rows for v in source.items.values() if isinstance(v, Data) and v.rows), None)
    known = {str(k): column_from(v) for k, v in source.items.items()}
    indexed = [v for v in source.items.values() if isinstance(v, Data) and v.kind == "series" and not v.default_index]
    unsure = any(v is UNKNOWN for v in source.items.values())
    frame = Data(
        "frame", columns=known, rows=rows, ndim=2, open=source.open, default_index=plain and not indexed and not unsure
    )
    return frame.summarised()


def column_from(value: Any) -> Column:
    """What a column is like that a value was put into."""
    if isinstance(value, Data):
        return Column(
            value.text,
            value.nan,
            origin=value.origin,
            dtype=value.dtype,
            meaning=value.meaning if value.ndim == 1 else None,
            low=value.low,
        )
    if isinstance(value, Const):
        return Column(text=isinstance(value.value, str), nan=value.value is None)
    return Column(origin="numbers") if isinstance(value, (Many, Seq)) and _counts(value) else Column()


def _counts(value: Many | Seq) -> bool:
    if isinstance(value, Many):
        return value.item is UNKNOWN
    return bool(value.items) and [getattr(i, "value", None) for i in value.items] == list(range(len(value.items)))


def series(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`pandas.Series`."""
    source = args[0] if args else kwargs.get("data", UNKNOWN)
    plain = "index" not in kwargs and len(args) < 2
    if isinstance(source, Data) and source.ndim == 1:
        kept = source.default_index if source.kind == "series" else True
        return source.but(kind="series", columns=None, default_index=plain and kept, dtype=source.dtype)
    return Data("series", ndim=1) if isinstance(source, Seq) else UNKNOWN


def concat(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`pandas.concat`."""
    listed = args[0] if args else kwargs.get("objs", UNKNOWN)
    axis = kwargs.get("axis", args[1] if len(args) > 1 else None)
    if not isinstance(listed, Seq) or not listed.sure:
        return Data("frame", open=True)
    below = not (isinstance(axis, Const) and axis.value in (1, "columns"))
    result = concatenate(listed.items, rows_add=below)
    if not isinstance(result, Data):
        return Data("frame", open=True)
    parts: list[Data] = listed.items
    frames = [i for i in parts if i.kind == "frame"]
    if not frames and below:
        dtypes = {i.dtype for i in parts}
        return result.but(kind="series", nan=result.nan, ndim=1, dtype=dtypes.pop() if len(dtypes) == 1 else None)
    closed = len(frames) == len(parts) and all(f.columns is not None and not f.open for f in frames)
    columns = _below(frames) if below else {k: v for f in frames for k, v in (f.columns or {}).items()}
    fresh = isinstance(kwargs.get("ignore_index"), Const) and kwargs["ignore_index"].value is True
    joined = Data(
        "frame", columns=columns if closed else None, open=not closed, rows=result.rows if below else parts[0].rows, ndim=2,
        default_index=fresh or (not below and all(p.default_index for p in parts)),
    )  # fmt: skip
    return joined.summarised() if closed else joined


def _below(frames: list[Data]) -> dict[str, Column]:
    """Columns of frames below each other; where one lacks a column its rows are missing."""
    result: dict[str, Column] = {}
    for name in {k: None for f in frames for k in f.columns or {}}:
        found = [c for f in frames if (c := (f.columns or {}).get(name)) is not None]
        whole = len(found) == len(frames)
        text = found[0].text if len({c.text for c in found}) == 1 else None
        nan = True if any(c.nan for c in found) or not whole else None if any(c.nan is None for c in found) else False
        kinds = {c.dtype for c in found}
        result[name] = Column(text, nan, found[0].date, dtype=found[0].dtype if len(kinds) == 1 and whole else None)
    return result


def dummies(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`pandas.get_dummies`: numbers stay, everything else becomes columns of 0 and 1."""
    source = args[0] if args and isinstance(args[0], Data) else None
    if source is None:
        return Data("frame", open=True, text=None)
    some = "columns" in kwargs
    numbers = {k: c for k, c in (source.columns or {}).items() if c.text is False and not c.date}
    known = source.kind == "frame" and source.columns is not None and not source.open and not some
    nan = None
    if known:
        nan = True if any(c.nan for c in numbers.values()) else None if any(c.nan is None for c in numbers.values()) else False
    text = False if known or source.kind == "series" else None
    return Data(
        "frame", columns=numbers, open=True, rows=source.rows, text=text, nan=nan, ndim=2, default_index=source.default_index
    )


def factorize(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`pandas.factorize` and `series.factorize()`: codes and levels."""
    rows = args[0].rows if args and isinstance(args[0], Data) else None
    return Seq([Data("array", rows=rows, nan=False, text=False, ndim=1), UNKNOWN])


def to_datetime(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`pandas.to_datetime`."""
    if not args or not isinstance(args[0], Data):
        return UNKNOWN
    return args[0].but(text=False, dtype="date", nan=args[0].nan if not kwargs else None)


def to_numeric(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`pandas.to_numeric`."""
    return args[0].but(text=False, nan=None) if args and isinstance(args[0], Data) else UNKNOWN


def filled(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`numpy.zeros`, `ones`, `empty`, `full`."""
    size = args[0] if args else kwargs.get("shape", UNKNOWN)
    sizes = size.items if isinstance(size, Seq) and size.items else [size]
    language.check_memory(run, sizes)
    numbers = [run.plain(s) for s in sizes]
    first = numbers[0]
    known = isinstance(first, Const) and isinstance(first.value, int) and first.value >= 1
    rows = sizes[0].tag if isinstance(sizes[0], Rows) else run.tag_of(first.value) if known else None
    value = args[1] if len(args) > 1 else kwargs.get("fill_value", UNKNOWN)
    nan = isinstance(value, Ref) and value.path.lower() == "numpy.nan"
    second = numbers[1].value if len(numbers) == 2 and isinstance(numbers[1], Const) else None
    width = float(second) if isinstance(second, int) else None
    ndim = len(sizes) if isinstance(size, (Seq, Rows)) or known else None
    return Data("array", rows=rows, nan=nan, text=False, ndim=ndim, width=width, exact=width is not None)


def like(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`numpy.zeros_like` and its kin."""
    if not args or not isinstance(args[0], Data):
        return UNKNOWN
    return args[0].but(kind="array", columns=None, nan=False, text=None, meaning=None, low=None)


def reads(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Functions whose first argument is a file or folder that has to be there."""
    path = args[0] if args else UNKNOWN
    mode = args[1] if len(args) > 1 else kwargs.get("mode", Const("r"))
    reading = not isinstance(mode, Const) or not isinstance(mode.value, str) or "r" in mode.value
    if reading and isinstance(path, Const) and isinstance(path.value, str) and run.context.files and not run.opened_to_write:
        name = path.value
        info, inside = file_of(run, name)
        absent = info is None and inside != "." if inside else not name.startswith((SUBMISSION, DATA, "/"))
        if absent and name not in run.written and name not in (".", "..", ""):
            run.report("data.file", name=name)
    if not reading:
        run.opened_to_write = True
        if isinstance(path, Const) and path.value == SUBMISSION:
            run.saved.append(UNKNOWN)
    return UNKNOWN


def savetxt(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`numpy.savetxt`."""
    path = args[0] if args else kwargs.get("fname", UNKNOWN)
    if isinstance(path, Const) and path.value == SUBMISSION:
        if "header" not in kwargs:
            submission.no_header(run)
        run.saved.append(UNKNOWN)
    elif isinstance(path, Const) and isinstance(path.value, str):
        run.written.add(path.value)
    return Const(None)


def renamed(columns: dict[str, Column], names: Dict) -> dict[str, Column]:
    """Columns under the names a dictionary gives them."""
    new = {k: v.value for k, v in names.items.items() if isinstance(v, Const)}
    return {str(new.get(k, k)): replace(c) for k, c in columns.items()}
