"""What functions of pandas, numpy, scikit-learn and the language give, for those that matter to the checks."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wmrl_envs.world_models.static.rules import language as static_language
from wmrl_envs.world_models.static.rules import submission as static_submission
from wmrl_envs.world_models.static.rules.access import concatenate
from wmrl_envs.world_models.static.rules.methods import data_method
from wmrl_envs.world_models.static.values import UNKNOWN, Column, Const, Data, Dict, Many, Obj, Ref, Rows, Seq

if TYPE_CHECKING:
    from wmrl_envs.world_models.static.interpreter import Interpreter

DATA, SUBMISSION = "$DATA_DIR", "$SUBMISSION_PATH"
_ELEMENTWISE = """
    log1p expm1 sqrt abs absolute log log2 log10 exp square maximum minimum clip round rint floor ceil nan_to_num
    sign tanh sin cos power where asarray array ascontiguousarray asfortranarray copy float32 float64 int64 int32
    roll flip fliplr logical_not
"""
ELEMENTWISE = frozenset(_ELEMENTWISE.split())


def elementwise_function(run: Interpreter, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    data = [a for a in args if isinstance(a, Data)]
    if not data:
        return UNKNOWN
    main = data[0] if name != "where" or len(data) == 1 else data[-1]
    constants = [a.value for a in args if isinstance(a, Const) and isinstance(a.value, (int, float))]
    if main.text is True and name not in ("where", "asarray", "array", "copy", "roll", "flip"):
        text = f"loop of ufunc does not support argument 0 of type str which has no callable {name} method"
        run.report("shapes.text-arithmetic", "shapes", "TypeError", text, 0.9)
    if name in ("log1p", "log", "log10", "log2"):
        meaning = "log" if main.meaning == "target" or main is run.targets else None
        lost = main.nan if main.low is not None and main.low >= 0 else (main.nan or None)
        return main.but(low=0.0 if name == "log1p" and main.low == 0.0 else None, meaning=meaning or main.meaning, nan=lost)
    if name in ("expm1", "exp"):
        return main.but(low=0.0 if name == "exp" or (main.low or -1.0) >= 0 else -0.05)
    if name in ("maximum", "clip"):
        lower = kwargs.get("a_min", kwargs.get("min"))
        value = lower.value if isinstance(lower, Const) else (constants[0] if constants else None)
        return main.but(low=float(value) if isinstance(value, (int, float)) else main.low)
    if name in ("abs", "absolute", "square", "sqrt"):
        return main.but(low=0.0)
    if name in ("round", "rint", "floor", "ceil"):
        return main.but(meaning="whole" if main.meaning == "real" else main.meaning)
    if name == "nan_to_num":
        return main.but(nan=False)
    if name in ("asarray", "array", "ascontiguousarray"):
        return main.but(kind="array", columns=None)
    if name == "where":
        return main.but(meaning=None, low=None)
    return main.but(low=None) if name not in ("roll", "flip", "fliplr") else main


def _read_csv(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    path = args[0] if args else kwargs.get("filepath_or_buffer", UNKNOWN)
    unknown = Data("frame", open=True)
    if not isinstance(path, Const) or not isinstance(path.value, str):
        return unknown
    name = path.value
    if name in run.written or "://" in name:
        return unknown
    if not name.startswith((DATA, SUBMISSION)) and run.context.files:
        run.report("data.file", "data", "FileNotFoundError", f"[Errno 2] No such file or directory: '{name}'", 0.92)
        return unknown
    relative = posixpath.normpath(name[len(DATA) :].lstrip("/")) if name.startswith(DATA) else ""
    info = next((f for f in run.context.files if f.name == relative), None)
    if info is None:
        if run.context.files and relative:
            run.report("data.file", "data", "FileNotFoundError", f"[Errno 2] No such file or directory: '{name}'", 0.96)
        return unknown
    if not info.columns or any(
        k in kwargs for k in ("names", "header", "usecols", "index_col", "sep", "delimiter", "skiprows")
    ):
        return unknown
    columns = {c: Column(text=kind == "str", nan=None) for c, kind in info.columns.items()}
    whole = not ({"nrows", "chunksize", "iterator"} & set(kwargs))
    tag = {"train.csv": "train", "test.csv": "test", "sample_submission.csv": "test"}.get(relative, relative)
    return Data("frame", columns=columns, rows=tag if whole else None, ndim=2).summarised()


def _data_frame(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    source = args[0] if args else kwargs.get("data", UNKNOWN)
    columns = kwargs.get("columns", args[2] if len(args) > 2 else None)
    if isinstance(source, Dict):
        values = [v for v in source.items.values() if isinstance(v, Data) and v.rows]
        arrays = {v.rows for v in values if v.kind == "array"}
        indexes = {v.rows for v in values if v.kind == "series"}
        if len(arrays) > 1:
            run.report("shapes.frame", "shapes", "ValueError", "All arrays must be of the same length", 0.93)
        elif len(arrays) == len(indexes) == 1 and arrays != indexes:
            n, m = (run.sklearn.count(next(iter(rows))) for rows in (arrays, indexes))
            text = f"array length {n or '?'} does not match index length {m or '?'}"
            run.report("shapes.frame", "shapes", "ValueError", text, 0.93)
        rows = next((v.rows for v in source.items.values() if isinstance(v, Data) and v.rows), None)
        known = {str(k): _column(v) for k, v in source.items.items()}
        return Data("frame", columns=known, rows=rows, ndim=2).summarised()
    names = columns.strings() if isinstance(columns, Seq) else None
    rows = source.rows if isinstance(source, Data) else None
    if names is not None:
        return Data("frame", columns={n: Column() for n in names}, rows=rows, ndim=2).summarised()
    if isinstance(source, Data) and source.kind == "frame":
        return source.but()
    unnamed = isinstance(source, Data) and source.kind == "array" and columns is None
    return Data("frame", open=True, rows=rows, ndim=2, unnamed=unnamed, nan=source.nan if unnamed else None)


def _column(value: Any) -> Column:
    if isinstance(value, Data):
        return Column(value.text, value.nan, origin=value.origin)
    return Column(origin="numbers") if isinstance(value, (Many, Seq)) and _counts(value) else Column()


def _counts(value: Many | Seq) -> bool:
    return isinstance(value, Many) or [getattr(i, "value", None) for i in value.items] == list(range(len(value.items)))


def _arange(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    rows = args[0].tag if len(args) == 1 and isinstance(args[0], Rows) else None
    return Data("array", rows=rows, nan=False, text=False, ndim=1, origin="numbers" if rows else None)


def _series(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    source = args[0] if args else kwargs.get("data", UNKNOWN)
    if isinstance(source, Data):
        return source.but(kind="series", columns=None, ndim=1) if source.ndim == 1 else UNKNOWN
    return Data("series", ndim=1) if isinstance(source, Seq) else UNKNOWN


def _concat(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    listed = args[0] if args else kwargs.get("objs", UNKNOWN)
    axis = kwargs.get("axis")
    if not isinstance(listed, Seq):
        return Data("frame", open=True)
    below = not (isinstance(axis, Const) and axis.value in (1, "columns"))
    result = concatenate(listed.items, rows_add=below)
    frames = [i for i in listed.items if isinstance(i, Data)]
    if not isinstance(result, Data):
        return Data("frame", open=True)
    closed = all(f.kind == "frame" and f.columns is not None and not f.open for f in frames)
    columns = {k: v for f in frames for k, v in (f.columns or {}).items()} if closed else None
    return result.but(
        kind="frame" if any(f.kind == "frame" for f in frames) else "series",
        columns=columns,
        open=not closed,
        nan=None,
        rows=result.rows if below else None,
    )


def _join(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args and all(isinstance(a, Const) and isinstance(a.value, str) for a in args):
        return Const(posixpath.join(*[a.value for a in args]))
    return UNKNOWN


def _path(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return _join(run, args, kwargs)


def _environment(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args and isinstance(args[0], Const) and args[0].value in ("DATA_DIR", "SUBMISSION_PATH"):
        return Const(f"${args[0].value}")
    return UNKNOWN


def _split(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not all(isinstance(a, Data) for a in args):
        return UNKNOWN
    run.sklearn.check_lengths(args[0], args[1] if len(args) > 1 else UNKNOWN)
    halves = []
    for a in args:
        halves += [a.but(rows=f"{a.rows}|fit" if a.rows else None), a.but(rows=f"{a.rows}|held" if a.rows else None)]
    return Seq(halves)


def _cross_val(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args and isinstance(args[0], Obj):
        x = args[1] if len(args) > 1 else kwargs.get("X", UNKNOWN)
        y = args[2] if len(args) > 2 else kwargs.get("y", UNKNOWN)
        before = args[0].fitted_on
        fits = run.sklearn.fit(args[0], x, y)
        args[0].fitted_on = before
        folds = kwargs.get("cv")
        for f in fits:
            f.times *= folds.value if isinstance(folds, Const) and isinstance(folds.value, int) else 5
        run.fits = [*fits, *run.fits]  # the last fit stays the one that predicts
    return UNKNOWN


def _length(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args and isinstance(args[0], Data):
        return Rows(args[0].rows)
    if args and isinstance(args[0], Seq):
        return Const(len(args[0].items))
    return UNKNOWN


def _listing(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    items = run.items(args[0]) if args else []
    return Seq(items) if items is not None else UNKNOWN


def _zip(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    columns = [run.items(a) for a in args]
    if not columns or any(c is None for c in columns):
        return UNKNOWN
    return Seq([Seq(list(row)) for row in zip(*columns, strict=False)])


def _enumerate(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    items = run.items(args[0]) if args else None
    return UNKNOWN if items is None else Seq([Seq([Const(i), v]) for i, v in enumerate(items)])


def _filled(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    size = args[0] if args else kwargs.get("shape", UNKNOWN)
    sizes = size.items if isinstance(size, Seq) and size.items else [size]
    static_language.check_memory(run, sizes)
    numbers = [static_language.plain(run, s) for s in sizes]
    rows = sizes[0].tag if isinstance(sizes[0], Rows) else static_language.row_tag(run, numbers[0])
    value = args[1] if len(args) > 1 else kwargs.get("fill_value", UNKNOWN)
    nan = isinstance(value, Ref) and value.path.lower() == "numpy.nan"
    second = numbers[1].value if len(numbers) == 2 and isinstance(numbers[1], Const) else None
    width = float(second) if isinstance(second, int) else None
    return Data("array", rows=rows, nan=nan, text=False, ndim=len(sizes), width=width, exact=width is not None)


def _random(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    static_language.check_memory(run, args)
    return UNKNOWN


def _reads(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Functions whose first argument is a file or folder that has to be there."""
    path = args[0] if args else UNKNOWN
    mode = args[1] if len(args) > 1 else kwargs.get("mode", Const("r"))
    reading = not isinstance(mode, Const) or not isinstance(mode.value, str) or "r" in mode.value
    if reading and isinstance(path, Const) and isinstance(path.value, str) and run.context.files and not run.opened_to_write:
        name = path.value
        inside = posixpath.normpath(name[len(DATA) :].lstrip("/") or ".") if name.startswith(DATA) else None
        absent = inside not in (".", *(f.name for f in run.context.files)) if inside else not name.startswith((SUBMISSION, "/"))
        if absent and name not in run.written and name not in (".", "..", ""):
            run.report("data.file", "data", "FileNotFoundError", f"[Errno 2] No such file or directory: '{name}'", 0.93)
    if not reading:
        run.opened_to_write = True
    return UNKNOWN


