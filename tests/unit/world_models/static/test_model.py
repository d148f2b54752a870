import json
from dataclasses import replace

import pytest

from tests.unit.world_models.world_model_cases import program, script, tabular
from wmrl_envs.errors import InvalidInput
from wmrl_envs.outcome import ExecutionStatus, Outcome, Solution
from wmrl_envs.world_models.protocols import OutcomeModel
from wmrl_envs.world_models.static.model import ASPECTS, StaticWorldModel

GOOD = """from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.preprocessing import OrdinalEncoder
m = make_pipeline(cols(('passthrough', num), (OrdinalEncoder(handle_unknown='use_encoded_value', unknown_value=-1), cat)),
                  HistGradientBoostingClassifier())
m.fit(X, y)
save(m.predict_proba(T))
"""
LINEAR = """from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
a = make_pipeline(SimpleImputer(), StandardScaler())
m = make_pipeline(cols((a, num)), LogisticRegression(C=0.1))
m.fit(X, y)
save(m.predict_proba(T))
"""


@pytest.fixture
def model(index):
    return StaticWorldModel(index=index)


def predict(model, code, context=None):
    return model.predict([program(code)], [context or tabular()])[0]


def executed(status=ExecutionStatus.OK, score=0.7, cpu_s=0.5):
    return Outcome(status, score if status is ExecutionStatus.OK else 0.0, cpu_s=cpu_s)


def test_it_is_an_outcome_model_and_answers_for_each_solution(model):
    outcomes = model.predict([program(GOOD), program(LINEAR)], [tabular(), tabular()])
    assert isinstance(model, OutcomeModel)
    assert [o.source for o in outcomes] == ["predicted"] * 2
    assert all(0 <= o.score <= 1 and 0 <= o.confidence <= 1 for o in outcomes)
    assert set(outcomes[0].details["verdicts"]) == set(ASPECTS)


@pytest.mark.parametrize("code", [GOOD, LINEAR])
def test_a_working_program_passes(model, code):
    outcome = predict(model, code)
    assert outcome.status is ExecutionStatus.OK
    assert outcome.p_valid > 0.8
    assert "Submission successful" in outcome.feedback


