"""`AnchoredVecEnv`: many environments whose expensive step is predicted, except in a thin random stream of anchor groups."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from wmrl_envs.anchoring.alarm import Alarm
from wmrl_envs.anchoring.columns import Columns
from wmrl_envs.anchoring.graded import Graded
from wmrl_envs.anchoring.groups import Group, GroupBook
from wmrl_envs.anchoring.kinds import time_limit, warn_of_statistics, world_model_kind
from wmrl_envs.anchoring.lanes import Threads
from wmrl_envs.anchoring.slots import Transition, make_slots
from wmrl_envs.correction import AnchorSchedule, Corrector
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.world_models.protocols import EpisodicModel, Seedable

log = logging.getLogger(__name__)

_ONE_BY_ONE = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class AnchoredVecEnv(VectorEnv):
    """A `gymnasium.vector.VectorEnv` for any RL loop: world-model episodes, and anchor episodes that are also real.

    The kind of world model decides what is predicted: outcomes of an `ExecutableEnv` (`predict`), the reward of finished
    episodes (`score`) or whole transitions of an ordinary environment (`step`). Anchored episodes return the real reward;
    their predictions meet it as pairs in the corrector, which calibrates the rewards of all the others. A model with a
    method `update` also learns from what was executed. The model sits at the base environment (`env.unwrapped`): wrappers
    in `env_fns` act on predictions as on executions, and the scores in `infos` are those of the base, before them.

    Args:
        env_fns: one function an environment; environments alike.
        world_model: an `OutcomeModel`, `RewardModel` or `DynamicsModel`.
        group_size: slots a group; members of a group share seed and anchor decision in their e-th episodes.
        anchor_fraction: share of the groups that is executed.
        min_anchor_groups: how many groups in flight are anchored at least; None: 1 where `groups * anchor_fraction >= 1`, else
            0.
        corrector: default `Corrector()`; for dynamics models one without a score range that picks its map by what helps.
        seed: of the anchor decisions. Episodes are seeded by `reset(seed=...)`; without it they are not.
        max_episode_steps: time limit of predicted and real episodes; default: the TimeLimit wrapper, else the spec.
        anchor_place: "groups": whole groups are anchored.
        autoreset_mode: NEXT_STEP, SAME_STEP or DISABLED (then reset ended slots with `options={"reset_mask": mask}`).
        retries: further attempts after an infrastructure failure; then the whole group is dropped.
        workers: threads for real executions (default: one a slot, at most 32; 0: the caller's thread, for environments
            that cannot leave it).
        schedule: an `AnchorSchedule` of your own instead of `anchor_fraction`; the default one is adaptive, so that an alarm of
            the audit raises the fraction until the alarm is over.

    Attributes:
        counts: the bill so far, see `wmrl_envs.anchoring.bill.Bill`; also in the infos at the end of an episode.

    `infos["wmrl"]` holds arrays of shape (num_envs,) with masks `_key`, as gymnasium's infos do: `status`, `score`,
    `raw_score`, `best_score`, `predicted`, `calibrated`, `true`, `wall_s` (NaN, or "", where not known); `anchored`, `group`,
    `propensity`, `valid` (False: drop the group `group`, ours failed), `weight` (rho for anchors, 1 for others, 0 if invalid,
    or if predicted while the audit says "freeze") and `audit` (what it says: "none", "raise", "freeze", "stop") always.

    >>> import gymnasium as gym
    >>> class Still:  # a dynamics model
    ...     def step(self, observations, actions):
    ...         return observations, np.ones(len(observations)), np.zeros(len(observations), dtype=bool)
    >>> venv = AnchoredVecEnv([lambda: gym.make("CartPole-v1")] * 8, Still(), max_episode_steps=20)
    >>> _ = venv.reset(seed=1); _, rewards, _, _, infos = venv.step(np.zeros(8, dtype=int))
    >>> int(infos["wmrl"]["anchored"].sum()), rewards.tolist() == [1.0] * 8, venv.counts["real_steps"]
    (1, True, 1)
    >>> venv.close()
    """

    def __init__(
        self,
        env_fns: Iterable[Callable[[], gymnasium.Env]],
        world_model: Any,
        group_size: int = 1,
        anchor_fraction: float = 0.125,
        min_anchor_groups: int | None = None,
        corrector: Corrector | None = None,
        seed: int = 0,
        max_episode_steps: int | None = None,
        anchor_place: str = "groups",
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
        if anchor_place != "groups":
            raise InvalidInput(
                f"anchor_place={anchor_place!r}: expected 'groups', since the slots of a vector environment do not wait for "
                "each other; `wmrl train` also places anchors inside groups."
            )
        schedule = schedule or AnchorSchedule(anchor_fraction, 0, seed, adaptive=True)
        if not schedule.fraction and (corrector is None or corrector.enabled):
            raise InvalidInput(
                "anchor fraction 0 with the corrections on: without anchors nothing can ever be calibrated; raise "
                "anchor_fraction, or pass corrector=Corrector(debias=False, denoise=False)."
            )
        self.num_envs = n
        self.envs = [fn() for fn in env_fns]
        _check_alike(self.envs)
        first = self.envs[0]
        self.kind = world_model_kind(world_model, first)
        self.world_model = world_model
        self.corrector = corrector or default_corrector(self.kind)
        self.corrector.require_weights("AnchoredVecEnv")
        self.max_episode_steps = time_limit(first, max_episode_steps)
        if self.kind == "dynamics" and self.max_episode_steps is None:
            log.warning(
                "No time limit found: predicted episodes end only by the world model's `terminated`; pass max_episode_steps."
            )
        warn_of_statistics(first)
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)
        self.render_mode, self.metadata = first.render_mode, dict(first.metadata)
        self.set_autoreset_mode(autoreset_mode)
        self._threads, self._retries = Threads(min(n, 32) if workers is None else workers), retries
        self._slots = make_slots(
            self.kind, self.envs, world_model, self.corrector, retries=retries, execution=self._threads, grouped=group_size > 1
        )
        least = _least(min_anchor_groups, n // group_size, schedule.fraction)
        # A model that plays its own episode beside an anchor starts it with the anchor's seed, so there must be one.
        self._book = GroupBook(n, group_size, schedule, least, seed, draws_seeds=isinstance(world_model, EpisodicModel))
        self._buffer: Any = create_empty_array(self.single_observation_space, n=n, fn=np.zeros)
        self._elapsed = [0] * n
        self._over = [True] * n  # the episode has ended, the slot waits for its reset
        self._started = False
        self._group_columns = {"anchored": np.zeros(n, dtype=bool), "group": np.zeros(n, dtype=np.int64),
                               "propensity": np.zeros(n), "valid": np.ones(n, dtype=bool)}  # fmt: skip
        self._alarm = Alarm(self.corrector, schedule)

    # -- the gymnasium face ------------------------------------------------------------------------------------------
    def set_autoreset_mode(self, mode: AutoresetMode | str) -> None:
        """NEXT_STEP: the step after the end of an episode resets. SAME_STEP: the last step does, the end is in `final_obs`."""
        self.autoreset_mode = self.metadata["autoreset_mode"] = AutoresetMode(mode)

    @property
    def counts(self) -> dict[str, int]:
        """The bill: `real_steps`, `real_episodes`, `predicted_steps`, `predicted_episodes`, `resets` (real ones)."""
        return self._slots.bill.as_dict()

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of each environment's generator."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The generator of each environment."""
        return self.get_attr("np_random")

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new episode in every slot, or in those of `options["reset_mask"]`.

        An integer seed restarts every random choice from it.
        """
        options = dict(options) if options else None
        mask = options.pop("reset_mask", None) if options else None
        if isinstance(seed, (int, np.integer)) and isinstance(self.world_model, Seedable):
            self.world_model.seed(int(seed))
        if mask is None:
            slots = list(range(self.num_envs))
            self._slots.groups = self._book.start_all(seed)
        else:
            slots = self._masked(mask, seed)
            for slot in slots:
                if not self._over[slot]:
                    self._book.finish(slot)
                self._slots.groups[slot] = self._book.start(slot)
        infos: dict[str, Any] = {}
        columns = Columns(self.num_envs)
        for slot in slots:
            self._begin(slot, options or None, infos, columns)
        self._started = True
        return self._batch(self._slots.observations), columns.into(infos, self._groups())

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if not self._started:
            raise ResetNeeded("step() before reset(): call reset() first.")
        done = self._advance(self._single(actions))
        n = self.num_envs
        rewards, terminated, truncated = np.zeros(n), np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        infos: dict[str, Any] = {}
        finals: dict[str, Any] = {}
        columns, final_columns = Columns(n), Columns(n)
        for transition in done.values():
            if transition.failed:
                self._drop(transition.group)
        same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        groups = self._groups() if same_step else {}  # before slots restart
        for i in range(n) if len(done) < n else ():
            if i not in done:
                self._slots.groups[i] = self._book.start(i)
                self._begin(i, None, infos, columns)
        for i, transition in done.items():
            rewards[i], terminated[i], truncated[i] = transition.reward, transition.terminated, transition.truncated
            self._elapsed[i] += 1
            if not (transition.terminated or transition.truncated):
                self._tell(infos, columns, i, transition)
                continue
            self._end(i, transition)
            if not same_step:
                self._tell(infos, columns, i, transition, self.counts)
                continue
            self._tell(finals, final_columns, i, transition, self.counts)
            self._add_info(infos, {"final_obs": transition.observation}, i)
            self._slots.groups[i] = self._book.start(i)
            self._begin(i, None, infos, columns)
        if not final_columns.empty:
            infos["final_info"], infos["_final_info"] = final_columns.into(finals, groups), terminated | truncated
        self._alarm.heed()
        return self._batch(self._slots.observations), rewards, terminated, truncated, columns.into(infos, self._groups())

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
        return {
            "corrector": self.corrector.state_dict(),
            "groups": self._book.state_dict(),
            "bill": self.counts,
            "seen": self._slots.oracle.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken, with new episodes: call `reset()` (without a seed) next."""
        self.corrector.load_state_dict(state["corrector"])
        self._book.load_state_dict(state["groups"])
        self._slots.bill.load(state.get("bill", {}))
        self._slots.oracle.load_state_dict(state.get("seen", {}))
        self._started = False

    # -- inside ------------------------------------------------------------------------------------------------------
    def _advance(self, actions: list[Any]) -> dict[int, Transition]:
        """Step every slot whose episode goes on; one whose group was dropped is cut short without a step."""
        slots = [i for i in range(self.num_envs) if not self._over[i]]
        if self.autoreset_mode is AutoresetMode.DISABLED and len(slots) < self.num_envs:
            ended = [i for i in range(self.num_envs) if self._over[i]]
            raise ResetNeeded(
                f"step() with the ended slots {ended} in autoreset mode DISABLED: reset them first, "
                "reset(options={'reset_mask': mask})."
            )
        groups = self._slots.groups
        running = [i for i in slots if not groups[i].dropped]
        done: dict[int, Transition] = {}
        if running:
            last = [self._elapsed[i] + 1 == self.max_episode_steps for i in running]
            stepped = self._slots.step(running, [actions[i] for i in running], last)
            for i, at_limit, transition in zip(running, last, stepped, strict=True):
                transition.truncated |= at_limit
                done[i] = transition
        for i in slots:
            if groups[i].dropped:
                done[i] = Transition.lost(self._slots.observations[i], Graded.lost("its group was dropped"))
        for i in slots:
            done[i].group = groups[i]
        return done

    def _single(self, actions: Any) -> list[Any]:
        """A batch of actions as one a slot."""
        space = self.single_action_space
        try:
            if isinstance(space, _ONE_BY_ONE) or (isinstance(actions, list) and len(actions) == self.num_envs):
                acts = list(actions)
            else:
                acts = list(iterate(self.action_space, actions))
        except TypeError:
            raise InvalidInput(f"actions {actions!r:.100}: expected one each for {self.num_envs} environments.") from None
        if len(acts) != self.num_envs:
            raise InvalidInput(f"{len(acts)} actions for {self.num_envs} environments: expected one each.")
        return acts

    def _masked(self, mask: Any, seed: Any) -> list[int]:
        """The slots of a `reset_mask`."""
        if self._book.size > 1:
            raise InvalidInput(
                "options={'reset_mask': ...} with groups of several members, which start their episodes together: leave it out."
            )
        if not isinstance(mask, np.ndarray) or mask.shape != (self.num_envs,) or mask.dtype != bool or not mask.any():
            raise InvalidInput(
                f"reset_mask={mask!r:.100}: expected a numpy array of bool, shape ({self.num_envs},), with at least one True."
            )
        if seed is not None:
            raise InvalidInput(f"reset(seed={seed!r}) with a reset_mask: a seed is for all slots; leave one of the two out.")
        if not self._started and not mask.all():
            raise ResetNeeded("reset() of some slots before the first reset() of all: call reset() first.")
        return np.flatnonzero(mask).tolist()

    def _begin(self, slot: int, options: dict[str, Any] | None, infos: dict[str, Any], columns: Columns) -> None:
        """Reset a slot; where that fails for reasons of ours, its group is dropped and the next step ends the episode."""
        info = self._reset_slot(slot, options)
        self._elapsed[slot], self._over[slot] = 0, False
        group = self._slots.groups[slot]
        of_group = {"anchored": group.anchored, "group": group.id, "propensity": group.propensity, "valid": True}
        for key, value in of_group.items():
            self._group_columns[key][slot] = value
        if info is None:
            columns.add(slot, Graded.lost("it could not be reset"))
            self._drop(group)
            return
        columns.begin(slot)
        self._pass_on(infos, info, slot)

    def _reset_slot(self, slot: int, options: dict[str, Any] | None) -> dict[str, Any] | None:
        """The info of the slot's reset; None after a failure of ours."""
        for attempt in range(self._retries + 1):
            try:
                return self._slots.reset(slot, seed=self._slots.groups[slot].seed, options=options)[1]
            except InfrastructureError as error:
                if attempt == self._retries and self._slots.observations[slot] is None:
                    raise  # it never ran: there is nothing to go on from
                log.warning("Environment %d could not be reset: %s", slot, error)
        return None

    def _end(self, slot: int, transition: Transition) -> None:
        self._over[slot] = True
        self._slots.bill.end(self._slots.groups[slot].anchored)
        self._book.finish(slot)

    def _drop(self, group: Group) -> None:
        if not group.dropped:
            group.dropped = True
            self._group_columns["valid"][self._group_columns["group"] == group.id] = False
            log.warning("Group %d is dropped after an infrastructure failure; its episodes count nowhere.", group.id)

    def _tell(
        self, infos: dict[str, Any], columns: Columns, slot: int, transition: Transition, bill: dict[str, int] | None = None
    ) -> None:
        own = transition.info.get("wmrl")
        columns.add(slot, transition.graded, {**own, **bill} if own and bill else own or bill)
        self._pass_on(infos, transition.info, slot)

    def _pass_on(self, infos: dict[str, Any], info: dict[str, Any], slot: int) -> None:
        """The slot's own info; `wmrl` has columns of its own."""
        if info:
            self._add_info(infos, {key: value for key, value in info.items() if key != "wmrl"}, slot)

    def _groups(self) -> dict[str, np.ndarray]:
        """The columns that say what group a slot is in, and what it weighs now."""
        columns = {key: column.copy() for key, column in self._group_columns.items()}
        predicted = 0.0 if self._alarm.freezes else 1.0
        columns["weight"] = np.where(columns["anchored"], self.corrector.rho, predicted) * columns["valid"]
        columns["audit"] = np.full(self.num_envs, self._alarm.says)
        return columns

    def _batch(self, observations: list[Any]) -> Any:
        if isinstance(self.single_observation_space, _ONE_BY_ONE):  # as below, in a third of the time
            return np.array(observations, dtype=self.single_observation_space.dtype)
        self._buffer = concatenate(self.single_observation_space, observations, self._buffer)
        return deepcopy(self._buffer)


