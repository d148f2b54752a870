"""What functions of pandas, numpy, scikit-learn and the language give, for those that matter to the checks."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Any

from wmrl_envs.world_models.static.rules import estimators, language, options, tables
from wmrl_envs.world_models.static.rules.arrays import concatenate
from wmrl_envs.world_models.static.rules.methods import data_method
from wmrl_envs.world_models.static.rules.signatures import check_scoring
from wmrl_envs.world_models.static.state import State, items_of
from wmrl_envs.world_models.static.values import UNKNOWN, Const, Data, Dict, Func, Many, Obj, Ref, Rows, Seq

ELEMENTWISE = frozenset(
    [
        "log1p",
        "expm1",
        "sqrt",
        "abs",
        "absolute",
        "log",
        "log2",
        "log10",
        "exp",
        "square",
        "maximum",
        "minimum",
        "clip",
        "round",
        "rint",
        "floor",
        "ceil",
        "nan_to_num",
        "sign",
        "tanh",
        "sin",
        "cos",
        "power",
        "where",
        "asarray",
        "array",
        "ascontiguousarray",
        "asfortranarray",
        "copy",
        "float32",
        "float64",
        "int64",
        "int32",
        "roll",
        "flip",
        "fliplr",
        "logical_not",
        "isnan",
        "isfinite",
    ]
)
_KEEPS_TEXT = ("where", "asarray", "array", "copy", "roll", "flip", "isnan", "ascontiguousarray")
_WHOLE = ("round", "rint", "floor", "ceil")


def elementwise_function(run: State, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A numpy function that works item by item."""
    data = [a for a in args if isinstance(a, Data)]
    if not data:
        return UNKNOWN
    main = data[0] if name != "where" or len(data) == 1 else data[-1]
    if main.text is True and name not in _KEEPS_TEXT:
        run.report(
            "shapes.text-arithmetic",
            text=f"loop of ufunc does not support argument 0 of type str which has no callable {name} method",
        )
    if name in ("log1p", "log", "log10", "log2"):
        meaning = "log" if main.meaning in ("target", "continuous") or main is run.targets else None
        lost = main.nan if main.low is not None and main.low >= 0 else (main.nan or None)
        return main.but(low=0.0 if name == "log1p" and main.low == 0.0 else None, meaning=meaning or main.meaning, nan=lost)
    if name in ("expm1", "exp"):
        return main.but(low=0.0 if name == "exp" or (main.low or -1.0) >= 0 else -0.05)
    if name in ("maximum", "clip"):
        constants = [a.value for a in args if isinstance(a, Const) and isinstance(a.value, (int, float))]
        lower = kwargs.get("a_min", kwargs.get("min"))
        value = lower.value if isinstance(lower, Const) else (constants[0] if constants else None)
        return main.but(low=float(value) if isinstance(value, (int, float)) else main.low)
    if name in ("abs", "absolute", "square", "sqrt"):
        return main.but(low=0.0)
    if name in _WHOLE:
        return main.but(meaning={"real": "whole", "continuous": "target"}.get(main.meaning or "", main.meaning))
    if name in ("nan_to_num", "isnan", "isfinite", "logical_not"):
        return main.but(
            nan=False, text=False, mask=name != "nan_to_num", meaning=main.meaning if name == "nan_to_num" else None
        )
    if name in ("asarray", "array", "ascontiguousarray"):
        return main.but(kind="array", columns=None, dims=main.dims)
    if name == "where":
        return Data(main.kind, rows=main.rows, ndim=main.ndim, open=main.kind == "frame")
    return main.but(low=None, meaning=None) if name not in ("roll", "flip", "fliplr", "copy") else main


