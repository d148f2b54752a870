"""`AnchoredVecEnv`: one test for each sentence of its contract."""

import json
import threading
from collections import defaultdict

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TimeLimit, TransformAction, TransformObservation

from tests.unit.wrappers.doubles import Down, Drift, DriftModel, Guess, HalfScores, LastObservation
from wmrl_envs import AnchoredVecEnv
from wmrl_envs.correction import AnchorSchedule, Corrector
from wmrl_envs.errors import InfrastructureError
from wmrl_envs.outcome import ExecutionStatus, Outcome
from wmrl_envs.spaces import UnicodeText

ONE = Guess()
OFF = {"debias": False, "denoise": False}


def guesses(n=8, model=None, turns=2, **arguments):
    return AnchoredVecEnv([lambda: Guess(turns=turns)] * n, model or HalfScores(), **arguments)


def drifts(n=8, model=None, end=5, **arguments):
    arguments.setdefault("max_episode_steps", 50)
    return AnchoredVecEnv([lambda: Drift(end=end)] * n, model or DriftModel(end=end), **arguments)


def random_steps(venv, steps, seed=0):
    """Yields (previous done, result) of random steps."""
    rng = np.random.default_rng(seed)
    done = np.zeros(venv.num_envs, dtype=bool)
    for _ in range(steps):
        high = venv.single_action_space.n
        result = venv.step(rng.integers(high, size=venv.num_envs))
        yield done, result
        done = result[2] | result[3]


# -- a real vector environment ---------------------------------------------------------------------------------------
def test_is_a_gymnasium_vector_env_with_the_mode_as_an_enum_in_the_metadata():
    venv = guesses()
    assert isinstance(venv, VectorEnv)
    assert venv.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert guesses(autoreset_mode="SameStep").metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert "autoreset_mode" not in Guess.metadata


def test_fully_anchored_it_is_gymnasiums_sync_vector_env():
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        ours = drifts(4, anchor_fraction=1.0, autoreset_mode=mode)
        theirs = SyncVectorEnv([Drift] * 4, autoreset_mode=mode)
        (a, info_a), (b, info_b) = ours.reset(seed=7), theirs.reset(seed=7)
        assert (a == b).all()
        assert info_a["start"].tolist() == info_b["start"].tolist()
        rng = np.random.default_rng(0)
        for _ in range(40):
            actions = rng.integers(2, size=4)
            ra, rb = ours.step(actions), theirs.step(actions)
            for x, y in zip(ra[:4], rb[:4], strict=True):
                assert x.dtype == y.dtype
                assert x.tolist() == y.tolist()
            assert {k for k in ra[4] if "wmrl" not in k} == set(rb[4])
            if "final_obs" in rb[4]:
                for x, y in zip(ra[4]["final_obs"], rb[4]["final_obs"], strict=True):
                    assert np.array_equal(x, y)
                assert ra[4]["final_info"]["x"].tolist() == rb[4]["final_info"]["x"].tolist()


def test_observations_lie_in_their_space_whatever_the_model_predicts():
    class Wild(DriftModel):
        def step(self, observations, actions):
            after, rewards, ends = super().step(observations, actions)
            return (after * 1e6).astype(np.float64), rewards, ends

    venv = drifts(model=Wild())
    venv.reset(seed=0)
    for _, (obs, *_) in random_steps(venv, 10):
        assert obs in venv.observation_space


def test_a_returned_batch_is_the_callers_to_keep():
    venv = drifts()
    first, _ = venv.reset(seed=0)
    kept = first.copy()
    venv.step(np.ones(8, dtype=int))
    assert (first == kept).all()


def test_text_observations_and_actions():
    venv = AnchoredVecEnv([lambda: Guess(text=True)] * 4, HalfScores())
    obs, _ = venv.reset(seed=0)
    assert obs == ("turn 0 é",) * 4
    obs, *_ = venv.step(("guess 3", "guess 4", "5", "6"))
    assert obs == ("turn 1 é",) * 4


def test_reset_with_a_seed_repeats_everything_and_without_goes_on():
    def run(venv, seed):
        obs, infos = venv.reset(seed=seed)
        out = [obs.tolist(), infos["start"].tolist(), infos["wmrl"]["anchored"].tolist()]
        for _, (obs, rewards, term, trunc, infos) in random_steps(venv, 30):
            out.append([obs.tolist(), rewards.tolist(), term.tolist(), trunc.tolist(), infos["wmrl"]["anchored"].tolist()])
        return out

    venv = drifts(corrector=Corrector(score_range=None, **OFF))
    first, second, other = run(venv, 3), run(venv, 3), run(venv, None)
    assert first == second
    assert other[1] != first[1]


# -- groups and anchors ----------------------------------------------------------------------------------------------
def episodes_of(venv, steps, seed=0):
    """group id -> list of (slot, anchored, propensity, seed of the episode) of each step, from infos and environments."""
    seen = defaultdict(list)
    _, infos = venv.reset(seed=seed)

    def note(infos):
        w = infos["wmrl"]
        for i in range(venv.num_envs):
            row = (i, bool(w["anchored"][i]), float(w["propensity"][i]), venv.envs[i].unwrapped.seeded_with)
            seen[int(w["group"][i])].append(row)

    note(infos)
    for _, result in random_steps(venv, steps, seed):
        note(result[4])
    return seen