def default_corrector(kind: str) -> Corrector:
    """For dynamics models: rewards have no range, and a map is used where it lowered the error of pairs it had not seen."""
    return Corrector(score_range=None, direction="auto") if kind == "dynamics" else Corrector()


def _least(min_anchor_groups: int | None, n_groups: int, fraction: float) -> int:
    """Groups in flight that are anchored at least: by default one, where the fraction pays for it."""
    if min_anchor_groups is None:
        return int(n_groups * fraction >= 1)
    if isinstance(min_anchor_groups, bool) or min_anchor_groups not in range(n_groups + 1):
        raise InvalidInput(f"min_anchor_groups={min_anchor_groups!r}: expected 0 to {n_groups}, the number of groups, or None.")
    return min_anchor_groups if fraction else 0


def _check_alike(envs: Sequence[gymnasium.Env]) -> None:
    if len({id(env.unwrapped) for env in envs}) != len(envs):
        raise InvalidInput("env_fns returned the same environment twice: each function must make a new one.")
    first = envs[0]
    for i, env in enumerate(envs):
        for what in ("observation_space", "action_space"):
            if getattr(env, what) != getattr(first, what):
                raise InvalidInput(
                    f"environment {i} has the {what.replace('_', ' ')} {getattr(env, what)}, environment 0 has "
                    f"{getattr(first, what)}: expected the same in all."
                )
