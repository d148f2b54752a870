"""`evaluate` and `evaluate_policy`: programs are obeyed by a test double, everything else is real."""

import threading

import numpy as np
import pytest

from tests.unit.evaluation.conftest import OTHER, SLUG
from wmrl_envs.engine import Generation
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_train.evaluation.policies import CallablePolicy
from wmrl_train.evaluation.programs import evaluate, evaluate_policy


@pytest.fixture
def kwargs(dojo, box):
    return {"sandbox": box, "env_kwargs": {"data_dir": dojo[0], "max_turns": 2}}


@pytest.fixture
def programs(dojo):
    return {slug: {name: f"#ok\n{text}" for name, text in by_name.items()} for slug, by_name in dojo[1].items()}


class Scripted:
    """An engine and an agent in one (a test double): the prompt says the task, the completion is a program drawn by the seed."""

    tokenizer, version, max_new_tokens, stop_ids = None, 0, 7, (0,)

    def __init__(self, programs, failing_call=None, max_context=10**9):
        self.programs, self.calls, self.failing_call, self.max_context = programs, [], failing_call, max_context

    def begin(self, observation, context):
        return [1 if context.task == SLUG else 2]

    def extend(self, observation, completion_ids):
        assert "Code Execution Results" in observation
        return [5]

    def act(self, text):
        return text

    def generate(self, prompts, sampling, seeds=None):
        self.calls.append([list(p) for p in prompts])
        if len(self.calls) == self.failing_call:
            raise InfrastructureError("the engine is gone")
        assert (sampling.max_new_tokens, sampling.stop_ids) == (7, (0,))
        made = []
        for prompt, seed in zip(prompts, seeds, strict=True):
            choices = ["#agent_error", *self.programs[SLUG if prompt[0] == 1 else OTHER].values()]
            made.append(Generation((9, 0), (0.0, 0.0), choices[np.random.default_rng(seed).integers(len(choices))]))
        return made


def test_a_callable_is_asked_with_the_observation_and_every_episode_is_scored(programs, kwargs):
    def agent(observation):
        slug = SLUG if "ACTION" in observation else OTHER if "Transported" in observation else None
        return programs[slug]["perfect"] if slug else "#timeout"

    result = evaluate(CallablePolicy(agent), [SLUG, OTHER], 3, workers=2, **kwargs)
    assert [t.key for t in result.trajectories] == [(slug, i) for slug in (SLUG, OTHER) for i in range(3)]
    assert {t.score for t in result.trajectories} == {1.0}
    assert [[turn.status for turn in t.turns] for t in result.trajectories] == [["ok", "timeout"]] * 6
    assert (result.table.overall.avg, result.table.overall.valid, result.cost.executions) == (1.0, 1.0, 12)
    assert result.cost.execution_s == pytest.approx(6.0)
    assert result.table.overall.statuses == {"ok": 6, "timeout": 6}


def test_a_callable_with_two_parameters_gets_the_context_with_history(programs, kwargs):
    seen = []

    def agent(observation, context):
        seen.append((context.task, len(context.history)))
        return "#timeout"

    evaluate(CallablePolicy(agent), [SLUG], 1, **kwargs)
    assert seen == [(SLUG, 0), (SLUG, 1)]


def test_an_engine_is_asked_once_a_turn_for_all_episodes_and_tokens_are_kept(programs, kwargs):
    engine = Scripted(programs)
    result = evaluate_policy(engine, engine, [SLUG, OTHER], 4, workers=2, **kwargs)
    assert [len(call) for call in engine.calls] == [8, 8]
    assert engine.calls[1][0] == [1, 9, 0, 5]
    assert result.table.overall.episodes == 8
    assert 0 < result.table.overall.avg < 1


def test_samples_depend_on_seed_task_repeat_and_turn_alone(programs, kwargs):
    def answers(tasks, k, seed):
        engine = Scripted(programs)
        result = evaluate_policy(engine, engine, tasks, k, seed=seed, **kwargs)
        return {t.key: [turn.answer for turn in t.turns] for t in result.trajectories}

    both = answers([SLUG, OTHER], 6, seed=1)
    assert answers([OTHER], 3, seed=1) == {key: both[key] for key in both if key[0] == OTHER and key[1] < 3}
    assert answers([SLUG, OTHER], 6, seed=2) != both
    assert len({tuple(a) for a in both.values()}) > 1


def test_a_failing_engine_costs_its_episodes_their_score_and_nothing_else(programs, kwargs):
    engine = Scripted(programs, failing_call=2)
    result = evaluate_policy(engine, engine, [SLUG], 3, **kwargs)
    assert [t.failure for t in result.trajectories] == ["the engine is gone"] * 3
    assert (result.table.overall.episodes, result.table.overall.failed) == (0, 3)


def test_an_episode_is_kept_while_others_of_its_batch_still_run(programs, kwargs, box):
    kwargs["env_kwargs"]["max_turns"] = 1
    whole, kept, jobs = box.run_job, threading.Event(), []

    def waiting(job):
        jobs.append(job)
        assert len(jobs) == 1 or kept.wait(20), "the first episode was not told before the second had ended"
        return whole(job)

    box.run_job = waiting
    engine = Scripted(programs)
    result = evaluate_policy(engine, engine, [SLUG], 2, workers=1, progress=lambda trajectory: kept.set(), **kwargs)
    assert (len(engine.calls), len(jobs), result.table.overall.episodes) == (1, 2, 2)


