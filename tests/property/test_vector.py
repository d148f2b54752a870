"""Properties of `AnchoredVecEnv` that hold for any sizes, paces and failures."""

from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.wrappers.doubles import Guess, HalfScores
from wmrl_envs import AnchoredVecEnv


class Uneven(Guess):
    """Ends at random; its executions fail now and then, for reasons of ours."""

    def __init__(self, fail):
        super().__init__(turns=10**9)
        self.fail, self.random = fail, np.random.default_rng(0)

    def execute(self, solution):
        self.failures = [self.random.random() < self.fail]
        return super().execute(solution)

    def observe(self, outcome):
        obs, reward, _, truncated, info = super().observe(outcome)
        obs = np.array([min(self.turn, 10), self.best], dtype=np.float32)
        return obs, reward, bool(self.random.random() < 0.3) and not truncated, truncated, info


@settings(deadline=None, max_examples=25)
@given(
    size=st.sampled_from([1, 2, 3]),
    blocks=st.integers(1, 4),
    fraction=st.floats(0.05, 1.0),
    minimum=st.integers(0, 2),
    fail=st.sampled_from([0.0, 0.3]),
    mode=st.sampled_from(["NextStep", "SameStep"]),
    seed=st.integers(0, 1000),
)
def test_groups_anchors_pairs_and_rewards_are_consistent(size, blocks, fraction, minimum, fail, mode, seed):
    n, minimum = size * blocks, min(minimum, blocks)
    venv = AnchoredVecEnv([lambda: Uneven(fail)] * n, HalfScores(), group_size=size, anchor_fraction=fraction,
                          min_anchor_groups=minimum, autoreset_mode=mode, retries=0, workers=0)  # fmt: skip
    _, infos = venv.reset(seed=seed)
    rng = np.random.default_rng(seed)
    decisions, slots, pairs = {}, defaultdict(set), 0
    for _ in range(25):
        w = infos["wmrl"]
        for i in range(n):
            decision = bool(w["anchored"][i]), float(w["propensity"][i])
            assert decisions.setdefault(int(w["group"][i]), decision) == decision
            assert 0 < decision[1] <= 1
            slots[int(w["group"][i])].add(i // size)
        assert len({int(g) for g, a in zip(w["group"], w["anchored"], strict=True) if a}) >= minimum
        obs, rewards, terminated, truncated, infos = venv.step(rng.integers(11, size=n))
        assert np.isfinite(rewards).all()
        for result in [infos["wmrl"], *([infos["final_info"]["wmrl"]] if "final_info" in infos else [])]:
            pairs += int((result["_true"] & result["_predicted"]).sum())
            assert not (result["_true"] & ~result["anchored"]).any()
            assert (result["weight"][result["valid"]] >= 0).all()
        assert not terminated[truncated].any() or not fail
        assert obs in venv.observation_space
    assert venv.corrector.n_pairs == pairs
    assert all(len(blocks_of) == 1 for blocks_of in slots.values())
    venv.close()
