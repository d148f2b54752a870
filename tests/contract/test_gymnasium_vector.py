"""What gymnasium's own tests ask of `SyncVectorEnv`, asked of a fully anchored `AnchoredVecEnv`.

Where it differs, and why:

* Later episodes of a seeded run are seeded too (from seed, slot and number of the episode). `SyncVectorEnv` goes on with each environment's
  generator, from which predicted episodes would draw nothing: starts would depend on what was anchored.
* Environments that do not match, wrong masks and a step of an ended slot raise this library's errors (a ValueError, `ResetNeeded`) instead of
  RuntimeError, TypeError and AssertionError.
* There is no `copy=False` and no `observation_mode="different"`.
* A reset mask goes with `group_size=1` only, and not with a seed.
"""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from wmrl_envs import AnchoredVecEnv

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]
SPACES = {
    "box": spaces.Box(-1.0, 1.0, (3, 2), np.float32),
    "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "discrete": spaces.Discrete(5, start=-2),
    "multi discrete": spaces.MultiDiscrete([3, 4]),
    "multi binary": spaces.MultiBinary(4),
    "tuple": spaces.Tuple((spaces.Discrete(5), spaces.Box(-1.0, 1.0, (2,), np.float32))),
    "dict": spaces.Dict(a=spaces.Discrete(5), b=spaces.Dict(c=spaces.Box(0.0, 1.0, (2,), np.float32))),
    "text": spaces.Text(5),
}


class Zero:
    """Reward model that is worth nothing: everything is anchored."""

    def score(self, episodes):
        return np.zeros(len(episodes))


class Samples(gymnasium.Env):
    """Observations are samples of the space; infos of every kind."""

    def __init__(self, observation_space, action_space, length=3):
        self.observation_space, self.action_space, self.length = observation_space, action_space, length
        self.got, self.asked = [], []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.asked.append((seed, options))
        if seed is not None:
            self.observation_space.seed(seed)
        self.at = 0
        return self.observation_space.sample(), {"start": True, "nested": {"n": 1.5}}

    def step(self, action):
        self.at += 1
        self.got.append(action)
        info = {"at": self.at, "name": f"step {self.at}", "array": np.full(2, self.at), "nested": {"deep": {"n": self.at}}}
        return self.observation_space.sample(), float(self.at), self.at >= self.length, False, info


def both(observation_space, action_space=SPACES["discrete"], n=3, mode=AutoresetMode.NEXT_STEP, length=3):
    def make():
        import copy

        return Samples(copy.deepcopy(observation_space), copy.deepcopy(action_space), length)

    from wmrl_envs.correction import Corrector

    ours = AnchoredVecEnv(
        [make] * n, Zero(), anchor_fraction=1.0, corrector=Corrector(score_range=None), autoreset_mode=mode, workers=0
    )
    return ours, SyncVectorEnv([make] * n, autoreset_mode=mode)


def same(a, b):
    if isinstance(a, dict):
        assert set(a) == set(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, tuple) or (isinstance(a, np.ndarray) and a.dtype == object):
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)
    else:
        assert a == b


def theirs(infos):
    return {
        key: theirs(value) if isinstance(value, dict) else value for key, value in infos.items() if key.lstrip("_") != "wmrl"
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SPACES)
def test_observations_rewards_ends_and_infos_are_those_of_sync_until_a_second_episode_begins(name, mode):
    ours, sync = both(SPACES[name], mode=mode)
    for what in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
        assert getattr(ours, what) == getattr(sync, what)
    (a, info_a), (b, info_b) = ours.reset(seed=11), sync.reset(seed=11)
    same(a, b)
    same(theirs(info_a), info_b)
    for step in range(3):
        actions = sync.action_space.sample()
        left, right = ours.step(actions), sync.step(actions)
        if mode is AutoresetMode.NEXT_STEP or step < 2:
            same(left[0], right[0])
        for x, y in zip(left[1:4], right[1:4], strict=True):
            same(x, y)
        same(theirs(left[4]), right[4])
    assert ours.np_random_seed == sync.np_random_seed or mode is AutoresetMode.SAME_STEP
    ours.close(), sync.close()


