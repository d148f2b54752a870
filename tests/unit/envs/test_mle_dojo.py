"""`MLEDojoEnv` on a user's MLE-Dojo folder; programs are obeyed by a test double, everything else is real."""

import copy
import json
import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded

import wmrl_envs
from tests.doubles import write_competition
from wmrl_envs.envs.mle_dojo import MLEDojoEnv
from wmrl_envs.errors import DataNotBuilt, InvalidAction, InvalidInput
from wmrl_envs.execution.base import ExecutionLimits
from wmrl_envs.outcome import ExecutionStatus, Outcome

SLUG, OTHER = "amazon-employee-access-challenge", "spaceship-titanic"
KEYS = {
    "status", "score", "raw_score", "best_score", "anchored", "predicted", "calibrated", "true", "group", "weight", "wall_s",
}  # fmt: skip


@pytest.fixture
def make(dojo, box):
    root, _ = dojo
    return lambda competition=SLUG, **kwargs: MLEDojoEnv(competition, **({"data_dir": root, "sandbox": box} | kwargs))


@pytest.fixture
def programs(dojo):
    return {name: f"#ok\n{text}" for name, text in dojo[1][SLUG].items()}


def play(env, *answers):
    """Rewards, observations and infos of an episode."""
    env.reset(seed=0)
    return [env.step(answer) for answer in answers]


def test_the_first_observation_is_the_overview_and_the_next_ones_are_feedback(make, programs):
    env = make(max_turns=2)
    first, info = env.reset(seed=0)
    assert "ACTION" in first
    assert "train.csv" in first
    assert info == {}
    text, reward, terminated, truncated, info = env.step(f"A plan.\n```python\n{programs['perfect']}```")
    assert text.startswith(
        "=== Code Execution Results ===\nExecution successful\nCode execution time: 0.50s\nCode output: done\n"
    )
    assert "Private Leaderboard: Position 1 / 10\nPublic Leaderboard: Position 1 / 10\nRaw Score: 1.0" in text
    assert text.endswith("Best Raw Score: 1.0\nBest Position Score: 1.0")
    assert (reward, terminated, truncated) == (1.0, False, False)
    assert env.step(programs["none"])[2:4] == (True, False)


def test_info_has_exactly_the_keys_of_the_design_and_plain_values(make, programs):
    for _, _, _, _, info in play(make(), programs["half"], "#timeout", "", "#ok\nno,submission\n"):
        assert set(info) == {"wmrl"}
        assert set(info["wmrl"]) == KEYS
        json.dumps(info, allow_nan=False)
    assert info["wmrl"]["status"] == "invalid_submission"
    assert type(info["wmrl"]["status"]) is str


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("improvement", [0.0, 1.0, 0.0]), ("score", [0.0, 1.0, 0.0]), ("final", [0.0, 0.0, 1.0])],
)
def test_reward_modes(make, programs, mode, expected):
    steps = play(make(max_turns=3, reward_mode=mode), "#agent_error", programs["perfect"], programs["none"])
    assert [reward for _, reward, *_ in steps] == pytest.approx(expected)
    assert [terminated for _, _, terminated, _, _ in steps] == [False, False, True]


def test_the_return_of_an_improvement_episode_is_its_best_score(make, programs):
    steps = play(make(), programs["half"], programs["none"], programs["perfect"], programs["half"])
    scores = [info["wmrl"]["score"] for *_, info in steps]
    assert 0 < scores[0] < 1
    assert sum(reward for _, reward, *_ in steps) == pytest.approx(max(scores)) == 1.0
    assert [info["wmrl"]["best_score"] for *_, info in steps] == pytest.approx([scores[0], scores[0], 1.0, 1.0])
    assert steps[3][0].endswith("Best Raw Score: 1.0\nBest Position Score: 1.0")


