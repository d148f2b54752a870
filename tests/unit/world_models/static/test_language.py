"""Errors of the language itself, loops and memory, each beside a program that is right."""

import pytest

from tests.unit.world_models.world_model_cases import program, script, tabular
from wmrl_envs.outcome import ExecutionStatus
from wmrl_envs.world_models.static.model import StaticWorldModel

FRAME = """from sklearn.ensemble import RandomForestClassifier
{before}
m = make_pipeline(cols(('passthrough', ['age'])), RandomForestClassifier(n_estimators=10))
m.fit(X, y)
{after}
save(m.predict_proba(T))
"""
SCRIPT = """import os
import numpy as np
import pandas as pd
test = pd.read_csv(os.path.join(os.environ["DATA_DIR"], "test.csv"))
submission = pd.DataFrame({{"id": test["id"], "label": 0.5}})
{}
"""
WRITE = 'submission.to_csv(os.environ["SUBMISSION_PATH"], index=False)'


@pytest.fixture
def predict(index):
    model = StaticWorldModel(index=index)

    def of(before="", after="", context=None):
        code = FRAME.format(before=before, after=after)
        return model.predict([program(code)], [context or tabular()])[0]

    return of


RAISES = {
    "share = len(y) / (len(X) - len(y))": "ZeroDivisionError",
    "w = 1 / sum(c == 'none' for c in num)": "ZeroDivisionError",
    "print('rows: ' + len(X))": "TypeError",
    "name = 'model_' + 1": "TypeError",
    "print('%d columns' % 'all')": "TypeError",
    "n = int('3.5')": "ValueError",
    "rate = float('n/a')": "ValueError",
    "rows, columns = X.shape[0]": "TypeError",
    "n, k, c = X.shape": "ValueError",
    "a, b = [1, 2, 3]": "ValueError",
    "order = [3, 1].sort()\nprint(order[0])": "TypeError",
    "found = {}.get('a')\nfound.strip()": "AttributeError",
    "settings = {'depth': 3}\nrate = settings['rate']": "KeyError",
    "for i in range(4):\n    print([1, 2, 3][i])": "IndexError",
    "print(X.iloc[len(X)])": "IndexError",
    "assert len(X) == len(T)": "AssertionError",
    "assert X.shape[1] == 3": "AssertionError",
    "def deep(n):\n    return deep(n + 1)\ndeep(0)": "RecursionError",
    "big = np.ones((60000, 60000))": "MemoryError",
    "print(X.drop('age'))": "KeyError",
    "print(X.loc['age'])": "KeyError",
    "print(X[0])": "KeyError",
    "folder = os.environ['DATA_PATH']": "KeyError",
    "print(os.listdir('input'))": "FileNotFoundError",
    "words = open('stopwords.txt').read()": "FileNotFoundError",
    "X = X[X['age'] > X['age'].median()]": "ValueError",
    "X = X[::2]": "ValueError",
    "X = X.sample(frac=0.5)": "ValueError",
    "print(y.as_matrix())": "AttributeError",
    "from sklearn.tree import DecisionTreeRegressor\nDecisionTreeRegressor(criterion='mse').fit(X[['age']], y)": "InvalidParameterError",
    "from sklearn.feature_extraction.text import CountVectorizer\nCountVectorizer(analyzer='words').fit(X['home'])": "InvalidParameterError",
    "print(X.mean())": "TypeError",
    "print(X['age', 'income'])": "KeyError",
    "both = pd.concat([X, T])\nX = both.iloc[len(X):]": "ValueError",
    "save([])": "ValueError",
    "print(X.corr())": "ValueError",
    "print(X[['age', 'income']].corr()['label'])": "KeyError",
    "from sklearn.dummy import DummyClassifier\nDummyClassifier().fit(X, np.log1p(y))": "ValueError",
    "print(np.c_[np.asarray(X)[:5], np.asarray(T)[:4]])": "ValueError",
}
RIGHT = [
    "share = len(y) / max(len(X) - len(y), 1)",
    "print('rows: ' + str(len(X)))",
    "n = int('3') + int(3.5) + int(len(X) * 0.8)",
    "n, k = X.shape",
    "a, *rest = [1, 2, 3]",
    "first, second = np.asarray(X).shape",
    "settings = {'depth': 3}\nsettings.update(rate=1)\nrate = settings['rate']",
    "def kind(n):\n    if n > X['age'].mean():\n        return 'many'\nprint(kind(3) or 'few')\nprint(str(kind(3)).upper())",
    "def fact(n):\n    return 1 if n < 2 else n * fact(n - 1)\nprint(fact(5))",
    "i = 0\nwhile i < 5:\n    i += 1",
    "while True:\n    if X['age'].mean() > 0:\n        break",
    "for i in range(10):\n    if i == 3:\n        break\n    print([1, 2, 3][i])",
    "for i in range(3):\n    if X['age'].mean() > i:\n        break",
    "assert len(X) == len(y), (len(X), len(y))",
    "print(X.iloc[len(X) - 1], X.iloc[-1])",
    "keep = X['age'] > 30\nX, y = X[keep], y[keep]",
    "X, y = X[X['age'] > 30], y[X['age'] > 30]",
    "X = X[X['age'] > 30]\ny = y[X.index]",
    "X, y = X[::2], y[::2]",
    "X, y = X.sample(frac=0.5, random_state=0), y.sample(frac=0.5, random_state=0)",
    "with open('notes.txt', 'w') as f:\n    f.write('a')\nprint(open('notes.txt').read())",
    "print(X.mean(numeric_only=True), X[num].median(), X[num].corr()['age'])",
    "both = pd.concat([X, T])\nX, T = both.iloc[: len(X)], both.iloc[len(X) :]",
    "print(X[['age', 'income']], X.loc[:, 'age'])",
    "small = np.zeros((100, 100))",
    "print(os.environ.get('DATA_PATH'))",
    "print(X['start'].str.upper().str.len().mean(), pd.to_datetime(X['start']).dt.month_name())",
]