@pytest.mark.parametrize("size", [1, 2, 4])
def test_members_of_a_group_share_seed_and_anchor_decision_and_its_id_is_never_used_again(size):
    class Uneven(Guess):
        """Members finish at different times."""

        def observe(self, outcome):
            obs, reward, _, truncated, info = super().observe(outcome)
            return obs, reward, bool(self.np_random.random() < 0.3) or self.turn + id(self) % 3 > 4, truncated, info

    venv = AnchoredVecEnv([Uneven] * 8, HalfScores(), group_size=size)
    seen = episodes_of(venv, 60)
    blocks = defaultdict(list)
    for _group, rows in sorted(seen.items()):
        slots, anchored, propensity, seeds = (set(column) for column in zip(*rows, strict=True))
        assert len(anchored) == len(propensity) == 1  # constant for an id
        assert len(seeds) == 1
        assert len({slot // size for slot in slots}) == 1
        blocks[min(slots) // size].append(seeds.pop())
    for seeds in blocks.values():
        assert len(set(seeds)) == len(seeds)  # each group of a block is another task
    assert len(blocks) == 8 // size


def test_a_group_is_the_eth_episode_of_each_member_and_nobody_waits():
    class OwnPace(Guess):
        pace = 0

        def observe(self, outcome):
            obs, reward, _, truncated, info = super().observe(outcome)
            return obs, reward, self.turn >= self.pace, truncated, info

    venv = AnchoredVecEnv([OwnPace] * 2, HalfScores(), group_size=2)
    venv.envs[0].pace, venv.envs[1].pace = 1, 5
    ids = {0: [], 1: []}
    _, infos = venv.reset(seed=0)
    for i in (0, 1):
        ids[i].append(int(infos["wmrl"]["group"][i]))
    for _, result in random_steps(venv, 40):
        for i in (0, 1):
            group = int(result[4]["wmrl"]["group"][i])
            if group != ids[i][-1]:
                ids[i].append(group)
    assert len(ids[0]) > 2 * len(ids[1])
    assert ids[0][: len(ids[1])] == ids[1]


@pytest.mark.parametrize(
    ("size", "minimum", "mode"), [(1, 1, "NextStep"), (1, 3, "NextStep"), (2, 1, "SameStep"), (2, 2, "NextStep")]
)
def test_at_least_min_anchor_groups_of_the_groups_in_flight_are_anchored(size, minimum, mode):
    venv = guesses(8, group_size=size, anchor_fraction=0.05, min_anchor_groups=minimum, autoreset_mode=mode)
    _, infos = venv.reset(seed=1)
    for _ in range(60):
        w = infos["wmrl"]
        assert len(set(w["group"][w["anchored"]].tolist())) >= minimum
        *_, infos = venv.step(np.random.default_rng(0).integers(11, size=8))


def test_the_fraction_of_anchored_groups_is_kept_and_random():
    venv = guesses(8, turns=1, anchor_fraction=0.25, min_anchor_groups=0, autoreset_mode="SameStep")
    groups = {}
    venv.reset(seed=0)
    for _, result in random_steps(venv, 400):
        w = result[4]["wmrl"]
        groups |= dict(
            zip(w["group"].tolist(), zip(w["anchored"].tolist(), w["propensity"].tolist(), strict=True), strict=True)
        )
    anchored = np.array([a for a, _ in groups.values()])
    propensity = np.array([p for _, p in groups.values()])
    assert anchored.mean() == pytest.approx(0.25, abs=0.005)
    assert (anchored / propensity).mean() == pytest.approx(1, abs=0.15)
    by_slot = anchored[: len(anchored) // 8 * 8].reshape(-1, 8).mean(0)
    assert by_slot == pytest.approx(np.full(8, 0.25), abs=0.1)


def test_the_decision_falls_before_the_first_step_and_is_in_the_reset_info():
    venv = guesses()
    _, infos = venv.reset(seed=0)
    w = infos["wmrl"]
    assert w["_anchored"].all()
    assert w["anchored"].sum() == 1
    assert not w["_score"].any()


# -- what is predicted, executed and paid ----------------------------------------------------------------------------
def test_outcomes_anchors_are_graded_by_both_and_paid_for_real_the_others_by_prediction():
    model = HalfScores()
    venv = guesses(model=model)
    venv.reset(seed=0)
    _, rewards, _, _, infos = venv.step(np.full(8, 6))
    w = infos["wmrl"]
    anchored = w["anchored"]
    assert model.batches == [8]  # one batch over all slots
    assert [env.executions for env in venv.envs] == anchored.astype(int).tolist()
    assert w["predicted"].tolist() == pytest.approx([0.5] * 8)
    assert rewards[anchored].tolist() == [0.6]
    assert rewards[~anchored].tolist() == [0.5] * 7
    assert w["true"][anchored].tolist() == [0.6]
    assert w["_true"].tolist() == anchored.tolist()
    assert np.isnan(w["true"][~anchored]).all()
    assert w["raw_score"][anchored].tolist() == [6.0]
    assert set(w["status"]) == {"ok"}
    assert venv.corrector.n_pairs == 1  # a solution is a pair
    assert model.learned == [0.6]


def test_predictions_are_calibrated_once_there_are_pairs():
    venv = guesses(corrector=Corrector(min_pairs=20, refit_every=20), anchor_fraction=0.5)
    venv.reset(seed=0)
    for _, _result in random_steps(venv, 30):
        pass
    while venv._over[0]:
        venv.step(np.full(8, 6))
    *_, infos = venv.step(np.full(8, 6))
    w = infos["wmrl"]
    usable = w["_calibrated"]
    assert w["predicted"][usable] == pytest.approx(0.5)
    assert w["calibrated"][usable] == pytest.approx(0.6, abs=0.02)
    assert w["score"][usable] == pytest.approx(0.6, abs=0.02)
    assert w["weight"][w["anchored"]] == pytest.approx(venv.corrector.rho)
    assert (w["weight"][~w["anchored"]] == 1).all()


class Meet:
    """Calls that return only once all of `n` of them are running."""

    def __init__(self, n):
        self.barrier = threading.Barrier(n, timeout=20)

    def beside(self, function):
        def call(*arguments):
            self.barrier.wait()
            return function(*arguments)

        return call


def test_real_executions_run_beside_the_prediction_and_beside_each_other():
    meet, model = Meet(5), HalfScores()
    model.predict = meet.beside(model.predict)
    venv = AnchoredVecEnv([Guess] * 4, model, anchor_fraction=1.0)
    for env in venv.envs:
        env.execute = meet.beside(env.execute)
    venv.reset(seed=0)
    *_, infos = venv.step(np.zeros(4, dtype=int))
    assert infos["wmrl"]["_true"].all()


def test_real_steps_run_beside_the_dynamics_model():
    meet, model = Meet(3), DriftModel()
    model.step = meet.beside(model.step)
    venv = AnchoredVecEnv([Drift] * 2, model, anchor_fraction=1.0, max_episode_steps=9)
    for env in venv.envs:
        env.step = meet.beside(env.step)
    venv.reset(seed=0)
    *_, infos = venv.step(np.zeros(2, dtype=int))
    assert infos["wmrl"]["_true"].all()


def test_without_workers_everything_stays_in_the_callers_thread():
    venv = guesses(anchor_fraction=1.0, workers=0)
    venv.reset(seed=0)
    venv.step(np.zeros(8, dtype=int))
    assert {t for env in venv.envs for t in env.threads} == {threading.get_ident()}


def test_wrappers_around_an_executable_env_take_part_in_predicted_steps():
    def make():
        env = TransformObservation(Guess(turns=9), lambda o: o + 1, Guess().observation_space)
        return TimeLimit(TransformAction(env, lambda a: a + 2, env.action_space), 3)

    venv = AnchoredVecEnv([make] * 4, HalfScores())
    obs, _ = venv.reset(seed=0)
    assert obs[:, 0].tolist() == [1.0] * 4
    for turn in range(3):
        obs, _, _, truncated, infos = venv.step(np.full(4, 4))
        assert obs[:, 0].tolist() == [turn + 2.0] * 4
        assert infos["wmrl"]["predicted"] == pytest.approx(0.5)  # of action 6
        assert truncated.tolist() == [turn == 2] * 4
    assert "execute" not in vars(venv.envs[0].unwrapped)


def test_dynamics_a_step_is_a_pair_and_predicted_slots_never_touch_the_environment():
    model = DriftModel()
    venv = drifts(model=model, anchor_fraction=0.25, min_anchor_groups=2)
    venv.reset(seed=0)
    _, rewards, _, _, infos = venv.step(np.ones(8, dtype=int))
    anchored = infos["wmrl"]["anchored"]
    assert model.batches == [8]
    assert [env.steps for env in venv.envs] == anchored.astype(int).tolist()
    assert rewards == pytest.approx(np.where(anchored, 0.1, 0.08))
    assert venv.corrector.n_pairs == anchored.sum() == 2
    before, acts, real, after, ends = model.learned[0]
    assert (before.tolist(), acts.tolist(), real.tolist(), after.tolist(), ends.tolist()) == (
        [[0.0], [0.0]], [1, 1], [0.1, 0.1], [[1.0], [1.0]], [False, False])  # fmt: skip


@pytest.mark.parametrize("size", [1, 2])
def test_groups_of_one_are_measured_against_the_variance_of_the_window(size):
    venv = guesses(4, group_size=size, anchor_fraction=1.0, min_anchor_groups=1)
    venv.reset(seed=0)
    actions = np.array([0, 2, 6, 8])
    venv.step(actions)
    true = actions / 10
    residual = 0.2 + true / 2 - true
    if size == 1:
        expected = (residual**2).mean() / true.var()
    else:  # an error that members of a group share reaches no advantage
        expected = residual.reshape(2, 2).var(1).mean() / true.reshape(2, 2).var(1).mean()
    assert venv.corrector.eta2 == pytest.approx(expected)


def test_rewards_are_read_once_at_the_end_and_an_episode_is_a_pair():
    model = LastObservation()
    venv = AnchoredVecEnv([lambda: Drift(end=4)] * 4, model, min_anchor_groups=1, max_episode_steps=50)
    _, infos = venv.reset(seed=0)
    anchored = infos["wmrl"]["anchored"]
    paid = np.zeros(4)
    for step in range(4):
        _, rewards, terminated, _, infos = venv.step(np.ones(4, dtype=int))
        paid += rewards
        assert terminated.all() == (step == 3)
        assert model.calls == (step == 3)
        assert (rewards[~anchored] == 0).all() or step == 3
    assert model.lengths == [5] * 4
    assert paid == pytest.approx(np.where(anchored, 0.1 + 0.2 + 0.3 + 0.4, 0.4))
    assert infos["wmrl"]["predicted"] == pytest.approx(0.4)
    assert infos["wmrl"]["true"][anchored] == pytest.approx(1.0)
    assert venv.corrector.n_pairs == 1


def test_a_predicted_episode_never_shows_its_true_score():
    class Telling(Drift):
        def step(self, action):
            obs, reward, terminated, truncated, _ = super().step(action)
            return obs, reward, terminated, truncated, {"wmrl": {"true": reward, "score": reward, "raw_score": reward}}

    venv = AnchoredVecEnv([Telling] * 4, LastObservation(), max_episode_steps=9)
    venv.reset(seed=0)
    *_, infos = venv.step(np.ones(4, dtype=int))
    for key in ("true", "score", "raw_score"):
        assert (infos["wmrl"][f"_{key}"] <= infos["wmrl"]["anchored"]).all()


def test_observations_may_be_dicts_with_text():
    class Robot(Drift):
        observation_space = gymnasium.spaces.Dict(
            {"image": gymnasium.spaces.Box(0, 255, (4, 4, 3), np.uint8), "instruction": UnicodeText(20)}
        )

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.look(), {}

        def look(self):
            return {"image": np.full((4, 4, 3), int(self.x), dtype=np.uint8), "instruction": "open the é"}

        def step(self, action):
            _, reward, terminated, truncated, info = super().step(action)
            return self.look(), reward, terminated, truncated, info

    class Judge:
        def score(self, episodes):
            assert {e.instruction for e in episodes} == {"open the é"}
            assert {len(e.observations) for e in episodes} == {3}
            return np.full(len(episodes), 0.7)

    venv = AnchoredVecEnv([lambda: Robot(end=2)] * 4, Judge(), max_episode_steps=9)
    obs, _ = venv.reset(seed=0)
    assert obs in venv.observation_space
    venv.step(np.ones(4, dtype=int))
    obs, rewards, terminated, _, infos = venv.step(np.ones(4, dtype=int))
    assert obs["image"].shape == (4, 4, 4, 3)
    assert terminated.all()
    assert rewards[~infos["wmrl"]["anchored"]] == pytest.approx(0.7)


def test_rewards_are_also_read_when_the_time_limit_ends_the_episode():
    model = LastObservation()
    venv = AnchoredVecEnv([lambda: Drift(end=40)] * 2, model, max_episode_steps=3)
    venv.reset(seed=0)
    for _ in range(3):
        _, _, terminated, truncated, _ = venv.step(np.ones(2, dtype=int))
    assert (terminated.any(), truncated.all(), model.calls) == (False, True, 1)


# -- ends ------------------------------------------------------------------------------------------------------------
def test_a_predicted_episode_ends_by_the_models_terminated():
    venv = drifts(end=3, model=DriftModel(end=2))
    venv.reset(seed=0)
    venv.step(np.ones(8, dtype=int))
    _, _, terminated, truncated, infos = venv.step(np.ones(8, dtype=int))
    assert terminated.tolist() == (~infos["wmrl"]["anchored"]).tolist()
    assert not truncated.any()


@pytest.mark.parametrize("source", ["argument", "wrapper", "spec"])
def test_a_predicted_episode_is_truncated_at_the_time_limit(source):
    gymnasium.register("WmrlDrift-v0", Drift, max_episode_steps=4)
    make, limit = {
        "argument": (lambda: TimeLimit(Drift(end=99), 7), 4),
        "wrapper": (lambda: gymnasium.wrappers.OrderEnforcing(TimeLimit(Drift(end=99), 4)), None),
        "spec": (lambda: gymnasium.make("WmrlDrift-v0", end=99), None),
    }[source]
    venv = AnchoredVecEnv([make] * 4, DriftModel(end=99), max_episode_steps=limit)
    venv.reset(seed=0)
    for step in range(4):
        _, _, terminated, truncated, _ = venv.step(np.ones(4, dtype=int))
        assert truncated.tolist() == [step == 3] * 4
        assert not terminated.any()
    del gymnasium.registry["WmrlDrift-v0"]


def test_next_step_the_reset_step_has_reward_0_and_is_in_no_call_no_pool_and_no_statistics():
    model = DriftModel(end=2)
    venv = drifts(end=2, model=model, anchor_fraction=0.5)
    venv.reset(seed=0)
    for _ in range(2):
        venv.step(np.ones(8, dtype=int))
    pairs, calls = venv.corrector.n_pairs, len(model.batches)
    obs, rewards, terminated, truncated, infos = venv.step(np.ones(8, dtype=int))
    assert (obs == 0).all()
    assert (rewards == 0).all()
    assert not (terminated | truncated).any()
    assert venv.corrector.n_pairs == pairs
    assert len(model.batches) == calls
    assert not infos["wmrl"]["_predicted"].any()
    *_, infos = venv.step(np.ones(8, dtype=int))
    assert infos["wmrl"]["_predicted"].all()


def test_next_step_slots_that_reset_are_left_out_of_the_batch_of_the_others():
    model = DriftModel(end=2)
    venv = drifts(4, end=2, model=model)
    venv.reset(seed=0)
    venv.step(np.array([1, 1, 0, 0]))
    venv.step(np.array([1, 1, 0, 0]))
    venv.step(np.array([1, 1, 0, 0]))
    assert model.batches == [4, 4, 2]


def test_same_step_the_end_is_in_final_obs_and_final_info():
    venv = drifts(end=2, autoreset_mode="SameStep")
    venv.reset(seed=0)
    *_, infos = venv.step(np.ones(8, dtype=int))
    before = infos["wmrl"]["group"].copy()
    obs, rewards, terminated, _, infos = venv.step(np.ones(8, dtype=int))
    assert terminated.all()
    assert (obs == 0).all()
    assert [o.tolist() for o in infos["final_obs"]] == [[2.0]] * 8
    final = infos["final_info"]["wmrl"]
    assert final["group"].tolist() == before.tolist()
    assert final["score"] == pytest.approx(rewards)
    assert set(infos["wmrl"]["group"].tolist()).isdisjoint(before.tolist())
    assert not infos["wmrl"]["_predicted"].any()


# -- failures of ours ------------------------------------------------------------------------------------------------
def failing(failures, n=4, **arguments):
    """Slot 0 fails as often as said; everything is anchored."""
    made = [Guess(turns=3, failures=list(failures)), *(Guess(turns=3) for _ in range(n - 1))]
    fns = [lambda env=env: env for env in made]
    return AnchoredVecEnv(fns, HalfScores(), anchor_fraction=1.0, **arguments)


def test_an_infrastructure_failure_is_retried():
    venv = failing([True, True])
    venv.reset(seed=0)
    _, rewards, _, truncated, infos = venv.step(np.full(4, 5))
    assert venv.envs[0].executions == 3
    assert rewards.tolist() == [0.5] * 4
    assert not truncated.any()
    assert infos["wmrl"]["valid"].all()
    assert venv.corrector.n_pairs == 4


def test_after_the_retries_the_whole_group_is_dropped_and_the_pair_never_pooled():
    venv = failing([True] * 3, group_size=2)
    _, infos = venv.reset(seed=0)
    group = infos["wmrl"]["group"][0]
    _, rewards, terminated, truncated, infos = venv.step(np.full(4, 5))
    w = infos["wmrl"]
    assert w["status"].tolist() == ["infra_error", "ok", "ok", "ok"]
    assert (rewards[0], terminated[0], truncated[0]) == (0.0, False, True)  # not a score of 0: no score at all
    assert not w["_score"][0]
    assert w["valid"].tolist() == [False, False, True, True]
    assert w["weight"].tolist() == [0, 0, 1, 1]
    assert venv.corrector.n_pairs == 2  # not slot 1's either: its group is dropped
    executed = venv.envs[1].executions
    _, rewards, _, truncated, infos = venv.step(np.full(4, 8))  # slot 0 resets, slot 1 is cut short without another execution
    assert infos["wmrl"]["group"][1] == group
    assert (truncated[1], rewards[1], venv.envs[1].executions) == (True, 0.0, executed)
    assert venv.corrector.n_pairs == 4
    _, _, _, _, infos = venv.step(np.full(4, 8))
    assert infos["wmrl"]["valid"].all()


def test_a_group_size_may_be_a_numpy_integer():
    venv = AnchoredVecEnv([Drift] * 4, DriftModel(), group_size=np.int64(2), max_episode_steps=2)
    assert venv.reset(seed=0)[1]["wmrl"]["group"].tolist() == [0, 0, 1, 1]
    venv.close()


def test_a_failed_member_takes_the_pairs_of_its_group_with_it_in_every_kind():
    class BreaksInSlot(Drift):
        broken = False

        def step(self, action):
            if self.broken:
                raise InfrastructureError("the simulator is gone")
            return super().step(action)

    for model in (DriftModel(), LastObservation()):
        venv = AnchoredVecEnv([BreaksInSlot] * 4, model, group_size=2, anchor_fraction=1.0, max_episode_steps=1)
        venv.reset(seed=0)
        venv.envs[3].broken = True
        venv.step(np.ones(4, dtype=int))
        assert venv.corrector.n_pairs == 2
        venv.close()


def test_an_exception_of_the_infrastructure_is_a_failure_too_in_every_kind():
    class Broken(Drift):
        def step(self, action):
            raise InfrastructureError("the simulator is gone")

    for model in (DriftModel(), LastObservation()):
        venv = AnchoredVecEnv([Broken] * 2, model, anchor_fraction=1.0, max_episode_steps=5)
        start, _ = venv.reset(seed=0)
        obs, rewards, _, truncated, infos = venv.step(np.ones(2, dtype=int))
        assert obs.tolist() == start.tolist()
        assert rewards.tolist() == [0, 0]
        assert truncated.all()
        assert infos["wmrl"]["status"].tolist() == ["infra_error"] * 2
        assert venv.corrector.n_pairs == 0


@pytest.mark.parametrize(
    ("make", "action", "paid"),
    [(lambda: guesses(4, Down(HalfScores()), min_anchor_groups=1), 5, 0.5),
     (lambda: drifts(4, Down(DriftModel()), end=1, min_anchor_groups=1), 1, 0.1),
     (lambda: drifts(4, Down(LastObservation()), end=1, min_anchor_groups=1), 1, 0.1)],
    ids=["outcome", "dynamics", "reward"],
)  # fmt: skip
def test_a_world_model_that_is_down_drops_what_it_should_have_predicted_and_no_anchor(make, action, paid):
    venv = make()
    venv.reset(seed=0)
    _, rewards, _, truncated, infos = venv.step(np.full(4, action))
    wmrl = infos["wmrl"]
    anchored = wmrl["anchored"]
    assert venv.world_model.asked == 3  # twice more
    assert truncated.tolist() == (~anchored).tolist()
    assert wmrl["valid"].tolist() == anchored.tolist()
    assert wmrl["status"].tolist() == ["ok" if a else "infra_error" for a in anchored]
    assert rewards.tolist() == pytest.approx([paid if a else 0 for a in anchored])
    assert wmrl["true"][anchored].tolist() == pytest.approx([paid])
    assert not wmrl["_predicted"].any()
    assert venv.corrector.n_pairs == 0
    venv.step(np.full(4, action))  # and the loop goes on


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_an_environment_that_cannot_be_reset_loses_its_group_and_not_the_loop(mode):
    class Fails(Drift):
        failures = 0

        def reset(self, **arguments):
            if self.failures:
                self.failures -= 1
                raise InfrastructureError("the simulator did not start")
            return super().reset(**arguments)

    venv = AnchoredVecEnv(
        [lambda: Fails(end=1)] * 2, DriftModel(end=1), anchor_fraction=1.0, max_episode_steps=5, autoreset_mode=mode
    )
    venv.reset(seed=0)
    venv.envs[1].failures = 2  # fewer than there are attempts
    for _ in range(3):
        *_, infos = venv.step(np.ones(2, dtype=int))
        assert infos["wmrl"]["valid"].all()
    venv.envs[1].failures = 3
    seen = []
    for _ in range(4):
        _, rewards, _, truncated, infos = venv.step(np.ones(2, dtype=int))
        seen.append((bool(truncated[1]), float(rewards[1]), bool(infos["wmrl"]["valid"][1])))
    assert (True, 0.0, False) in seen or (mode is AutoresetMode.SAME_STEP and (True, 0.0, True) in seen)
    assert seen[-1][2]
    assert np.isfinite(rewards).all()


def test_an_environment_that_never_started_is_told_at_once():
    class Fails(Drift):
        def reset(self, **arguments):
            raise InfrastructureError("the simulator did not start")

    with pytest.raises(InfrastructureError, match="did not start"):
        AnchoredVecEnv([Fails] * 2, DriftModel(), anchor_fraction=1.0, max_episode_steps=5).reset(seed=0)


def test_an_error_of_the_agents_is_a_score():
    class Crashes(Guess):
        def execute(self, solution):
            return Outcome(ExecutionStatus.TIMEOUT, score=0.0)

    venv = AnchoredVecEnv([Crashes] * 2, HalfScores(), anchor_fraction=1.0)
    venv.reset(seed=0)
    *_, infos = venv.step(np.full(2, 5))
    assert infos["wmrl"]["status"].tolist() == ["timeout"] * 2
    assert infos["wmrl"]["true"].tolist() == [0, 0]
    assert venv.corrector.n_pairs == 2


def test_every_key_of_the_contract_is_there_in_every_step_and_reset():
    keys = {
        "status",
        "score",
        "raw_score",
        "best_score",
        "anchored",
        "predicted",
        "calibrated",
        "true",
        "group",
        "weight",
        "wall_s",
    }
    for venv in (guesses(), drifts(), AnchoredVecEnv([Drift] * 2, LastObservation(), max_episode_steps=3)):
        _, infos = venv.reset(seed=0)
        assert keys <= set(infos["wmrl"])
        for _, result in random_steps(venv, 8):
            w = result[4]["wmrl"]
            assert {f"_{key}" for key in keys} | keys <= set(w)
            for key in ("score", "predicted", "true"):
                assert (np.isnan(w[key]) == ~w[f"_{key}"]).all()


# -- infos, closing, state -------------------------------------------------------------------------------------------
def test_wmrl_is_the_only_key_of_ours_and_episode_is_what_a_wrapper_inside_says():
    venv = drifts(4, end=2, anchor_fraction=0.5, max_episode_steps=9)
    _, infos = venv.reset(seed=0)
    assert set(infos) == {"wmrl", "_wmrl", "start", "_start"}
    for _, result in random_steps(venv, 20):
        assert set(result[4]) <= {"wmrl", "_wmrl", "start", "_start", "x", "_x"}


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_episode_statistics_come_out_in_gymnasiums_format_of_predicted_episodes_too(mode):
    make = lambda: gymnasium.wrappers.RecordEpisodeStatistics(Drift(end=2))  # noqa: E731
    venv = AnchoredVecEnv([make] * 4, DriftModel(end=2), anchor_fraction=0.5, max_episode_steps=9, autoreset_mode=mode)
    venv.reset(seed=0)
    venv.step(np.ones(4, dtype=int))
    *_, infos = venv.step(np.ones(4, dtype=int))
    ended = infos["final_info"] if mode == "SameStep" else infos
    assert ended["_episode"].all()
    assert ended["episode"]["l"].tolist() == [2] * 4
    anchored = ended["wmrl"]["anchored"]
    assert ended["episode"]["r"] == pytest.approx(np.where(anchored, 0.1 + 0.2, 0.8 * (0.1 + 0.2)), abs=1e-6)
    assert 0 < anchored.sum() < 4


def test_close_is_idempotent_and_closes_every_environment_once():
    venv = guesses()
    venv.reset(seed=0)
    venv.step(np.zeros(8, dtype=int))
    venv.close()
    venv.close()
    assert [env.closed for env in venv.envs] == [1] * 8


def test_attributes_and_calls_reach_the_environments():
    venv = guesses(2)
    venv.set_attr("turns", [3, 4])
    assert venv.get_attr("turns") == (3, 4)
    venv.reset(seed=0)
    assert [c.task for c in venv.call("context")] == [f"task{env.task}" for env in venv.envs]


def test_state_survives_json_and_group_ids_go_on():
    a, b = guesses(corrector=Corrector(min_pairs=8)), guesses(seed=5, corrector=Corrector(min_pairs=8))
    a.reset(seed=1)
    for _, result in random_steps(a, 20):
        last = result[4]["wmrl"]["group"].max()
    b.load_state_dict(json.loads(json.dumps(a.state_dict())))
    assert b.corrector.state_dict() == a.corrector.state_dict()
    (_, info_a), (_, info_b) = a.reset(), b.reset()
    assert info_b["wmrl"]["group"].min() > last
    assert info_a["wmrl"]["group"].tolist() == info_b["wmrl"]["group"].tolist()
    assert info_a["wmrl"]["anchored"].tolist() == info_b["wmrl"]["anchored"].tolist()
    assert a.get_attr("task") == b.get_attr("task")


def test_an_alarm_of_the_audit_raises_an_adaptive_schedule(monkeypatch):
    schedule = AnchorSchedule(0.125, 0, adaptive=True)
    venv = guesses(schedule=schedule)
    venv.reset(seed=0)
    monkeypatch.setattr(type(venv.corrector), "action", "raise")
    for _, _result in random_steps(venv, 150):
        pass
    assert schedule.fraction >= 0.25


# -- bad input: one clear sentence each ------------------------------------------------------------------------------
class Wrong:
    def __init__(self, n=None, score=0.5):
        self.n, self.score = n, score

    def predict(self, solutions, contexts):
        return [Outcome(ExecutionStatus.OK, score=self.score)] * (len(solutions) if self.n is None else self.n)


class WrongSteps:
    def __init__(self, **parts):
        self.parts = parts

    def step(self, observations, actions):
        n = len(observations)
        good = {"obs": observations, "rewards": np.zeros(n), "ends": np.zeros(n, dtype=bool)}
        return tuple({**good, **self.parts}.values())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: guesses(8, group_size=3), "group_size=3 with 8 environments: expected a whole number that divides 8"),
        (lambda: guesses(8, group_size=0), "group_size=0"),
        (lambda: AnchoredVecEnv([], HalfScores()), "env_fns is empty"),
        (
            lambda: AnchoredVecEnv([Guess, lambda: Guess(text=True)], HalfScores()),
            "environment 1 has the observation space UnicodeText",
        ),
        (lambda: AnchoredVecEnv([lambda: ONE] * 2, HalfScores()), "same environment twice"),
        (lambda: guesses(anchor_fraction=0.0), "anchor fraction 0 with the corrections on"),
        (lambda: guesses(anchor_fraction=0.0, corrector=Corrector(debias=False)), "anchor fraction 0 with the corrections on"),
        (lambda: guesses(anchor_fraction=1.5), "anchor fraction 1.5"),
        (lambda: guesses(8, min_anchor_groups=9), "min_anchor_groups=9: expected 0 to 8"),
        (lambda: guesses(anchor_place="members"), "anchor_place='members': expected 'groups'"),
        (lambda: guesses(max_episode_steps=0), "max_episode_steps=0"),
        (lambda: AnchoredVecEnv([Guess], object()), "expected a method `predict`"),
        (lambda: AnchoredVecEnv([Drift], HalfScores()), "Drift is not an ExecutableEnv"),
        (
            lambda: AnchoredVecEnv([lambda: Guess(text=True)], DriftModel()),
            "needs arrays, but the observation space is UnicodeText",
        ),
    ],
)
def test_bad_arguments_are_one_clear_sentence(make, message):
    with pytest.raises(ValueError, match="(?s)" + message.replace("(", r"\(")) as error:
        make()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("venv", "message"),
    [
        (lambda: guesses(4, model=Wrong(n=3)), "returned 3 predictions for 4 solutions"),
        (lambda: guesses(4, model=Wrong(score=1.7)), r"predicted score of the world model\[0\] = 1.7"),
        (lambda: guesses(4, model=Wrong(score=float("nan"))), "= nan"),
        (lambda: drifts(4, model=WrongSteps(rewards=np.zeros(3))), r"expected \(4, 1\), \(4,\) and \(4,\)"),
        (lambda: drifts(4, model=WrongSteps(obs=np.full((4, 1), np.nan))), "observation that is not finite"),
        (lambda: drifts(4, model=WrongSteps(rewards=np.full(4, np.inf))), "= inf"),
    ],
)
def test_a_world_model_that_answers_wrongly_is_named(venv, message):
    venv = venv()
    venv.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        venv.step(np.zeros(4, dtype=int))


