"""The catalogue: the published lists, and that every row can be graded."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from wmrl_envs.errors import InvalidInput
from wmrl_envs.tasks import list_competitions, task_spec
from wmrl_envs.tasks.catalog import catalog, facts
from wmrl_envs.tasks.metrics import METRICS


def test_counts_of_the_published_splits():
    assert len(list_competitions("train", "mledojo")) == 45
    assert len(list_competitions("held_out", "mledojo")) == 14
    assert len(list_competitions("dsbench")) == 60
    assert len(list_competitions("dsbench", excluded=True)) == 75
    assert Counter(facts(s).category for s in list_competitions("train", "mledojo")) == {"tabular": 15, "text": 15, "image": 15}
    assert Counter(facts(s).kind for s in list_competitions("dsbench")) == {
        "binary": 19,
        "multiclass": 10,
        "regression": 23,
        "other": 8,
    }
    assert len(list_competitions("train", "builtin")) == 12
    assert len(list_competitions("held_out", "builtin")) == 6


def test_every_metric_is_there_and_its_direction_agrees():
    for task in catalog().values():
        assert METRICS[task.metric].higher_is_better == task.higher_is_better, task.slug
        assert task.id_columns


def test_every_dsbench_task_but_one_has_ground_truth_and_baseline_in_the_direction_of_its_metric():
    without = []
    for slug in list_competitions("dsbench", excluded=True):
        task = facts(slug)
        if task.ground_truth is None:
            without.append(slug)
        else:
            assert (task.ground_truth > task.baseline) == task.higher_is_better, slug
    assert without == ["tabular-playground-series-oct-2021"]


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(InvalidInput, match="'titanic'"):
        task_spec("titanik")
    with pytest.raises(InvalidInput, match="GiveMeSomeCredit"):
        facts("givemesomecredit")
    with pytest.raises(InvalidInput, match="train, held_out, dsbench"):
        list_competitions("test")
    with pytest.raises(InvalidInput, match="mledojo"):
        task_spec("titanic", compat="kaggle")


def perfect(task, n=40):
    """A made-up truth and the submission that reproduces it."""
    rng = np.random.default_rng(1)
    cells = {
        "word_jaccard": ["some words", "other"],
        "map_at_k": ["a", "b"],
        "exact_text": ["a", "b"],
        "exact_match": ["12", "7"],
        "span_f1": ["1 5;7 9", "2 4"],
        "set_f1": ["a b", "c"],
        "kendall_tau": ["a b c", "d e"],
        "rle_iou_precision": ["1 5", "10 3"],
        "dice_hausdorff": ["1 5", "10 3"],
        "box_precision": ["1.0 10 10 20 20", "1.0 5 5 9 9"],
        "point_f1": ["U+1 10 10 20 20", "U+2 5 5 9 9"],
    }
    ids = {c: [f"{c}{i}" for i in range(n)] for c in task.id_columns}
    if task.metric == "weighted_recall":
        ids = {"row_id": [f"Test_{i}_{('grapheme_root', 'vowel_diacritic', 'consonant_diacritic')[i % 3]}" for i in range(n)]}
    targets = task.target_columns or ("first", "second", "third")
    if task.metric in cells:
        truth = pd.DataFrame(ids | {t: [cells[task.metric][i % 2] for i in range(n)] for t in targets})
    elif task.metric == "log_loss" and len(targets) > 1:
        truth = pd.DataFrame(ids | {t: [int(i % len(targets) == j) for i in range(n)] for j, t in enumerate(targets)})
    elif task.metric == "log_loss":
        truth = pd.DataFrame(ids | {targets[0]: [task.prediction_columns[i % len(task.prediction_columns)] for i in range(n)]})
    elif task.metric in (
        "rmse",
        "mae",
        "r2",
        "rmsle",
        "mcrmsle",
        "mcrmse",
        "smape",
        "median_ae",
        "wmae",
        "spearman",
        "pearson",
    ):
        truth = pd.DataFrame(ids | {t: rng.random(n).round(3) + 1 for t in targets})
    elif task.metric == "mean_column_spearman":
        truth = pd.DataFrame(ids | {t: rng.random(n).round(3) for t in targets})
    else:
        truth = pd.DataFrame(ids | {t: [i % 2 for i in range(n)] for t in targets})
    submission = truth.rename(columns={"toxicity": "prediction"})
    if task.metric == "balanced_log_loss":
        submission = pd.DataFrame(ids | {"class_0": 1 - truth["Class"], "class_1": truth["Class"]})
    elif task.metric == "log_loss" and len(targets) == 1:
        submission = pd.DataFrame(ids | {c: (truth[targets[0]] == c).astype(int) for c in task.prediction_columns})
    elif task.metric == "point_f1":
        submission = truth.assign(labels=["U+1 15 15" if i % 2 == 0 else "U+2 6 6" for i in range(n)])
    return truth, submission


@pytest.mark.parametrize("slug", list(catalog()))
def test_the_truth_itself_gets_the_best_score(slug):
    task = facts(slug)
    truth, submission = perfect(task)
    score = task_spec(slug).metric(
        truth, submission.sample(frac=1, random_state=0) if task.id_match != "in_order" else submission
    )
    best = 1.0 if task.higher_is_better else 0.0
    if task.metric == "bias_auc":  # without identity columns only the overall AUC counts
        best = 0.25
    assert score == pytest.approx(best, abs=1e-9)
