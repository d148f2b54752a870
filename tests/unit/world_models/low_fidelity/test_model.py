"""Programs predicted by running them on a reduced copy."""

import json
import logging
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tests.unit.tasks.reduced.conftest import put, table
from wmrl_envs import LowFidelityWorldModel
from wmrl_envs.errors import DataNotBuilt, InfrastructureError, InvalidInput
from wmrl_envs.execution import ExecutionLimits, ProcessSandbox, Sandbox
from wmrl_envs.execution.environment import load_environment
from wmrl_envs.outcome import Execution, ExecutionStatus, Outcome, Solution
from wmrl_envs.tasks import load_competition, scaffold, task_context
from wmrl_envs.world_models.protocols import LearningModel, OutcomeModel, Priced, Resumable

SCRIPT = """import os
import pandas as pd
from sklearn.linear_model import LogisticRegression
folder = os.environ["DATA_DIR"]
train, test = pd.read_csv(folder + "/train.csv"), pd.read_csv(folder + "/test.csv")
model = LogisticRegression().fit(train[["x"]], train["default"])
test["default"] = model.predict_proba(test[["x"]])[:, 1]
print("rows", train.shape)
test[["id", "default"]].to_csv(os.environ["SUBMISSION_PATH"], index=False)
"""
SCAFFOLDED = (
    "from sklearn.linear_model import LogisticRegression\nsave(LogisticRegression().fit(X[num], y).predict_proba(T[num]))"
)


@pytest.fixture(scope="session")
def sandbox():
    try:
        environment = load_environment()
    except DataNotBuilt as error:
        pytest.skip(str(error))
    with ProcessSandbox(environment.root) as box:
        yield box


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("WMRL_HOME", str(tmp_path / "home"))
    train, test = table(900), table(400, 1, 5000)
    put(tmp_path / "credit-default", train, test.drop(columns="default"), test[["id", "default"]])
    return tmp_path


@pytest.fixture
def model(root, sandbox):
    with LowFidelityWorldModel(100, 50, sandbox, data_dir=root) as made:
        yield made


def context(root, scaffolded=False, timeout_s=60.0, max_rows=None):
    competition = load_competition("credit-default", root)
    made = task_context(competition, timeout_s=timeout_s)
    return replace(made, scaffold="sklearn", scaffold_names=scaffold.describe(competition, max_rows)) if scaffolded else made


def predict(model, root, *codes, **more):
    return model.predict([Solution(code, "credit-default") for code in codes], [context(root, **more)] * len(codes))


class Scripted(Sandbox):
    """A test double: answers every job with what it is given, without running anything."""

    def __init__(self, *answers):
        self.answers, self.jobs = list(answers), []

    def run_job(self, job):
        self.jobs.append(job)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        raise AssertionError("a sandbox that was passed in stays the caller's")


def failing(message):
    return Execution(
        ExecutionStatus.AGENT_ERROR,
        1,
        stderr=f'Traceback (most recent call last):\n  File "/work/solution.py", line 50\n{message}\n',
        cpu_s=0.1,
    )


def test_it_is_an_outcome_model_that_learns_resumes_and_has_a_price(model):
    for protocol in (OutcomeModel, LearningModel, Resumable, Priced):
        assert isinstance(model, protocol)


@pytest.mark.parametrize(("scaffolded", "code"), [(False, SCRIPT), (True, SCAFFOLDED)])
def test_a_working_program_is_predicted_with_a_score_like_its_own_and_costs_execution(model, root, scaffolded, code):
    (outcome,) = predict(model, root, code, scaffolded=scaffolded)
    assert outcome.status is ExecutionStatus.OK, outcome.feedback
    assert (outcome.source, outcome.cached) == ("predicted", False)
    assert outcome.cpu_s > 0
    assert 0.9 < outcome.p_valid < 1
    assert outcome.score == pytest.approx(outcome.p_valid * outcome.position.score)
    assert 0.6 < outcome.raw_score < 1
    assert "Submission successful" in outcome.feedback
    assert "Private Leaderboard: Position" in outcome.feedback


def test_a_failing_program_fails_with_its_own_traceback(model, root):
    (outcome,) = predict(model, root, SCRIPT.replace('train[["x"]]', 'train[["age"]]'))
    assert outcome.status is ExecutionStatus.AGENT_ERROR
    assert 'File "/work/solution.py", line 6' in outcome.feedback
    assert outcome.p_valid < 0.1
    assert outcome.score < 0.05


def test_the_same_program_again_costs_nothing(model, root):
    first, again = predict(model, root, SCRIPT, SCRIPT)
    (later,) = predict(model, root, SCRIPT)
    assert (first.cached, again.cached, later.cached) == (False, True, True)
    assert first.cpu_s == again.cpu_s == later.cpu_s > 0  # as recorded
    assert first.score == again.score == later.score


