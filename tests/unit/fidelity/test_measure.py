import json
import lzma
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.unit.world_models.world_model_cases import tabular
from wmrl_envs.errors import InvalidInput
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution
from wmrl_train.fidelity import report as fidelity_report
from wmrl_train.fidelity import run as fidelity_run
from wmrl_train.fidelity.measure import (
    Pair,
    by_rule,
    calibration,
    error_of,
    measure,
    pairwise_accuracy,
    spearman,
    validity_auc,
    within_group_spearman,
)
from wmrl_train.fidelity.run import Executed, run_fidelity

OK, BAD = ExecutionStatus.OK, ExecutionStatus.AGENT_ERROR
TRACE = "=== Code Execution Results ===\nExecution failed: Traceback (most recent call last):\n  File \"/work/solution.py\", line 3, in <module>\n    f()\nKeyError: 'age'"


def pair(predicted, true, task="a", p_valid=None, status=None, true_status=None, feedback=TRACE):
    said = status or (OK if predicted > 0.1 else BAD)
    was = true_status or (OK if true > 0 else BAD)
    believed = predicted if p_valid is None else p_valid
    told = "" if said is OK else feedback
    return Pair(
        task,
        "tabular",
        Outcome(said, predicted, source="predicted", feedback=told, p_valid=believed, error_type="KeyError"),
        Outcome(was, true, feedback="" if was is OK else TRACE),
    )


def test_auc_agrees_with_scikit_learn():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    p, y = rng.integers(0, 5, 200) / 5, rng.random(200) < 0.4
    assert validity_auc(p, y) == pytest.approx(roc_auc_score(y, p))
    assert validity_auc(p, np.ones(200, bool)) is None


def test_spearman_agrees_with_scipy_and_is_none_without_spread():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 9, 50), rng.integers(0, 9, 50)
    assert spearman(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert spearman(np.ones(5), np.arange(5)) is None


def test_ranking_within_tasks_ignores_differences_between_tasks():
    true = np.tile(np.linspace(0.1, 0.9, 8), 2)
    task = ["a"] * 8 + ["b"] * 8
    predicted = np.concatenate([true[:8], true[:8] + 5.0])
    assert within_group_spearman(predicted, true, task) == pytest.approx(1.0)
    assert pairwise_accuracy(predicted, true, task) == (1.0, 56)
    assert pairwise_accuracy(-predicted, true, task) == (0.0, 56)
    assert pairwise_accuracy(np.zeros(16), true, task) == (0.5, 56)


def test_calibration_error_of_an_exact_and_of_a_shifted_prediction():
    true = np.linspace(0, 0.69, 100)
    assert calibration(true, true)[1] == pytest.approx(0)
    assert calibration(true + 0.3, true)[1] == pytest.approx(0.3)


def test_measure_counts_false_fails_and_false_passes_by_class():
    pairs = [pair(0.9, 0.8)] * 6 + [pair(0.0, 0.5)] * 2 + [pair(0.05, 0.0)] * 3 + [pair(0.7, 0.0)]
    report = measure(pairs)
    assert (report["valid"], report["invalid"]) == (8, 4)
    assert report["false_fail_rate"] == 0.25
    assert report["false_fails_by_class"] == {"KeyError": 2}
    assert report["false_pass_rate"] == 0.25
    assert report["failures_by_class"] == {"KeyError": {"all": 4, "missed": 1}}
    assert report["feedback"] == {
        "failed": 4,
        "predicted_to_fail": 3,
        "same_error_type": 1.0,
        "same_line": 1.0,
        "message_similarity": 1.0,
    }


def test_rules_are_counted_by_what_came_of_them():
    def ruled(predicted, true, rule, verdict):
        p = pair(predicted, true)
        return replace(p, predicted=replace(p.predicted, details={"verdicts": {"data": {"verdict": verdict, "rule": rule}}}))

    pairs = [
        ruled(0, 0, "r", "fail"),
        ruled(0, 0.5, "r", "fail"),
        ruled(0.5, 0, "r", "pass"),
        ruled(0.5, 0.5, "hint", "pass"),
        pair(0.5, 0.5),
    ]
    assert by_rule(pairs) == {
        "r": {"fired": 3, "failed": 2, "caught": 1, "false_fails": 1},
        "hint": {"fired": 1, "failed": 0, "caught": 0, "false_fails": 0},
    }


def test_recalibration_lowers_the_error_of_a_biased_model():
    rng = np.random.default_rng(2)
    true = rng.random(400)
    pairs = [pair(0.3 + 0.5 * t, float(t), status=OK, true_status=OK) for t in true]
    report = measure(pairs[:200], pairs[200:])
    assert report["calibration"]["ece_after"] < 0.5 * report["calibration"]["ece_before"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRACE, ("KeyError", 3, "'age'")),
        (
            "=== Submission Evaluation ===\nSubmission error (InvalidSubmissionError): Submission validation failed\nError details: 3 NaN",
            ("InvalidSubmissionError", None, "3 NaN"),
        ),
        ("", (None, None, "")),
    ],
)
def test_errors_are_read_from_feedback(text, expected):
    assert error_of(text) == expected