BROKEN = {  # what is wrong -> (old text, new text, error type, words of the feedback)
    "syntax": ("m.fit(X, y)", "m.fit(X, y", "SyntaxError", "'(' was never closed"),
    "name": ("save(m", "save(model", "NameError", "name 'model' is not defined"),
    "import": ("from sklearn.linear_model import LogisticRegression\n", "", "NameError", "'LogisticRegression' is not defined"),
    "package": ("from sklearn.impute", "import torchvision_x\nfrom sklearn.impute", "ModuleNotFoundError", "No module named"),
    "member": (
        "import StandardScaler",
        "import StandardScaler, MagicScaler",
        "ImportError",
        "cannot import name 'MagicScaler'",
    ),
    "keyword": ("C=0.1", "n_estimator=5", "TypeError", "unexpected keyword argument 'n_estimator'"),
    "value": ("C=0.1", "C=-1", "InvalidParameterError", "The 'C' parameter of LogisticRegression"),
    "column": ("(a, num)", "(a, ['agee'])", "ValueError", "agee"),
    "subscript": ("m.fit(X", "X['z'] = X['incomes']\nm.fit(X", "KeyError", "'incomes'"),
    "nan": ("(a, num)", "('passthrough', num)", "ValueError", "Input X contains NaN"),
    "text": ("(a, num)", "(a, num), ('passthrough', cat)", "ValueError", "could not convert string to float"),
    "rows": ("m.fit(X, y)", "m.fit(T, y)", "ValueError", "inconsistent numbers of samples: [400, 1000]"),
    "unfitted": ("m.fit(X, y)\n", "", "NotFittedError", "not fitted yet"),
    "method": ("LogisticRegression(C=0.1)", "RidgeX()", "AttributeError", "has no attribute 'predict_proba'"),
    "train rows": ("predict_proba(T)", "predict_proba(X)", "ValueError", "expected 400 predictions"),
    "attribute": ("m.fit(X, y)", "np.flot(1)\nm.fit(X, y)", "AttributeError", "module 'numpy' has no attribute 'flot'"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_program_fails_with_the_error_that_execution_would_give(model, fault):
    old, new, kind, words = BROKEN[fault]
    code = LINEAR.replace(old, new)
    if fault == "method":
        code = code.replace("LogisticRegression", "Ridge").replace("RidgeX", "Ridge")
    assert code != LINEAR
    outcome = predict(model, code)
    assert outcome.status is ExecutionStatus.AGENT_ERROR, outcome.details["verdicts"]
    assert outcome.error_type == kind
    assert words in outcome.feedback
    assert outcome.score < 0.1
    assert code.splitlines()[outcome.error_line - 1].strip() in outcome.feedback


def test_the_first_failure_in_order_is_the_one_reported(model):
    code = LINEAR.replace("m.fit(X, y)", "m.fit(T, y)\nprint(X['nothing'])")
    assert predict(model, code).error_type == "ValueError"


def test_learning_moves_quality_towards_executed_scores(model):
    context = tabular()
    before = predict(model, LINEAR, context).details["quality"]
    model.update([program(LINEAR)] * 5, [context] * 5, [executed(score=0.95)] * 5)
    after = predict(model, LINEAR, context).details["quality"]
    assert abs(after - 0.95) < 0.5 * abs(before - 0.95)


def test_a_rule_that_is_wrong_loses_its_weight(model):
    wrong = LINEAR.replace("(a, num)", "('passthrough', num)")
    context = tabular()
    before = predict(model, wrong, context).p_valid
    model.update([program(wrong)] * 30, [context] * 30, [executed()] * 30)
    assert predict(model, wrong, context).p_valid > max(0.5, before)


def test_slow_programs_are_learnt_from_timeouts(model):
    code = GOOD.replace("HistGradientBoostingClassifier()", "HistGradientBoostingClassifier(max_iter=300)")
    context = tabular(timeout_s=2.0)
    before = predict(model, code, context).p_valid
    model.update([program(code)] * 10, [context] * 10, [executed(ExecutionStatus.TIMEOUT)] * 10)
    assert predict(model, code, context).p_valid < before


def test_state_survives_json_bit_for_bit(model, index):
    context = tabular()
    codes = [program(LINEAR.replace("0.1", str(c))) for c in (0.01, 0.5, 1.0, 3.0)]
    model.update(codes, [context] * 4, [executed(score=s) for s in (0.31, 0.45, 0.77, 0.6)])
    other = StaticWorldModel(index=index)
    other.load_state_dict(json.loads(json.dumps(model.state_dict())))
    a, b = model.predict(codes, [context] * 4), other.predict(codes, [context] * 4)
    assert a == b
    model.update(codes, [context] * 4, [executed()] * 4)
    other.update(codes, [context] * 4, [executed()] * 4)
    assert model.predict(codes, [context] * 4) == other.predict(codes, [context] * 4)


def test_without_learning_and_from_predictions_nothing_changes(index):
    context, code = tabular(), program(LINEAR)
    frozen, learning = StaticWorldModel(learn=False, index=index), StaticWorldModel(index=index)
    before = frozen.state_dict()
    frozen.update([code], [context], [executed()])
    assert frozen.state_dict() == before
    learning.update(
        [code] * 2, [context] * 2, [Outcome(ExecutionStatus.OK, 0.5, source="predicted"), executed(ExecutionStatus.INFRA_ERROR)]
    )
    assert learning.state_dict() == before


@pytest.mark.parametrize(
    "code",
    [
        "",
        "x = 1;" * 4000,
        "(" * 5000,
        "-" * 20000 + "1",
        "a = '" + "x" * 300_000 + "'",
        "\0",
        "é = 1\nsave(é)",
        "while True: pass",
        "f(" * 90 + ")" * 90,
    ],
    ids=["empty", "one long line", "brackets", "minus signs", "huge", "null", "unicode", "endless", "nested calls"],
)
def test_no_program_is_too_odd(model, code):
    outcome = predict(model, code)
    assert 0 <= outcome.score <= 1
    assert outcome.feedback


BOMBS = {
    "sum of lists": "x=[1]\n" + "x=x+x\n" * 60, "extended in place": "x=[1]\n" + "x+=x\n" * 60, "extend": "x=[1]\n" + "x.extend(x)\n" * 60,
    "starred": "x=[1]\n" + "x=[*x,*x]\n" * 60, "tuples": "x=(1,)\n" + "x=x+x\n" * 60, "copies": "x=[1]\n" + "x=list(x)+list(x)\n" * 60,
    "text": "s='a'\n" + "s=s+s\n" * 60, "f-string": "s='a'\n" + "s=f'{s}{s}'\n" * 60, "precision": "y='%.999999999f' % 1.0",
    "width": "y='%999999999d' % 1", "width given": "y='%*d' % (999999999, 1)", "nested": "x=[1]\n" + "x=[x,x]\n" * 60 + "print(x, x == [x])",
    "power": "x=9**9**9", "repeated": "x='a'*10**10\ny=[1]*10**10", "range": "x=list(range(10**10))\nx=sum(range(10**11))",
}  # fmt: skip


@pytest.mark.timeout(30)
@pytest.mark.parametrize("code", BOMBS.values(), ids=BOMBS)
def test_a_small_program_does_not_grow_without_bound_in_the_analysis(model, code):
    assert 0 <= predict(model, code).score <= 1


@pytest.mark.parametrize(
    "sizes",
    [
        "()",
        "[]",
        "(None,)",
        "('a',)",
        "(10**400,)",
        "(int(np.sqrt(X.shape[1])),)",
        "[n for n in num]",
        "50",
        "(h,)",
        "(float('nan'),)",
    ],
)
def test_layers_of_a_network_may_be_anything(model, sizes):
    code = f"from sklearn.neural_network import MLPClassifier\nm = MLPClassifier(hidden_layer_sizes={sizes})\nm.fit(X[num].fillna(0), y)\n"
    outcome = predict(model, code + "save(m.predict_proba(T[num].fillna(0))[:, 1])")
    assert 0 <= outcome.score <= 1


@pytest.mark.parametrize("timeout_s", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_limit_that_says_nothing_is_no_limit(model, timeout_s):
    assert 0 < predict(model, LINEAR, replace(tabular(), timeout_s=timeout_s)).score <= 1


def test_five_thousand_columns(model):
    columns = [f"c{i}" for i in range(5000)]
    context = tabular(names={"num": columns, "cat": [], "nan": []})
    assert predict(model, LINEAR, context).p_valid > 0.8


def test_no_code_is_a_failure_that_says_why(model):
    outcome = model.predict([Solution(task="credit", problem="no fenced block")], [tabular()])[0]
    assert outcome.status is ExecutionStatus.AGENT_ERROR
    assert "no fenced block" in outcome.feedback


def test_a_lock_restricts_what_can_be_imported(index):
    model = StaticWorldModel(sandbox_lock={"numpy": "2.4.6", "pandas": "3.1.1"})
    outcome = model.predict([program(LINEAR)], [tabular()])[0]
    assert outcome.error_type == "ModuleNotFoundError"


@pytest.mark.parametrize("lock", ["/nowhere/requirements.txt"])
def test_a_lock_that_is_no_file_is_refused(lock):
    with pytest.raises(InvalidInput, match="requirements file"):
        StaticWorldModel(sandbox_lock=lock).predict([program(LINEAR)], [tabular()])


def test_lengths_must_agree(model):
    with pytest.raises(InvalidInput, match="expected one for each"):
        model.predict([program(GOOD)], [])


SCRIPT = """import os
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
train = pd.read_csv(os.path.join(os.environ['DATA_DIR'], 'train.csv'))
test = pd.read_csv(os.path.join(os.environ['DATA_DIR'], 'test.csv'))
features = [c for c in train.columns if c not in ('id', 'label')]
X = pd.get_dummies(train[features])
T = pd.get_dummies(test[features]).reindex(columns=X.columns, fill_value=0)
m = RandomForestClassifier(n_estimators=50).fit(X, train['label'])
out = pd.DataFrame({'id': test['id'], 'label': m.predict_proba(T)[:, 1]})
out.to_csv(os.environ['SUBMISSION_PATH'], index=False)
"""


def test_a_working_whole_script_passes(model):
    outcome = predict(model, SCRIPT, script())
    assert outcome.status is ExecutionStatus.OK, outcome.details["verdicts"]


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("'train.csv'", "'training.csv'", "FileNotFoundError"),
        ("os.environ['DATA_DIR'], 'test.csv'", "'DATA_DIR', 'test.csv'", "FileNotFoundError"),
        ("train['label']", "train['target']", "KeyError"),
        ("'id': test['id'], 'label'", "'id': test['id'], 'prediction'", "InvalidSubmissionError"),
        ("out.to_csv(os.environ['SUBMISSION_PATH'], index=False)\n", "", "SubmissionNotFoundError"),
        ("'id': test['id']", "'id': train['id']", "ValueError"),
    ],
)
def test_broken_whole_scripts_fail(model, old, new, kind):
    outcome = predict(model, SCRIPT.replace(old, new), script())
    assert outcome.error_type == kind
    assert outcome.p_valid < 0.5


PICTURES = {"num": [], "cat": [], "date": [], "nan": [], "image": (28, 28), "target_kind": "multi"}


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("X, y = np.r_[X, np.roll(X, 1, 1)], np.r_[y, y]", None),
        ("X = np.r_[X, X]", "ValueError"),
        ("X = X[num]", "ValueError"),
        ("X, T = (a.reshape(len(a), 28, -1).mean(2) for a in (X, T))", None),
        ("X = X[:100]", "ValueError"),
        ("X, y = X[:100], y[:100]", None),
        ("X = X['pixel']", "IndexError"),
        ("copy = X.copy(); copy.shape", None),
    ],
)
def test_pictures_are_arrays(model, line, kind):
    code = (
        f"from sklearn.linear_model import LogisticRegression\n{line}\nm = LogisticRegression().fit(X, y)\nsave(m.predict(T))\n"
    )
    outcome = predict(model, code, tabular("accuracy", category="image", names=PICTURES))
    assert outcome.error_type == kind