def test_a_reward_model_that_answers_wrongly_is_named():
    class Two:
        def score(self, episodes):
            return [0.1, 0.2]

    venv = AnchoredVecEnv([lambda: Drift(end=1)] * 3, Two(), max_episode_steps=9)
    venv.reset(seed=0)
    with pytest.raises(ValueError, match=r"scores of shape \(2,\) for 3 episodes"):
        venv.step(np.ones(3, dtype=int))


def test_a_fraction_of_0_is_fine_with_the_corrections_off():
    venv = guesses(anchor_fraction=0.0, corrector=Corrector(**OFF))
    _, infos = venv.reset(seed=0)
    venv.step(np.zeros(8, dtype=int))
    assert not infos["wmrl"]["anchored"].any()
    assert sum(env.executions for env in venv.envs) == 0


def test_misuse_of_reset_and_step():
    venv = guesses(4, group_size=2)
    with pytest.raises(gymnasium.error.ResetNeeded):
        venv.step(np.zeros(4, dtype=int))
    with pytest.raises(ValueError, match="reset_mask"):
        venv.reset(options={"reset_mask": np.ones(4, dtype=bool)})  # members start together
    with pytest.raises(ValueError, match="3 seeds for 4 environments"):
        venv.reset(seed=[1, 2, 3])
    with pytest.raises(ValueError, match="members share their seed"):
        venv.reset(seed=[1, 2, 3, 3])
    venv.reset(seed=[1, 1, 3, 3])
    assert [env.seeded_with for env in venv.envs] == [1, 1, 3, 3]
    with pytest.raises(ValueError, match="3 actions for 4 environments"):
        venv.step([0, 0, 0])


