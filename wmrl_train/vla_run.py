"""`wmrl train` for a vision-language-action policy: the configuration is `wmrl grpo`'s options, in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wmrl_envs.errors import InvalidInput
from wmrl_train.config import Config
from wmrl_train.run.rundir import RunDirectory
from wmrl_train.training.simulation import anchors_a_step

#: Keys and sections that mean something here; of the others only the defaults are accepted, so that none is ignored silently.
USED = (
    "run.name", "run.dir", "run.seed", "run.min_free_disk_mb", "train.steps", "train.save_every", "agent.name", "policy.model", "policy.device",
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
    """GRPO in LIBERO; the run's directory gets config.yaml, the three logs, checkpoints/ and, at the end, policy/ and report.html."""
    from wmrl_train.agents.vla.grpo import VLAGrpoConfig
    from wmrl_train.commands import grpo

    directory = RunDirectory(config.run_dir)
    if again:
        directory.set_aside()
    directory.acquire(config.run.min_free_disk_mb)
    try:
        if directory.has_run and not resume:
            raise InvalidInput(
                f"{directory.path} holds a run already: go on with --resume, start anew with --again, or choose another run.name."
            )
        directory.config_file.write_text(config.to_yaml(), encoding="utf-8")
        libero, rollout, optim = config.libero, config.rollout, config.optim
        settings = VLAGrpoConfig(
            config.train.steps, rollout.groups, rollout.group_size, anchors_a_step(config) if libero.reward else None, optim.lr,
            rollout.temperature, optim.epochs, seed=config.run.seed,
        )  # fmt: skip
        simulation = {
            "task": libero.task,
            "suite": libero.suite,
            "init_states": libero.init_states,
            "max_steps": libero.max_steps,
        }
        grpo.run(
            directory, settings, Path(config.policy.model), libero.reward, simulation, workers=libero.simulators,
            device=config.policy.device, form=libero.form,
            save_every=config.train.save_every, resume=resume,
        )  # fmt: skip
    finally:
        directory.release()


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
