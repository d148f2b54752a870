"""What the config.yaml of a run may not decide by itself when the run is taken up again: it may be from somebody else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from wmrl_envs.errors import InvalidInput
from wmrl_train.config import Config, WorldModelConfig

#: Of the sandbox's options, those that neither weaken it nor say what is started or connected to.
_HARMLESS = ("warm", "cpus", "gpus", "attempts", "memory_mb", "retries", "wait_s")


def check(stored: Config, given: Iterable[str], file: Path, trust: bool) -> None:
    """Refuse a stored configuration that decides what runs on this machine, unless the user says so.

    Args:
        stored: the configuration of the run, as `file` has it.
        given: dotted overrides (`key=value`) of the command line; what they set is the user's own word.
        file: where the configuration is stored, for messages.
        trust: the user said `--trust`.

    Raises:
        InvalidInput: it lowers the isolation, starts an interpreter, connects somewhere or imports a module.
    """
    keys = [override.partition("=")[0] for override in given]
    asked = {key: value for key, value in reaching(stored).items() if not any(f"{key}.".startswith(f"{k}.") for k in keys)}
    if asked and not trust:
        listed = ", ".join(f"{key}={value!r:.80}" for key, value in asked.items())
        raise InvalidInput(
            f"{file} sets {listed}, which decides what runs on this machine: add --trust if the run is yours or you trust who "
            "made it, or give these settings on the command line."
        )


def reaching(config: Config) -> dict[str, Any]:
    """The settings that lower isolation, start a program, connect somewhere or import a module, by dotted key.

    >>> from wmrl_train.config import load_config
    >>> reaching(load_config("laptop"))
    {}
    >>> reaching(load_config("laptop", ["execution.options.tier=unsafe", "execution.options.cpus=1"]))
    {'execution.options.tier': 'unsafe'}
    """
    found = {f"execution.options.{name}": v for name, v in config.execution.options.items() if name not in _HARMLESS}
    models = list(_models("world_model", config.world_model))
    for key, options in [("policy", config.policy.engine_options), *((k, m.engine_options) for k, m in models)]:
        found |= {f"{key}.engine_options.{name}": value for name, value in options.items() if _names_something(name, value)}
    for key, model in models:
        found |= {f"{key}.options.{name}": value for name, value in model.options.items() if _places_something(name, value)}
    if config.execution.store is not None:
        found["execution.store"] = config.execution.store
    if config.libero.reward is not None and "://" in config.libero.reward:
        found["libero.reward"] = config.libero.reward
    away = [tracker for tracker in config.tracking.trackers if tracker != "tensorboard"]
    if away:
        found["tracking.trackers"] = away
    return found | {f"{key}.kind": section.kind for key, section in models if ":" in section.kind}


def _models(key: str, section: WorldModelConfig) -> Iterator[tuple[str, WorldModelConfig]]:
    """A world model's section and those of its members, of theirs and so on."""
    yield key, section
    for number, member in enumerate(section.members):
        yield from _models(f"{key}.members.{number}", member)


def _places_something(name: str, value: Any) -> bool:
    """Whether a world model's option says where something is run, read or connected to, instead of how."""
    if isinstance(value, str) and any(mark in value for mark in ":/\\"):
        return True
    return name in ("sandbox", "data_dir", "limits", "environment", "store", "model") and value != "auto"


def _names_something(name: str, value: Any) -> bool:
    """Whether an engine's option is more than a number or a switch: an address, a file, whose code to trust."""
    return not isinstance(value, (bool, int, float)) or "code" in name or "trust" in name
