"""`wmrl train` for a vision-language-action policy: the configuration is `wmrl grpo`'s options, in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wmrl_envs.errors import InvalidInput
from wmrl_train.config import Config
from wmrl_train.rundir import RunDirectory
from wmrl_train.simulation import anchors_a_step

#: Keys and sections that mean something here; of the others only the defaults are accepted, so that none is ignored silently.
USED = (
    "run.name", "run.dir", "run.seed", "run.min_free_disk_mb", "train.steps", "agent.name", "policy.model", "policy.device",
    "rollout.groups", "rollout.group_size", "rollout.temperature", "anchors.fraction", "anchors.min_groups", "optim.lr",
    "optim.epochs", "libero", "estimate",
)  # fmt: skip


def check(config: Config) -> None:
    """Refuse what would have no effect.

    Raises:
        InvalidInput: the first such key.
    """
    defaults = dict(_leaves(Config().model_dump()))
    for key, value in _leaves(config.model_dump()):
        if value != defaults.get(key) and not any(key == used or key.startswith(f"{used}.") for used in USED):
            raise InvalidInput(f"{key}={value!r} has no effect with agent.name=vla: it takes {', '.join(USED)}.")


def run(config: Config, resume: bool = False, again: bool = False) -> None:
    """GRPO in LIBERO; writes config.yaml, metrics.jsonl and policy/ (after every step) into the run's directory."""
    if resume:
        raise InvalidInput(
            "A run of agent.name=vla cannot be resumed: start another one from its policy/ folder with policy.model=RUN/policy."
        )
    directory = RunDirectory(config.run_dir)
    if again:
        directory.set_aside()
    directory.acquire(config.run.min_free_disk_mb)
    try:
        if (directory.path / "metrics.jsonl").exists():
            raise InvalidInput(f"{directory.path} holds a run already: start anew with --again, or choose another run.name.")
        from wmrl_train.commands.grpo import grpo

        directory.config_file.write_text(config.to_yaml(), encoding="utf-8")
        libero = config.libero
        grpo(
            directory.path, Path(config.policy.model), str(libero.task), libero.suite, libero.init_states, libero.reward,
            anchors=anchors_a_step(config), steps=config.train.steps, groups=config.rollout.groups, n=config.rollout.group_size,
            epochs=config.optim.epochs, lr=config.optim.lr, temperature=config.rollout.temperature, workers=libero.simulators,
            max_steps=libero.max_steps, device="cpu" if config.policy.device == "auto" else config.policy.device,
            seed=config.run.seed,
        )  # fmt: skip
    finally:
        directory.release()


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