def test_a_model_made_anew_has_learnt_nothing_and_runs_nothing_again(root):
    box = Scripted(replace(failing("ValueError: odd"), cpu_s=0.5))
    with LowFidelityWorldModel(100, 50, box, data_dir=root) as model:
        before = predict(model, root, "x")[0]
        model.update([Solution("x", "credit-default")], [context(root)], [Outcome(ExecutionStatus.OK, 0.5, cpu_s=2.0)])
        (anew,) = predict(model.anew(), root, "x")
        assert anew.p_valid == before.p_valid < predict(model, root, "x")[0].p_valid
        assert len(box.jobs) == 1


def test_equal_programs_get_equal_predictions_although_they_draw_at_random(root, sandbox):
    code = SCRIPT.replace("folder =", "import numpy as np\nfolder =").replace("[:, 1]", "[:, 1] + np.random.rand(len(test))")
    scores = []
    for _ in range(2):
        with LowFidelityWorldModel(100, 50, sandbox, data_dir=root) as fresh:
            scores.append(predict(fresh, root, code)[0].raw_score)
    assert scores[0] == scores[1]


def test_a_program_that_counts_on_the_number_of_rows_is_run_with_that_of_the_copy(model, root):
    (outcome,) = predict(model, root, SCRIPT.replace("model =", "assert len(train) == 900 and len(test) == 400\nmodel ="))
    assert outcome.status is ExecutionStatus.OK, outcome.feedback


def test_what_only_wants_more_rows_is_confirmed_on_a_larger_copy(model, root):
    (outcome,) = predict(
        model,
        root,
        SCRIPT.replace("LogisticRegression()", "__import__('sklearn.neighbors').neighbors.KNeighborsClassifier(150)"),
    )
    assert outcome.status is ExecutionStatus.OK, outcome.feedback
    (outcome,) = predict(
        model,
        root,
        SCRIPT.replace("LogisticRegression()", "__import__('sklearn.neighbors').neighbors.KNeighborsClassifier(5000)"),
    )
    assert outcome.status is ExecutionStatus.AGENT_ERROR


def test_a_program_that_fits_on_a_round_number_of_rows_and_all_labels_fails_as_it_does_at_full_size(model, root):
    (outcome,) = predict(model, root, SCRIPT.replace('fit(train[["x"]],', 'fit(train[["x"]][:100],'))
    assert outcome.status is ExecutionStatus.AGENT_ERROR
    assert "inconsistent numbers of samples: [100, 900]" in outcome.feedback


def test_a_program_that_lists_the_folder_finds_the_files_it_expects(model, root):
    (outcome,) = predict(
        model,
        root,
        "import os\nassert set(os.listdir(os.environ['DATA_DIR'])) == {'train.csv', 'test.csv', 'sample_submission.csv', 'description.txt'}\n"
        + SCRIPT,
    )
    assert outcome.status is ExecutionStatus.OK, outcome.feedback


def test_row_counts_are_told_as_those_of_the_full_data(model, root):
    (outcome,) = predict(model, root, SCRIPT)
    assert "rows (900, 4)" in outcome.feedback
    (outcome,) = predict(
        model,
        root,
        SCRIPT.replace("index=False", "index=False, header=True").replace(
            'test[["id", "default"]]', 'test[["id", "default"]].head(7)'
        ),
    )
    assert outcome.status is ExecutionStatus.INVALID_SUBMISSION
    assert "does not match ground truth (400)" in outcome.feedback


def test_a_column_keeps_the_kind_it_has_in_the_full_data(root, sandbox):
    for name in ("train", "test"):
        path = root / "credit-default" / "data" / "public" / f"{name}.csv"
        frame = pd.read_csv(path)
        frame["street"] = [f"a long street name {i % 200}" for i in range(len(frame))]  # of 900 rows a class, of 100 free text
        frame.to_csv(path, index=False)
    with LowFidelityWorldModel(100, 50, sandbox, data_dir=root) as model:
        code = "assert 'street' in cat and not text\nsave(np.zeros(len(T)))"
        assert predict(model, root, code, scaffolded=True)[0].status is ExecutionStatus.OK


def test_a_slow_program_is_predicted_to_hit_the_limit(root):
    slow = Scripted(replace(Execution(ExecutionStatus.OK, 0), cpu_s=4.0, submission=b"id,default\n"))
    with LowFidelityWorldModel(100, 50, slow, data_dir=root) as model:
        made = model.predict([Solution("x", "credit-default")], [context(root, timeout_s=5)])[0]
    assert made.p_valid < 0.5
    ended = Scripted(Execution(ExecutionStatus.TIMEOUT, detail="ended at the limit: cpu", cpu_s=3.0))
    with LowFidelityWorldModel(100, 50, ended, data_dir=root) as model:
        made = model.predict([Solution("x", "credit-default")], [context(root, timeout_s=5)])[0]
    assert made.status is ExecutionStatus.TIMEOUT
    assert "time limit of 5 s" in made.feedback
    assert ended.jobs[0].limits.cpu_s < 5