@pytest.mark.parametrize("status", ["agent_error", "timeout", "memory", "processes", "output", "disk", "invalid_submission"])
def test_the_agents_own_failures_score_zero_and_the_episode_goes_on(make, status):
    ((text, reward, terminated, truncated, info),) = play(make(), f"#{status}")
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert (info["wmrl"]["status"], info["wmrl"]["score"], info["wmrl"]["true"]) == (status, 0.0, 0.0)
    assert text.startswith("=== Code Execution Results ===\nExecution ")


@pytest.mark.parametrize("mode", ["improvement", "score", "final"])
def test_a_failure_of_ours_ends_the_episode_without_a_score(make, programs, mode):
    env = make(reward_mode=mode)
    *_, last = play(env, programs["perfect"], "#infra")
    text, reward, terminated, truncated, info = last
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["wmrl"]["status"] == "infra_error"
    assert (info["wmrl"]["score"], info["wmrl"]["raw_score"], info["wmrl"]["true"]) == (None, None, None)
    assert "not scored" in text
    assert "daemon" not in text
    with pytest.raises(ResetNeeded):
        env.step(programs["perfect"])


def test_an_answer_without_a_program_is_not_executed(make, box):
    ((text, reward, *_, info),) = play(make(), "```python\n```")
    assert (box.jobs, reward, info["wmrl"]["status"]) == ([], 0.0, "agent_error")
    assert "```python block" in text


def test_a_predicted_outcome_takes_the_place_of_an_executed_one(make, box):
    env = make()
    env.reset(seed=0)
    env.propose("print(1)")
    text = "=== Code Execution Results ===\nExecution successful\n\n=== Submission Evaluation ===\nSubmission successful"
    text += "\nAverage Position Score: 0.7000"
    predicted = Outcome(ExecutionStatus.OK, 0.7, None, text, source="predicted", confidence=0.5).with_score(0.4)
    observation, reward, *_, info = env.observe(predicted)
    assert (reward, box.jobs) == (0.4, [])
    assert (info["wmrl"]["anchored"], info["wmrl"]["predicted"], info["wmrl"]["true"]) == (False, 0.4, None)
    assert observation.endswith("Submission successful\nAverage Position Score: 0.4000\nBest Position Score: 0.4")
    assert env.context().history == (("print(1)", observation),)


def test_a_predicted_failure_pays_what_calibration_says(make):
    env = make()
    env.reset(seed=0)
    env.propose("1 / 0")
    failed = Outcome(
        ExecutionStatus.AGENT_ERROR, 0.0, None, "=== Code Execution Results ===\nExecution failed: no", source="predicted"
    )
    _, reward, *_, info = env.observe(failed.with_score(0.1))
    assert reward == info["wmrl"]["best_score"] == info["wmrl"]["score"] == 0.1


def test_context_is_what_the_agent_may_know_and_history_grows(make, programs):
    env = make()
    first, _ = env.reset(seed=0)
    context = env.context()
    assert (context.task, context.category, context.metric, context.higher_is_better) == (SLUG, "tabular", "roc_auc", True)
    assert context.overview == first
    assert {f.name for f in context.files} >= {"train.csv", "test.csv", "sample_submission.csv"}
    assert not any("answer" in f.name or "leaderboard" in f.name for f in context.files)
    assert (context.submission_columns, context.id_columns) == (("Id", "ACTION"), ("Id",))
    assert (context.submission_rows, context.timeout_s, context.history) == (20, 1200, ())
    observation, *_ = env.step(programs["half"])
    assert env.context().history == ((programs["half"], observation),)
    env.reset()
    assert env.context().history == ()


def test_hidden_scores_stay_in_info(make, programs):
    env = make(hide_score=True)
    ((text, reward, *_, info),) = play(env, programs["half"])
    assert text.endswith("Submission successful\nScore: hidden (this environment does not show the test score)")
    assert not any(word in text for word in ("Position", "Raw Score", "0.5\n"))
    assert info["wmrl"]["raw_score"] == pytest.approx(0.5)
    assert reward == info["wmrl"]["score"] > 0