# -- the bill ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 8, 16, 32])
def test_the_share_of_real_episodes_is_what_was_asked_for(n):
    venv = guesses(n, turns=1, autoreset_mode="SameStep")
    venv.reset(seed=0)
    episodes = 0
    while episodes < 400:
        venv.step(np.zeros(n, dtype=int))
        episodes = venv.counts["real_episodes"] + venv.counts["predicted_episodes"]
    assert venv.counts["real_episodes"] / episodes == pytest.approx(0.125, rel=0.2)


def test_counts_are_the_bill_and_come_with_the_end_of_an_episode():
    venv = drifts(8, end=2, anchor_fraction=0.25)
    _, infos = venv.reset(seed=0)
    real = int(infos["wmrl"]["anchored"].sum())
    venv.step(np.ones(8, dtype=int))
    assert venv.counts == {
        "real_steps": real, "real_episodes": 0, "predicted_steps": 8 - real, "predicted_episodes": 0, "resets": 8}  # fmt: skip
    *_, infos = venv.step(np.ones(8, dtype=int))
    assert venv.counts == {
        "real_steps": 2 * real, "real_episodes": real, "predicted_steps": 2 * (8 - real), "predicted_episodes": 8 - real, "resets": 8}  # fmt: skip
    assert infos["wmrl"]["_real_steps"].all()
    assert infos["wmrl"]["real_steps"].tolist() == [2 * real] * 8
    other = drifts(8)
    other.load_state_dict(json.loads(json.dumps(venv.state_dict())))
    assert other.counts == venv.counts


