"""Named mutations of working programs of the `sklearn` scaffold: realistic bugs of each kind a world model's checks look for, and
harmless rewrites that must not be taken for bugs. What a mutation really does is decided by executing it.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

QUOTA = {
    "imports": 2, "api": 3, "data": 3, "shapes": 2, "compute": 0.5, "runtime": 4, "submission": 3, "quality": 2, "harmless": 7,
}  # fmt: skip
"""Mutated programs a task, by what the mutation is meant to hurt (half a program: in every second task, drawn at random)."""

START, MODEL, FIT, SAVE = "", "m = ", "m.fit(", "save("


@dataclass(frozen=True)
class Mutation:
    """`apply(code, facts, rng)` gives the new text, or None where it does not apply. `aspect`: a key of `QUOTA`."""

    name: str
    aspect: str
    apply: Callable[[str, Mapping[str, str], random.Random], str | None]


def facts(names: Mapping[str, Any]) -> dict[str, str]:
    """What `<...>` stands for in the texts below, as source code, from a scaffold's description of a task."""
    found = {k: repr(names[k][0]) for k in ("num", "cat", "text", "date") if names[k]}
    found["target"] = repr(names["target"][0])
    column = next((names[k][0] for k in ("num", "cat", "text") if names[k]), None)
    if column is not None:
        found |= {"col": repr(column), "wrong": repr(column.capitalize() if column.islower() else column.lower() + "s")}
    return found


def mutated(
    working: Sequence[Mapping[str, Any]], names: Mapping[str, Any], seed: str
) -> Iterator[tuple[Mutation, str, int | None]]:
    """Mutations drawn to fill `QUOTA`, each of a working record of the task: (mutation, code, max_rows)."""
    rng, known = random.Random(seed), facts(names)
    for aspect, wanted in QUOTA.items():
        quota = int(wanted + rng.random())
        candidates = [m for m in MUTATIONS if m.aspect == aspect]
        rng.shuffle(candidates)
        taken = 0
        for mutation in candidates:
            if taken == quota:
                break
            for record in rng.sample(list(working), min(6, len(working))):  # six programs to find one it applies to
                code = mutation.apply(record["code"], known, rng)
                if code is not None and code != record["code"]:
                    yield mutation, code, record["max_rows"]
                    taken += 1
                    break


# ---- how a mutation is written down ---------------------------------------------------------------------------------
def _fill(text: str, known: Mapping[str, str]) -> str | None:
    wanted = set(re.findall(r"<(\w+)>", text))
    if not wanted <= known.keys():
        return None
    return re.sub(r"<(\w+)>", lambda match: known[match.group(1)], text)


def insert(name: str, aspect: str, before: str, *texts: str) -> Mutation:
    """One of `texts` as lines of their own before the first line that starts with `before`."""

    def apply(code: str, known: Mapping[str, str], rng: random.Random) -> str | None:
        lines = code.splitlines()
        at = next((i for i, line in enumerate(lines) if line.startswith(before)), None)
        fitting = [t for t in (_fill(text, known) for text in texts) if t is not None]
        if at is None or not fitting:
            return None
        return "\n".join([*lines[:at], rng.choice(fitting), *lines[at:]]) + "\n"

    return Mutation(name, aspect, apply)


def swap(name: str, aspect: str, *rules: tuple[str, str]) -> Mutation:
    """The first match of a regular expression replaced, by one of the rules that match."""

    def apply(code: str, known: Mapping[str, str], rng: random.Random) -> str | None:
        fitting = [(p, t) for p, text in rules if re.search(p, code, re.M) and (t := _fill(text, known)) is not None]
        if not fitting:
            return None
        pattern, text = rng.choice(fitting)
        return re.sub(pattern, text, code, count=1, flags=re.M)

    return Mutation(name, aspect, apply)


def saving(name: str, aspect: str, *texts: str) -> Mutation:
    """The last line, `save(P)`, replaced by one of `texts`, in which P is what was saved."""
    return swap(name, aspect, *((r"^save\((.*)\)$", re.sub(r"\bP\b", r"\\1", text)) for text in texts))


def rewrite(name: str, aspect: str, function: Callable[[str], str | None]) -> Mutation:
    """The text as a function of the text."""
    return Mutation(name, aspect, lambda code, known, rng: function(code))