def _savetxt(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    path = args[0] if args else kwargs.get("fname", UNKNOWN)
    if isinstance(path, Const) and path.value == SUBMISSION:
        if "header" not in kwargs:
            static_submission.no_header(run)
        run.saved.append(UNKNOWN)
    elif isinstance(path, Const) and isinstance(path.value, str):
        run.written.add(path.value)
    return Const(None)


def _argmax(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return data_method(run, args[0], "argmax", args[1:], kwargs) if args and isinstance(args[0], Data) else UNKNOWN


def _reduce(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    axis = kwargs.get("axis")
    if args and isinstance(args[0], Seq) and isinstance(axis, Const) and axis.value == 0 and args[0].items:
        return args[0].items[0] if isinstance(args[0].items[0], Data) else UNKNOWN
    return data_method(run, args[0], "mean", args[1:], kwargs) if args and isinstance(args[0], Data) else UNKNOWN


def _stacked(rows_add: bool) -> Callable[..., Any]:
    def handler(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
        axis = kwargs.get("axis")
        add = rows_add and not (isinstance(axis, Const) and axis.value in (1, -1))
        return concatenate(args[0].items, add) if args and isinstance(args[0], Seq) else UNKNOWN

    return handler


def _diff(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    axis = kwargs.get("axis")
    if args and isinstance(args[0], Data):
        keeps = isinstance(axis, Const) and axis.value in (1, -1, 2)
        return args[0].but(rows=args[0].rows if keeps else None, width=None, exact=False)
    return UNKNOWN


def _to_datetime(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return (
        args[0].but(text=False, nan=None if args[0].nan is None else args[0].nan)
        if args and isinstance(args[0], Data)
        else UNKNOWN
    )


def _dummies(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    rows = args[0].rows if args and isinstance(args[0], Data) else None
    return Data("frame", open=True, rows=rows, text=False, nan=None, ndim=2)


def _clone(run: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args and isinstance(args[0], Obj):
        o = args[0]
        return Obj(o.path, o.args, o.kwargs, o.complete, o.problem)
    return UNKNOWN


HANDLERS: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "pandas.read_csv": _read_csv,
    "pandas.read_parquet": _reads,
    "pandas.read_table": _reads,
    "pandas.read_json": _reads,
    "pandas.DataFrame": _data_frame,
    "pandas.Series": _series,
    "pandas.concat": _concat,
    "pandas.to_datetime": _to_datetime,
    "pandas.get_dummies": _dummies,
    "os.path.join": _join,
    "pathlib.Path": _path,
    "os.environ.get": _environment,
    "os.getenv": _environment,
    "sklearn.model_selection.train_test_split": _split,
    "sklearn.model_selection.cross_val_score": _cross_val,
    "sklearn.model_selection.cross_val_predict": _cross_val,
    "sklearn.model_selection.cross_validate": _cross_val,
    "sklearn.base.clone": _clone,
    "builtins.len": _length,
    "builtins.int": static_language.convert(int),
    "builtins.float": static_language.convert(float),
    "builtins.sum": static_language.reduce(sum),
    "builtins.min": static_language.reduce(min),
    "builtins.max": static_language.reduce(max),
    "builtins.range": static_language.count_up,
    "builtins.open": _reads,
    "os.listdir": _reads,
    "numpy.load": _reads,
    "numpy.loadtxt": _reads,
    "numpy.genfromtxt": _reads,
    "numpy.savetxt": _savetxt,
    "numpy.random.rand": _random,
    "numpy.random.randn": _random,
    "numpy.empty": _filled,
    "numpy.arange": _arange,
    "builtins.list": _listing,
    "builtins.tuple": _listing,
    "builtins.sorted": _listing,
    "builtins.set": _listing,
    "builtins.zip": _zip,
    "builtins.enumerate": _enumerate,
    "numpy.zeros": _filled,
    "numpy.ones": _filled,
    "numpy.full": _filled,
    "numpy.argmax": _argmax,
    "numpy.mean": _reduce,
    "numpy.average": _reduce,
    "numpy.concatenate": _stacked(True),
    "numpy.vstack": _stacked(True),
    "numpy.hstack": _stacked(False),
    "numpy.column_stack": _stacked(False),
    "numpy.diff": _diff,
}