class Echo:
    """A test double: a world model that knows the length of the code, and counts what it was taught."""

    def __init__(self):
        self.taught = 0

    def predict(self, solutions, contexts):
        return [Outcome(OK, len(s.code) % 100 / 100, source="predicted", p_valid=0.9) for s in solutions]

    def update(self, solutions, contexts, outcomes):
        self.taught += len(outcomes)


def executed(n, split, task):
    context = replace(tabular(), task=task)
    return [Executed(Solution("x" * (i % 100), task), context, Outcome(OK, i % 100 / 100), split) for i in range(n)]


def test_a_model_never_learns_from_the_programs_it_is_measured_on():
    programs = executed(60, "train", "a") + executed(60, "held_out", "b")
    made = []

    def make():
        made.append(Echo())
        return made[-1]

    report = run_fidelity(make, programs, split="held_out", anchors=24)
    assert [m.taught for m in made] == [0, 24, 24]
    assert {k: v["n"] for k, v in report["measurements"].items()} == {
        "no pairs": 60,
        "pairs of other tasks": 60,
        "pairs of the same tasks": 36,
    }
    assert report["measurements"]["no pairs"]["within_group_spearman"] == pytest.approx(1.0)


def test_the_report_is_complete_json_and_escaped_html(tmp_path):
    programs = executed(60, "train", "<script>alert(1)</script>")
    report = run_fidelity(Echo, programs, split="all", anchors=0)
    fidelity_report.write(tmp_path, {"static": report})
    assert json.loads((tmp_path / "fidelity.json").read_text())["models"]["static"]["measurements"]["no pairs"]["n"] == 60
    page = (tmp_path / "fidelity.html").read_text()
    assert "<script>" not in page
    assert "<svg" in page
    fidelity_report.show({"static": report}, tmp_path)


def test_an_unknown_split_is_refused():
    with pytest.raises(InvalidInput, match="no program of it"):
        run_fidelity(Echo, executed(9, "train", "a"), split="test", anchors=0)


def test_a_corpus_is_read_and_bad_ones_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="does not exist"):
        fidelity_run.load_corpus(tmp_path / "none.jsonl")
    bad = tmp_path / "bad.jsonl.xz"
    bad.write_bytes(lzma.compress(b"not json\n"))
    with pytest.raises(InvalidInput, match="line 1"):
        fidelity_run.load_corpus(bad)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "oracle"],
        ["--model", "simulator"],
        ["--corpus", "nowhere.jsonl"],
        ["--fresh", "-1"],
        ["--tasks", ","],
        ["--tasks", ""],
    ],
)
def test_bad_arguments_are_one_sentence(arguments):
    from wmrl_train.cli import app

    result = CliRunner().invoke(app, ["fidelity", *arguments])
    assert isinstance(result.exception, InvalidInput)


