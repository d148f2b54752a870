"""What may change when a run is resumed. A setting that says what the run *is* may not: its finished steps had another one."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from wmrl_envs.errors import InvalidInput
from wmrl_train.config import Config

LOG = "settings.jsonl"

#: How long, how often, where and how fast: the samples, scores and updates of a step are drawn as before.
MAY_CHANGE = (
    "run.dir", "run.name", "run.threads", "run.min_free_disk_mb", "train.*", "tracking.*", "estimate.*", "eval.every",
    "tasks.data_dir", "execution.options*", "execution.store", "execution.workers", "execution.cache", "policy.device",
    "policy.engine_options*", "policy.replicas", "policy.replica_gpus", "policy.gradient_checkpointing", "rollout.batch_size",
    "rollout.generation_workers", "rollout.prediction_workers", "rollout.retries", "world_model.engine_options*",
    "correction.on_alarm", "optim.tokens_per_micro_batch", "optim.offload", "libero.simulators",
)  # fmt: skip
_UNLOGGED = ("run.dir", "run.name")

Changes = dict[str, tuple[Any, Any]]


def changes(old: Config, new: Config) -> Changes:
    """The settings that differ, by dotted key: (old, new).

    >>> from wmrl_train.config import load_config
    >>> changes(load_config("laptop"), load_config("laptop", ["optim.lr=0.1", "train.steps=5"]))
    {'train.steps': (60, 5), 'optim.lr': (0.001, 0.1)}
    """
    before, after = flat(old.model_dump(mode="json")), flat(new.model_dump(mode="json"))
    keys = [*after, *(key for key in before if key not in after)]
    return {key: (before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)}


def allowed(changed: Changes, run: Any) -> Changes:
    """Those to log of the changes that a resumed run may have.

    Raises:
        InvalidInput: one of them would change what the run is; all such are listed, old and new.
    """
    refused = {key: pair for key, pair in changed.items() if not any(fnmatchcase(key, pattern) for pattern in MAY_CHANGE)}
    if refused:
        listed = ", ".join(f"{key} {_text(old)} -> {_text(new)}" for key, (old, new) in refused.items())
        raise InvalidInput(
            f"{run} was run with other settings, which cannot change on the way: {listed}. Leave them out to go on as it "
            "began, or start a run of its own (another run.name)."
        )
    return {key: pair for key, pair in changed.items() if key not in _UNLOGGED}


def sentence(changed: Changes) -> str:
    """The changes for a reader.

    >>> sentence({"train.steps": (60, 80)})
    'train.steps 60 -> 80'
    """
    return ", ".join(f"{key} {_text(old)} -> {_text(new)}" for key, (old, new) in changed.items())


def _text(value: Any) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The settings of nested sections by dotted key."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{name}.")
        else:
            found[name] = None if isinstance(value, Mapping) else value
    return found