def test_observations_fit_their_space_and_long_feedback_is_cut_in_the_middle(make, programs, box):
    box._wall_s = 1.0
    env = make(observation_tokens=64)
    env.reset(seed=0)
    box.run_job = lambda job: wmrl_envs.Execution(
        ExecutionStatus.OK, 0, "λ" * 100_000, submission=programs["half"][4:].encode()
    )
    text, *_ = env.step("print('λ' * 100_000)")
    assert len(text) == 256
    assert text.startswith("=== Code Execution Results ===")
    assert "Best Position Score" in text
    assert text in env.observation_space


def test_seeded_reset_draws_the_same_competitions_and_options_choose_one(make):
    env = make([SLUG, OTHER])
    drawn = [(env.reset(seed=seed), env.unwrapped.task)[1] for seed in range(8)]
    assert set(drawn) == {SLUG, OTHER}
    again = make([SLUG, OTHER])
    assert [(again.reset(seed=seed), again.task)[1] for seed in range(8)] == drawn
    env.reset(seed=0)
    sequence = [(env.reset(), env.task)[1] for _ in range(8)]
    again.reset(seed=0)
    assert [(again.reset(), again.task)[1] for _ in range(8)] == sequence
    one = make(SLUG)
    assert "Transported" in one.reset(options={"competition": OTHER})[0]
    assert one.task == OTHER
    one.reset()
    assert one.task == SLUG


def test_ansi_rendering_shows_the_state(make, programs):
    env = make(render_mode="ansi")
    env.reset(seed=0)
    assert f"{SLUG}: attempt 0 of 4, best score 0.0000" in env.render()
    env.step(programs["perfect"])
    assert "attempt 1 of 4, best score 1.0000\n=== Code Execution Results ===" in env.render()
    assert make().render() is None


def test_a_sandbox_that_was_passed_in_stays_open_and_close_is_idempotent(make, box):
    env = make()
    env.close()
    env.close()
    assert box.closed == 0


def test_limits_reach_the_sandbox_and_the_shorter_time_holds(make, box):
    env = make(limits=ExecutionLimits(timeout_s=60, memory_mb=99))
    play(env, "#timeout")
    assert (box.jobs[-1].limits.timeout_s, box.jobs[-1].limits.memory_mb) == (60, 99)
    assert make(limits=ExecutionLimits(timeout_s=60), timeout_s=5).limits.timeout_s == 5
    assert "60 s" in env._observation


def test_the_program_sees_the_public_folder_and_no_answer(make, box, dojo):
    play(make(), "#timeout")
    assert box.jobs[-1].data_dir == dojo[0] / SLUG / "data" / "public"
    assert (box.jobs[-1].prelude, dict(box.jobs[-1].env)) == ("", {})


def test_the_scaffold_runs_before_the_program_and_is_described(make, box):
    env = make(scaffold="sklearn", max_rows=30)
    first, _ = env.reset(seed=0)
    assert "save(predictions)" in first
    assert "num = ['x']" in first
    assert env.context().scaffold == "sklearn"
    assert env.context().scaffold_names["rows"] == 30
    env.step("#timeout")
    assert "def save" in box.jobs[-1].prelude
    assert dict(box.jobs[-1].env) == {"METRIC": "roc_auc", "MAX_ROWS": "30"}


def test_gym_make_knows_it_and_its_spec_can_be_copied(dojo, box):
    env = gym.make("MLEDojo-v0", competition=SLUG, data_dir=dojo[0], sandbox=box)
    assert env.spec.nondeterministic
    assert isinstance(env.unwrapped, MLEDojoEnv)
    plain = gym.make("MLEDojo-v0", competition=SLUG, data_dir=dojo[0])
    copied = copy.deepcopy(plain.spec)
    assert gym.make(pickle.loads(pickle.dumps(copied))).unwrapped.slugs == (SLUG,)


