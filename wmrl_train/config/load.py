"""Loading a configuration: YAML files, dotted overrides, and errors that name the nearest valid key."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from wmrl_envs.errors import InvalidInput
from wmrl_train.config.schema import Config, LoraConfig, Section

CONFIGS_DIR = Path(__file__).parents[1] / "configs"


def available_configs() -> list[str]:
    """Names of the configurations that ship with the package."""
    return sorted(path.stem for path in CONFIGS_DIR.glob("*.yaml"))


def load_config(source: str | Path | Mapping[str, Any], overrides: Iterable[str] = ()) -> Config:
    """The configuration in a file, a shipped one by name, or a mapping, with dotted overrides applied on top.

    A file may say `extends: NAME_OR_FILE` to start from another one.

    Raises:
        InvalidInput: no such file, not YAML, an unknown key (the nearest valid one is named), a value out of range.

    >>> load_config("paper-4b", ["train.steps=3"]).train.steps
    3
    """
    values = _resolve(source) if not isinstance(source, Mapping) else dict(source)
    for override in overrides:
        _merge(values, _parse_override(override))
    _check_keys(values, Config, "")
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise InvalidInput(_sentence(error)) from None


def _resolve(source: str | Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    path = Path(source)
    if not path.suffix and not path.exists():
        path = CONFIGS_DIR / f"{source}.yaml"
    if not path.is_file():
        near = difflib.get_close_matches(str(source), available_configs(), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InvalidInput(
            f"No configuration {str(source)!r}: expected a YAML file or one of {', '.join(available_configs())}.{hint}"
        )
    if path in seen:
        raise InvalidInput(f"{path.name} extends itself through {' -> '.join(p.name for p in seen)}.")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(values, dict):
        raise InvalidInput(f"{path} holds a {type(values).__name__}, expected a mapping of sections such as 'train:'.")
    base = values.pop("extends", None)
    if base is None:
        return values
    beside = path.parent / str(base)
    merged = _resolve(beside if beside.is_file() else str(base), (*seen, path))
    _merge(merged, values)
    return merged


def _parse_override(text: str) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise InvalidInput(f"Override {text!r} was not understood: expected section.key=value, for example train.steps=3.")
    try:
        nested: Any = yaml.safe_load(value)
    except yaml.YAMLError:
        raise InvalidInput(f"The value of override {text!r} is not valid YAML.") from None
    for part in reversed(parts):
        nested = {part: nested}
    return nested


def _merge(base: dict[str, Any], extra: Mapping[str, Any]) -> None:
    for key, value in extra.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = value


def _check_keys(values: Mapping[str, Any], model: type[Section], prefix: str) -> None:
    """Refuse unknown keys before pydantic does, to name the nearest valid one (over all sections, for a misplaced key)."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        field = model.model_fields.get(str(key))
        if field is None:
            raise InvalidInput(f"Unknown configuration key {name!r}.{_nearest(str(key), name)}")
        section = _section_of(field.annotation)
        if section is None or (value is None and section is LoraConfig):
            continue
        if not isinstance(value, Mapping):
            raise InvalidInput(
                f"Configuration key {name!r} is a section, expected keys below it such as {_example(section, name)}."
            )
        _check_keys(value, section, f"{name}.")


def _section_of(annotation: Any) -> type[Section] | None:
    if get_origin(annotation) is list:  # sections in a list are pydantic's to check
        return None
    candidates: Sequence[Any] = [annotation, *get_args(annotation)]
    return next((a for a in candidates if isinstance(a, type) and issubclass(a, Section)), None)


def _example(section: type[Section], name: str) -> str:
    return f"'{name}.{next(iter(section.model_fields))}'"


def _all_keys(model: type[Section] = Config, prefix: str = "") -> list[str]:
    keys = []
    for key, field in model.model_fields.items():
        section = _section_of(field.annotation)
        keys += [f"{prefix}{key}"] + (_all_keys(section, f"{prefix}{key}.") if section else [])
    return keys


def _nearest(key: str, dotted: str) -> str:
    keys = _all_keys()
    same_leaf = [k for k in keys if k.rpartition(".")[2] == key]
    near = difflib.get_close_matches(dotted, keys, n=1, cutoff=0.55) or same_leaf[:1]
    by_leaf = difflib.get_close_matches(key, [k.rpartition(".")[2] for k in keys], n=1)
    if same_leaf:
        near = same_leaf[:1]
    elif not near and by_leaf:
        near = [k for k in keys if k.rpartition(".")[2] == by_leaf[0]][:1]
    return f" Did you mean {near[0]!r}?" if near else f" Sections are {', '.join(Config.model_fields)}."


def _sentence(error: ValidationError) -> str:
    """The first problem of a pydantic error as one sentence: the key, the value given, what was expected."""
    problems = error.errors(include_url=False)
    first = problems[0]
    key = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ").rstrip(".")
    given = (
        f"{key}={first['input']!r}: "
        if key and not isinstance(first["input"], (Mapping, BaseModel))
        else f"{key}: "
        if key
        else ""
    )
    more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{given}{message}.{more}"