def _arange(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    rows = args[0].tag if len(args) == 1 and isinstance(args[0], Rows) else None
    return Data("array", rows=rows, nan=False, text=False, ndim=1, origin="numbers" if rows else None)


def _join(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args and all(isinstance(a, Const) and isinstance(a.value, str) for a in args):
        return Const(posixpath.join(*[a.value for a in args]))
    return UNKNOWN


def _environment(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args and isinstance(args[0], Const) and args[0].value in ("DATA_DIR", "SUBMISSION_PATH"):
        return Const(f"${args[0].value}")
    return UNKNOWN


def _split(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    labels = kwargs.get("stratify")
    if isinstance(labels, Data) and labels.meaning in ("continuous", "log"):
        run.report("shapes.target-type", text="The least populated classes in y have only 1 member, which is too few.")
    if not args or not all(isinstance(a, Data) for a in args):
        return Seq([UNKNOWN] * (2 * len(args))) if args else UNKNOWN
    estimators.check_lengths(run, args[0], args[1] if len(args) > 1 else UNKNOWN)
    halves = []
    for a in args:
        halves += [a.but(rows=f"{a.rows}|{part}" if a.rows else None, default_index=False) for part in ("fit", "held")]
    return Seq(halves)


def _cross_val(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    check_scoring(run, "cross_val_score", kwargs.get("scoring"))
    if args and isinstance(args[0], Obj):
        x = args[1] if len(args) > 1 else kwargs.get("X", UNKNOWN)
        y = args[2] if len(args) > 2 else kwargs.get("y", UNKNOWN)
        before = args[0].fitted_on, args[0].target
        fits = estimators.fit(run, args[0], x, y)
        args[0].fitted_on, args[0].target = before
        for f in fits:
            f.times *= estimators.folds_of(kwargs.get("cv", UNKNOWN))
        run.fits = [*fits, *run.fits]  # the last fit stays the one that predicts
    return UNKNOWN


def _length(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args and isinstance(args[0], Data):
        return Rows(args[0].rows)
    if args and isinstance(args[0], Seq) and args[0].sure:
        return Const(len(args[0].items))
    return UNKNOWN


def _listing(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    items = items_of(args[0]) if args else []
    return Seq(items) if items is not None else UNKNOWN


def _sorted(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    items = items_of(args[0]) if args else []
    key = kwargs.get("key")
    if isinstance(key, Func) and items:
        run.inline(key, [items[0]], {})
    if items is None:
        return UNKNOWN
    return Seq(items) if not kwargs else Seq([UNKNOWN] * len(items))


def _zip(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    columns = [items_of(a) for a in args]
    if not columns or any(c is None for c in columns):
        return UNKNOWN
    return Seq([Seq(list(row)) for row in zip(*[c for c in columns if c is not None], strict=False)])


def _enumerate(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args and isinstance(args[0], Many):
        return Many(args[0].count, Seq([UNKNOWN, args[0].item]))
    items = items_of(args[0]) if args else None
    return UNKNOWN if items is None else Seq([Seq([Const(i), v]) for i, v in enumerate(items)])


def _dict(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args:
        return Dict(dict(args[0].items) | kwargs, args[0].open) if isinstance(args[0], Dict) else UNKNOWN
    return Dict(dict(kwargs))


def _random(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    language.check_memory(run, args)
    return UNKNOWN


def _argmax(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return data_method(run, args[0], "argmax", args[1:], kwargs) if args and isinstance(args[0], Data) else UNKNOWN


def _reduce(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    axis = kwargs.get("axis", args[1] if len(args) > 1 else UNKNOWN)
    if args and isinstance(args[0], Seq) and isinstance(axis, Const) and axis.value == 0 and args[0].items:
        return args[0].items[0] if isinstance(args[0].items[0], Data) else UNKNOWN
    return data_method(run, args[0], "mean", args[1:], kwargs) if args and isinstance(args[0], Data) else UNKNOWN


def _stacked(rows_add: bool) -> Callable[..., Any]:
    def handler(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
        axis = kwargs.get("axis", args[1] if len(args) > 1 else UNKNOWN)
        add = rows_add and not (isinstance(axis, Const) and axis.value in (1, -1))
        known = args and isinstance(args[0], Seq) and args[0].sure
        return concatenate(args[0].items, add) if known else UNKNOWN

    return handler


def _diff(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    axis = kwargs.get("axis")
    if args and isinstance(args[0], Data):
        keeps = isinstance(axis, Const) and axis.value in (1, -1, 2)
        return args[0].but(rows=args[0].rows if keeps else None, width=None, exact=False)
    return UNKNOWN


def _clone(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args and isinstance(args[0], Obj):
        o = args[0]
        return Obj(o.path, o.args, dict(o.kwargs), o.complete, o.problem)
    return UNKNOWN


def _is_kind(*kinds: str) -> Callable[..., Any]:
    """`pandas.api.types.is_..._dtype` of a column or of its dtype."""

    def handler(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
        value = args[0] if args else UNKNOWN
        dtype = value.dtype if isinstance(value, Data) else value.path[6:] if isinstance(value, Ref) else None
        if dtype is None and isinstance(value, Data) and value.kind == "series" and value.text is True and "str" not in kinds:
            return Const(False)
        known = dtype in ("int", "float", "bool", "str", "date", "category")
        return Const(dtype in kinds) if known else UNKNOWN

    return handler


def _configure(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    run.pandas_output = run.pandas_output or "transform_output" in kwargs
    return Const(None)


def _call_lambda(run: State, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`map(function, items)`."""
    items = items_of(args[1]) if len(args) == 2 else None
    if items is None or not isinstance(args[0], Func) or len(items) > 24:
        return UNKNOWN
    return Seq([run.inline(args[0], [i], {}) for i in items])


HANDLERS: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "pandas.read_csv": tables.read_csv,
    "pandas.DataFrame": tables.data_frame,
    "pandas.Series": tables.series,
    "pandas.concat": tables.concat,
    "pandas.to_datetime": tables.to_datetime,
    "pandas.to_numeric": tables.to_numeric,
    "pandas.get_dummies": tables.dummies,
    "pandas.factorize": tables.factorize,
    "pandas.api.types.is_numeric_dtype": _is_kind("int", "float", "bool"),
    "pandas.api.types.is_string_dtype": _is_kind("str"),
    "pandas.api.types.is_object_dtype": _is_kind(),
    "os.path.join": _join,
    "pathlib.Path": _join,
    "os.environ.get": _environment,
    "os.getenv": _environment,
    "sklearn.model_selection.train_test_split": _split,
    "sklearn.base.clone": _clone,
    "builtins.len": _length,
    "builtins.int": language.convert(int),
    "builtins.float": language.convert(float),
    "builtins.sum": language.reduce(sum),
    "builtins.min": language.reduce(min),
    "builtins.max": language.reduce(max),
    "builtins.range": language.count_up,
    "builtins.open": tables.reads,
    "builtins.list": _listing,
    "builtins.tuple": _listing,
    "builtins.sorted": _sorted,
    "builtins.set": _listing,
    "builtins.zip": _zip,
    "builtins.map": _call_lambda,
    "builtins.enumerate": _enumerate,
    "builtins.dict": _dict,
    "collections.OrderedDict": _dict,
    "os.listdir": tables.reads,
    "numpy.load": tables.load,
    "numpy.savetxt": tables.savetxt,
    "numpy.random.rand": _random,
    "numpy.random.randn": _random,
    "numpy.arange": _arange,
    "numpy.argmax": _argmax,
    "numpy.mean": _reduce,
    "numpy.average": _reduce,
    "numpy.concatenate": _stacked(True),
    "numpy.vstack": _stacked(True),
    "numpy.hstack": _stacked(False),
    "numpy.column_stack": _stacked(False),
    "numpy.diff": _diff,
    "sklearn.set_config": _configure,
    "argparse.ArgumentParser": options.parser,
    "argparse.Namespace": options.namespace,
    "types.SimpleNamespace": options.namespace,
    **dict.fromkeys(
        ("pandas.read_parquet", "pandas.read_table", "pandas.read_json", "numpy.loadtxt", "numpy.genfromtxt"), tables.reads
    ),
    **dict.fromkeys(("numpy.zeros", "numpy.ones", "numpy.full", "numpy.empty"), tables.filled),
    **dict.fromkeys(("numpy.zeros_like", "numpy.ones_like", "numpy.empty_like", "numpy.full_like"), tables.like),
    **{f"sklearn.model_selection.{n}": _cross_val for n in ("cross_val_score", "cross_val_predict", "cross_validate")},
}