def test_a_copy_of_a_frame_has_columns_of_its_own(model):
    code = LINEAR.replace("m.fit(X, y)", "Z = X.copy()\nZ['new'] = 1\nX['new'] + 1\nm.fit(X, y)")
    assert predict(model, code).error_type == "KeyError"


@pytest.mark.parametrize(
    "line",
    [
        "try:\n    import xgboost_x\nexcept ImportError:\n    pass",
        "if False:\n    undefined_thing()",
        "def helper(a):\n    return a['nothing']",
        "for c in list(X.columns):\n    X[c + '_'], T[c + '_'] = X[c], T[c]",
        "X = X.rename(columns={'age': 'years'}); X['years']; X = X.rename(columns={'years': 'age'})",
        "X = X.assign(k=1); T = T.assign(k=1); X['k']",
        "X = X.loc[:, X.columns]",
        "y = y.astype(int)",
        "scores = [f'{c}:{X[c].nunique()}' for c in num]; print(scores)",
    ],
)
def test_unusual_but_working_lines_pass(model, line):
    outcome = predict(model, LINEAR.replace("m.fit(X, y)", f"{line}\nm.fit(X, y)"))
    assert outcome.status is ExecutionStatus.OK, outcome.details["verdicts"]


def test_sparse_text_beside_numbers_is_followed(model):
    code = """from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
m = make_pipeline(cols(('passthrough', num), (TfidfVectorizer(), 'note')), HistGradientBoostingClassifier())
m.fit(X, y)
save(m.predict_proba(T))
"""
    outcome = predict(model, code, tabular(names={"num": ["age"], "text": ["note"]}))
    assert outcome.error_type == "TypeError"
    dense = code.replace("TfidfVectorizer()", "make_pipeline(TfidfVectorizer(), TruncatedSVD(5))").replace(
        "from sklearn.feature", "from sklearn.decomposition import TruncatedSVD\nfrom sklearn.feature"
    )
    assert predict(model, dense, tabular(names={"num": ["age"], "text": ["note"]})).status is ExecutionStatus.OK


@pytest.mark.parametrize(("levels", "fails"), [({"home": 3, "job": 4}, False), ({"home": 30, "job": 400}, True)])
def test_the_density_of_one_hot_columns_decides_whether_they_stay_sparse(model, levels, fails):
    code = """from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import OneHotEncoder
m = make_pipeline(cols((OneHotEncoder(handle_unknown='ignore'), cat), ('passthrough', ['age'])), GaussianNB())
m.fit(X, y)
save(m.predict_proba(T))
"""
    outcome = predict(model, code, tabular(names={"levels": levels}))
    assert (outcome.error_type == "TypeError") is fails
