import pytest

from tests.unit.world_models.world_model_cases import ScriptedEngine, answer, program, script, tabular
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_envs.outcome import ExecutionStatus, Solution
from wmrl_envs.world_models.protocols import OutcomeModel
from wmrl_envs.world_models.simulator.model import SimulatorWorldModel
from wmrl_envs.world_models.simulator.outcome_of_verdicts import AggregationWeights
from wmrl_envs.world_models.simulator.prompts import ALL_CHECKS

CODE = "import pandas as pd\nx = pd.read_csv('train.csv')\nprint(x['age'])\n"


def simulator(engine, **options):
    return SimulatorWorldModel(engine, installed={"numpy": "2.4.6"}, **options)


def failing(check, **fields):
    """An engine whose `check` fails with these fields, and whose other checks pass."""

    def reply(prompt):
        return answer("fail", **fields) if f"CHECK {check}:" in prompt else answer(score=0.8)

    return ScriptedEngine(reply)


def test_all_checks_of_all_solutions_are_one_batch():
    engine = ScriptedEngine()
    model = simulator(engine)
    outcomes = model.predict([program(CODE), program("print(1)")], [script(), script()])
    assert isinstance(model, OutcomeModel)
    assert [len(b) for b in engine.batches] == [2 * len(ALL_CHECKS)]
    assert all(o.source == "predicted" and o.status is ExecutionStatus.OK for o in outcomes)
    assert outcomes[0].score == pytest.approx(0.7)
    assert "Submission successful" in outcomes[0].feedback


def test_the_engine_is_asked_under_the_schema_with_the_papers_limits():
    engine = ScriptedEngine()
    simulator(engine).predict([program(CODE)], [script()])
    assert engine.sampling.max_new_tokens == 1024
    assert engine.sampling.schema["properties"]["verdict"]


def test_equal_queries_are_asked_once_within_and_between_batches():
    engine = ScriptedEngine()
    model = simulator(engine)
    first = model.predict([program(CODE), program(CODE)], [script(), script()])
    again = model.predict([program(CODE)], [script()])
    assert [len(b) for b in engine.batches] == [len(ALL_CHECKS)]
    assert first[0] == first[1] == again[0]
    assert model.statistics["cached"] == 2 * len(ALL_CHECKS)


def test_new_weights_are_asked_anew():
    engine = ScriptedEngine()
    model = simulator(engine)
    model.predict([program(CODE)], [script()])
    engine.update_weights([])
    model.predict([program(CODE)], [script()])
    assert len(engine.batches) == 2


@pytest.mark.parametrize("confidence", [0.5, 0.75, 1.0])
def test_a_failure_caps_the_score_by_its_confidence(confidence):
    outcome = simulator(failing("data", confidence=confidence, error_type="KeyError", error_line=3)).predict(
        [program(CODE)], [script()]
    )[0]
    assert outcome.score <= 1 - confidence
    assert outcome.status is ExecutionStatus.AGENT_ERROR


def test_a_doubtful_failure_stays_a_pass_with_a_lower_cap():
    outcome = simulator(failing("data", confidence=0.3)).predict([program(CODE)], [script()])[0]
    assert outcome.status is ExecutionStatus.OK
    assert outcome.score == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("check", "status"),
    [
        ("compute", ExecutionStatus.TIMEOUT),
        ("submission", ExecutionStatus.INVALID_SUBMISSION),
        ("api", ExecutionStatus.AGENT_ERROR),
    ],
)
def test_the_failed_check_decides_the_status(check, status):
    outcome = simulator(failing(check, confidence=0.9, error_type="ValueError", error_line=2)).predict(
        [program(CODE)], [script()]
    )[0]
    assert outcome.status is status
    assert outcome.feedback.startswith("=== Code Execution Results ===\n")


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'age'",
        "Traceback (most recent call last):\n  x\nKeyError: 'age'",
        None,
        "=== Code Execution Results ===\nExecution failed: KeyError: 'age'",
    ],
)
def test_feedback_has_the_form_of_the_sandbox_whatever_the_model_wrote(text):
    engine = failing("data", confidence=0.9, error_type="KeyError", error_line=3, env_feedback=text)
    outcome = simulator(engine).predict([program(CODE)], [script()])[0]
    assert outcome.feedback.startswith("=== Code Execution Results ===\nExecution failed: ")
    assert "KeyError" in outcome.feedback


