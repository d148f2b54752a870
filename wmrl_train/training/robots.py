"""From a configuration with `agent.name: vla` to the parts of the one trainer: policy, simulators, reward model, evaluation."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from wmrl_envs.errors import InvalidInput
from wmrl_envs.world_models.protocols import RewardModel
from wmrl_train.agents.vla.learner import RobotLearner
from wmrl_train.agents.vla.play import Played, Simulators, Start, play
from wmrl_train.agents.vla.policy import VLAPolicy
from wmrl_train.agents.vla.roller import RobotRoller
from wmrl_train.config import Config, LiberoConfig
from wmrl_train.config.options import known_options
from wmrl_train.episodes.seeds import seed_of
from wmrl_train.training.parts import Parts

Starts = Mapping[str, Sequence[int]]  # task -> numbers of its initial states


def build_robots(config: Config) -> Parts:
    """Everything `config` names; simulators start with their first episode.

    Raises:
        InvalidInput, MissingExtra: one sentence on what is wrong and how to fix it.
    """
    import gymnasium
    import torch

    import wmrl_envs  # noqa: F401  (registers LIBERO-Long-v0)
    from wmrl_envs.envs.libero_long import LiberoLongEnv
    from wmrl_train.engines.transformers import resolve_device

    libero = config.libero
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    torch.manual_seed(config.run.seed)
    reward_model = load_reward_model(libero)
    policy = VLAPolicy.load(config.policy.model)
    policy.model.to(resolve_device(config.policy.device))
    options: dict[str, Any] = {
        "suite": libero.suite, "init_states": libero.init_states, "max_steps": libero.max_steps,
        "image_size": policy.model.config.dino.image_size, "orientation": policy.orientation,
        "action_chunk": policy.execute_horizon,
    }  # fmt: skip
    for name in set(options) & set(libero.options):
        raise InvalidInput(f"libero.options.{name}: the policy or another key of libero decides it; leave it out.")
    options |= known_options(LiberoLongEnv, "libero.options", libero.options)
    makers = [partial(gymnasium.make, "LIBERO-Long-v0", task=task, **options) for task in tasks_of(libero)]
    envs: list[Any] = [make() for make in makers]  # not started yet: they only say what they are
    unused = {env.unwrapped.task.name: [env] for env in envs}
    by_name = dict(zip(unused, makers, strict=True))
    states = {name: env.unwrapped.start_states for name, (env,) in unused.items()}
    train = {name: start.indices for name, start in states.items()}
    unseen = {name: [i for i in range(len(start.states)) if i not in start.indices] for name, start in states.items()}
    splits = {"train": train} | ({"held_out": unseen} if config.eval.held_out else {})
    simulators = Simulators(lambda task: unused[task].pop() if unused[task] else by_name[task](), libero.simulators)
    return robot_parts(policy, simulators, reward_model, train, evaluation(config, policy, simulators, splits))


def robot_parts(
    policy: VLAPolicy,
    simulators: Simulators,
    reward_model: RewardModel | None,
    starts: Starts,
    evaluate: Callable[[int], dict[str, Any]] | None = None,
) -> Parts:
    """The parts of a trainer of a robot's policy: its roller is `RobotRoller`, its learner `RobotLearner`.

    Args:
        policy: trained in place.
        simulators: where episodes are.
        reward_model: scores episodes; None if every group is an anchor.
        starts: initial states to train from, by task.
        evaluate: see `Parts`.
    """
    return Parts(
        policy, None, policy, reward_model, list(starts),
        make_roller=lambda config, corrector: RobotRoller(policy, simulators, reward_model, starts, config, corrector),
        make_learner=RobotLearner, evaluate=evaluate, close=[simulators.close],
    )  # fmt: skip


def tasks_of(libero: LiberoConfig) -> list[int | str]:
    """The tasks to train on, as the environment takes them."""
    from wmrl_envs.envs.libero import catalog

    if libero.task == "all":
        return list(range(len(catalog.tasks(libero.suite))))
    given = libero.task if isinstance(libero.task, list) else [libero.task]
    return [catalog.index_or_name(str(task)) for task in given]


def load_reward_model(libero: LiberoConfig) -> RewardModel | None:
    """The reward model of `libero.reward`: a server, a `ProgressModel`'s file, or none."""
    if libero.reward is None:
        return None
    if libero.reward.startswith(("http://", "https://")):
        from wmrl_envs.world_models.reward.remote import RemoteRewardModel

        return RemoteRewardModel(libero.reward, form=libero.form or "potential")
    from wmrl_train.agents.vla.progress import ProgressModel

    model = ProgressModel.load(libero.reward)
    model.form = libero.form or model.form
    return model


# -- evaluation ----------------------------------------------------------------------------------------------------------
def evaluation(
    config: Config, policy: VLAPolicy, simulators: Simulators, splits: Mapping[str, Starts]
) -> Callable[[int], dict[str, Any]] | None:
    """Step -> {split: success rates}: `eval.k` episodes of every initial state, always with the same seeds, so that before and
    after pair up.
    """
    if config.eval.k == 0:
        return None

    def evaluate(step: int) -> dict[str, Any]:
        results = {}
        for split, by_task in splits.items():
            starts = [
                Start(task, index, seed_of(config.run.seed, 5, zlib.crc32(task.encode()), index, repeat))
                for task, indices in by_task.items()
                for index in indices
                for repeat in range(config.eval.k)
            ]
            if starts:
                temperature, retries = config.eval.temperature, config.rollout.retries
                results[split] = rates(play(policy, simulators, starts, temperature=temperature, retries=retries))
        return results

    return evaluate


def rates(episodes: Iterable[Played]) -> dict[str, Any]:
    """Success of episodes, as an evaluation of programs is recorded; those that the simulator lost are in no rate.

    "avg" is the rate with its 95 % interval "low" to "high", "best" the share of initial states with a success.
    """
    from wmrl_train.evaluation.rates import Rate

    everything = list(episodes)
    kept = [e for e in everything if e.lost is None]
    by_task: dict[str, list[bool]] = {e.start.task: [] for e in everything}
    by_start: dict[tuple[str, int], list[bool]] = {}
    for e in kept:
        by_task[e.start.task].append(e.success)
        by_start.setdefault((e.start.task, e.start.index), []).append(e.success)
    rate = Rate(sum(e.success for e in kept), len(kept))
    low, high = rate.interval
    return {
        "avg": rate.value if kept else None, "low": low if kept else None, "high": high if kept else None,
        "best": sum(map(any, by_start.values())) / len(by_start) if by_start else None, "valid": None, "tasks": len(by_task),
        "failed": len(everything) - len(kept), "executions": len(everything),
        "statuses": dict(Counter("ok" if e.lost is None else "infra_error" for e in everything)),
        "by_task": {task: sum(found) / len(found) if found else None for task, found in by_task.items()},
    }  # fmt: skip
