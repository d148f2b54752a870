"""`EnsembleDynamics`: a learned environment, as a probabilistic ensemble fitted on the transitions of anchor episodes.

After Chua et al. 2018 (PETS): several networks predict mean and variance of the change of the observation and of the
reward. A rollout follows one member, so that what the members disagree about stays uncertain and is not averaged away within
it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from wmrl_envs.chain import Chain
from wmrl_envs.errors import InvalidInput, MissingExtra

log = logging.getLogger(__name__)

Rule = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]  # (observations, actions, next observations) -> one each
_STARTS = 64  # real starts before predicted episodes draw from them
_MOST_STARTS = 1000


class EnsembleDynamics:
    """A `DynamicsModel` for Box observations and Box or Discrete actions of the base environment; needs torch.

    Args:
        observation_space: of the single environment, at its base (`env.unwrapped`).
        action_space: of the same.
        members: number of networks.
        hidden: width of their two layers.
        capacity: latest transitions kept.
        refit_every: new transitions between fits once fitted.
        gradient_steps: steps of a fit, on batches of 256.
        learning_rate: of Adam.
        sample: draw a member and its noise (False: the mean of all, deterministic).
        seed: of weights, batches and samples.
        termination_fn: (observations, actions, next observations) -> terminated (n,), where it is known; else it is learned.
        reward_fn: likewise -> rewards (n,).
        max_predicted_steps: predicted episodes start at random real states that were seen and are truncated after so many steps
            (short branched rollouts, where errors pile up over long ones); default: whole episodes from real starts.
        stop_at: predicted episodes are truncated where the members' `disagreement` is above this.
        penalty: rewards of predictions less this times the `disagreement`.
        own_starts: predicted episodes start from one of the latest 1,000 real starts, once there are 64, so that the real reset
            is spared.

    `update` takes transitions of real steps (`AnchoredVecEnv` calls it), `step` predicts once `fit` has run.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        members: int = 5,
        hidden: int = 128,
        capacity: int = 100_000,
        refit_every: int = 1000,
        gradient_steps: int = 300,
        learning_rate: float = 1e-3,
        sample: bool = True,
        seed: int = 0,
        termination_fn: Rule | None = None,
        reward_fn: Rule | None = None,
        max_predicted_steps: int | None = None,
        stop_at: float | None = None,
        penalty: float = 0.0,
        own_starts: bool = True,
    ):
        if not isinstance(observation_space, spaces.Box) or not isinstance(action_space, (spaces.Box, spaces.Discrete)):
            raise InvalidInput(
                f"EnsembleDynamics of {observation_space} and {action_space}: expected Box observations and Box or Discrete "
                "actions."
            )
        if max_predicted_steps is not None and max_predicted_steps < 1:
            raise InvalidInput(f"max_predicted_steps={max_predicted_steps!r}: expected a whole number of at least 1, or None.")
        torch = self._torch
        self._obs_shape = observation_space.shape
        self._n_actions = int(action_space.n) if isinstance(action_space, spaces.Discrete) else 0
        self._first_action = int(action_space.start) if isinstance(action_space, spaces.Discrete) else 0
        self._size = int(np.prod(self._obs_shape))
        inputs = self._size + (self._n_actions or int(np.prod(action_space.shape or ())))
        self.members, self.capacity, self.refit_every, self.gradient_steps = members, capacity, refit_every, gradient_steps
        self.sample, self.fitted, self.n_transitions = sample, False, 0
        self.termination_fn, self.reward_fn = termination_fn, reward_fn
        self.max_predicted_steps, self.stop_at, self.penalty, self.own_starts = (
            max_predicted_steps,
            stop_at,
            penalty,
            own_starts,
        )
        self.seed(seed)
        generator = torch.Generator().manual_seed(seed)

        def layer(n_in: int, n_out: int, copies: int) -> list[Any]:
            weight = torch.randn(copies, n_in, n_out, generator=generator) * (2 / (n_in + n_out)) ** 0.5
            return [weight.requires_grad_(), torch.zeros(copies, 1, n_out, requires_grad=True)]

        outputs = self._size + 1  # change of the observation, reward
        self._dynamics = layer(inputs, hidden, members) + layer(hidden, hidden, members) + layer(hidden, 2 * outputs, members)
        self._ending = layer(self._size, hidden, 1) + layer(hidden, hidden, 1) + layer(hidden, 1, 1)  # of the next observation
        self._optimizer = torch.optim.Adam([*self._dynamics, *self._ending], lr=learning_rate)
        self._scales = [torch.zeros(inputs), torch.ones(inputs), torch.zeros(outputs), torch.ones(outputs)]
        self._inputs = np.zeros((0, inputs), dtype=np.float32)
        self._targets = np.zeros((0, outputs), dtype=np.float32)
        self._ends = np.zeros(0, dtype=np.float32)
        self._paid = (-np.inf, np.inf)  # lowest and highest reward of these
        self._new: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._since_fit = 0
        self._log_balance = 0.0
        self._starts: deque[np.ndarray] = deque(maxlen=_MOST_STARTS)
        self._given: OrderedDict[int, np.ndarray] = (
            OrderedDict()
        )  # seed -> the start it was given: members of a group start alike
        self._member: dict[int, int] = {}  # slot -> who predicts its episode
        self._steps: dict[int, int] = {}  # slot -> steps of its episode

    @property
    def _torch(self) -> Any:  # a module is no attribute: it cannot be pickled
        try:
            import torch
        except ImportError:
            raise MissingExtra("torch", "train", "EnsembleDynamics") from None
        return torch

    def seed(self, seed: int) -> None:
        """Start the stream of samples over."""
        self._rng = np.random.default_rng(seed)

    # -- learning ----------------------------------------------------------------------------------------------------
    def update(self, observations: Any, actions: Any, rewards: Any, next_observations: Any, terminated: Any) -> None:
        """Take in real transitions, shapes (n, *obs), (n, *act), (n,), (n, *obs), (n,); refit if due."""
        before, after = (np.asarray(o, dtype=np.float32).reshape(-1, self._size) for o in (observations, next_observations))
        targets = np.concatenate([after - before, np.asarray(rewards, dtype=np.float32).reshape(-1, 1)], axis=1)
        ends = np.asarray(terminated, dtype=np.float32).reshape(-1)
        self._new.append((self._encode(before, actions), targets, ends))  # joined to the others by the next fit
        self.n_transitions += len(before)
        self._since_fit += len(before)
        if self.fitted and self._since_fit >= self.refit_every:
            self.fit()

    def collect(self, env: gymnasium.Env, steps: int, seed: int = 0) -> EnsembleDynamics:
        """Take in `steps` real steps of random actions and fit: a start before there are anchors.

        What is taken in are the transitions of the base environment, whatever wrappers are around it.
        """
        chain, rows = Chain(env, "step"), list[tuple[Any, ...]]()

        def real(action: Any) -> Any:
            before, result = chain.observation, chain.real(action)
            rows.append((before, action, float(result[1]), result[0], bool(result[2])))
            chain.observation = result[0]
            return result

        env.action_space.seed(seed)
        chain.reset(seed=seed)
        self._starts.append(np.asarray(chain.observation))
        while len(rows) < steps:
            _, _, terminated, truncated, _ = chain.step(env.action_space.sample(), real)
            if (terminated or truncated) and len(rows) < steps:
                chain.reset()
                self._starts.append(np.asarray(chain.observation))
        self.update(*(np.array(column) for column in zip(*rows, strict=True)))
        self.fit()
        return self

    def fit(self) -> float:
        """Gradient steps on the transitions kept, from where the last fit ended; returns the last loss."""
        torch = self._torch
        self._join()
        if len(self._inputs) < 2:
            raise InvalidInput(
                f"{len(self._inputs)} transitions: expected at least 2 before a fit; call update or collect first."
            )
        x, y, ends = (torch.from_numpy(a) for a in (self._inputs, self._targets, self._ends))
        self._rescale([x.mean(0), x.std(0).clamp_min(1e-3), y.mean(0), y.std(0).clamp_min(1e-3)])
        mean_x, std_x, mean_y, std_y = self._scales
        x_scaled, y_scaled = (x - mean_x) / std_x, (y - mean_y) / std_y
        next_scaled = (x[:, : self._size] + y[:, : self._size] - mean_x[: self._size]) / std_x[: self._size]
        balance = ((1 - ends).sum() / ends.sum().clamp_min(1.0)).clamp(1.0, 20.0)  # ends are rare
        self._log_balance = float(balance.log())
        loss = torch.zeros(())
        for _ in range(self.gradient_steps):
            # Every member sees its own batch: that, and its own start, is what makes members differ.
            rows = torch.from_numpy(self._rng.integers(len(x), size=(self.members, min(256, len(x)))))
            mean, log_var = self._forward(x_scaled[rows])
            fit = (((y_scaled[rows] - mean) ** 2) * (-log_var).exp() + log_var).mean()
            logit = _network(torch, self._ending, next_scaled[rows[:1]])[..., 0]
            end = torch.nn.functional.binary_cross_entropy_with_logits(logit, ends[rows[:1]], pos_weight=balance)
            loss = fit + end
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
        self.fitted, self._since_fit = True, 0
        log.info("Dynamics ensemble fitted on %d transitions, loss %.3f.", len(x), loss.item())
        return loss.item()

    def _join(self) -> None:
        """New transitions to those kept."""
        kept = (self._inputs, self._targets, self._ends)
        joined = (np.concatenate(parts)[-self.capacity :] for parts in zip(kept, *self._new, strict=True))
        self._inputs, self._targets, self._ends = joined
        self._new.clear()
        self._note_paid()

    def _note_paid(self) -> None:
        """The range of the rewards there are: predictions stay in it."""
        if len(self._targets):
            self._paid = float(self._targets[:, -1].min()), float(self._targets[:, -1].max())

    def _rescale(self, scales: list[Any]) -> None:
        """New scales of inputs and outputs, with first and last layers changed so that the networks still say the same."""
        torch, old = self._torch, self._scales
        self._scales = scales
        if not self.fitted:
            return
        with torch.no_grad():
            for layers, n in ((self._dynamics, len(scales[0])), (self._ending, self._size)):
                shift, ratio = (scales[0][:n] - old[0][:n]) / old[1][:n], scales[1][:n] / old[1][:n]
                layers[1] += (shift @ layers[0])[:, None]
                layers[0] *= ratio[:, None]
            weight, bias, n = self._dynamics[-2], self._dynamics[-1], len(scales[2])
            ratio = old[3] / scales[3]
            weight[..., :n] *= ratio
            bias[..., :n] = bias[..., :n] * ratio + (old[2] - scales[2]) / scales[3]
            bias[..., n:] += 2 * ratio.log()

    # -- predicting --------------------------------------------------------------------------------------------------
    def begin(
        self, slot: int, *, seed: int | None, options: dict[str, Any] | None, observation: Any
    ) -> tuple[Any, dict[str, Any]] | None:
        """An episode begins in the slot: who predicts it, and where it starts if that is left to the model."""
        self._member[slot], self._steps[slot] = int(self._rng.integers(self.members)), 0
        if observation is not None:
            self._starts.append(np.asarray(observation))
            return None
        start = self._start(seed)
        return None if start is None else (start, {})

    def _start(self, seed: int | None) -> np.ndarray | None:
        """A state to start at; the same for the same seed, so that members of a group start alike."""
        if seed is not None and seed in self._given:
            return self._given[seed].copy()
        rng = self._rng if seed is None else np.random.default_rng(seed)
        if self.max_predicted_steps is not None and self.fitted:
            start = self._inputs[int(rng.integers(len(self._inputs))), : self._size].reshape(self._obs_shape)
        elif self.own_starts and len(self._starts) >= _STARTS:
            start = self._starts[int(rng.integers(len(self._starts)))]
        else:
            return None
        if seed is not None:
            self._given[seed] = start
            while len(self._given) > 4 * _MOST_STARTS:
                self._given.popitem(last=False)
        return start.copy()

    def step(self, observations: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Next observations (n, *obs), rewards (n,) and terminated (n,) of a batch of steps, by members drawn for each row."""
        return self._predict(observations, actions, None)[:3]

    def step_slots(
        self, slots: Sequence[int], observations: np.ndarray, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `step`, by the member of each slot's episode; and truncated (n,): after `max_predicted_steps`, or at `stop_at`."""
        members = np.array([self._member.setdefault(slot, int(self._rng.integers(self.members))) for slot in slots])
        after, rewards, terminated, spread = self._predict(observations, actions, members)
        for slot in slots:
            self._steps[slot] = self._steps.get(slot, 0) + 1
        most = self.max_predicted_steps
        truncated = np.array([most is not None and self._steps[slot] >= most for slot in slots])
        if self.stop_at is not None:
            truncated |= spread > self.stop_at
        return after, rewards, terminated, truncated & ~terminated

    def _predict(
        self, observations: np.ndarray, actions: np.ndarray, members: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Next observations, rewards, terminated, and the disagreement of the members where it is needed (else 0),
        each (n, ...).
        """
        torch = self._torch
        if not self.fitted:
            raise InvalidInput(
                "EnsembleDynamics has seen no transitions: call collect(env, steps) or update(...) and fit() first."
            )
        mean_x, std_x, mean_y, std_y = self._scales
        before = np.asarray(observations, dtype=np.float32).reshape(-1, self._size)
        n = len(before)
        x = (torch.from_numpy(self._encode(before, actions)) - mean_x) / std_x
        with torch.no_grad():
            mean, log_var = self._forward(x.expand(self.members, n, -1))
            if self.sample:
                drawn = self._rng.integers(self.members, size=n) if members is None else members
                chosen = torch.from_numpy(drawn), torch.arange(n)
                noise = torch.from_numpy(self._rng.standard_normal((n, mean.shape[-1])).astype(np.float32))
                y = mean[chosen] + noise * (log_var[chosen] / 2).exp()
            else:
                y = mean.mean(0)
            y = y * std_y + mean_y
            flat = torch.from_numpy(before) + y[:, : self._size]
            logit = _network(torch, self._ending, ((flat - mean_x[: self._size]) / std_x[: self._size])[None])[0, :, 0]
            needed = self.penalty or self.stop_at is not None
            spread = mean.std(0).mean(-1).numpy() if needed else np.zeros(n, dtype=np.float32)
        after = flat.numpy().reshape(n, *self._obs_shape)
        seen = before.reshape(n, *self._obs_shape)
        rewards, terminated = y[:, -1].numpy().astype(float), (logit > self._log_balance).numpy()
        rewards = np.clip(rewards, *self._paid)
        if self.reward_fn is not None:
            rewards = np.asarray(self.reward_fn(seen, actions, after), dtype=float)
        if self.termination_fn is not None:
            terminated = np.asarray(self.termination_fn(seen, actions, after), dtype=bool)
        return after, rewards - self.penalty * spread, terminated, spread

    def disagreement(self, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Standard deviation between the members' mean predictions, in units of the data's, averaged over outputs;
        shape (n,).
        """
        mean_x, std_x, _, _ = self._scales
        before = np.asarray(observations, dtype=np.float32).reshape(-1, self._size)
        x = (self._torch.from_numpy(self._encode(before, actions)) - mean_x) / std_x
        with self._torch.no_grad():
            mean, _ = self._forward(x.expand(self.members, len(before), -1))
        return mean.std(0).mean(-1).numpy()

    def _encode(self, flat_observations: np.ndarray, actions: Any) -> np.ndarray:
        n = len(flat_observations)
        if self._n_actions:
            acted = np.eye(self._n_actions, dtype=np.float32)[np.asarray(actions).reshape(n).astype(int) - self._first_action]
        else:
            acted = np.asarray(actions, dtype=np.float32).reshape(n, -1)
        return np.concatenate([flat_observations, acted], axis=1)

    def _forward(self, x: Any) -> tuple[Any, Any]:
        mean, log_var = _network(self._torch, self._dynamics, x).chunk(2, dim=-1)
        return mean, log_var.clamp(-10.0, 2.0)

    # -- state -------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Weights, optimizer, scales and data as tensors (for `torch.save`, loadable with `weights_only`)."""
        torch = self._torch
        self._join()
        starts = np.stack(self._starts) if self._starts else np.zeros((0, *self._obs_shape))
        return {
            "dynamics": [w.detach().clone() for w in self._dynamics],
            "ending": [w.detach().clone() for w in self._ending],
            "optimizer": self._optimizer.state_dict(),
            "scales": [s.clone() for s in self._scales],
            "log_balance": self._log_balance,
            "fitted": self.fitted,
            "n_transitions": self.n_transitions,
            "since_fit": self._since_fit,
            "inputs": torch.from_numpy(self._inputs.copy()),
            "targets": torch.from_numpy(self._targets.copy()),
            "ends": torch.from_numpy(self._ends.copy()),
            "starts": torch.from_numpy(starts.astype(np.float32)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`; of version 0.1 too, which kept no data."""
        with self._torch.no_grad():
            for own, saved in zip([*self._dynamics, *self._ending], [*state["dynamics"], *state["ending"]], strict=True):
                own.copy_(saved)
        self._log_balance = state["log_balance"]
        self._scales, self.fitted, self.n_transitions = list(state["scales"]), state["fitted"], state["n_transitions"]
        if "inputs" not in state:
            return
        self._optimizer.load_state_dict(state["optimizer"])
        self._since_fit, self._new = int(state["since_fit"]), []
        self._inputs, self._targets, self._ends = (state[name].numpy().copy() for name in ("inputs", "targets", "ends"))
        self._note_paid()
        self._starts = deque(state["starts"].numpy().copy(), maxlen=_MOST_STARTS)


def _network(torch: Any, layers: list[Any], x: Any) -> Any:
    """Two hidden layers for a batch of each member: (members, n, in) -> (members, n, out)."""
    for i in range(0, len(layers), 2):
        x = torch.baddbmm(layers[i + 1].expand(-1, x.shape[1], -1), x, layers[i])
        if i < len(layers) - 2:
            x = torch.nn.functional.silu(x)
    return x
