"""Arguments against the signatures of the installed libraries, and values of parameters that scikit-learn refuses."""

from __future__ import annotations

from typing import Any

from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import Const, Obj, Ref

EXPERIMENTAL = {
    "HalvingGridSearchCV": "halving_search_cv",
    "HalvingRandomSearchCV": "halving_search_cv",
    "IterativeImputer": "iterative_imputer",
}


def check_experimental(run: State, name: str) -> None:
    """What scikit-learn only hands out after another import."""
    needed = EXPERIMENTAL.get(name)
    if needed is not None and not any(v == Ref(f"sklearn.experimental.enable_{needed}") for v in run.env.values()):
        run.report("imports.experimental", name=name, needed=needed)


def check_keywords(run: State, owner: str, method: str, kwargs: dict[str, Any], shown: str) -> None:
    """Keywords that a method of a known class does not take."""
    entry = run.index.resolve(owner)
    signature = entry["members"].get(method) if kwargs and isinstance(entry, dict) and entry["t"] == "class" else None
    if not signature or signature["kw"]:
        return
    known = {*signature["p"], *signature["k"]}
    for name in kwargs:
        if name not in known:
            run.report("api.keyword", label=f"{shown}.{method}()", name=name)


def check_scoring(run: State, function: str, scoring: Any) -> None:
    """The name of a score that scikit-learn does not have."""
    entry = run.index.resolve("sklearn.model_selection.GridSearchCV")
    named = (entry.get("constraints") or {}).get("scoring", {}).get("options") if isinstance(entry, dict) else None
    if named and isinstance(scoring, Const) and isinstance(scoring.value, str) and scoring.value not in named:
        text = f"The 'scoring' parameter of {function} must be a str among {{...}}. Got {scoring.value!r} instead."
        run.report("api.value", text=text)


def check_construction(run: State, made: Obj) -> None:
    """Combinations of parameters that are refused at once."""
    seed = made.kwargs.get("random_state")
    shuffled = made.get("shuffle", 1, False)
    if made.name in ("KFold", "StratifiedKFold") and isinstance(seed, Const) and seed.value is not None and shuffled is False:
        text = (
            "Setting a random_state has no effect since shuffle is False. "
            "You should leave random_state to its default (None), or set shuffle=True."
        )
        run.report("api.value", "ValueError", text=text)
    if (
        made.name == "LogisticRegression"
        and made.get("penalty") in ("l1", "elasticnet")
        and made.get("solver", None, "lbfgs") == "lbfgs"
    ):
        made.problem = ("ValueError", f"Solver lbfgs supports only 'l2' or None penalties, got {made.get('penalty')} penalty.")


def check_signature(run: State, entry: dict, args: list[Any], kwargs: dict[str, Any], complete: bool) -> None:
    """Arguments that a function or class does not take, or lacks."""
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


def bad_value(entry: dict, made: Obj) -> tuple[str, str] | None:
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