@pytest.mark.parametrize("name", [name for name in SPACES if name != "text"])
def test_actions_arrive_as_in_sync(name):
    ours, sync = both(SPACES["box"], SPACES[name], length=9)
    ours.reset(seed=1), sync.reset(seed=1)
    for _ in range(3):
        actions = sync.action_space.sample()
        ours.step(actions), sync.step(actions)
    for a, b in zip(ours.envs, sync.envs, strict=True):
        same(tuple(a.got), tuple(b.got))


@pytest.mark.parametrize("seed", [None, 5, [1, 2, 3], [1, None, 3]])
def test_seeds_and_options_reach_the_environments_as_in_sync(seed):
    ours, sync = both(SPACES["box"])
    for venv in (ours, sync):
        venv.reset(seed=seed, options={"x": 1})
    assert [env.asked for env in ours.envs] == [env.asked for env in sync.envs]


def test_two_environments_of_one_seed_are_one():
    runs = []
    for _ in range(2):
        venv, _ = both(SPACES["box"])
        out = [venv.reset(seed=3)[0].tolist()]
        out += [venv.step(np.zeros(3, dtype=int))[0].tolist() for _ in range(10)]
        runs.append(out)
    assert runs[0] == runs[1]


def test_what_is_returned_stays_as_it_was():
    venv, _ = both(SPACES["dict"])
    first, _ = venv.reset(seed=0)
    kept = first["a"].copy()
    venv.step(np.zeros(3, dtype=int))
    assert np.array_equal(first["a"], kept)


def test_calls_and_attributes():
    ours, sync = both(SPACES["box"])
    for venv in (ours, sync):
        venv.reset(seed=1)
        venv.set_attr("length", 7)
        assert venv.get_attr("length") == (7, 7, 7)
        venv.set_attr("length", [1, 2, 3])
        assert venv.call("length") == (1, 2, 3)
        with pytest.raises(ValueError, match="3 environments"):
            venv.set_attr("length", [1, 2])


@pytest.mark.parametrize("what", ["observation", "action"])
def test_environments_that_differ_are_refused(what):
    def make(wide):
        box = spaces.Box(-1.0, 1.0, (2 if wide else 1,), np.float32)
        return Samples(box if what == "observation" else SPACES["box"], box if what == "action" else SPACES["discrete"])

    with pytest.raises(ValueError, match=f"environment 1 has the {what} space"):
        AnchoredVecEnv([lambda: make(False), lambda: make(True)], Zero(), anchor_fraction=1.0)


@pytest.mark.parametrize(
    "mask", [[True, False, True], np.ones(2, dtype=bool), np.ones(3, dtype=int), np.zeros(3, dtype=bool)],
)  # fmt: skip
def test_a_wrong_reset_mask_is_refused(mask):
    ours, _ = both(SPACES["box"], mode=AutoresetMode.DISABLED)
    ours.reset(seed=0)
    with pytest.raises(ValueError, match="reset_mask"):
        ours.reset(options={"reset_mask": mask})


def test_a_reset_mask_resets_as_in_sync():
    ours, sync = both(SPACES["discrete"], mode=AutoresetMode.DISABLED, length=9)
    ours.reset(seed=0), sync.reset(seed=0)
    mask = np.array([True, False, True])
    (a, info_a), (b, info_b) = ours.reset(options={"reset_mask": mask}), sync.reset(options={"reset_mask": mask.copy()})
    assert a[1] == b[1]
    assert theirs(info_a)["_start"].tolist() == info_b["_start"].tolist() == mask.tolist()
    assert [env.at for env in ours.envs] == [env.at for env in sync.envs] == [0, 0, 0]


def test_closing_twice():
    ours, _ = both(SPACES["box"])
    ours.reset(seed=0)
    ours.close()
    ours.close()