# -- both sides of the model stay in their spaces ------------------------------------------------------------------------
@pytest.mark.parametrize("bad", [[[0], [1]], [0.0, 1.0], [0, 7], [0, -1]])
def test_an_action_that_the_environment_would_refuse_is_refused_by_predictions_too(bad):
    venv = drifts(2, anchor_fraction=0.0, corrector=Corrector(**OFF))
    venv.reset(seed=0)
    with pytest.raises(ValueError, match=r"expected a member of Discrete\(2\)"):
        venv.step(np.array(bad))


def test_actions_of_a_box_are_clipped_and_refused_if_they_are_no_numbers():
    class Push(Drift):
        action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    class Sees:
        def step(self, observations, actions):
            self.seen = actions
            return observations, np.zeros(len(observations)), np.zeros(len(observations), dtype=bool)

    model = Sees()
    venv = AnchoredVecEnv(
        [Push] * 2, model, anchor_fraction=0.0, corrector=Corrector(score_range=None, **OFF), max_episode_steps=9
    )
    venv.reset(seed=0)
    venv.step(np.full((2, 1), 1000.0, dtype=np.float32))
    assert model.seen.tolist() == [[2.0], [2.0]]
    with pytest.raises(ValueError, match=r"action \[nan\]"):
        venv.step(np.full((2, 1), np.nan, dtype=np.float32))


