"""Test doubles: environments and world models whose every answer is known."""

import threading
import time

import gymnasium
import numpy as np
from gymnasium import spaces

from wmrl_envs.context import TaskContext
from wmrl_envs.envs.executable import ExecutableEnv
from wmrl_envs.errors import InfrastructureError
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution
from wmrl_envs.spaces import UnicodeText


class Guess(ExecutableEnv):
    """Executable: the true score of action a in 0..10 is a / 10, shifted by the task drawn at reset. `turns` steps."""

    def __init__(self, turns=2, execute_s=0.0, failures=None, text=False):
        self.turns, self.execute_s, self.failures = turns, execute_s, failures if failures is not None else []
        self.observation_space = UnicodeText(20) if text else spaces.Box(0, 10, (2,), np.float32)
        self.action_space = UnicodeText(20) if text else spaces.Discrete(11)
        self.text = text
        self.executions = self.closed = 0
        self.threads = set()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeded_with = seed
        self.task, self.turn, self.best = int(self.np_random.integers(1000)), 0, 0.0
        return self._observation(), {}

    def _observation(self):
        return f"turn {self.turn} é" if self.text else np.array([self.turn, self.best], dtype=np.float32)

    def propose(self, action):
        return Solution(action=int(str(action).split()[-1]), task=f"task{self.task}")

    def execute(self, solution):
        self.executions += 1
        self.threads.add(threading.get_ident())
        time.sleep(self.execute_s)
        if self.failures and self.failures.pop(0):
            return Outcome(ExecutionStatus.INFRA_ERROR)
        return Outcome(ExecutionStatus.OK, score=solution.action / 10, raw_score=float(solution.action), wall_s=self.execute_s)

    def observe(self, outcome):
        self.turn += 1
        before, self.best = self.best, max(self.best, outcome.score)
        failed = outcome.is_infra_error
        info = {"wmrl": {"best_score": self.best}}
        return self._observation(), self.best - before, self.turn >= self.turns and not failed, failed, info

    def context(self):
        return TaskContext(task=f"task{self.task}")

    def close(self):
        self.closed += 1


class HalfScores:
    """Outcome model: predicts half the true score plus 0.2; counts its calls and learns by `update`."""

    def __init__(self, predict_s=0.0):
        self.predict_s, self.batches, self.learned = predict_s, [], []

    def predict(self, solutions, contexts):
        assert len(solutions) == len(contexts)
        self.batches.append(len(solutions))
        time.sleep(self.predict_s)
        return [Outcome(ExecutionStatus.OK, score=0.2 + s.action / 20, source="predicted") for s in solutions]

    def update(self, solutions, contexts, outcomes):
        self.learned += [o.score for o in outcomes]


class Drift(gymnasium.Env):
    """Ordinary environment: x moves by the action in {0, 1}; the reward is x / 10; ends at x = `end`."""

    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, end=5, render_mode=None, step_s=0.0):
        self.end, self.render_mode, self.step_s, self.steps = end, render_mode, step_s, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0.0
        self.start = float(self.np_random.random())
        return np.array([0.0], dtype=np.float32), {"start": self.start}

    def step(self, action):
        time.sleep(self.step_s)
        self.steps += 1
        self.x += float(action)
        return np.array([self.x], dtype=np.float32), self.x / 10, self.x >= self.end, False, {"x": self.x}


class DriftModel:
    """Dynamics model of `Drift`, right but for rewards of 0.8 times the true ones."""

    def __init__(self, end=5, step_s=0.0):
        self.end, self.step_s, self.batches, self.learned = end, step_s, [], []

    def step(self, observations, actions):
        self.batches.append(len(observations))
        time.sleep(self.step_s)
        after = observations + np.asarray(actions)[:, None]
        return after, 0.8 * after[:, 0] / 10, after[:, 0] >= self.end

    def update(self, observations, actions, rewards, next_observations, terminated):
        self.learned.append((observations.copy(), actions.copy(), rewards.copy(), next_observations.copy(), terminated.copy()))


class Down:
    """A world model of any kind whose server is gone: the first `answers` questions are answered by `model`, the others fail."""

    def __init__(self, model, answers=0):
        self.model, self.answers, self.asked = model, answers, 0
        for method in ("predict", "step", "score"):
            if hasattr(model, method):
                setattr(self, method, self._fail(method))

    def _fail(self, method):
        def ask(*arguments):
            self.asked += 1
            if self.asked > self.answers:
                raise InfrastructureError("the server is gone")
            return getattr(self.model, method)(*arguments)

        return ask


class LastObservation:
    """Reward model: the score is the last observation over 10; counts episodes and their lengths."""

    def __init__(self):
        self.calls, self.lengths = 0, []

    def score(self, episodes):
        self.calls += 1
        self.lengths += [len(e.observations) for e in episodes]
        return np.array([float(np.asarray(e.observations[-1]).ravel()[0]) / 10 for e in episodes])
