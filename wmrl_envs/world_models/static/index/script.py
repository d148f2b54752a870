"""Describes the public interfaces of the libraries installed beside the interpreter that runs this file, as JSON on stdout.

Run as `python -I index_script.py` with the interpreter of the sandbox: standard library only, imports a fixed list of
libraries (never a name an agent chose) and calls nothing but signatures and the default constructors of scikit-learn.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import json
import pkgutil
import sys
import types
import warnings

LIBRARIES = ("numpy", "pandas", "scipy", "sklearn", "joblib", "xgboost", "lightgbm", "catboost")
SKIPPED_PARTS = {
    "test",
    "tests",
    "testing",
    "conftest",
    "setup",
    "externals",
    "core",
    "f2py",
    "distutils",
    "typing",
    "plotting",
    "compat",
}


def signature(obj) -> dict | None:
    """Parameters of a callable without `self`: p positional, k keyword-only, r required, a *args, kw **kwargs;
    None if unknown.
    """
    try:
        parameters = list(inspect.signature(obj).parameters.values())
    except (ValueError, TypeError):
        return None
    kinds = inspect.Parameter
    if inspect.isfunction(obj) and parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    positional = [q.name for q in parameters if q.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    keyword = [q.name for q in parameters if q.kind is kinds.KEYWORD_ONLY]
    plain = [q for q in parameters if q.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)]
    return {
        "p": positional,
        "k": keyword,
        "r": [q.name for q in plain if q.default is kinds.empty],
        "a": any(q.kind is kinds.VAR_POSITIONAL for q in parameters),
        "kw": any(q.kind is kinds.VAR_KEYWORD for q in parameters),
    }


def constraints(cls) -> dict:
    """Allowed values of scikit-learn parameters: {"name": {"options": [...], "low", "high", "closed", "kinds": [...]}}.

    A parameter is left out unless every alternative is understood.
    """
    result = {}
    for name, alternatives in (getattr(cls, "_parameter_constraints", None) or {}).items():
        if not isinstance(alternatives, list):
            continue
        spec: dict = {"options": [], "ranges": [], "kinds": []}
        for one in alternatives:
            if type(one).__name__ == "Hidden":  # allowed, but not named in the message
                one = one.constraint
            kind = type(one).__name__
            if one is None or one == "boolean":
                spec["kinds"].append("none" if one is None else "bool")
            elif kind in ("StrOptions", "Options"):
                spec["options"] += [o for o in one.options if isinstance(o, (str, int, float, bool))]
            elif kind == "Interval":
                low, high = one.left, one.right
                spec["ranges"].append([one.type.__name__, _bound(low), _bound(high), one.closed])
            else:
                spec["kinds"].append("other")  # arrays, callables, objects: only strings and plain numbers are ever judged
                if one is str or one == "cv_object":
                    spec["kinds"].append("text")
        spec["options"].sort(key=str)
        result[name] = spec
    return result


def _bound(value) -> float | None:
    return None if value is None or value in (float("inf"), float("-inf")) else float(value)


def estimator_tags(cls) -> dict | None:
    """What a default-constructed scikit-learn estimator takes: whether NaN, sparse, strings, several targets are
    accepted, whether only positive input is, and its type.
    """
    try:
        from sklearn.utils import get_tags

        tags = get_tags(cls())
        inputs = tags.input_tags
        return {
            "nan": bool(inputs.allow_nan),
            "sparse": bool(inputs.sparse),
            "string": bool(inputs.string or inputs.categorical),
            "type": tags.estimator_type,
            "multi": bool(tags.target_tags.multi_output),
            "positive": bool(inputs.positive_only),
        }
    except Exception:
        return None


def describe_class(cls) -> dict:
    members = {}
    for name in dir(cls):
        if name.startswith("_"):
            continue
        try:
            static = inspect.getattr_static(cls, name)
        except AttributeError:
            continue
        members[name] = signature(static) if inspect.isfunction(static) else None
    entry = {"t": "class", "name": cls.__name__, "sig": signature(cls), "members": members}
    if cls.__module__.startswith("sklearn."):
        entry["constraints"] = constraints(cls)
        entry["tags"] = estimator_tags(cls)
    return entry


def modules_of(library: str) -> list[types.ModuleType]:
    found = [importlib.import_module(library)]
    for info in pkgutil.walk_packages(found[0].__path__, library + ".", onerror=lambda _: None):
        parts = info.name.split(".")
        if len(parts) > 4 or any(p.startswith("_") or p in SKIPPED_PARTS for p in parts[1:]):
            continue
        try:
            found.append(importlib.import_module(info.name))
        except BaseException:  # a test module may call sys.exit or pytest.skip
            continue
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    objects: dict[str, dict] = {}
    modules: dict[str, dict] = {}
    for library in LIBRARIES:
        try:
            found = modules_of(library)
        except Exception:
            continue
        for module in found:
            names = {}
            for name in sorted(set(dir(module)) | set(getattr(module, "__all__", ()))):
                try:
                    value = getattr(module, name)
                except Exception:
                    continue
                if isinstance(value, types.ModuleType):
                    names[name] = "module:" + value.__name__
                    continue
                if (
                    name.startswith("_")
                    or not callable(value)
                    or not (getattr(value, "__module__", "") or "").startswith(library)
                ):
                    names[name] = ""
                    continue
                key = f"{value.__module__}.{getattr(value, '__qualname__', name)}"
                names[name] = key
                if key not in objects:
                    objects[key] = (
                        describe_class(value)
                        if inspect.isclass(value)
                        else {"t": "function", "name": name, "sig": signature(value)}
                    )
            modules[module.__name__] = names
    top_level = set(importlib.metadata.packages_distributions()) | set(sys.stdlib_module_names) | set(sys.builtin_module_names)
    versions = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions() if d.metadata["Name"]}
    result = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "versions": dict(sorted(versions.items())),
        "top_level": sorted(top_level),
        "modules": modules,
        "objects": objects,
    }
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