@pytest.mark.parametrize(
    "space",
    [gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(5), gymnasium.spaces.Discrete(4))),
     gymnasium.spaces.Dict(x=gymnasium.spaces.Discrete(5), y=gymnasium.spaces.Box(-1, 1, (1,), np.float32)),
     gymnasium.spaces.MultiDiscrete([3, 4])],
)  # fmt: skip
def test_actions_of_every_space_reach_the_environments_as_in_gymnasium(space):
    class Notes(Drift):
        action_space = space

        def step(self, action):
            self.got = action
            return super().step(0)

    got = []
    for venv in (SyncVectorEnv([Notes] * 3), AnchoredVecEnv([Notes] * 3, LastObservation(), anchor_fraction=1.0, workers=0)):
        venv.reset(seed=0)
        venv.action_space.seed(0)
        venv.step(venv.action_space.sample())
        got.append(str([env.got for env in venv.envs]))
    assert got[0] == got[1]


def test_predicted_rewards_stay_in_the_range_of_the_real_ones_and_it_is_said_once(caplog):
    class Wild(DriftModel):
        def step(self, observations, actions):
            after, rewards, ends = super().step(observations, actions)
            return after, rewards + 100.0, ends

    venv = drifts(
        4, end=99, model=Wild(end=99), anchor_fraction=0.5, max_episode_steps=1000, corrector=Corrector(score_range=None, **OFF)
    )
    venv.reset(seed=0)
    for _ in range(120):
        _, rewards, *_ = venv.step(np.zeros(4, dtype=int))
    assert rewards.tolist() == [0.0] * 4
    assert sum("are kept in that range" in r.getMessage() for r in caplog.records) == 1