def _last_import_to_the_end(code: str) -> str | None:
    lines = code.splitlines()
    imports = [i for i, line in enumerate(lines) if line.startswith("from ")]
    return (
        "\n".join([line for i, line in enumerate(lines) if i != imports[-1]] + [lines[imports[-1]]]) + "\n" if imports else None
    )


def _pipeline_with_names(code: str) -> str | None:
    for node in ast.parse(code).body:
        value = node.value if isinstance(node, ast.Assign) else None
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "make_pipeline" and isinstance(node.targets[0], ast.Name):
            steps = ", ".join(f"('step{i}', {ast.get_source_segment(code, a)})" for i, a in enumerate(value.args))
            old = ast.get_source_segment(code, value) or ""
            return "from sklearn.pipeline import Pipeline\n" + code.replace(old, f"Pipeline([{steps}])")
    return None


def _in_a_function(code: str) -> str:
    lines = code.splitlines()
    top = [line for line in lines if line.startswith("from ")]
    body = ["    " + line for line in lines if not line.startswith("from ")]
    given = "    global X, T, y, num, cat"
    return "\n".join([*top, "", "", "def main():", given, *body, "", "", 'if __name__ == "__main__":', "    main()"]) + "\n"


def _guarded(code: str) -> str:
    body = "\n".join("    " + line for line in code.splitlines())
    return f"try:\n{body}\nexcept Exception as error:\n    print('failed:', error)\n    raise\n"


def _commented(code: str) -> str:
    lines = [f"{line}  # step {i}" if line.startswith(("m", "save")) else line for i, line in enumerate(code.splitlines())]
    return "\n".join(["# A first model: simple features, one estimator.", *lines, "print('done')"]) + "\n"


def _long_lines_broken(code: str) -> str:
    return re.sub(r"^m = (\w+)\((.*)\)$", r"m = \1(\n    \2,\n)", code, flags=re.M)


def _other_option(estimator: str, option: str) -> tuple[str, str]:
    return rf"({estimator})\((?!.*{option.split('=')[0]})", rf"\1({option}, "