def test_a_failure_of_the_sandbox_is_tried_again(programs, kwargs, box):
    whole, failures = box.run_job, iter([True, True])

    def shaky(job):
        if next(failures, False):
            raise InfrastructureError("the daemon is gone")
        return whole(job)

    box.run_job = shaky
    result = evaluate(CallablePolicy(lambda text: programs[SLUG]["perfect"]), [SLUG], 1, workers=1, **kwargs)
    assert [(t.score, t.failure, t.statuses) for t in result.trajectories] == [(1.0, None, ("ok", "ok"))]


def test_a_sandbox_failure_is_no_score(kwargs):
    result = evaluate(CallablePolicy(lambda text: "#infra"), [SLUG], 2, **kwargs)
    assert [(t.score, t.failure, len(t.turns)) for t in result.trajectories] == [(None, "the daemon is gone", 1)] * 2


def test_a_full_context_ends_the_episode_with_what_it_has(programs, kwargs):
    engine = Scripted(programs, max_context=4)
    result = evaluate_policy(engine, engine, [SLUG], 2, **kwargs)
    assert [len(t.turns) for t in result.trajectories] == [1, 1]
    assert result.table.overall.episodes == 2


def test_a_first_prompt_that_does_not_fit_is_an_error_and_no_zero(programs, kwargs):
    engine = Scripted(programs, max_context=1)
    with pytest.raises(InvalidInput, match="has 1 tokens, and the context of the model is 1"):
        evaluate_policy(engine, engine, [SLUG], 2, **kwargs)


def test_done_episodes_are_not_repeated_but_failed_ones_are(programs, kwargs):
    first = evaluate(CallablePolicy(lambda text: programs[SLUG]["half"]), [SLUG], 2, **kwargs)
    first.trajectories[1].failure = "ours"
    calls = []

    def agent(text):
        calls.append(text)
        return programs[SLUG]["perfect"]

    again = evaluate(CallablePolicy(agent), [SLUG], 3, done=first.trajectories, **kwargs)
    assert len(calls) == 2 * 2
    assert [t.score == 1.0 for t in again.trajectories] == [False, True, True]
    assert again.trajectories[0] is first.trajectories[0]
    assert (again.cost.executions, again.cost_now.executions) == (6, 4)


def test_episodes_that_are_not_asked_for_are_not_counted(programs, kwargs):
    agent = CallablePolicy(lambda text: programs[SLUG]["half"])
    first = evaluate(agent, [SLUG, OTHER], 3, **kwargs)
    fewer = evaluate(agent, [SLUG], 2, done=first.trajectories, **kwargs)
    assert [t.key for t in fewer.trajectories] == [(SLUG, 0), (SLUG, 1)]
    assert (fewer.cost.executions, fewer.cost_now.executions) == (4, 0)


class Counting:
    """An agent that must be told where an episode begins."""

    def __init__(self):
        self.log, self.inside = [], 0

    def reset(self):
        self.log.append("reset")
        self.turn = 0

    def __call__(self, observation):
        self.inside += 1
        assert self.inside == 1, "two episodes at once"
        self.log.append(self.turn)
        self.turn += 1
        self.inside -= 1
        return "#timeout"


def test_an_agent_with_reset_is_told_of_every_episode_and_has_one_at_a_time(kwargs):
    agent = Counting()
    evaluate(CallablePolicy(agent), [SLUG, OTHER], 2, workers=4, **kwargs)
    assert agent.log == ["reset", 0, 1] * 4


def test_progress_is_told_of_each_episode_from_one_thread_at_a_time(kwargs):
    busy, seen = threading.Lock(), []

    def progress(trajectory):
        assert busy.acquire(blocking=False)
        seen.append(trajectory.key)
        busy.release()

    evaluate(CallablePolicy(lambda text: "#timeout"), [SLUG, OTHER], 4, workers=4, progress=progress, **kwargs)
    assert sorted(seen) == sorted((slug, i) for slug in (SLUG, OTHER) for i in range(4))


def test_dsbench_tasks_report_the_relative_gap(programs, kwargs):
    result = evaluate(CallablePolicy(lambda text: programs[OTHER]["perfect"]), [OTHER], 2, **kwargs)
    assert result.relative_gap == pytest.approx(1.0)
    assert result.table.categories[0].name == "binary"
    half = evaluate(CallablePolicy(lambda text: programs[OTHER]["half"]), [OTHER], 2, **kwargs)
    assert half.relative_gap == pytest.approx((0.5 - 0.4951) / (1 - 0.4951))


@pytest.mark.parametrize("k", [0, -1, 2.5, True])
def test_a_wrong_number_of_episodes_is_refused(kwargs, k):
    with pytest.raises(InvalidInput, match="k="):
        evaluate(CallablePolicy(lambda text: ""), [SLUG], k, **kwargs)


def test_no_tasks_and_an_agent_that_returns_no_text_are_refused(kwargs):
    with pytest.raises(InvalidInput, match="at least one"):
        evaluate(CallablePolicy(lambda text: ""), [], 1, **kwargs)
    with pytest.raises(InvalidInput, match="returned NoneType"):
        evaluate(CallablePolicy(lambda text: None), [SLUG], 1, **kwargs)
