"""GRPO on action codes, with both corrections through the same `Corrector` as everywhere else.

A step: groups of n episodes, each group from one initial state; a reward model scores every episode (or none does, and
every group is real); anchor groups are also scored by the simulator's own sparse success. `Corrector.advantages` turns the
two into one coefficient a trajectory, which all its codes before the end share. A trajectory's codes are averaged, so a
failure that ran to the time limit weighs no more than a quick success. Groups without spread have coefficients of zero and
are left out of the update.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from wmrl_envs.correction import Corrector
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.world_models.protocols import RewardModel
from wmrl_train.agents.vla.policy import VLAPolicy
from wmrl_train.agents.vla.rollout import Trajectory, rollouts
from wmrl_train.agents.vla.state import Checkpoints, Draws, Stateful
from wmrl_train.learn.grpo import policy_objective, token_weights

log = logging.getLogger(__name__)
PATIENCE = 5  # steps in a row without a word of the reward model


@dataclass(frozen=True)
class VLAGrpoConfig:
    """Settings of a run.

    Attributes:
        groups, n: groups a step and episodes a group.
        anchors: groups a step that are also scored by the simulator; None: all (no world model).
        epochs: passes over a step's episodes. minibatch: looks a forward pass.
        clip_low, clip_high: of the probability ratio.
    """

    steps: int = 40
    groups: int = 8
    n: int = 8
    anchors: int | None = None
    lr: float = 1e-4
    temperature: float = 1.0
    epochs: int = 1
    minibatch: int = 128
    clip_low: float = 0.2
    clip_high: float = 0.28
    max_grad_norm: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.groups < 1 or self.n < 2:
            raise InvalidInput(f"groups={self.groups}, n={self.n}: expected at least 1 group of at least 2 episodes.")
        if self.anchors is not None and not 0 <= self.anchors <= self.groups:
            raise InvalidInput(f"anchors={self.anchors}: expected 0 to {self.groups} groups, or None for all.")


def update(
    policy: VLAPolicy,
    trajectories: Sequence[Trajectory],
    coefficients: np.ndarray,
    optimizer: torch.optim.Optimizer,
    config: VLAGrpoConfig,
) -> dict[str, float]:
    """One step's gradient updates. `coefficients`: one a trajectory, scaled so that their score terms are simply added up."""
    rows = [i for i, c in enumerate(coefficients) if c != 0 and len(trajectories[i])]
    if not rows:
        return {"loss": 0.0, "looks": 0}
    looks = [(i, t) for i in rows for t in range(len(trajectories[i]))]
    order = np.random.default_rng(config.seed)
    total, ratio_off = 0.0, 0.0
    policy.model.eval()  # no dropout: the ratio is 1 before the first update
    for _ in range(config.epochs):
        order.shuffle(looks)
        optimizer.zero_grad()
        for begin in range(0, len(looks), config.minibatch):
            part = looks[begin : begin + config.minibatch]
            inputs = policy.inputs([trajectories[i].observations[t] for i, t in part])
            codes = torch.from_numpy(np.stack([trajectories[i].codes[t] for i, t in part])).to(policy.device)
            old = torch.from_numpy(np.stack([trajectories[i].logprobs[t] for i, t in part])).to(policy.device)
            new = policy.model.log_probs(inputs[0], inputs[1], codes, inputs[2], config.temperature)
            advantage = torch.tensor([coefficients[i] for i, _ in part], dtype=new.dtype, device=new.device)
            loss = policy_objective(new, old, advantage, clip_low=config.clip_low, clip_high=config.clip_high)
            lengths = torch.tensor([len(trajectories[i]) * new.shape[1] for i, _ in part], device=new.device)
            weights = token_weights(
                torch.ones_like(new), torch.ones(len(part), device=new.device), kind="grpo", lengths=lengths
            )
            loss = (loss * weights).sum()
            loss.backward()
            total += loss.item() / config.epochs
            ratio_off = max(ratio_off, (new.detach() - old).abs().max().item())
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), config.max_grad_norm)
        optimizer.step()
    return {"loss": total, "looks": len(looks), "max_log_ratio": ratio_off}


