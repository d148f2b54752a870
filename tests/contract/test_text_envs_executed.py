"""The text environments with a real sandbox: programs are written, executed and graded for real, on made-up data."""

import functools
import importlib.util
from pathlib import Path

import gymnasium as gym
import pytest
from gymnasium.vector import AsyncVectorEnv

import wmrl_envs  # noqa: F401  (registers the environments)
from tests.doubles import write_competition
from wmrl_envs.envs.mle_dojo import MLEDojoEnv
from wmrl_envs.errors import DataNotBuilt, IsolationError
from wmrl_envs.execution import ExecutionLimits, make_sandbox
from wmrl_train.evaluation.eval_programs import environment_arguments
from wmrl_train.evaluation.named import build
from wmrl_train.evaluation.policies import CallablePolicy
from wmrl_train.evaluation.programs import evaluate

SLUG, OTHER = "amazon-employee-access-challenge", "spaceship-titanic"
SOLVES = """
import os
import pandas as pd
test = pd.read_csv(os.path.join(os.environ["DATA_DIR"], "test.csv"))
test["ACTION"] = test.x.astype(int)
test[["Id", "ACTION"]].to_csv(os.environ["SUBMISSION_PATH"], index=False)
print("rows:", len(test))
"""


@pytest.fixture(scope="module")
def dojo(tmp_path_factory):
    root = tmp_path_factory.mktemp("dojo")
    write_competition(root, SLUG, "Id", "ACTION", rows=60)
    write_competition(root, OTHER, "PassengerId", "Transported", rows=60)
    return root


@pytest.fixture(scope="module")
def box():
    try:
        sandbox = make_sandbox("process")
    except (DataNotBuilt, IsolationError) as error:
        pytest.skip(str(error))
    with sandbox:
        yield sandbox


def steps(dojo, box, *answers, competition=SLUG, **kwargs):
    env = MLEDojoEnv(competition, data_dir=dojo, sandbox=box, **kwargs)
    env.reset(seed=0)
    return [env.step(answer) for answer in answers]


def test_a_program_is_executed_and_graded(dojo, box):
    ((text, reward, *_, info),) = steps(dojo, box, f"I read off the answer.\n```python\n{SOLVES}```\n")
    assert (reward, info["wmrl"]["status"], info["wmrl"]["raw_score"]) == (1.0, "ok", 1.0)
    assert info["wmrl"]["wall_s"] > 0
    assert "Code output: rows: 60" in text
    assert "Private Leaderboard: Position 1 / 10" in text


def test_a_traceback_has_the_line_numbers_of_the_program(dojo, box):
    ((text, reward, *_),) = steps(dojo, box, "x = 1\ny = 2\nraise KeyError('colour')\n")
    assert "line 3" in text
    assert text.endswith("KeyError: 'colour'")
    assert reward == 0.0


def test_a_program_that_never_ends_is_told_its_limit(dojo, box):
    ((text, *_, info),) = steps(dojo, box, "print('begin', flush=True)\nwhile True: pass", timeout_s=1.5)
    assert info["wmrl"]["status"] == "timeout"
    assert "1.5 s" in text
    assert "Code output: begin" in text


def test_no_submission_and_a_wrong_one_are_told_apart(dojo, box):
    missing, wrong = steps(
        dojo, box, "print('hello')", "import os\nopen(os.environ['SUBMISSION_PATH'], 'w').write('Id,ACTION\\n1,0\\n')"
    )
    assert "SubmissionNotFoundError" in missing[0]
    assert "InvalidSubmissionError" in wrong[0]
    assert [s[4]["wmrl"]["status"] for s in (missing, wrong)] == ["invalid_submission"] * 2


def test_the_answers_cannot_be_found_from_inside(dojo, box):
    search = """
import os
found = [os.path.join(d, n) for d, _, names in os.walk("/") for n in names if "answer" in n or "leaderboard" in n]
print("FOUND", [f for f in found if "site-packages" not in f and "/proc" not in f])
"""
    ((text, *_),) = steps(dojo, box, search, limits=ExecutionLimits(timeout_s=60))
    assert "FOUND []" in text


@pytest.mark.parametrize("competition", [SLUG, OTHER])
def test_the_scaffold_has_loaded_the_data(dojo, box, competition):
    program = "from sklearn.tree import DecisionTreeClassifier\nm = DecisionTreeClassifier().fit(X[num], y)\nsave(m.predict(T[num]))\n"
    ((text, reward, *_),) = steps(dojo, box, program, competition=competition, scaffold="sklearn", max_rows=100)
    assert reward == 1.0, text


def test_one_sandbox_serves_all_environments_of_a_process(dojo, box):
    envs = [gym.make("MLEDojo-v0", competition=SLUG, data_dir=dojo, execution="process") for _ in range(3)]
    for env in envs:
        env.reset(seed=0)
        assert env.step(SOLVES)[1] == 1.0
    assert len({id(env.unwrapped.sandbox) for env in envs}) == 1
    for env in envs:
        env.close()
        env.close()


def test_every_process_of_an_async_vector_env_has_its_own_sandbox(dojo, box):
    make = functools.partial(gym.make, "MLEDojo-v0", competition=SLUG, data_dir=dojo, execution="process", max_turns=1)
    envs = AsyncVectorEnv([make, make])
    try:
        envs.reset(seed=0)
        observations, rewards, terminated, *_ = envs.step((SOLVES, "1 / 0"))
    finally:
        envs.close()
    assert rewards.tolist() == [1.0, 0.0]
    assert terminated.all()
    assert "ZeroDivisionError" in observations[1]


def test_an_evaluation_executes_in_parallel(dojo, box):
    result = evaluate(
        CallablePolicy(lambda observation: SOLVES),
        [SLUG, OTHER],
        2,
        sandbox=box,
        workers=2,
        env_kwargs={"data_dir": dojo, "max_turns": 1},
    )
    by_task = {row.name: row for row in result.table.tasks}
    assert (by_task[SLUG].avg, by_task[SLUG].valid) == (1.0, 1.0)
    assert (by_task[OTHER].avg, by_task[OTHER].valid) == (0.0, 0.0)  # the columns are those of the other task


def test_the_demo_policy_is_evaluated_for_real(dojo, box):
    demo = build("demo")
    kwargs = environment_arguments(demo.env_kwargs, {"data_dir": dojo, "timeout_s": 60})
    result = evaluate(demo.policy, [SLUG], 4, sandbox=box, workers=2, env_kwargs=kwargs)
    demo.close()
    assert (result.table.overall.episodes, result.table.overall.failed, result.cost.executions) == (4, 0, 4)
    assert len({t.turns[0].answer for t in result.trajectories}) > 1
    assert {t.turns[0].status for t in result.trajectories} <= {"ok", "agent_error", "invalid_submission"}


def test_the_plain_loop_of_the_example(dojo, box):
    path = Path(__file__).parents[2] / "examples" / "evaluate_agent.py"
    spec = importlib.util.spec_from_file_location("evaluate_agent", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    scores = example.evaluate(example.agent, SLUG, attempts=2, data_dir=dojo, sandbox=box, max_turns=2)
    assert scores == [1.0, 1.0]
    assert example.evaluate(example.agent, SLUG, data_dir=dojo, sandbox=box, max_turns=1)[0] < 1.0
