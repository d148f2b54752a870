"""`AnchoredVecEnv`: many environments whose expensive step is predicted, except in a thin random stream of anchor groups."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from wmrl_envs.anchoring.graded import Graded
from wmrl_envs.anchoring.groups import Group, GroupBook
from wmrl_envs.anchoring.kinds import time_limit, world_model_kind
from wmrl_envs.anchoring.lanes import Threads
from wmrl_envs.anchoring.slots import Transition, make_slots
from wmrl_envs.correction import AnchorSchedule, Corrector
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.info import KEYS
from wmrl_envs.world_models.protocols import Seedable

log = logging.getLogger(__name__)

_OF_GROUPS = ("anchored", "group", "weight")
_ALWAYS = tuple(key for key in KEYS if key not in _OF_GROUPS)
_AUDIT_EVERY = 64  # pairs
_MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)


class AnchoredVecEnv(VectorEnv):
    """A `gymnasium.vector.VectorEnv` for any RL loop: world-model episodes, and anchor episodes that are also real.

    The kind of world model decides what is predicted: outcomes of an `ExecutableEnv` (`predict`), the reward of finished
    episodes (`score`) or whole transitions of an ordinary environment (`step`). Anchored episodes return the real reward;
    their predictions meet it as pairs in the corrector, which calibrates the rewards of all the others. A model with a
    method `update` also learns from what was executed.

    Args:
        env_fns: one function an environment; environments alike.
        world_model: an `OutcomeModel`, `RewardModel` or `DynamicsModel`.
        group_size: slots a group; members of a group share seed and anchor decision in their e-th episodes.
        anchor_fraction: share of the groups that is executed. min_anchor_groups: how many groups in flight are anchored at least.
        corrector: default `Corrector()`; for dynamics models one without a score range.
        seed: of episodes and anchor decisions until `reset(seed=...)` gives another.
        max_episode_steps: time limit of predicted and real episodes; default: the TimeLimit wrapper, else the spec.
        autoreset_mode: NEXT_STEP or SAME_STEP.
        retries: further attempts after an infrastructure failure; then the whole group is dropped.
        workers: threads for real executions (default: one a slot, at most 32; 0: the caller's thread, for environments
            that cannot leave it).
        schedule: an `AnchorSchedule` of your own instead of `anchor_fraction` (adaptive, for instance).

    `infos["wmrl"]` holds arrays of shape (num_envs,) with masks `_key`, as gymnasium's infos do: `status`, `score`,
    `raw_score`, `best_score`, `predicted`, `calibrated`, `true`, `wall_s` (NaN, or None, where not known); `anchored`, `group`, `propensity`,
    `valid` (False: drop the group `group`, ours failed) and `weight` (rho for anchors, 1 for others, 0 if invalid) always.

    >>> import gymnasium as gym
    >>> class Still:  # a dynamics model
    ...     def step(self, observations, actions):
    ...         return observations, np.ones(len(observations)), np.zeros(len(observations), dtype=bool)
    >>> venv = AnchoredVecEnv([lambda: gym.make("CartPole-v1")] * 8, Still(), max_episode_steps=20)
    >>> _ = venv.reset(seed=1); _, rewards, _, _, infos = venv.step(np.zeros(8, dtype=int))
    >>> int(infos["wmrl"]["anchored"].sum()), rewards.tolist() == [1.0] * 8
    (1, True)
    >>> venv.close()
    """

    def __init__(
        self,
        env_fns: Iterable[Callable[[], gymnasium.Env]],
        world_model: Any,
        group_size: int = 1,
        anchor_fraction: float = 0.125,
        min_anchor_groups: int = 1,
        corrector: Corrector | None = None,
        seed: int = 0,
        max_episode_steps: int | None = None,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        retries: int = 2,
        workers: int | None = None,
        schedule: AnchorSchedule | None = None,
    ):
        env_fns = list(env_fns)
        n = len(env_fns)
        if not n:
            raise InvalidInput("env_fns is empty: expected at least one function that makes an environment.")
        if isinstance(group_size, bool) or not isinstance(group_size, (int, np.integer)) or group_size < 1 or n % group_size:
            raise InvalidInput(f"group_size={group_size!r} with {n} environments: expected a whole number that divides {n}.")
        schedule = schedule or AnchorSchedule(anchor_fraction, 0, seed)
        if not schedule.fraction:
            if corrector is None or corrector.enabled:
                raise InvalidInput(
                    "anchor fraction 0 with the corrections on: without anchors nothing can ever be calibrated; raise anchor_fraction, "
                    "or pass corrector=Corrector(debias=False, denoise=False)."
                )
            min_anchor_groups = 0
        if isinstance(min_anchor_groups, bool) or min_anchor_groups not in range(n // group_size + 1):
            raise InvalidInput(
                f"min_anchor_groups={min_anchor_groups!r}: expected 0 to {n // group_size}, the number of groups."
            )
        self.num_envs = n
        self.envs = [fn() for fn in env_fns]
        _check_alike(self.envs)
        first = self.envs[0]
        self.kind = world_model_kind(world_model, first)
        self.world_model = world_model
        self.corrector = corrector or Corrector(score_range=None if self.kind == "dynamics" else (0.0, 1.0))
        self.corrector.require_weights("AnchoredVecEnv")
        self.max_episode_steps = time_limit(first, max_episode_steps)
        if self.kind == "dynamics" and self.max_episode_steps is None:
            log.warning(
                "No time limit found: predicted episodes end only by the world model's `terminated`; pass max_episode_steps."
            )
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)
        self.render_mode, self.metadata = first.render_mode, dict(first.metadata)
        self.set_autoreset_mode(autoreset_mode)
        self._book = GroupBook(n, group_size, schedule, min_anchor_groups, seed)
        workers = min(n, 32) if workers is None else workers
        self._threads, self._retries = Threads(workers), retries
        self._slots = make_slots(
            self.kind, self.envs, world_model, self.corrector, retries=retries, execution=self._threads, grouped=group_size > 1
        )
        self._buffer: Any = create_empty_array(self.single_observation_space, n=n, fn=np.zeros)
        self._elapsed = [0] * n
        self._over = [True] * n  # the episode has ended, the slot waits for its reset
        self._started = False
        self._group_columns = {"anchored": np.zeros(n, dtype=bool), "group": np.zeros(n, dtype=np.int64),
                               "propensity": np.zeros(n), "valid": np.ones(n, dtype=bool)}  # fmt: skip
        self._audited = 0  # pairs at the last look at the audit
        self._action: str = "none"  # what the audit asked for last

    # -- the gymnasium face ------------------------------------------------------------------------------------------
    def set_autoreset_mode(self, mode: AutoresetMode | str) -> None:
        """NEXT_STEP: the step after the end of an episode resets. SAME_STEP: the last step does, the end is in `final_obs`."""
        mode = AutoresetMode(mode)
        if mode not in _MODES:
            raise InvalidInput(f"autoreset_mode={mode}: expected NEXT_STEP or SAME_STEP, since groups restart by themselves.")
        self.autoreset_mode = self.metadata["autoreset_mode"] = mode

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new episode in every slot. An integer seed restarts every random choice from it."""
        if isinstance(seed, (int, np.integer)):
            super().reset(seed=int(seed))
            if isinstance(self.world_model, Seedable):
                self.world_model.seed(int(seed))
        if options and "reset_mask" in options:
            raise InvalidInput("options={'reset_mask': ...}: AnchoredVecEnv resets its slots itself; leave it out.")
        self._slots.groups = self._book.start_all(seed)
        infos: dict[str, Any] = {}
        wmrl = _Columns(self.num_envs)
        observations = [self._begin(slot, options, infos, wmrl) for slot in range(self.num_envs)]
        self._started = True
        return self._batch(observations), wmrl.into(infos, self._groups())

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if not self._started:
            raise ResetNeeded("step() before reset(): call reset() first.")
        acts = list(actions) if isinstance(actions, (list, tuple)) else list(iterate(self.action_space, actions))
        if len(acts) != self.num_envs:
            raise InvalidInput(f"{len(acts)} actions for {self.num_envs} environments: expected one each.")
        resetting = [i for i in range(self.num_envs) if self._over[i]]
        dropped = [i for i in range(self.num_envs) if not self._over[i] and self._slots.groups[i].dropped]
        running = [i for i in range(self.num_envs) if not self._over[i] and not self._slots.groups[i].dropped]
        done = {i: self._cut_short(i) for i in dropped}
        if running:
            last = [self._elapsed[i] + 1 == self.max_episode_steps for i in running]
            for i, at_limit, transition in zip(
                running, last, self._slots.step(running, [acts[i] for i in running], last), strict=True
            ):
                transition.truncated |= at_limit
                done[i] = transition
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros(self.num_envs, dtype=bool), np.zeros(self.num_envs, dtype=bool)
        observations: list[Any] = [None] * self.num_envs
        infos: dict[str, Any] = {}
        finals: dict[str, Any] = {}
        wmrl, final_wmrl = _Columns(self.num_envs), _Columns(self.num_envs)
        for i, transition in done.items():
            if transition.failed:
                self._drop(self._slots.groups[i])
        groups = self._groups()  # before slots restart
        for i in resetting:
            self._slots.groups[i] = self._book.start(i)
            observations[i] = self._begin(i, None, infos, wmrl)
        for i, transition in done.items():
            observations[i], rewards[i] = transition.observation, transition.reward
            terminated[i], truncated[i] = transition.terminated, transition.truncated
            self._elapsed[i] += 1
            known = transition.graded.known(transition.info.get("wmrl"))
            if not (transition.terminated or transition.truncated):
                self._add(infos, wmrl, i, transition.info, known)
            elif self.autoreset_mode is AutoresetMode.NEXT_STEP:
                self._add(infos, wmrl, i, transition.info, known)
                self._end(i)
            else:
                self._add(finals, final_wmrl, i, transition.info, known)
                self._add_info(infos, {"final_obs": transition.observation}, i)
                self._end(i)
                self._slots.groups[i] = self._book.start(i)
                observations[i] = self._begin(i, None, infos, wmrl)
        if final_wmrl.slots:
            infos["final_info"], infos["_final_info"] = final_wmrl.into(finals, groups), terminated | truncated
        self._heed_audit()
        return self._batch(observations), rewards, terminated, truncated, wmrl.into(infos, self._groups())

    def render(self) -> tuple[Any, ...]:
        """What each environment renders; predicted episodes of a dynamics model show their last real state."""
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Cancel what is pending, wait for what runs, close the environments."""
        self._threads.close()
        for env in self.envs:
            env.close()

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of each environment."""
        return tuple(env.get_wrapper_attr(name) for env in self.envs)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute in each environment, to one value for all or to one each."""
        if not isinstance(values, (list, tuple)):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise InvalidInput(f"{len(values)} values for {self.num_envs} environments: expected one each.")
        for env, value in zip(self.envs, values, strict=True):
            env.set_wrapper_attr(name, value)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment (or read an attribute)."""
        found = [env.get_wrapper_attr(name) for env in self.envs]
        return tuple(f(*args, **kwargs) if callable(f) else f for f in found)

    def state_dict(self) -> dict[str, Any]:
        """The corrector, the anchor decisions and the counters, JSON-able; episodes in flight are not part of it."""
        return {"corrector": self.corrector.state_dict(), "groups": self._book.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken, with new episodes: call `reset()` (without a seed) next."""
        self.corrector.load_state_dict(state["corrector"])
        self._book.load_state_dict(state["groups"])
        self._started = False

    # -- inside ------------------------------------------------------------------------------------------------------
    def _begin(self, slot: int, options: dict[str, Any] | None, infos: dict[str, Any], wmrl: _Columns) -> Any:
        """Reset a slot; where that fails for reasons of ours, its group is dropped and the next step ends the episode."""
        started = self._reset_slot(slot, options)
        observation, info = started or (self._slots.observations[slot], {})
        self._elapsed[slot], self._over[slot] = 0, False
        group = self._slots.groups[slot]
        for key, value in (
            ("anchored", group.anchored),
            ("group", group.id),
            ("propensity", group.propensity),
            ("valid", True),
        ):
            self._group_columns[key][slot] = value
        self._add(infos, wmrl, slot, info, {} if started else Graded.lost("reset").known())
        if started is None:
            self._drop(group)
        return observation

    def _reset_slot(self, slot: int, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]] | None:
        for attempt in range(self._retries + 1):
            try:
                return self._slots.reset(slot, seed=self._slots.groups[slot].seed, options=options)
            except InfrastructureError as error:
                if attempt == self._retries and self._slots.observations[slot] is None:
                    raise  # it never ran: there is nothing to go on from
                log.warning("Environment %d could not be reset: %s", slot, error)
        return None

    def _cut_short(self, slot: int) -> Transition:
        """The step of a slot whose group is dropped: nothing runs any more."""
        return Transition.lost(self._slots.observations[slot], Graded.lost("its group was dropped"))

    def _end(self, slot: int) -> None:
        self._over[slot] = True
        self._book.finish(slot)

    def _drop(self, group: Group) -> None:
        if not group.dropped:
            group.dropped = True
            self._group_columns["valid"][self._group_columns["group"] == group.id] = False
            log.warning("Group %d is dropped after an infrastructure failure; its episodes count nowhere.", group.id)

    def _add(self, infos: dict[str, Any], wmrl: _Columns, slot: int, info: dict[str, Any], known: dict[str, Any]) -> None:
        if info:
            own = {key: value for key, value in info.items() if key not in ("wmrl", "episode")}
            self._add_info(infos, own, slot)
        wmrl.add(slot, known)

    def _groups(self) -> dict[str, np.ndarray]:
        """The columns that say what group a slot is in, and what it weighs now."""
        columns = {key: column.copy() for key, column in self._group_columns.items()}
        columns["weight"] = np.where(columns["anchored"], self.corrector.rho, 1.0) * columns["valid"]
        return columns

    def _batch(self, observations: list[Any]) -> Any:
        self._buffer = concatenate(self.single_observation_space, observations, self._buffer)
        return deepcopy(self._buffer)

    def _heed_audit(self) -> None:
        if self.corrector.n_pairs - self._audited < _AUDIT_EVERY:
            return
        self._audited = self.corrector.n_pairs
        action = self.corrector.action
        self._book.schedule.adapt(action != "none")
        if action != self._action:
            level = logging.WARNING if action != "none" else logging.INFO
            log.log(level, "The audit of the anchors says %r (before: %r): %s", action, self._action, self.corrector.metrics())
            self._action = action


class _Columns:
    """`infos["wmrl"]` under construction: one array a key, with a mask of the slots that have it."""

    def __init__(self, n: int):
        self._n = n
        self.slots: list[int] = []
        self._found: dict[str, tuple[list[int], list[Any]]] = {}  # key -> slots, values

    def add(self, slot: int, known: dict[str, Any]) -> None:
        self.slots.append(slot)
        for key, value in known.items():
            if value is not None:
                slots, values = self._found.setdefault(key, ([], []))
                slots.append(slot)
                values.append(value)

    def into(self, infos: dict[str, Any], groups: dict[str, np.ndarray]) -> dict[str, Any]:
        """`infos` with the columns, and with those of the slots' groups."""
        wmrl: dict[str, Any] = {}
        for key in _ALWAYS:  # a reader finds every key in every step; the mask says where it is known
            wmrl[key] = np.full(self._n, None, dtype=object) if key == "status" else np.full(self._n, np.nan)
            wmrl[f"_{key}"] = np.zeros(self._n, dtype=bool)
        for key, (slots, values) in self._found.items():
            if key not in _ALWAYS:
                plain = isinstance(values[0], (bool, int, float))
                wmrl[key] = np.zeros(self._n, dtype=type(values[0])) if plain else np.full(self._n, None, dtype=object)
                wmrl[f"_{key}"] = np.zeros(self._n, dtype=bool)
            wmrl[key][slots] = values
            wmrl[f"_{key}"][slots] = True
        for key, column in groups.items():
            wmrl[key], wmrl[f"_{key}"] = column, self._mask(self.slots)
        infos["wmrl"], infos["_wmrl"] = wmrl, self._mask(self.slots)
        return infos

    def _mask(self, slots: list[int]) -> np.ndarray:
        mask = np.zeros(self._n, dtype=bool)
        mask[slots] = True
        return mask


def _check_alike(envs: Sequence[gymnasium.Env]) -> None:
    if len({id(env.unwrapped) for env in envs}) != len(envs):
        raise InvalidInput("env_fns returned the same environment twice: each function must make a new one.")
    first = envs[0]
    for i, env in enumerate(envs):
        for what in ("observation_space", "action_space"):
            if getattr(env, what) != getattr(first, what):
                raise InvalidInput(
                    f"environment {i} has the {what.replace('_', ' ')} {getattr(env, what)}, environment 0 has {getattr(first, what)}: "
                    "expected the same in all."
                )