def test_a_score_beyond_the_range_names_the_corrector_that_takes_it():
    venv = AnchoredVecEnv([lambda: Drift(end=5)] * 2, LastObservation(), anchor_fraction=1.0)
    venv.reset(seed=0)
    for _ in range(4):
        venv.step(np.ones(2, dtype=int))
    with pytest.raises(ValueError, match=r"corrector=Corrector\(score_range=None\)"):
        venv.step(np.ones(2, dtype=int))


@pytest.mark.parametrize(
    ("answer", "message"),
    [(lambda o: (o, np.zeros(len(o)), np.zeros(len(o), bool), {}), "returned 4 values: expected three"),
     (lambda o: (o, np.zeros(len(o)), np.zeros(len(o), bool), np.zeros(len(o), bool), {}), "returned 5 values: expected three"),
     (lambda o: o, "returned a ndarray: expected three")],
)  # fmt: skip
def test_the_step_of_a_model_has_three_parts(answer, message):
    class Odd:
        def step(self, observations, actions):
            return answer(observations)

    venv = drifts(2, model=Odd())
    venv.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        venv.step(np.zeros(2, dtype=int))


def test_a_tensor_with_a_gradient_is_refused_with_what_to_do():
    torch = pytest.importorskip("torch")

    class Net:
        def step(self, observations, actions):
            rewards = torch.ones(len(observations), requires_grad=True) * 1
            return torch.as_tensor(observations), rewards, torch.zeros(len(observations), dtype=torch.bool)

    venv = drifts(2, model=Net())
    venv.reset(seed=0)
    with pytest.raises(ValueError, match="detach"):
        venv.step(np.zeros(2, dtype=int))


