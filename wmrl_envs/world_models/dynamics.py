"""`EnsembleDynamics`: a learned environment, as a probabilistic ensemble fitted on the transitions of anchor episodes.

After Chua et al. 2018 (PETS): several networks predict mean and variance of the change of the observation and of the
reward; a step draws one member at random for each row, so that what the members disagree about stays uncertain.
"""

from __future__ import annotations

import logging
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from wmrl_envs.errors import InvalidInput, MissingExtra

log = logging.getLogger(__name__)


class EnsembleDynamics:
    """A `DynamicsModel` for Box observations and Box or Discrete actions; needs torch.

    Args:
        observation_space, action_space: of the single environment.
        members: networks. hidden: width of their two layers.
        capacity: latest transitions kept. refit_every: new transitions between fits once fitted.
        gradient_steps: of a fit, batches of 256. learning_rate: Adam.
        sample: draw a member and its noise (False: the mean of all, deterministic).
        seed: of weights, batches and samples.

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
    ):
        if not isinstance(observation_space, spaces.Box) or not isinstance(action_space, (spaces.Box, spaces.Discrete)):
            raise InvalidInput(
                f"EnsembleDynamics of {observation_space} and {action_space}: expected Box observations and Box or Discrete actions."
            )
        try:
            import torch
        except ImportError:
            raise MissingExtra("torch", "train", "EnsembleDynamics") from None
        self._torch = torch
        self._obs_shape = observation_space.shape
        self._n_actions = int(action_space.n) if isinstance(action_space, spaces.Discrete) else 0
        self._first_action = int(action_space.start) if isinstance(action_space, spaces.Discrete) else 0
        self._size = int(np.prod(self._obs_shape))
        inputs = self._size + (self._n_actions or int(np.prod(action_space.shape or ())))
        self.members, self.capacity, self.refit_every, self.gradient_steps = members, capacity, refit_every, gradient_steps
        self.sample, self.fitted, self.n_transitions = sample, False, 0
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
        self._new: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._since_fit = 0
        self._log_balance = 0.0

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
        """Take in `steps` real steps of random actions and fit: a start before there are anchors."""
        env.action_space.seed(seed)
        obs, _ = env.reset(seed=seed)
        rows = []
        for _ in range(steps):
            action = env.action_space.sample()
            after, reward, terminated, truncated, _ = env.step(action)
            rows.append((obs, action, reward, after, terminated))
            obs = env.reset()[0] if terminated or truncated else after
        self.update(*(np.array(column) for column in zip(*rows, strict=True)))
        self.fit()
        return self

    def fit(self) -> float:
        """Gradient steps on the transitions kept, from where the last fit ended; returns the last loss."""
        torch = self._torch
        kept = (self._inputs, self._targets, self._ends)
        joined = (np.concatenate(parts)[-self.capacity :] for parts in zip(kept, *self._new, strict=True))
        self._inputs, self._targets, self._ends = joined
        self._new.clear()
        if len(self._inputs) < 2:
            raise InvalidInput(
                f"{len(self._inputs)} transitions: expected at least 2 before a fit; call update or collect first."
            )
        x, y, ends = (torch.from_numpy(a) for a in (self._inputs, self._targets, self._ends))
        if not self.fitted:  # scales stay as first measured, or the networks would have to learn them again
            self._scales = [x.mean(0), x.std(0).clamp_min(1e-3), y.mean(0), y.std(0).clamp_min(1e-3)]
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

    # -- predicting --------------------------------------------------------------------------------------------------
    def step(self, observations: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Next observations (n, *obs), rewards (n,) and terminated (n,) of a batch of steps."""
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
                chosen = torch.from_numpy(self._rng.integers(self.members, size=n)), torch.arange(n)
                noise = torch.from_numpy(self._rng.standard_normal((n, mean.shape[-1])).astype(np.float32))
                y = mean[chosen] + noise * (log_var[chosen] / 2).exp()
            else:
                y = mean.mean(0)
            y = y * std_y + mean_y
            after = torch.from_numpy(before) + y[:, : self._size]
            logit = _network(torch, self._ending, ((after - mean_x[: self._size]) / std_x[: self._size])[None])[0, :, 0]
        return after.numpy().reshape(n, *self._obs_shape), y[:, -1].numpy().astype(float), (logit > self._log_balance).numpy()

    def disagreement(self, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Standard deviation between the members' mean predictions, in units of the data's, averaged over outputs; shape (n,)."""
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
        """Weights and scales as tensors (for `torch.save`, loadable with `weights_only`); transitions are not part of it."""
        return {"dynamics": [w.detach().clone() for w in self._dynamics], "ending": [w.detach().clone() for w in self._ending],
                "scales": [s.clone() for s in self._scales], "log_balance": self._log_balance, "fitted": self.fitted, "n_transitions": self.n_transitions}  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with self._torch.no_grad():
            for own, saved in zip([*self._dynamics, *self._ending], [*state["dynamics"], *state["ending"]], strict=True):
                own.copy_(saved)
        self._log_balance = state["log_balance"]
        self._scales, self.fitted, self.n_transitions = list(state["scales"]), state["fitted"], state["n_transitions"]


def _network(torch: Any, layers: list[Any], x: Any) -> Any:
    """Two hidden layers for a batch of each member: (members, n, in) -> (members, n, out)."""
    for i in range(0, len(layers), 2):
        x = torch.baddbmm(layers[i + 1].expand(-1, x.shape[1], -1), x, layers[i])
        if i < len(layers) - 2:
            x = torch.nn.functional.silu(x)
    return x
