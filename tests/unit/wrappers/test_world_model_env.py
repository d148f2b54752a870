"""`WorldModelEnv` with the three kinds of world model."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit, TransformAction

from tests.unit.wrappers.doubles import Down, Drift, DriftModel, Guess, HalfScores, LastObservation
from wmrl_envs import WorldModelEnv
from wmrl_envs.correction import Corrector
from wmrl_envs.info import KEYS


def calibrated():
    corrector = Corrector(min_pairs=3)
    corrector.observe([0.2, 0.45, 0.7], [0.0, 0.5, 1.0], group=0)
    return corrector


@pytest.mark.parametrize(
    "make",
    [lambda: WorldModelEnv(Guess(), HalfScores()), lambda: WorldModelEnv(Drift(), LastObservation()),
     lambda: WorldModelEnv(Drift(), DriftModel(), max_episode_steps=9)],
)  # fmt: skip
def test_gymnasium_accepts_it(make):
    check_env(make(), skip_render_check=True)


def test_outcomes_replace_execution_through_every_wrapper_in_between():
    inner = Guess(turns=9)
    env = WorldModelEnv(TimeLimit(TransformAction(inner, lambda a: a + 1, inner.action_space), 2), HalfScores())
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(5)
    assert (reward, terminated, truncated) == (pytest.approx(0.5), False, False)
    assert info["wmrl"]["predicted"] == pytest.approx(0.5)
    assert env.step(5)[3]
    assert inner.executions == 0
    assert "execute" not in vars(inner)


def test_a_corrector_calibrates_the_predictions():
    env = WorldModelEnv(Guess(), HalfScores(), corrector=calibrated())
    env.reset(seed=0)
    *_, info = env.step(6)
    assert info["wmrl"]["predicted"] == pytest.approx(0.5)
    assert info["wmrl"]["score"] == pytest.approx(0.6)


def test_dynamics_replace_transitions_and_end_by_model_or_limit():
    inner = Drift(end=99)
    env = WorldModelEnv(inner, DriftModel(end=2), max_episode_steps=3)
    env.reset(seed=0)
    assert [env.step(1)[2:4] for _ in range(2)] == [(False, False), (True, False)]
    env.reset()
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    assert inner.steps == 0


def test_rewards_are_read_once_at_the_end():
    model = LastObservation()
    env = WorldModelEnv(Drift(end=3), model)
    env.reset(seed=0)
    assert [env.step(1)[1] for _ in range(3)] == pytest.approx([0, 0, 0.3])
    assert (model.calls, model.lengths) == (1, [4])
    env.reset()
    env.step(1)
    env.reset()
    env.step(1), env.step(1), env.step(1)
    assert model.lengths == [4, 4]  # an abandoned episode is not scored, nor carried over


@pytest.mark.parametrize(
    "make",
    [lambda: WorldModelEnv(Guess(), Down(HalfScores())), lambda: WorldModelEnv(Drift(end=1), Down(LastObservation())),
     lambda: WorldModelEnv(Drift(), Down(DriftModel()), max_episode_steps=9)],
)  # fmt: skip
def test_a_world_model_that_is_down_cuts_the_episode_short_and_charges_nobody(make):
    env = make()
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(1)
    assert (reward, terminated, truncated) == (0, False, True)
    assert info["wmrl"]["status"] == "infra_error"
    assert [info["wmrl"][key] for key in ("score", "predicted", "calibrated", "true")] == [None] * 4


@pytest.mark.parametrize(
    "make",
    [lambda: WorldModelEnv(Guess(), HalfScores()), lambda: WorldModelEnv(Drift(), LastObservation()),
     lambda: WorldModelEnv(Drift(), DriftModel(), max_episode_steps=9)],
)  # fmt: skip
def test_every_key_of_the_contract_is_there(make):
    env = make()
    env.reset(seed=0)
    assert set(KEYS) <= set(env.step(1)[-1]["wmrl"])


def test_step_before_reset_is_refused():
    with pytest.raises(gymnasium.error.ResetNeeded):
        WorldModelEnv(Drift(), DriftModel()).step(0)


def test_a_wrong_number_of_predictions_is_named():
    class Two:
        def predict(self, solutions, contexts):
            return HalfScores().predict(solutions * 2, contexts * 2)

    env = WorldModelEnv(Guess(), Two())
    env.reset()
    with pytest.raises(ValueError, match="2 predictions for 1 solutions"):
        env.step(1)


def test_a_seeded_reset_seeds_the_model():
    class Noisy(DriftModel):
        def seed(self, seed):
            self.rng = np.random.default_rng(seed)

        def step(self, observations, actions):
            after, rewards, ends = super().step(observations, actions)
            return after + self.rng.random(after.shape), rewards, ends

    env = WorldModelEnv(Drift(), Noisy(), max_episode_steps=9)
    check_env(env, skip_render_check=True)
