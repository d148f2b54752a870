"""Whether a run with the same seed ends with the same weights, bit for bit: what the loop promises, and what takes the promise
away.
"""

from __future__ import annotations

from wmrl_train.config import Config


def obstacles(config: Config, processes: int = 1) -> list[str]:
    """The settings that keep two runs of `config` from being equal to the bit; none if they are.

    >>> from wmrl_train.config import load_config
    >>> obstacles(load_config("laptop", ["run.threads=2"]))
    ['run.threads=2']
    """
    policy, found = config.policy, []
    if config.run.threads != 1:
        found.append(f"run.threads={'null' if config.run.threads is None else config.run.threads}")
    if policy.device not in ("cpu", "auto"):
        found.append(f"policy.device={policy.device}")
    if policy.engine != "transformers":
        found.append(f"policy.engine={policy.engine}")
    if policy.replicas is not None:
        found.append(f"policy.replicas={policy.replicas}")
    if processes > 1:
        found.append(f"{processes} processes")
    if config.world_model.engine in ("vllm", "openai"):
        found.append(f"world_model.engine={config.world_model.engine}")
    if config.agent.name == "vla" and (config.libero.reward or "").startswith("http"):
        found.append("libero.reward on a server")
    return found


def repeatable(config: Config, processes: int = 1) -> str:
    """One sentence for whoever starts the run."""
    found = obstacles(config, processes)
    if found:
        return f"Equal seeds give equal runs but for rounding, not to the bit ({', '.join(found)})."
    return (
        "On one CPU, equal seeds give equal runs to the bit, also when killed and resumed, as long as the agent's programs end "
        "alike."
    )
