"""Gymnasium's own checks and wrappers on the text environments."""

import functools
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit

from tests.doubles import ObedientSandbox, write_competition

SLUG, DSBENCH = "amazon-employee-access-challenge", "spaceship-titanic"


@pytest.fixture(scope="module")
def dojo(tmp_path_factory):
    root = tmp_path_factory.mktemp("dojo")
    perfect = write_competition(root, SLUG, "Id", "ACTION")["perfect"]
    write_competition(root, DSBENCH, "PassengerId", "Transported")
    return root, f"#ok\n{perfect}"


def make(root, env_id="MLEDojo-v0", competition=SLUG, **kwargs):
    return gym.make(env_id, competition=competition, data_dir=root, sandbox=ObedientSandbox(), **kwargs)


@pytest.mark.parametrize(("env_id", "competition"), [("MLEDojo-v0", SLUG), ("DSBench-v0", DSBENCH)])
def test_check_env_is_silent(dojo, env_id, competition):
    env = make(dojo[0], env_id, competition, render_mode="ansi")
    env.unwrapped.sandbox.run_job = lambda job: ObedientSandbox().run_job(job.__class__("#timeout", job.data_dir))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=False)


@pytest.mark.parametrize(("shared_memory", "context"), [(True, "fork"), (False, "fork"), (True, "spawn")])
def test_async_vector_env_carries_text_between_processes(dojo, shared_memory, context):
    root, perfect = dojo
    envs = AsyncVectorEnv([functools.partial(make, root, max_turns=2)] * 2, shared_memory=shared_memory, context=context)
    try:
        observations, _ = envs.reset(seed=3)
        assert isinstance(observations, tuple)
        assert all("ACTION" in text for text in observations)
        assert observations in envs.observation_space
        kept = observations
        observations, rewards, terminated, truncated, infos = envs.step((perfect, "#timeout"))
        assert rewards.tolist() == [1.0, 0.0]
        assert "Position 1 / 10" in observations[0]
        assert "time limit" in observations[1]
        assert "ACTION" in kept[0]  # the batch handed out earlier did not change
        assert infos["wmrl"]["status"].tolist() == ["ok", "timeout"]
        assert envs.step(("#timeout", "#infra"))[2:4][0].tolist() == [True, False]
        observations, rewards, terminated, truncated, _ = envs.step(("ignored", "ignored"))
        assert "ACTION" in observations[0]
        assert not terminated.any()
        assert not truncated.any()
    finally:
        envs.close()


def test_sync_vector_env_same_step_autoreset_and_mixed_infos(dojo):
    root, perfect = dojo
    fns = [functools.partial(make, root, max_turns=1)] * 3
    envs = SyncVectorEnv(fns, autoreset_mode=AutoresetMode.SAME_STEP)
    envs.reset(seed=0)
    observations, rewards, terminated, truncated, infos = envs.step((perfect, "#infra", "#timeout"))
    assert rewards.tolist() == [1.0, 0.0, 0.0]
    assert terminated.tolist() == [True, False, True]
    assert truncated.tolist() == [False, True, False]
    assert all("ACTION" in text for text in observations)
    assert infos["final_info"]["wmrl"]["status"].tolist() == ["ok", "infra_error", "timeout"]
    assert np.isnan(infos["final_info"]["wmrl"]["score"][1])
    envs.close()


def test_vector_statistics_count_the_return(dojo):
    root, perfect = dojo
    envs = SyncVectorEnv([functools.partial(make, root, max_turns=2)] * 2)
    envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    envs.reset(seed=0)
    envs.step((perfect, "#timeout"))
    *_, infos = envs.step((perfect, perfect))
    assert infos["episode"]["r"].tolist() == [1.0, 1.0]
    envs.close()


def test_ordinary_wrappers_work(dojo):
    env = RecordEpisodeStatistics(TimeLimit(make(dojo[0], max_turns=9), 2))
    env.reset(seed=0)
    env.step("#timeout")
    *_, terminated, truncated, info = env.step(dojo[1])
    assert (terminated, truncated) == (False, True)
    assert info["episode"]["r"] == 1.0
