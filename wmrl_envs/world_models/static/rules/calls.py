"""Calls in the abstract execution: signatures and parameter values against the installed libraries, then what comes out."""

from __future__ import annotations

from typing import Any

from wmrl_envs.world_models.static.rules import language, submission
from wmrl_envs.world_models.static.rules.functions import ELEMENTWISE, HANDLERS, elementwise_function
from wmrl_envs.world_models.static.rules.methods import call_method
from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import UNKNOWN, Bound, Const, Data, Obj, Ref

_ESTIMATORS = ("sklearn.", "xgboost.", "lightgbm.", "catboost.")


def call(run: State, function: Any, args: list[Any], kwargs: dict[str, Any], complete: bool) -> Any:
    """`function(*args, **kwargs)` of something that the program itself does not define."""
    if isinstance(function, Bound):
        return call_method(run, function.owner, function.name, args, kwargs)
    if isinstance(function, Data):  # a pandas method that `attribute` already turned into data, e.g. `.str.len()`
        return function
    if not isinstance(function, Ref):
        return UNKNOWN
    path = function.path
    language.check_exit(run, path, args)
    if path == "scaffold.save":
        submission.check_saved(run, args[0] if args else kwargs.get("p", UNKNOWN))
        run.saved.append(args[0] if args else UNKNOWN)
        return Const(None)
    entry = run.index.resolve(path)
    if isinstance(entry, dict) and entry.get("sig") and not path.startswith("numpy.random"):
        _check_signature(run, entry, args, kwargs, complete)
    if isinstance(entry, dict) and entry["t"] == "class" and path.startswith(_ESTIMATORS):
        made = Obj(path, args, kwargs, complete)
        made.problem = _bad_value(entry, made)
        return made
    handler = HANDLERS.get(path)
    if handler is not None:
        return handler(run, args, kwargs)
    name = path.rpartition(".")[2]
    if path.startswith("numpy.") and name in ELEMENTWISE:
        return elementwise_function(run, name, args, kwargs)
    if name in ("make_pipeline", "make_column_transformer", "make_union"):
        return Obj(path, args, kwargs, complete)
    return UNKNOWN


def _check_signature(run: State, entry: dict, args: list[Any], kwargs: dict[str, Any], complete: bool) -> None:
    signature = entry["sig"]
    label = f"{entry['name']}.__init__()" if entry["t"] == "class" else f"{entry['name']}()"
    known = set(signature["p"]) | set(signature["k"])
    for name in kwargs:
        if not signature["kw"] and name not in known:
            run.report("api.keyword", label=label, name=name)
    extra = 1 if entry["t"] == "class" else 0
    most = len(signature["p"])
    if not signature["a"] and len(args) > most:
        takes = f"{most + extra} positional argument{'s' if most + extra != 1 else ''}"
        run.report("api.arguments", label=label, text=f"takes {takes} but {len(args) + extra} were given")
    if complete:
        given = set(signature["p"][: len(args)]) | set(kwargs)
        lost = [n for n in signature["r"] if n not in given]
        if lost:
            names = " and ".join(repr(n) for n in lost)
            text = f"missing {len(lost)} required positional argument{'s' if len(lost) > 1 else ''}: {names}"
            run.report("api.arguments", label=label, text=text)


def _bad_value(entry: dict, made: Obj) -> tuple[str, str] | None:
    """A literal parameter value that scikit-learn's own validation refuses at `fit`."""
    for name, spec in (entry.get("constraints") or {}).items():
        value = made.kwargs.get(name)
        if not isinstance(value, Const) or ("other" in spec["kinds"] and not isinstance(value.value, (str, int, float))):
            continue
        v = value.value
        if isinstance(v, bool):
            bad = not spec["kinds"] and not spec["ranges"]
        elif v is None:
            bad = "none" not in spec["kinds"] and "other" not in spec["kinds"] and None not in spec["options"]
        elif isinstance(v, str):
            named = any(isinstance(o, str) for o in spec["options"])
            bad = v not in spec["options"] and ("other" not in spec["kinds"] or (named and "text" not in spec["kinds"]))
        else:
            bad = "other" not in spec["kinds"] and v not in spec["options"] and not any(_within(v, r) for r in spec["ranges"])
            bad = bad and not (v in (0, 1) and "bool" in spec["kinds"])
        if bad:
            return (
                "InvalidParameterError",
                f"The '{name}' parameter of {made.name} must be {_describe(spec)}. Got {v!r} instead.",
            )
    return None


def _within(value: float, bounds: list[Any]) -> bool:
    kind, low, high, closed = bounds
    if kind == "Integral" and not isinstance(value, int):
        return False
    if kind == "RealNotInt" and isinstance(value, int):
        return False
    above = low is None or value > low or (value == low and closed in ("left", "both"))
    below = high is None or value < high or (value == high and closed in ("right", "both"))
    return above and below


def _describe(spec: dict) -> str:
    parts = [f"a str among {{{', '.join(repr(o) for o in spec['options'])}}}"] if spec["options"] else []
    for kind, low, high, closed in spec["ranges"]:
        left, right = "[" if closed in ("left", "both") else "(", "]" if closed in ("right", "both") else ")"
        word = "an int" if kind == "Integral" else "a float"
        parts.append(f"{word} in the range {left}{'-inf' if low is None else low}, {'inf' if high is None else high}{right}")
    parts += ["None"] if "none" in spec["kinds"] else []
    return " or ".join(parts) or "valid"
