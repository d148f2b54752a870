import numpy as np
import torch

from tests.unit.agents.vla.doubles import ColourDouble, simulators, small_policy
from wmrl_train.agents.vla.play import Simulators, Start, play


def starts(*indices, task="colour"):
    return [Start(task, index, seed) for seed, index in enumerate(indices)]


def test_episodes_are_those_asked_for_and_log_probabilities_are_the_model_s():
    policy = small_policy()
    played = play(policy, simulators(), starts(1, 1, 0, 0, 1))
    assert [p.start.index for p in played] == [1, 1, 0, 0, 1]
    for p in played:
        assert len(p.seen) == len(p.codes) + 1 <= 4
        assert p.steps == 2 * len(p.codes)
        inputs = policy.inputs(p.seen[:-1])
        again = policy.model.log_probs(inputs[0], inputs[1], torch.from_numpy(np.stack(p.codes)), inputs[2])
        np.testing.assert_allclose(again.detach(), np.stack(p.logprobs), atol=1e-5)


def test_a_sample_depends_on_its_start_alone_however_many_simulators_there_are():
    policy, wanted = small_policy(), starts(1, 0, 1, 0, 0, 1)
    one, three = play(policy, simulators(1), wanted), play(policy, simulators(3), wanted)
    assert [np.stack(p.codes).tolist() for p in one] == [np.stack(p.codes).tolist() for p in three]
    others = play(policy, simulators(1), [Start(s.task, s.index, s.seed + 100) for s in wanted])
    assert [np.stack(p.codes).tolist() for p in one] != [np.stack(p.codes).tolist() for p in others]


def test_greedy_episodes_need_no_seed_to_agree():
    policy = small_policy()
    first, second = (play(policy, simulators(1), [Start("colour", 0, seed)], temperature=0.0)[0] for seed in (1, 2))
    assert np.array_equal(np.stack(first.codes), np.stack(second.codes))


def test_a_lost_episode_is_run_again_and_one_lost_too_often_says_why():
    policy = small_policy()
    whole = play(policy, simulators(1), starts(0, 0))
    once = play(policy, simulators(1, crash_at=[1]), starts(0, 0), retries=1)
    assert [p.lost for p in once] == [None, None]
    assert [np.stack(p.codes).tolist() for p in once] == [np.stack(p.codes).tolist() for p in whole], "it begins anew"
    assert [p.lost for p in play(policy, simulators(1, crash_at=range(100)), starts(0), retries=1)] == ["the simulator failed"]
    assert play(policy, simulators(1, crash_at=[1]), starts(0), retries=0)[0].lost is not None


def test_every_environment_stays_with_its_task_and_never_more_are_open_than_allowed():
    made = []

    def make(task):
        made.append((task, ColourDouble()))
        return made[-1][1]

    pool = Simulators(make, 2)
    wanted = starts(0, 1, task="a") + starts(0, 1, task="b") + starts(0, task="a")
    assert [p.start.task for p in play(small_policy(), pool, wanted)] == ["a", "a", "b", "b", "a"]
    assert len([env for _, env in made if not env.closed]) <= 2
    assert {task for task, _ in made} == {"a", "b"}
    pool.close()
    assert all(env.closed for _, env in made)