RECORD = {
    "code": "x = '\u2028\x85'", "task": "animals-five", "status": "infra_error", "stderr": "", "origin": "grammar", "tier": "docker",
    "timeout_s": 20.0, "wall_s": 1.0, "cpu_s": 1.0, "exit_code": 1, "max_rows": None, "raw_score": None, "problem": None, "fault": None,
}  # fmt: skip


def test_a_program_with_a_line_separator_of_unicode_is_one_record(tmp_path):
    corpus = tmp_path / "c.jsonl"
    corpus.write_text("\n" + json.dumps(RECORD, ensure_ascii=False) + "\r\n", encoding="utf-8")
    assert fidelity_run.load_corpus(corpus) == ([], [])  # nothing to measure in a failure of ours, and nothing refused


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("c.jsonl", b"\xff\xfe\x00", "cannot be read"),
        ("c.jsonl.xz", b"not compressed", "cannot be read"),
        ("c.jsonl.xz", lzma.compress(b"[1]")[:-9], "cannot be read"),
        ("c.jsonl", b"\n[1]\n", "line 2: .*an object; got a list"),
        ("c.jsonl", b"[" * 100_000, "line 1: "),
        ("c.jsonl", b'{"code": "x"}', "it lacks 'task'"),
        ("c.jsonl", json.dumps(RECORD | {"status": "fine"}).encode(), "it has status='fine'"),
        ("c.jsonl", json.dumps(RECORD | {"cpu_s": "fast"}).encode(), "it has cpu_s='fast'"),
    ],
)
def test_a_corpus_that_is_none_is_one_sentence(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidInput, match=message):
        fidelity_run.load_corpus(tmp_path / name)


def test_what_is_a_constant_of_a_task_counts_in_no_correlation_within_tasks():
    rng = np.random.default_rng(3)
    true = rng.uniform(0.2, 0.8, 60)
    pairs = [pair(min(0.5 * t + shift, 1.0), t, task) for task, shift in (("a", 0.05), ("b", 0.5)) for t in true]
    figures = measure(pairs)
    assert figures["within_task_correlation"] == pytest.approx(1.0)
    assert figures["within_task_slope"] == pytest.approx(0.5)
    assert figures["validity_agreement"] == 1.0


def test_the_price_is_the_share_of_what_executions_took():
    pairs = [pair(0.5, 0.5) for _ in range(4)]
    paid = [replace(p, predicted=replace(p.predicted, cpu_s=0.2), true=replace(p.true, cpu_s=2.0)) for p in pairs]
    assert measure(paid)["cpu_share"] == pytest.approx(0.1)
    assert measure(paid)["cpu_s_per_program"] == pytest.approx(0.2)
    assert measure(pairs)["cpu_share"] is None  # nothing is known of what the executions took


def _makers(names, sizes=(500,)):
    from wmrl_train.fidelity.models import makers

    return makers(
        names, engine="transformers", engine_model=None, base_url=None, layout="shared-prefix", context_tokens=1, max_new_tokens=1,
        data_report=False, sizes=sizes,
    )  # fmt: skip


def test_low_fidelity_is_measured_at_each_size_and_stacked_at_the_largest():
    from wmrl_envs import LowFidelityWorldModel, StackedWorldModel, StaticWorldModel

    made = _makers("low_fidelity,static,stacked", [60, 250])
    assert list(made) == ["low fidelity, 60 rows", "low fidelity, 250 rows", "static", "stacked"]
    stacked = made["stacked"]()
    assert isinstance(stacked, StackedWorldModel)
    assert [type(m) for m in stacked.members] == [LowFidelityWorldModel, StaticWorldModel]
    assert made["low fidelity, 250 rows"]()._seen is stacked.members[0]._seen  # what one has run none runs again


@pytest.mark.parametrize(
    ("names", "sizes", "said"),
    [("fast", (500,), "low_fidelity, static"), ("low_fidelity", (3,), "at least 10"), ("static", (), "at least 10")],
)
def test_names_and_sizes_that_are_none_are_refused(names, sizes, said):
    with pytest.raises(InvalidInput, match=said):
        _makers(names, sizes)
