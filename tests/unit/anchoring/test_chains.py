"""Wrappers around the base environment act in predicted steps as in real ones, in every kind, once."""

import threading

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import (
    ClipAction,
    RecordEpisodeStatistics,
    RescaleAction,
    StickyAction,
    TimeAwareObservation,
    TimeLimit,
    TransformReward,
)

from wmrl_envs import AnchoredVecEnv, WorldModelEnv
from wmrl_envs.anchoring.side_by_side import SideBySide
from wmrl_envs.chain import Chain
from wmrl_envs.context import TaskContext
from wmrl_envs.correction import Corrector
from wmrl_envs.envs.executable import ExecutableEnv
from wmrl_envs.errors import InfrastructureError
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution

STEPS = 40
ACTIONS = np.random.default_rng(0).random((STEPS, 1)).astype(np.float32)


class Walk(gymnasium.Env):
    """The observation is the sum of the actions so far, the reward the action."""

    observation_space = spaces.Box(-1e3, 1e3, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = np.zeros(1, dtype=np.float32)
        return self.at, {}

    def step(self, action):
        self.at = (self.at + action).astype(np.float32)
        return self.at, float(action[0]), False, False, {}


class WalkProgram(Walk, ExecutableEnv):
    def propose(self, action):
        return Solution(task="walk", action=np.array(action))

    def execute(self, solution):
        return Outcome(ExecutionStatus.OK, score=float(np.clip(solution.action[0], 0, 1)))

    def observe(self, outcome):
        return Walk.step(self, np.array([outcome.score], dtype=np.float32))

    def context(self):
        return TaskContext("walk")

    def step(self, action):
        return ExecutableEnv.step(self, action)


class Outcomes:
    def predict(self, solutions, contexts):
        return [Outcome(ExecutionStatus.OK, score=float(np.clip(s.action[0], 0, 1)), source="predicted") for s in solutions]


class Dynamics:
    def step(self, observations, actions):
        return observations + actions, actions[:, 0].astype(float), np.zeros(len(actions), dtype=bool)


class Returns:
    """Reward model: the sum of the actions; right."""

    def score(self, episodes):
        return np.array([float(np.sum(e.actions)) for e in episodes])


class Halve(gymnasium.Wrapper):
    """Changes the action in `step`, without being an ActionWrapper."""

    def step(self, action):
        return self.env.step(np.asarray(action) / 2)


class Counting(gymnasium.ActionWrapper):
    def reset(self, **arguments):
        self.calls = 0
        return super().reset(**arguments)

    def action(self, action):
        self.calls += 1
        return action * 0.5 ** (self.calls % 3)  # stateful


class Twice(gymnasium.Wrapper):
    """Repeats every action."""

    def step(self, action):
        first = self.env.step(action)
        if first[2] or first[3]:
            return first
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, first[1] + reward, terminated, truncated, info


WRAPPERS = {
    "changes the action in step": Halve,
    "stateful ActionWrapper": Counting,
    "random StickyAction": lambda env: StickyAction(env, 0.4),
    "ClipAction": lambda env: ClipAction(TransformActionTo(env)),
    "RescaleAction": lambda env: RescaleAction(env, np.float32(0), np.float32(1)),
    "TransformReward": lambda env: TransformReward(env, lambda r: 100 * r),
    "TimeAwareObservation": lambda env: TimeAwareObservation(TimeLimit(env, STEPS + 1)),
    "TimeLimit": lambda env: TimeLimit(env, STEPS),
    "frame skip": Twice,
}
KINDS = {"outcome": (WalkProgram, Outcomes), "dynamics": (Walk, Dynamics), "reward": (Walk, Returns)}


def TransformActionTo(env):
    """A base whose action leaves its space unless it is clipped."""
    return gymnasium.wrappers.TransformAction(env, lambda a: a * 0.9, env.action_space)


def played(step, make_result):
    out = []
    for action in ACTIONS:
        obs, reward, terminated, truncated = make_result(step(action))
        out.append((np.ravel(obs).tolist(), float(reward), bool(terminated), bool(truncated)))
        if terminated or truncated:
            break
    return out


def rows(out):
    return np.array([[*obs, reward, terminated, truncated] for obs, reward, terminated, truncated in out])


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("kind", ["outcome", "dynamics"])
def test_plain_environment_world_model_env_and_both_kinds_of_slot_agree(kind, name):
    env_class, model_class = KINDS[kind]
    wrap = WRAPPERS[name]
    plain = wrap(env_class())
    plain.reset(seed=3)
    expected = rows(played(plain.step, lambda r: r[:4]))
    single = WorldModelEnv(wrap(env_class()), model_class(), max_episode_steps=2 * STEPS)
    single.reset(seed=3)
    assert rows(played(single.step, lambda r: r[:4])) == pytest.approx(expected, abs=1e-5)
    venv = AnchoredVecEnv([lambda: wrap(env_class())] * 2, model_class(), group_size=1, anchor_fraction=0.5, min_anchor_groups=1,
                          max_episode_steps=2 * STEPS, corrector=Corrector(debias=False, score_range=None))  # fmt: skip
    _, infos = venv.reset(seed=[3, 3])
    assert sorted(infos["wmrl"]["anchored"].tolist()) == [False, True]
    for slot in (0, 1):
        venv.reset(seed=[3, 3])
        got = rows(played(lambda a: venv.step(np.stack([a, a])), lambda r: [x[slot] for x in r[:4]]))  # noqa: B023
        assert got == pytest.approx(expected, abs=1e-5)
    venv.close()


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_reward_model_sees_the_base_and_its_reward_passes_the_wrappers(name):
    wrap = WRAPPERS[name]

    def total(step):
        return sum(reward for _, reward, *_ in played(step, lambda r: r[:4]))

    plain = wrap(Walk())
    plain.reset(seed=3)
    expected = total(plain.step)
    off = Corrector(debias=False, score_range=None)
    single = WorldModelEnv(wrap(Walk()), Returns(), max_episode_steps=STEPS, corrector=off)
    single.reset(seed=3)
    assert total(single.step) == pytest.approx(expected, abs=1e-3) or name == "frame skip"
    venv = AnchoredVecEnv([lambda: wrap(Walk())] * 2, Returns(), anchor_fraction=0.5, max_episode_steps=STEPS, corrector=off,
                          autoreset_mode="SameStep")  # fmt: skip
    for slot in (0, 1):
        venv.reset(seed=[3, 3])
        got = total(lambda a: [x[slot] for x in venv.step(np.stack([a, a]))[:4]])  # noqa: B023
        assert got == pytest.approx(expected, abs=1e-3) or name == "frame skip"
    venv.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_action_wrapper_is_called_once_a_step(kind):
    env_class, model_class = KINDS[kind]
    for fraction in (0.0, 1.0):
        off = Corrector(debias=False, denoise=False, score_range=None)
        venv = AnchoredVecEnv([lambda: Counting(env_class())] * 3, model_class(), anchor_fraction=fraction, corrector=off,
                              max_episode_steps=9)  # fmt: skip
        venv.reset(seed=0)
        venv.step(np.zeros((3, 1), dtype=np.float32))
        assert [env.calls for env in venv.envs] == [1, 1, 1]
        venv.close()


def test_episode_statistics_count_predicted_rewards():
    venv = AnchoredVecEnv([lambda: RecordEpisodeStatistics(TimeLimit(Walk(), 3))] * 2, Dynamics(), anchor_fraction=0.5)
    venv.reset(seed=0)
    for _ in range(3):
        venv.step(np.ones((2, 1), dtype=np.float32))
    assert [list(env.return_queue) for env in venv.envs] == [[3.0], [3.0]]
    venv.close()


def test_a_wrapper_that_steps_while_it_resets_starts_the_prediction_where_it_left_off():
    class NoopStart(gymnasium.Wrapper):
        def reset(self, **arguments):
            self.env.reset(**arguments)
            obs, *_, info = self.env.step(np.full(1, 0.5, dtype=np.float32))
            return obs, info

    env = WorldModelEnv(NoopStart(Walk()), Dynamics(), max_episode_steps=9)
    assert env.reset(seed=0)[0].tolist() == [0.5]
    assert env.step(np.ones(1, dtype=np.float32))[0].tolist() == [1.5]


def test_the_environment_is_left_as_it_was_whatever_happens():
    class Odd(gymnasium.Wrapper):
        def step(self, action):
            self.env.step(action)
            raise KeyError("a bug of the user's")

    venv = AnchoredVecEnv([lambda: Odd(Walk())] * 3, Dynamics(), max_episode_steps=9)
    venv.reset(seed=0)
    with pytest.raises(KeyError, match="a bug"):
        venv.step(np.zeros((3, 1), dtype=np.float32))
    for env in venv.envs:
        assert not {"step", "reset", "execute"} & set(vars(env.unwrapped))
    with pytest.raises(KeyError, match="a bug"):  # and it can be stepped again
        venv.step(np.zeros((3, 1), dtype=np.float32))
    venv.close()


def test_questions_of_one_round_are_answered_together_and_a_failure_is_raised_where_it_was_asked():
    rounds = []

    def work(name, times):
        return lambda ask: [ask(f"{name}{i}") for i in range(times)]

    def answer(which, questions):
        rounds.append(questions)
        return [InfrastructureError("gone") if q == "c0" else q.upper() for q in questions]

    side_by_side = SideBySide()
    results = side_by_side.run([work("a", 1), work("b", 2), work("c", 1), lambda ask: "nothing asked"], answer)
    assert rounds == [["a0", "b0", "c0"], ["b1"]]
    assert results[:2] == [["A0"], ["B0", "B1"]]
    assert isinstance(results[2], InfrastructureError)
    assert results[3] == "nothing asked"
    assert side_by_side.run([work("d", 1)] * 2, answer) == [["D0"], ["D0"]]


def test_it_may_be_called_from_one_thread_and_then_from_another():
    side_by_side, got = SideBySide(), []

    def run():
        got.append(side_by_side.run([lambda ask: ask(1)] * 2, lambda which, asked: [2 * q for q in asked]))

    run()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert got == [[2, 2]] * 2


def test_a_chain_knows_when_its_time_limit_strikes():
    env = TimeLimit(Walk(), 2)
    chain, struck = Chain(env, "step"), []
    chain.reset()

    def ask(action):
        struck.append(chain.at_limit())
        return chain.real(action)

    for _ in range(2):
        truncated = chain.step(np.zeros(1, dtype=np.float32), ask)[3]
    assert struck == [False, True]
    assert truncated
