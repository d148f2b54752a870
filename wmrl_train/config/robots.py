"""What of a configuration means something with `agent.name: vla`. A setting that would have no effect is refused, with the
reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wmrl_envs.errors import InvalidInput
from wmrl_train.config.schema import Config

#: key, or section and everything in it -> why it says nothing to a robot
NO_EFFECT = {
    "tasks": "the task is libero.task",
    "execution": "the simulators are configured by libero.*",
    "world_model": "the reward model is libero.reward",
    "agent.options": "a policy's folder holds all its settings",
    "policy.engine": "the policy samples with its own weights",
    "policy.engine_options": "the policy samples with its own weights",
    "policy.replicas": "the policy samples with its own weights",
    "policy.replica_gpus": "the policy samples with its own weights",
    "policy.dtype": "the networks of robot policies are trained in float32",
    "policy.lora": "the networks of robot policies are trained whole",
    "policy.gradient_checkpointing": "a look is one short sequence",
    "rollout.max_new_tokens": "a look has as many codes as the policy's quantizer",
    "rollout.max_context": "every look begins anew",
    "rollout.top_p": "codes are sampled from their whole distribution",
    "rollout.batch_size": "as many looks are sampled together as there are simulators (libero.simulators)",
    "rollout.generation_workers": "as many looks are sampled together as there are simulators (libero.simulators)",
    "rollout.prediction_workers": "the episodes of a step are scored in one call",
    "anchors.lag": "an anchor group is simulated like every other group, so there is nothing to wait for",
    "anchors.when": "an episode of a robot reads no feedback of its score, so both are the same",
    "anchors.memory": "no two episodes are the same program",
    "estimate": "no wall clock of robots is estimated from seconds a program",
}
_CORRECTION = "without libero.reward nothing is predicted, so there is nothing to correct"


def check_robots(config: Config) -> None:
    """Refuse what would have no effect.

    Raises:
        InvalidInput: the first such key, with the reason.
    """
    reasons = dict(NO_EFFECT)
    if config.libero.reward is None:
        names = set(type(config.correction).model_fields) - {"scale"}
        reasons |= {f"correction.{name}": _CORRECTION for name in sorted(names)} | {
            "libero.form": "without libero.reward there is no score"
        }
    if config.eval.k > 1 and config.eval.temperature == 0:
        raise InvalidInput(
            f"eval.k={config.eval.k} with eval.temperature=0: greedy episodes from one initial state are all the same; set "
            "eval.k=1, or a temperature above 0."
        )
    if config.libero.reward is None and config.anchors.fraction < 1:
        raise InvalidInput(
            f"anchors.fraction={config.anchors.fraction} with libero.reward=null: without a reward model nothing is predicted, "
            "so every group must be paid by the simulator; set anchors.fraction=1, or leave it out."
        )
    defaults = dict(_leaves(Config().model_dump()))
    for key, value in _leaves(config.model_dump()):
        reason = next((why for name, why in reasons.items() if key == name or key.startswith(f"{name}.")), None)
        if reason is not None and value != defaults.get(key):
            raise InvalidInput(f"{key}={value!r} has no effect with agent.name=vla: {reason}.")


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
