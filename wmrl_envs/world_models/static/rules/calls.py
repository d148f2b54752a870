"""Calls in the abstract execution: signatures and parameter values against the installed libraries, then what comes out."""

from __future__ import annotations

from typing import Any

from wmrl_envs.world_models.static.rules import language, submission
from wmrl_envs.world_models.static.rules.functions import ELEMENTWISE, HANDLERS, elementwise_function
from wmrl_envs.world_models.static.rules.methods import call_method
from wmrl_envs.world_models.static.rules.signatures import bad_value, check_construction, check_signature
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
        check_signature(run, entry, args, kwargs, complete)
    if isinstance(entry, dict) and entry["t"] == "class" and path.startswith(_ESTIMATORS):
        made = Obj(path, args, kwargs, complete)
        made.problem = bad_value(entry, made)
        check_construction(run, made)
        run.made.append(made)
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
