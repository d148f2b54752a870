"""Is a submission too good to be honest? A second line behind the sandbox: cheap, needs no model, and can be fooled.

When a built-in competition is built, two plain models mark its *hard rows*, the test rows both get wrong. Honest models get few
of them right, whoever has the answers gets them all. For numbers, predictions that equal the answers to four digits tell the
same. Pictures have no hard rows: a good model may get all of them right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wmrl_envs.errors import InvalidInput
from wmrl_envs.tasks.catalog import TaskFacts
from wmrl_envs.tasks.validation import InvalidSubmission

if TYPE_CHECKING:
    import pandas as pd

    from wmrl_envs.tasks.competition import Competition

HARD_SHARE = 0.7  # flag above: boosting on these sets got 0.24 to 0.44, the answers get 1
EXACT_SHARE = 0.25  # flag above: an honest regression hits four digits by chance only
_CLASSES = frozenset({"accuracy", "mcc", "qwk", "macro_f1", "log_loss", "roc_auc", "map_at_k"})
_LEAST_HARD = 20  # with fewer hard rows the share says nothing
_TRAIN_ROWS = 3000


@dataclass(frozen=True)
class LeakReport:
    """What `leak_audit` found.

    Attributes:
        flagged: worth a look by a person; no proof.
        hard_share: share of the hard rows the submission gets right (None without hard rows); `hard_rows` is their number.
        exact_share: share of numeric predictions equal to the answer to four digits (None for classes).
        reason: one sentence.
    """

    flagged: bool
    hard_share: float | None
    hard_rows: int
    exact_share: float | None
    reason: str


def leak_audit(competition: Competition, submission: pd.DataFrame | bytes) -> LeakReport:
    """Audit a valid submission of a built-in competition.

    Raises:
        InvalidSubmission: it cannot be graded. InvalidInput: the competition has no audit (only the built-in ones have).
    """
    from wmrl_envs.tasks.scoring import read_answers, text_columns
    from wmrl_envs.tasks.validation import read_table

    spec = competition.spec
    if spec.source != "builtin":
        raise InvalidInput(f"leak_audit({competition.slug!r}): only built-in competitions have marked rows.")
    truth = read_answers(competition.private.answers, spec)
    frame = read_table(submission, text_columns(spec)) if isinstance(submission, bytes) else submission
    case = spec.case(truth, frame)
    spec.validate(truth, frame)
    if spec.category == "image":
        return LeakReport(False, None, 0, None, "No audit for pictures: a good model may get all rows right.")
    if spec.metric_name not in _CLASSES:
        if len(case.targets) > 1:  # several 0/1 targets: neither classes nor numbers
            return LeakReport(False, None, 0, None, "No audit for several targets.")
        share = _exact_share(case.true_numbers(), case.numbers())
        flagged = share > EXACT_SHARE
        return LeakReport(flagged, None, 0, share, f"{share:.1%} of the predictions equal the answer to four digits.")
    if competition.private.hard_rows is None:
        raise InvalidInput(
            f"{competition.slug!r} has no marked rows: run `wmrl tasks prepare builtin --force --only {competition.slug}`."
        )
    hard = set(read_table(competition.private.hard_rows.read_bytes())["id"])
    rows = np.array([i in hard for i in case.ids])
    right = _guesses(spec.facts, case) == case.true_labels()[:, 0]
    n = int(rows.sum())
    share = float(right[rows].mean()) if n else 0.0
    if n < _LEAST_HARD:
        return LeakReport(False, share if n else None, n, None, f"Only {n} hard rows: too few to tell.")
    return LeakReport(share > HARD_SHARE, share, n, None, f"{share:.1%} of {n} rows that two plain models get wrong are right.")


def _exact_share(truth: np.ndarray, guess: np.ndarray) -> float:
    return float((np.abs(truth - guess) <= 5e-5 * np.abs(truth)).mean())


def _guesses(task: TaskFacts, case: Any) -> np.ndarray:
    """The class a submission gives to each row, as labels."""
    if task.metric == "log_loss":
        names = np.array([str(c) for c in case.predictions], object)
        return names[case.numbers().argmax(axis=1)]
    if task.metric == "roc_auc":
        truth = case.true_numbers()[:, 0]
        return np.where(_top(case.numbers()[:, 0], int((truth > 0.5).sum())), "1", "0").astype(object)
    if task.metric == "map_at_k":
        return np.array([(t.split() or [""])[0] for t in case.texts()], object)
    return case.labels(refuse_words=False)[:, 0]


def _top(scores: np.ndarray, n: int) -> np.ndarray:
    """Which rows are the `n` with the highest scores."""
    chosen = np.zeros(len(scores), bool)
    chosen[np.argsort(-scores, kind="stable")[:n]] = True
    return chosen


def hard_rows(task: TaskFacts, train: pd.DataFrame, test: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame | None:
    """Ids of the test rows that two plain models, trained on `train`, both get wrong; None for numbers and pictures."""
    if task.metric not in _CLASSES or task.category == "image":
        return None
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.linear_model import LogisticRegression

    target = task.target_columns[0]
    rows = np.arange(len(train))
    if len(train) > _TRAIN_ROWS:
        rows = np.sort(np.random.default_rng(0).permutation(len(train))[:_TRAIN_ROWS])
    labels, truth = train[target].astype(str).to_numpy(), answers[target].astype(str).to_numpy()
    fit, predict = _features(train.iloc[rows], test, target)
    wrong = np.ones(len(test), bool)
    for model in (ExtraTreesClassifier(60, min_samples_leaf=2, random_state=0), LogisticRegression(max_iter=200)):
        model.fit(fit, labels[rows])
        probability = model.predict_proba(predict)
        if len(model.classes_) == 2:  # as many positives as there are, so that no threshold makes one class the hard one
            guess = model.classes_[_top(probability[:, 1], int((truth == model.classes_[1]).sum())).astype(int)]
        else:
            guess = model.classes_[probability.argmax(axis=1)]
        wrong &= guess != truth
    return answers.loc[wrong, ["id"]]


def _features(train: pd.DataFrame, test: pd.DataFrame, target: str) -> tuple[Any, Any]:
    """Plain features: scaled numbers, common categories and frequent words."""
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    columns = [c for c in train if c not in ("id", target)]
    numeric = [c for c in columns if train[c].dtype.kind in "iufb"]
    words = [c for c in columns if c not in numeric and train[c].nunique() > 0.3 * len(train)]
    categories = [c for c in columns if c not in numeric and c not in words]
    fill = dict.fromkeys(words, "") | dict.fromkeys(categories, "missing")
    parts: list[tuple[str, Any, Any]] = (
        [("numbers", make_pipeline(SimpleImputer(), StandardScaler()), numeric)] if numeric else []
    )
    if categories:
        parts.append(("categories", OneHotEncoder(min_frequency=10, handle_unknown="infrequent_if_exist"), categories))
    parts += [(f"words {c}", TfidfVectorizer(min_df=3, max_features=1000), c) for c in words]
    both = ColumnTransformer(parts, sparse_threshold=1.0)
    fit = both.fit_transform(train.fillna(fill))
    return fit, both.transform(test.fillna(fill))


__all__ = ["EXACT_SHARE", "HARD_SHARE", "InvalidSubmission", "LeakReport", "hard_rows", "leak_audit"]
