"""The task descriptions of the built-in competitions: stories from `stories.yaml`, the rest from the data itself."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TypedDict

import numpy as np
import pandas as pd
import yaml

from wmrl_envs.tasks.catalog import TaskFacts

_EVALUATION = {
    "rmsle": "Submissions are scored on the root mean squared logarithmic error between the predicted and the actual {target}: "
    "sqrt(mean((log(1 + prediction) - log(1 + actual))^2)). Lower is better; predictions must not be negative.",
    "rmse": "Submissions are scored on the root mean squared error between the predicted and the actual {target}. "
    "Lower is better.",
    "mae": "Submissions are scored on the mean absolute error between the predicted and the actual {target}. Lower is better.",
    "roc_auc": "Submissions are scored on the area under the ROC curve between the predicted probability of {target} = 1 and "
    "the observed target. Higher is better.",
    "mean_column_auc": "Submissions are scored on the mean column-wise area under the ROC curve: the AUC of each of the "
    "columns {target}, averaged. Higher is better.",
    "mcc": "Submissions are scored on the Matthews correlation coefficient between the predicted and the actual labels in "
    "{target}. Labels are expected, not probabilities. Higher is better.",
    "qwk": "Submissions are scored on the quadratic weighted kappa between the predicted and the actual {target}, an ordered "
    "whole number. 1 is perfect agreement, 0 is chance. Whole numbers are expected. Higher is better.",
    "macro_f1": "Submissions are scored on the macro-averaged F1 score of {target}: the F1 of each class, averaged without "
    "weights, so rare classes count as much as common ones. Higher is better.",
    "log_loss": "Submissions are scored on the multi-class logarithmic loss: minus the mean logarithm of the probability given "
    "to the true class of {target}. Each row is divided by its sum before scoring. Lower is better.",
    "accuracy": "Submissions are scored on accuracy, the share of rows whose {target} is predicted exactly. Higher is better.",
    "map_at_k": "Submissions are scored on mean average precision at 3 (MAP@3). For each row give up to three values of "
    "{target}, best guess first, separated by blanks; a row scores 1, 1/2 or 1/3 if the true value comes first, second or "
    "third. Higher is better.",
    "spearman": "Submissions are scored on Spearman's rank correlation between the predicted and the actual {target}: only the "
    "order of the predictions matters. Higher is better.",
}


class Story(TypedDict):
    title: str
    text: str
    columns: str
    source: str


@cache
def stories() -> dict[str, Story]:
    """Slug -> title, text, columns and source."""
    text = resources.files(__package__).joinpath("stories.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def description(task: TaskFacts, sample: pd.DataFrame, images: dict[str, np.ndarray] | None) -> str:
    """The text of `description.txt`."""
    story = stories()[task.slug]
    files = [
        "- train.csv: the training set, with the target",
        "- test.csv: the test set, without it",
        "- sample_submission.csv: a submission in the right format",
    ]
    if images is not None:
        height, width = images["train"].shape[1:]
        files.append(
            f"- images.npz: arrays `train` and `test` of shape (rows, {height}, {width}), uint8 grey levels, in the row order "
            "of train.csv and test.csv (read them with numpy.load)"
        )
    targets = " and ".join(task.target_columns) if len(task.target_columns) < 3 else ", ".join(task.target_columns)
    return "\n".join(
        [
            f"# {story['title']}",
            "",
            "## Description",
            story["text"].strip(),
            "",
            "## Evaluation",
            _EVALUATION[task.metric].format(target=targets),
            "",
            "## Submission File",
            f"For each `id` in test.csv predict {targets}. The file must have a header and one row for each of the "
            f"{len(sample)} ids:",
            "```",
            sample.head(3).to_csv(index=False).strip(),
            "...",
            "```",
            "",
            "## Files",
            *files,
            "",
            "## Columns",
            story["columns"].strip(),
            "",
            "## Source",
            story["source"].strip(),
            "",
        ]
    )