def test_an_unreadable_answer_is_told_and_nothing_runs(root):
    box = Scripted(AssertionError())
    with LowFidelityWorldModel(100, 50, box, data_dir=root) as model:
        (outcome,) = model.predict([Solution("", "credit-default", problem="no code block")], [context(root)])
    assert outcome.status is ExecutionStatus.AGENT_ERROR
    assert "no code block" in outcome.feedback
    assert not box.jobs


def test_a_sandbox_that_fails_is_our_failure_and_is_asked_again_next_time(root):
    box = Scripted(InfrastructureError("lost"), failing("NameError: name 'x' is not defined"))
    with LowFidelityWorldModel(100, 50, box, data_dir=root) as model:
        with pytest.raises(InfrastructureError, match="lost"):
            predict(model, root, "x")
        assert predict(model, root, "x")[0].status is ExecutionStatus.AGENT_ERROR


def test_a_task_that_cannot_be_reduced_is_said_before_anything_runs(root):
    public = root / "credit-default" / "data" / "public"
    asked = context(root)
    (public / "train.csv").rename(public / "history.csv")
    box = Scripted(AssertionError())
    with LowFidelityWorldModel(100, 50, box, data_dir=root) as model, pytest.raises(InvalidInput, match="cannot be reduced"):
        model.predict([Solution("x", "credit-default")], [asked])
    assert not box.jobs


def test_a_task_of_forty_rows_is_executed_as_it_is_and_said_once(tmp_path, monkeypatch, sandbox, caplog):
    monkeypatch.setenv("WMRL_HOME", str(tmp_path / "home"))
    train, test = table(40), table(20, 1, 5000)
    put(tmp_path / "credit-default", train, test.drop(columns="default"), test[["id", "default"]])
    with LowFidelityWorldModel(sandbox=sandbox, data_dir=tmp_path) as model, caplog.at_level(logging.WARNING):
        for code in (SCRIPT, SCRIPT + "\n"):
            assert predict(model, tmp_path, code)[0].status is ExecutionStatus.OK
    said = [r.message for r in caplog.records if "each prediction is a full execution" in r.message]
    assert len(said) == 1
    assert "credit-default has 40 training and 20 test rows" in said[0]


def test_only_the_rows_a_scaffold_loads_count(model, root):
    (outcome,) = predict(
        model,
        root,
        "assert len(X) == 101 and set(X.index) <= set(range(101))\nsave(np.zeros(len(T)))",
        scaffolded=True,
        max_rows=300,
    )
    assert outcome.status is ExecutionStatus.OK, outcome.feedback


def test_it_learns_how_costs_grow_and_how_far_it_is_to_be_trusted(root):
    box = Scripted(replace(failing("ValueError: odd"), cpu_s=0.5))
    with LowFidelityWorldModel(100, 50, box, data_dir=root) as model:
        codes = [f"x{i}" for i in range(40)]
        before = predict(model, root, *codes)[0]
        solutions, contexts = [Solution(c, "credit-default") for c in codes], [context(root)] * 40
        model.update(solutions, contexts, [Outcome(ExecutionStatus.OK, 0.5, cpu_s=2.0)] * 40)
        after = predict(model, root, codes[0])[0]
        assert before.p_valid < 0.1 < 0.4 < after.p_valid
        other = LowFidelityWorldModel(100, 50, box, data_dir=root)
        other.load_state_dict(json.loads(json.dumps(model.state_dict())))
        assert predict(other, root, codes[0])[0].p_valid == after.p_valid
        with pytest.raises(InvalidInput, match="No state of a LowFidelityWorldModel"):
            other.load_state_dict({"valid": 3})


def test_the_exponent_of_growth_is_fitted():
    from wmrl_envs.world_models.low_fidelity.growth import Growth

    rng = np.random.default_rng(0)
    growth = Growth(exponent=0.8, sd=0.7, floor=0.03)
    for _ in range(300):
        small, factor = rng.uniform(0.1, 1), rng.uniform(3, 30)
        growth.observe(small, 0.03 + (small - 0.03) * factor**1.4 * rng.lognormal(0, 0.1), factor)
    assert growth.exponent == pytest.approx(1.4, abs=0.05)
    assert growth.sd < 0.4
    assert growth.p_above(0.5, 10, growth.predict(0.5, 10)) == pytest.approx(0.5)
    assert growth.p_above(0.5, 10, float("inf")) == 0


@pytest.mark.parametrize("bad", [{"rows": 3}, {"test_rows": "many"}, {"workers": 0}, {"nice": 40}])
def test_arguments_that_make_no_sense_are_refused(bad):
    with pytest.raises(InvalidInput, match=re.escape(next(iter(bad)))):
        LowFidelityWorldModel(**bad)


def test_predictions_stand_back_behind_executions(root):
    box = Scripted(failing("NameError: x"))
    with LowFidelityWorldModel(100, 50, box, data_dir=root, limits=ExecutionLimits(memory_mb=777)) as model:
        predict(model, root, "x")
    assert box.jobs[0].nice == 10
    assert box.jobs[0].limits.memory_mb == 777