# --- what a user may get wrong


@pytest.mark.parametrize("action", [b"print(1)", 3, None, ["print(1)"], {"code": "x"}])
def test_an_action_of_the_wrong_type_is_refused(make, action):
    env = make()
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match=f"{type(action).__name__}: expected a str"):
        env.step(action)


def test_stepping_before_reset_is_refused(make):
    with pytest.raises(ResetNeeded, match="not begun"):
        make().step("print(1)")
    with pytest.raises(ResetNeeded):
        make().context()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"max_turns": 0}, "max_turns=0"),
        ({"max_turns": 2.5}, "max_turns=2.5"),
        ({"max_turns": True}, "max_turns=True"),
        ({"observation_tokens": 0}, "observation_tokens=0"),
        ({"reward_mode": "best"}, "reward_mode='best': expected one of 'improvement', 'score', 'final'"),
        ({"scaffold": "torch"}, "scaffold='torch': expected one of None, 'sklearn'"),
        ({"render_mode": "human"}, "render_mode='human'"),
        ({"execution": "vm", "sandbox": None}, "execution='vm'"),
        ({"timeout_s": 0}, "timeout_s=0"),
        ({"timeout_s": float("inf")}, "timeout_s=inf"),
        ({"max_rows": 10}, "scaffold"),
        ({"max_rows": 0, "scaffold": "sklearn"}, "max_rows=0"),
        ({"competition": []}, "competition"),
        ({"competition": 3}, "competition"),
        ({"execution": np.array([1, 2]), "sandbox": None}, "execution=array([1, 2])"),
        ({"reward_mode": np.array(["score"])}, "reward_mode=array"),
        ({"data_dir": "a\0b"}, "data_dir='a\\x00b'"),
    ],
)
def test_a_wrong_setting_is_named_with_what_was_expected(make, kwargs, message):
    with pytest.raises(InvalidInput) as error:
        make(**kwargs)
    assert message in str(error.value)


def test_an_unknown_competition_gets_the_nearest_names(make, dojo):
    with pytest.raises(InvalidInput, match="spaceship-titanic"):
        make("spaceship-titanik")
    env = make()
    with pytest.raises(InvalidInput, match="spaceship-titanic"):
        env.reset(options={"competition": "spaceship-titanik"})


def test_unknown_reset_options_are_refused(make):
    with pytest.raises(InvalidInput, match="'competition'"):
        make().reset(options={"task": SLUG})


def test_a_competition_without_boards_says_so_before_anything_runs(tmp_path, box):
    write_competition(tmp_path, SLUG, "Id", "ACTION")
    for board in ("private", "public"):
        (tmp_path / SLUG / "data" / "private" / f"{board}_leaderboard.csv").unlink()
    with pytest.raises(DataNotBuilt, match=r"private_leaderboard\.csv"):
        MLEDojoEnv(SLUG, data_dir=tmp_path, sandbox=box).reset()


def test_data_that_is_not_built_names_the_command(tmp_path, box):
    with pytest.raises(DataNotBuilt, match="wmrl tasks prepare builtin"):
        MLEDojoEnv("credit-default", data_dir=tmp_path, sandbox=box)


@pytest.mark.parametrize(
    "wrong", [{"sandbox": "process"}, {"limits": {"memory_mb": 100}}, {"data_dir": 5}], ids=lambda wrong: next(iter(wrong))
)
def test_an_argument_of_another_type_is_refused_and_named(make, wrong):
    with pytest.raises(InvalidInput, match=rf"^{next(iter(wrong))}=.* expected a"):
        make(**wrong)


@pytest.mark.parametrize("options", [["competition"], 5, {1: 2, "a": 3}])
def test_options_are_a_dict_with_one_key(make, options):
    with pytest.raises(InvalidInput, match="expected a dict with at most the key 'competition'"):
        make().reset(options=options)