def train_grpo(
    policy: VLAPolicy,
    envs: Sequence[Any],
    config: VLAGrpoConfig | None = None,
    *,
    world_model: RewardModel | None = None,
    corrector: Corrector | None = None,
    on_step: Callable[[dict[str, Any]], None] | None = None,
    checkpoints: Checkpoints | None = None,
) -> list[dict[str, Any]]:
    """Train in place; one record a step done here: success (of all episodes, whether or not they were anchors), loss, rho, pairs.

    A group that the simulator lost is dropped; so are, when the reward model fails for reasons of ours, the groups that only it
    was to score.

    Args:
        envs: `LiberoLongEnv`s of one task with the same initial states, whose orientation is the policy's.
        world_model: scores the episodes; None: every group is real.
        corrector: both corrections; None: the world model's scores as they are, anchors weighted like other groups.
        on_step: called with every record before the step is saved; it also has `episodes`, a dict for each.
        checkpoints: where to save the training; `policy` must then come from `checkpoints.policy(...)`.

    Raises:
        InfrastructureError: the reward model failed in `PATIENCE` steps in a row.
    """
    config = config or VLAGrpoConfig()
    if world_model is None and config.anchors not in (None, config.groups):
        raise InvalidInput(
            f"anchors={config.anchors} of {config.groups} groups without a world model: the others would have no reward."
        )
    for env in envs:
        if env.unwrapped.orientation != policy.orientation:
            raise InvalidInput(
                f"The environment draws {env.unwrapped.orientation!r} pictures, the policy was trained on {policy.orientation!r}."
            )
    corrector = corrector or Corrector(debias=False, denoise=False)
    draws, generator = Draws(config.seed), torch.Generator(policy.device).manual_seed(config.seed)
    parts: dict[str, Stateful] = {"corrector": corrector, "draws": draws}
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=config.lr, weight_decay=0.0)
    indices, task = envs[0].unwrapped.start_states.indices, envs[0].unwrapped.task.name
    records, silent = [], 0  # steps in a row without the reward model
    for step in range(checkpoints.restore(optimizer, generator, parts) if checkpoints else 0, config.steps):
        starts = draws.rng.choice(indices, config.groups, replace=config.groups > len(indices)).tolist()
        batch = rollouts(policy, envs, starts, config.n, temperature=config.temperature, generator=generator)
        groups = [[t for t in batch if t.group == k] for k in range(config.groups)]
        groups = [g for g in groups if len(g) == config.n and not any(t.infra for t in g)]
        record: dict[str, Any] = {"step": step, "dropped_groups": config.groups - len(groups)}
        episodes: list[dict[str, Any]] = []
        if groups:
            true = np.array([[float(t.success) for t in g] for g in groups])
            anchors = config.groups if config.anchors is None else config.anchors
            is_anchor = draws.rng.permutation(len(groups)) < (len(groups) if world_model is None else anchors)
            predicted = true
            if world_model is not None:
                try:
                    predicted, silent = _scores(world_model, groups, task), 0
                except InfrastructureError as error:
                    silent += 1
                    if silent == PATIENCE:
                        raise
                    log.warning("step %d: no scores of the reward model, only anchor groups count: %s", step, error)
                    groups = [g for g, anchored in zip(groups, is_anchor, strict=True) if anchored]
                    true = predicted = true[is_anchor]
                    is_anchor = is_anchor[is_anchor]
                    record["dropped_groups"] = config.groups - len(groups)
        if groups:
            seen = np.where(is_anchor[:, None], true, np.nan)  # of the others success is known, but not used
            coefficients = corrector.advantages(predicted, seen, is_anchor) / config.n
            flat = [t for g in groups for t in g]
            record |= update(policy, flat, coefficients.reshape(-1), optimizer, config)
            scored, calibrated = world_model is not None and not silent, corrector.calibrate(predicted, task)
            episodes = [
                {"step": step, "task": task, "group": step * config.groups + t.group, "init_state": t.init_state, "anchored": bool(anchored),
                 "success": t.success, "steps": t.steps, "predicted": float(p) if scored else None, "calibrated": float(c) if scored else None}
                for g, anchored, ps, cs in zip(groups, is_anchor, predicted, calibrated, strict=True)
                for t, p, c in zip(g, ps, cs, strict=True)
            ]  # fmt: skip
            if scored:
                for k in np.flatnonzero(is_anchor):
                    corrector.observe(predicted[k], true[k], group=step * config.groups + groups[k][0].group, task=task)
            record |= {
                "success": float(true.mean()),
                "predicted": float(predicted.mean()),
                "groups_with_spread": int((np.ptp(coefficients, axis=1) > 0).sum()),
                "steps_an_episode": float(np.mean([t.steps for t in flat])),
                "rho": corrector.rho,
                "pairs": corrector.n_pairs,
            }
        records.append(record)
        log.info("step %d: %s", step, record)
        if on_step:
            on_step(record | {"episodes": episodes})
        if checkpoints:
            checkpoints.save(step + 1, config.steps, policy, optimizer, generator, parts)
    return records


def _scores(world_model: RewardModel, groups: Sequence[Sequence[Trajectory]], task: str) -> np.ndarray:
    episodes = [t.episode(task) for g in groups for t in g]
    return np.asarray(world_model.score(episodes), float).reshape(len(groups), -1)