def test_an_unreadable_verdict_is_a_counted_pass_without_confidence():
    engine = ScriptedEngine(lambda prompt: "no idea, sorry")
    model = simulator(engine, parse_retries=2)
    outcome = model.predict([program(CODE)], [script()])[0]
    assert outcome.status is ExecutionStatus.OK
    assert outcome.confidence == 0
    assert 0 < outcome.score < 1
    assert outcome.details["unparsed"] == len(ALL_CHECKS) == model.statistics["unparsed"]
    assert len(engine.batches) == 3


def test_an_answer_that_cannot_be_read_is_asked_for_again():
    replies = iter(["nonsense", answer(score=0.6)])
    engine = ScriptedEngine(lambda prompt: next(replies))
    outcome = simulator(engine, checks=["quality"]).predict([program(CODE)], [script()])[0]
    assert outcome.score == pytest.approx(0.6)
    assert [m["role"] for m in engine.batches[1][0]] == ["system", "user", "assistant", "user"]


def test_an_engine_that_dies_is_tried_again():
    engine = ScriptedEngine(failures=2)
    assert simulator(engine).predict([program(CODE)], [script()])[0].status is ExecutionStatus.OK
    assert len(engine.batches) == 3


def test_an_engine_that_stays_dead_is_an_infrastructure_failure():
    with pytest.raises(InfrastructureError, match="3 times in a row: the server went away"):
        simulator(ScriptedEngine(failures=9)).predict([program(CODE)], [script()])


def test_too_few_answers_are_an_infrastructure_failure():
    class Short(ScriptedEngine):
        def generate(self, prompts, sampling, seeds=None):
            return super().generate(prompts, sampling, seeds)[1:]

    with pytest.raises(InfrastructureError, match="7 answers to 8 prompts"):
        simulator(Short()).predict([program(CODE)], [script()])


def test_a_long_case_is_cut_to_the_context_with_program_and_contract_kept():
    engine = ScriptedEngine()
    model = simulator(engine, context_tokens=3000)
    overview = "Predict y.\n" + "\n".join(f"column_{i} (float)" for i in range(5000)) + "\nSubmission columns: id, label"
    code = "\n".join(f"x{i} = {i}" for i in range(3000))
    model.predict([program(code)], [script(overview=overview)])
    for system, user in (p[-2:] for p in engine.batches[0]):
        text = system["content"] + user["content"]
        assert len(text) / 3 <= 3000
        assert "Predict y." in text
        assert "Submission columns: id, label" in text
        assert "0001 x0 = 0" in text
        assert "3000 x2999 = 2999" in text
        assert "left out" in text
    assert model.statistics["truncated"] == 1


def test_code_without_line_breaks_and_one_line_tables_are_cut_too():
    engine = ScriptedEngine()
    overview = "train.csv: [" + ", ".join(f"c{i} (float)" for i in range(5000)) + "]"
    simulator(engine, context_tokens=2500).predict([program("x=1;" * 20_000)], [script(overview=overview)])
    assert all(len(p[0]["content"] + p[1]["content"]) / 3 <= 2500 for p in engine.batches[0])


def test_the_context_of_the_engine_is_respected():
    assert simulator(ScriptedEngine(max_context=8192)).context_tokens == 8192 - 1024
    with pytest.raises(InvalidInput, match="lower max_new_tokens"):
        simulator(ScriptedEngine(max_context=1024))


@pytest.mark.parametrize(
    "options", [{"checks": ["imports", "taste"]}, {"checks": []}, {"layout": "diagonal"}, {"max_new_tokens": 0}]
)
def test_bad_settings_are_refused(options):
    with pytest.raises(InvalidInput):
        simulator(ScriptedEngine(), **options)


def test_a_solution_without_a_program_costs_no_query():
    engine = ScriptedEngine()
    outcome = simulator(engine).predict([Solution(problem="no code block")], [script()])[0]
    assert engine.batches == []
    assert outcome.score == 0
    assert "no code block" in outcome.feedback


def test_a_subset_of_checks_asks_only_those():
    engine = ScriptedEngine()
    outcome = simulator(engine, checks=["imports", "quality"]).predict([program(CODE)], [tabular()])[0]
    assert set(outcome.details["verdicts"]) == {"imports", "quality"}


def test_the_data_report_enters_the_case():
    engine = ScriptedEngine()
    simulator(engine, report=lambda context: "label: 30 % ones").predict([program(CODE)], [script()])
    assert all("label: 30 % ones" in p[1]["content"] for p in engine.batches[0])


@pytest.mark.parametrize("bad", [{"default_quality": 1.5}, {"severity": {"api": -1.0}}])
def test_weights_outside_the_unit_interval_are_refused(bad):
    with pytest.raises(InvalidInput, match="outside"):
        AggregationWeights(**bad)