@pytest.mark.parametrize("code", RAISES)
def test_what_certainly_raises_is_named(predict, code):
    outcome = predict(before=code)
    assert outcome.status is ExecutionStatus.AGENT_ERROR
    assert outcome.error_type == RAISES[code]
    assert 2 <= outcome.error_line <= 6 + code.count("\n")


@pytest.mark.parametrize("code", RIGHT)
def test_what_may_run_passes(predict, code):
    assert predict(before=code).status is ExecutionStatus.OK


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("print(m.coef_)", "AttributeError"),
        ("print(m.predict(T.iloc[0]))", "ValueError"),
        ("print(m.predict(T)[:, 1])", "IndexError"),
        ("import sys\nsys.exit()", "SubmissionNotFoundError"),
        ("raise SystemExit", "SubmissionNotFoundError"),
        ("sys_exit = exit\nexit(1)", "SystemExit"),
    ],
)
def test_what_goes_wrong_after_the_fit(predict, code, error):
    assert predict(after=code).error_type == error


@pytest.mark.parametrize("code", ["print(m.classes_)", "print(m.predict(T[:1]))", "print(m.predict_proba(T)[:, 1])"])
def test_what_is_right_after_the_fit(predict, code):
    assert predict(after=code).status is ExecutionStatus.OK


@pytest.mark.parametrize(
    "code",
    [
        "while True:\n    pass",
        "i = 0\nwhile i < len(X):\n    if i % 2 == 0:\n        i += 1",
        "best = 0.0\nwhile best < 1.0:\n    best = min(best + 0.1, 0.9)",
        "n = 0\nfor i in range(100000):\n    for j in range(100000):\n        n += abs(i - j) < 3",
    ],
)
def test_a_loop_without_an_end_runs_out_of_time(predict, code):
    assert predict(before=code).status is ExecutionStatus.TIMEOUT


def test_fits_in_a_loop_cost_as_often_as_it_runs(predict):
    once, often = (predict(after=f"for s in range({n}):\n    m.fit(X, y)") for n in (1, 20000))
    assert often.status is ExecutionStatus.TIMEOUT
    assert once.status is ExecutionStatus.OK


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        (WRITE, None),
        ("submission = submission.sample(frac=1)\n" + WRITE, None),
        (WRITE.replace("submission.to", "submission.head(100).to"), "InvalidSubmissionError"),
        (WRITE.replace("submission.to", "pd.concat([submission, submission]).to"), "InvalidSubmissionError"),
        (WRITE.replace("index=False", "index=False, header=False"), "InvalidSubmissionError"),
        (WRITE.replace(", index=False", ""), "InvalidSubmissionError"),
        ('submission.set_index("id").to_csv(os.environ["SUBMISSION_PATH"])', None),
        ('submission["note"] = 1\n' + WRITE, "InvalidSubmissionError"),
        ('submission["id"] = np.arange(len(test))\n' + WRITE, "InvalidSubmissionError"),
        (
            'submission["id"] = pd.read_csv(os.environ["DATA_DIR"] + "/train.csv")["id"].head(400)\n' + WRITE,
            "InvalidSubmissionError",
        ),
        (WRITE.replace('os.environ["SUBMISSION_PATH"]', 'os.environ["DATA_DIR"] + "/submission.csv"'), "OSError"),
        ("submission.iloc[::50, 1:] = np.nan\n" + WRITE, "InvalidSubmissionError"),
        ('np.savetxt(os.environ["SUBMISSION_PATH"], test["age"])', "InvalidSubmissionError"),
        ('pd.DataFrame(np.asarray(test["age"])).to_csv(os.environ["SUBMISSION_PATH"])', "InvalidSubmissionError"),
        ("print(submission.head())\n# " + WRITE, "SubmissionNotFoundError"),
        ("def main():\n    " + WRITE, "SubmissionNotFoundError"),
        ("def main():\n    " + WRITE + "\nmain()", None),
    ],
)
def test_the_file_a_whole_script_leaves(index, ending, error):
    outcome = StaticWorldModel(index=index).predict([program(SCRIPT.format(ending))], [script()])[0]
    assert outcome.error_type == error