def test_an_environment_given_as_a_model_is_refused_with_what_to_pass():
    with pytest.raises(ValueError, match="CheapEnvModel"):
        AnchoredVecEnv([Drift] * 2, Drift())


# -- infos, seeds and autoreset as gymnasium has them ---------------------------------------------------------------------
def test_texts_are_texts_and_no_column_is_made_of_none():
    for venv in (guesses(), drifts(), AnchoredVecEnv([Drift] * 2, LastObservation(), max_episode_steps=3)):
        _, infos = venv.reset(seed=0)
        for _ in range(5):
            for key, column in infos["wmrl"].items():
                assert column.dtype.kind in "bifU", key
            assert (infos["wmrl"]["status"] != "").tolist() == infos["wmrl"]["_status"].tolist()
            *_, infos = venv.step(venv.action_space.sample())


def test_unseeded_resets_are_unseeded_and_seeds_are_those_of_the_environments():
    starts = [drifts(2).reset()[1]["start"].tolist() for _ in range(2)]
    assert starts[0] != starts[1]
    grouped = [guesses(4, group_size=2) for _ in range(2)]
    for venv in grouped:
        venv.reset()
        seeds = [env.seeded_with for env in venv.envs]
        assert seeds[0] == seeds[1] != seeds[2]
    assert grouped[0].envs[0].seeded_with != grouped[1].envs[0].seeded_with
    venv = drifts(3)
    venv.reset(seed=5)
    assert venv.np_random_seed == (5, 6, 7)


def test_disabled_autoreset_resets_what_the_mask_says():
    venv = drifts(3, end=2, autoreset_mode="Disabled")
    venv.reset(seed=0)
    venv.step(np.array([1, 0, 1]))
    _, _, terminated, _, infos = venv.step(np.array([1, 0, 1]))
    assert terminated.tolist() == [True, False, True]
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset_mask"):
        venv.step(np.array([1, 0, 1]))
    groups = infos["wmrl"]["group"].copy()
    obs, infos = venv.reset(options={"reset_mask": terminated})
    assert obs[:, 0].tolist() == [0, 0, 0]
    assert (infos["wmrl"]["group"] != groups).tolist() == [True, False, True]
    assert infos["_start"].tolist() == [True, False, True]
    obs, *_ = venv.step(np.array([1, 1, 1]))
    assert obs[:, 0].tolist() == [1, 1, 1]


# -- the audit ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("action", "weight", "fraction"), [("none", 1.0, 0.25), ("raise", 1.0, 0.5), ("freeze", 0.0, 0.5)])
def test_what_the_audit_asks_for_is_done_and_said(monkeypatch, caplog, action, weight, fraction):
    venv = guesses(anchor_fraction=0.25)
    venv.reset(seed=0)
    monkeypatch.setattr(type(venv.corrector), "action", action)
    for _, result in random_steps(venv, 60):
        w = result[4]["wmrl"]
    assert set(w["audit"]) == {action}
    assert set(w["weight"][~w["anchored"]]) == {weight}
    assert venv._book.schedule.fraction == fraction
    said = [r.getMessage() for r in caplog.records if "audit of the anchors says" in r.getMessage()]
    assert len(said) == (action != "none")
    assert all("anchor fraction is 0.5 (it was 0.25)" in text for text in said)
    assert all(("weigh 0" in text) == (action == "freeze") for text in said)


@pytest.mark.parametrize("wrapper", [gymnasium.wrappers.NormalizeReward, gymnasium.wrappers.NormalizeObservation])
def test_a_wrapper_that_keeps_statistics_of_a_slot_is_warned_of_with_the_one_to_use(wrapper):
    with pytest.warns(UserWarning, match=f"gymnasium.wrappers.vector.{wrapper.__name__}") as warned:
        AnchoredVecEnv([lambda: wrapper(Drift())] * 2, DriftModel(), max_episode_steps=9)
    assert sum("inside env_fns" in str(w.message) for w in warned) == 1