# ---- the mutations --------------------------------------------------------------------------------------------------
MUTATIONS: tuple[Mutation, ...] = (
    # imports
    insert("package-not-installed", "imports", START, "import lightgbm as lgb", "import torch", "from xgboost import XGBRegressor",
           "import seaborn as sns", "from tqdm import tqdm", "from catboost import CatBoostClassifier", "import tensorflow as tf"),
    insert("name-gone-from-library", "imports", START, "from sklearn.externals import joblib", "from sklearn.preprocessing import Imputer",
           "from sklearn.cross_validation import train_test_split", "from sklearn.metrics import plot_roc_curve",
           "from sklearn.datasets import load_boston", "from scipy.misc import imread", "from sklearn.grid_search import GridSearchCV"),
    insert("alias-never-imported", "imports", MODEL, "started = time.time()", "random.seed(0)", "rng = numpy.random.default_rng(0)",
           "plt.figure()", "folds = KFold(n_splits=5)", "threads = multiprocessing.cpu_count()", "pattern = re.compile('[a-z]+')"),
    rewrite("import-after-use", "imports", _last_import_to_the_end),
    swap("half-renamed", "imports", (r"^m = ", "model = "), (r"^m\.fit", "clf.fit"), (r"\(T\)", "(test)"), (r"\(X, ", "(X_train, ")),
    # interfaces
    insert("attribute-gone", "api", FIT, "limit = np.float(1.5)", "both = pd.DataFrame(X).append(pd.DataFrame(T))",
           "for k, v in pd.Series([1]).iteritems():\n    print(k)", "print(y.as_matrix().shape)", "print(X.ix[0], <col>)",
           "total = np.product([2, 3])", "flag = np.bool(1)", "print(X[<col>].value_count())", "print(y.length)", "print(X.rows)"),
    insert("attribute-of-a-step", "api", SAVE, "print(m.feature_importances_[:3])", "print(m.coef_.shape)", "print(m.best_score_)",
           "print(m.best_params_)", "print(m.feature_importance())", "print(m.accuracy(X, y))"),
    insert("keyword-gone", "api", MODEL, "from sklearn.preprocessing import OneHotEncoder\nencoder = OneHotEncoder(sparse=False)",
           "from sklearn.linear_model import Ridge\nridge = Ridge(normalize=True)",
           "from sklearn.model_selection import KFold\nfolds = KFold(5, shuffle=True, seed=0)",
           "from sklearn.ensemble import RandomForestRegressor\nforest = RandomForestRegressor(trees=100)",
           "raw = pd.read_csv(os.environ['DATA_DIR'] + '/train.csv', error_bad_lines=False)",
           "order = np.sort(np.arange(3), reverse=True)", "print(pd.DataFrame(X).mean(axes=0)[:1])",
           "from sklearn.impute import SimpleImputer\nfill = SimpleImputer(method='median')"),
    swap("option-gone", "api", _other_option(r"(?:RandomForest|ExtraTrees)\w+", "max_features='auto'"),
         _other_option("LogisticRegression", "penalty='l3'"), _other_option("SGDClassifier", "loss='log'"),
         _other_option(r"HistGradientBoosting\w+", "loss='ls'"), _other_option(r"KNeighbors\w+", "weights='dist'"),
         _other_option("Ridge", "solver='newton'"), _other_option("SV[CR]", "kernel='gauss'"),
         _other_option(r"\w+Vectorizer", "analyzer='words'"), _other_option("SimpleImputer", "strategy='average'"),
         _other_option(r"DecisionTree\w+", "criterion='mse'")),
    swap("text-for-a-number", "api", (r"(n_estimators|max_iter|max_depth|n_neighbors|alpha|C|max_leaf_nodes)=([\d.]+)", r"\1='\2'")),
    swap("number-out-of-range", "api", (r"(n_estimators|max_iter|n_neighbors|C|max_leaf_nodes|learning_rate)=([\d.]+)", r"\1=-\2")),
    # files and columns
    insert("column-misspelt", "data", MODEL, "X['extra'] = X[<wrong>]", "for f in (X, T):\n    f['extra'] = f[<wrong>].isna() * 1",
           "print(X.groupby(<wrong>).size())", "X = X.drop(columns=[<wrong>])", "print(X[[<col>, <wrong>]].head())"),
    insert("feature-in-train-only", "data", MODEL, "X['half'] = X[<num>] / 2\nnum += ['half']",
           "X['size'] = X[<text>].str.len()\nnum += ['size']", "X['copy'] = X[<cat>]\ncat += ['copy']"),
    insert("target-among-features", "data", MODEL, "print(X[<target>].nunique())", "X = X.drop(columns=[<target>, <col>])",
           "for f in (X, T):\n    f['mean'] = f[<cat>].map(X.groupby(<cat>)[<target>].mean())", "print(X.corr()[<target>], <col>)"),
    insert("column-dropped-and-used", "data", MODEL, "X, T = X.drop(columns=[<num>]), T.drop(columns=[<num>])",
           "T = T.drop(columns=[<text>])", "for f in (X, T):\n    f.drop(columns=[<cat>], inplace=True)", "T.pop(<col>)"),
    insert("label-dropped-as-a-row", "data", MODEL, "X = X.drop(<col>)", "X, T = X.drop([<col>]), T.drop([<col>])", "print(X.loc[<col>])"),
    insert("file-elsewhere", "data", START, "train = pd.read_csv('train.csv')", "train = pd.read_csv('../input/train.csv')",
           "words = open('data/stopwords.txt').read()", "extra = np.load(os.environ['DATA_DIR'] + '/features.npy')",
           "labels = pd.read_csv(os.path.join(os.environ['DATA_DIR'], 'train', 'labels.csv'))", "print(os.listdir('input'))",
           "folder = os.environ['DATA_PATH']", "train = pd.read_csv(os.environ['DATA_DIR'] + '/train.tsv', sep='\\t')",
           "train = pd.read_parquet(os.environ['DATA_DIR'] + '/train.parquet')"),
    insert("position-for-a-name", "data", MODEL, "first = X[0], <col>", "print(X.loc[:, 0], <col>)", "names = X[X.columns[0], <col>]"),
    # shapes and types
    swap("train-and-test-swapped", "shapes", (r"^m\.fit\(X, ", "m.fit(T, ")),
    insert("rows-filtered-on-one-side", "shapes", FIT, "X = X[X[<num>] > X[<num>].median()]", "X = X[X[<cat>] != X[<cat>].iloc[0]]",
           "X = X[::2]", "y = y[:-10]", "X = np.asarray(X)[:800]", "X = X.sample(frac=0.5), <col>"),
    swap("target-on-its-side", "shapes", (r"^m\.fit\(X, y\)", "m.fit(X, np.asarray(y).reshape(1, -1))")),
    rewrite("the-other-kind-of-estimator", "shapes", lambda code: code.replace("Classifier", "Regressor")
            if "Classifier" in code else code.replace("Regressor", "Classifier") if "Regressor" in code else None),
    swap("text-passed-through", "shapes", (r"\('passthrough', num\)", "('passthrough', num + cat), <cat>"),
         (r"\('passthrough', num\)", "('passthrough', [*num, <text>])"), (r"\('passthrough', num\)", "('passthrough', [*num, *date, <date>])")),
    insert("one-row-alone", "shapes", SAVE, "print(m.predict(T.iloc[0]), <col>)", "print(m.predict(np.asarray(T)[0]))"),
    saving("column-of-a-vector", "shapes", "save(m.predict(T)[:, 1])", "save(np.asarray(m.predict(T)).reshape(-1, 3)[:, 0])"),
    insert("another-width", "shapes", SAVE, "from sklearn.tree import DecisionTreeRegressor\nd = DecisionTreeRegressor(max_depth=2)"
           ".fit(np.ones((4, 3)), [1, 2, 3, 4])\nprint(d.predict(np.ones((4, 2))))",
           "print(m.predict(T[[<col>]])[:3])", "print(np.c_[np.asarray(X)[:5], np.asarray(T)[:4]].shape)"),
    # time and memory
    insert("endless-loop", "compute", FIT, "i = 0\nwhile i < len(X):\n    if i % 2 == 0:\n        i += 1",
           "best = 0.0\nwhile best < 1.0:\n    best = min(best + 0.1, 0.9)"),
    insert("loop-over-pairs-of-rows", "compute", FIT, "near = 0\nfor i in range(len(X)):\n    for j in range(len(X)):\n        near += abs(i - j) < 3"),
    insert("thousands-of-fits", "compute", SAVE, "for seed in range(20000):\n    m.fit(X, y)",
           "from sklearn.model_selection import cross_val_score\nscores = [cross_val_score(m, X, y, cv=5).mean() for _ in range(4000)]"),
    insert("too-much-memory", "compute", FIT, "distance = np.ones((60000, 60000))", "blocks = [np.ones((len(X), 2000)) for _ in range(4000)]",
           "pairs = np.ones((len(X) * 100, 50_000))", "grid = np.random.rand(2000, 2000, 2000)"),
    # other errors
    swap("bracket-missing", "runtime", (r"^(m = .*)\)$", r"\1"), (r"^(save\(.*)\)$", r"\1"), (r"^(m = \w+)\(", r"\1")),
    swap("indented-wrongly", "runtime", (r"^m\.fit", "  m.fit"), (r"^save", " save"), (r"^m = ", "    m = ")),
    insert("colon-missing", "runtime", MODEL, "if len(X) > 10\n    print('large')", "for c in range(3)\n    print(c)", "def score(a, b)\n    return a - b"),
    rewrite("markdown-left", "runtime", lambda code: f"```python\n{code}```\n"),
    rewrite("explanation-left", "runtime", lambda code: code + "\nThis program fits a model and saves its predictions.\n"),
    insert("print-without-brackets", "runtime", FIT, "print 'fitting'"),
    insert("division-by-zero", "runtime", FIT, "share = len(y) / (len(X) - len(y))", "weight = 1 / sum(c == 'none' for c in num)",
           "folds = 0\nsize = len(X) // folds"),
    insert("index-off-by-one", "runtime", MODEL, "names = ['a', 'b', 'c']\nlast = names[len(names)]", "last = num[len(num)]",
           "for i in range(4):\n    print([1, 2, 3][i])", "print(X.iloc[len(X)], <col>)", "print(y.iloc[len(y)])"),
    insert("text-to-number", "runtime", MODEL, "X[<cat>] = X[<cat>].astype(float)", "rate = float('n/a')", "n = int('3.5')",
           "for f in (X, T):\n    f[<text>] = f[<text>].astype(int)", "codes = pd.to_numeric(X[<cat>])", "n = int('1,000')"),
    swap("never-fitted", "runtime", (r"^m\.fit\(.*\)\n", "")),
    insert("key-missing", "runtime", MODEL, "settings = {'depth': 3, 'trees': 100}\nrate = settings['learning_rate']"),
    insert("unpacked-wrongly", "runtime", MODEL, "n, k, channels = X.shape", "rows, columns = X.shape[0]", "a, b = [1, 2, 3]"),
    insert("nothing-has-no-items", "runtime", MODEL, "order = [3, 1, 2].sort()\nprint(order[0])", "found = {}.get('a')\nprint(found.strip())"),
    insert("assertion", "runtime", FIT, "assert len(X) == len(T)", "assert X.shape[1] == 3, X.shape", "assert len(y) > 100000"),
    insert("text-plus-number", "runtime", FIT, "print('rows: ' + len(X))", "print('columns: %d' % 'all')", "name = 'model_' + 1"),
    insert("local-before-assignment", "runtime", MODEL, "total = 0\ndef count():\n    total += 1\ncount()"),
    insert("endless-recursion", "runtime", MODEL, "def depth(n):\n    return depth(n + 1)\nprint(depth(0))"),
    insert("not-written-yet", "runtime", FIT, "raise NotImplementedError('tune the model')"),
    # the submission
    swap("predictions-for-train", "submission", (r"\(T\)", "(X)")),
    saving("target-instead-of-predictions", "submission", "save(y)", "P\nsave(X)", "save([])"),
    saving("missing-values", "submission", "save(pd.DataFrame(P).where(np.arange(len(T))[:, None] % 50 > 0).to_numpy().squeeze())",
           "p = pd.Series(list(P))\np[::40] = np.nan\nsave(p)", "save(np.full(len(T), np.nan))"),
    saving("shifted", "submission", "save(P + 1000)", "save(P * 2)"),
    saving("negative", "submission", "save(-P)", "save(-1 - np.abs(P))"),
    saving("columns-of-its-own", "submission", "pd.DataFrame({'prediction': P}).to_csv(os.environ['SUBMISSION_PATH'], index=False)",
           "pd.DataFrame(P).to_csv(os.environ['SUBMISSION_PATH'])", "np.savetxt(os.environ['SUBMISSION_PATH'], np.asarray(P), fmt='%s')"),
    saving("another-file", "submission", "pd.DataFrame(P).to_csv('submission.csv', index=False)", "p = P\nprint(p[:5])",
           "pd.DataFrame(P).to_csv(os.path.join(os.path.dirname(os.environ['SUBMISSION_PATH']), 'predictions.csv'))"),
    swap("one-class-alone", "submission", (r"predict_proba\(T\)", "predict_proba(T)[:, 0]"), (r"predict_proba\(T\)", "predict_proba(T)[:, 1]")),
    swap("half-of-the-rows", "submission", (r"\(T\)\)", "(T[: len(T) // 2]))"), (r"\(T\)\)", "(T[1:]))"), (r"\(T\)\)", "(T[:100]))")),
    insert("stops-before-the-end", "submission", SAVE, "import sys\nsys.exit()", "raise SystemExit", "exit(0)", "quit()"),
    rewrite("function-never-called", "submission", lambda code: _in_a_function(code).split("\n\n\nif __name__")[0] + "\n"),
    # working, but poor
    insert("target-shuffled", "quality", FIT, "y = y.sample(frac=1, random_state=0)"),
    swap("tenth-of-the-rows", "quality", (r"^m\.fit\(X, (.*)\)$", r"m.fit(X[::10], (\1)[::10])")),
    saving("constant", "quality", "p = P\nsave(np.repeat(p[:1], len(T), axis=0))"),
    swap("probabilities-reversed", "quality", (r"predict_proba\(T\)", "predict_proba(T)[:, ::-1]")),
    saving("order-lost", "quality", "p = np.asarray(P)\nsave(p[np.random.permutation(len(p))])"),
    swap("nearly-no-model", "quality", (r"n_estimators=\d+", "n_estimators=2"), (r"max_iter=\d+", "max_iter=2"),
         (r"max_depth=\d+", "max_depth=1"), (r"max_features=\d{3,}", "max_features=10"), (r"\bC=[\d.]+", "C=1e-06"), (r"alpha=[\d.]+", "alpha=100000")),
    # harmless
    swap("hyperparameter", "harmless", (r"(max_depth|max_leaf_nodes|min_samples_leaf|n_neighbors)=(\d+)", r"\1=1\2"),
         (r"\b(C|alpha|learning_rate)=([\d.]+)", r"\1=\2 / 2"), (r"n_estimators=(\d+)", r"n_estimators=\1 // 2 + 1")),
    rewrite("model-renamed", "harmless", lambda code: re.sub(r"\bm\b", "model", code)),
    rewrite("commented", "harmless", _commented),
    rewrite("lines-broken", "harmless", _long_lines_broken),
    rewrite("guarded", "harmless", _guarded),
    rewrite("in-a-function", "harmless", _in_a_function),
    rewrite("pipeline-with-names", "harmless", _pipeline_with_names),
    swap("fit-and-predict-chained", "harmless", (r"^m\.fit\((X, y)\)\nsave\((.*)m\.predict", r"save(\2m.fit(\1).predict")),
    insert("held-out-score", "harmless", FIT, "from sklearn.model_selection import train_test_split\n"
           "a, b, c, d = train_test_split(X, y, test_size=0.25, random_state=0)\nprint('score:', m.fit(a, c).score(b, d))"),
    insert("optional-package", "harmless", START, "try:\n    import lightgbm as lgb\nexcept ImportError:\n    lgb = None",
           "import importlib.util\nhas_torch = importlib.util.find_spec('torch') is not None"),
    insert("more-imports", "harmless", START, "import json, math, time\nimport warnings\nwarnings.simplefilter('ignore')",
           "from collections import Counter, defaultdict\nfrom pathlib import Path", "from typing import Any, Optional\nimport re, sys, gc"),
    insert("data-looked-at", "harmless", MODEL, "print(X.shape, T.shape, len(y))", "print(y[:5])", "print(pd.DataFrame(X).describe().T.head())",
           "print(pd.Series(np.asarray(y).ravel()).value_counts().head())", "print(X[<col>].isna().mean(), X[<col>].dtype)"),
    insert("timed", "harmless", FIT, "import time\nstarted = time.perf_counter()\nprint(f'{time.perf_counter() - started:.1f} s, {X.shape[0]:,} rows')"),
    insert("checked", "harmless", FIT, "assert len(X) == len(y), (len(X), len(y))", "assert X.shape[1] == T.shape[1]",
           "if len(X) < 10:\n    raise ValueError('too few rows')"),
    swap("target-as-array", "harmless", (r"^m\.fit\(X, y\)", "m.fit(X, y.to_numpy())"), (r"^m\.fit\(X, y\)", "m.fit(X, np.asarray(y))")),
    insert("rows-shuffled-together", "harmless", FIT, "from sklearn.utils import shuffle\nX, y = shuffle(X, y, random_state=0)"),
    insert("cloned", "harmless", FIT, "from sklearn.base import clone\nm = clone(m)", "from copy import deepcopy\nm = deepcopy(m)"),
    saving("predictions-looked-at", "harmless", "p = np.asarray(P)\nprint(p.shape, p[:3])\nassert len(p) == len(T)\nsave(p)"),
    insert("feature-on-both-sides", "harmless", MODEL, "for f in (X, T):\n    f['zero'] = 0.0\nnum += ['zero'] if <col> else []",
           "X, T = X.assign(half=X[<num>] / 2), T.assign(half=T[<num>] / 2)\nnum.append('half')"),
    insert("guarded-features", "harmless", MODEL, "try:\n    X['ratio'] = X['not there'] / 2\nexcept (KeyError, IndexError):\n    pass"),
    insert("note-left-beside", "harmless", SAVE, "with open('notes.txt', 'w') as file:\n    file.write('first try')",
           "import pickle\nsize = len(pickle.dumps(m))"),
)  # fmt: skip
