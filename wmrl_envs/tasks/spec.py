"""`task_spec(slug)`: how one competition is graded, given two frames; no data on disk is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wmrl_envs.errors import InvalidInput
from wmrl_envs.tasks.catalog import TaskFacts, facts
from wmrl_envs.tasks.validation import InvalidSubmission, align, check_columns, id_text

if TYPE_CHECKING:
    import pandas as pd

    from wmrl_envs.tasks.metrics import Case


_ALIASES = {  # Kaggle's sample submission and the prepared answers name this column differently: either is taken
    "kaggle-llm-science-exam": {"answer": "prediction"},
    "quora-insincere-questions-classification": {"target": "prediction"},
}


@dataclass(frozen=True)
class TaskSpec:
    """The facts of a task and its grader.

    >>> import pandas as pd
    >>> spec = task_spec("titanic")
    >>> truth = pd.DataFrame({"PassengerId": [892, 893], "Survived": [0, 1]})
    >>> spec.metric(truth, pd.DataFrame({"Survived": [1, 1], "PassengerId": [893, 892]}))
    0.5
    """

    facts: TaskFacts
    compat: str | None = None

    @property
    def slug(self) -> str:
        return self.facts.slug

    @property
    def category(self) -> str:
        """tabular, text or image."""
        return self.facts.category

    @property
    def split(self) -> str:
        """train, held_out or dsbench."""
        return self.facts.split

    @property
    def source(self) -> str:
        """mledojo, dsbench or builtin."""
        return self.facts.source

    @property
    def metric_name(self) -> str:
        return self.facts.metric

    @property
    def higher_is_better(self) -> bool:
        """Direction of the metric."""
        return self.facts.higher_is_better

    def columns(self, truth: pd.DataFrame) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """(id, target, prediction) columns for these answers, which define them where the catalogue leaves it open."""
        names = [str(c) for c in truth.columns]
        lower = {n.lower(): n for n in reversed(names)}

        def present(wanted: tuple[str, ...]) -> tuple[str, ...]:
            found = tuple(c if c in names else lower.get(c.lower(), "") for c in wanted)
            return found if wanted and all(found) else ()

        f = self.facts
        ids = present(f.id_columns) or (names[0],)
        targets = present(f.target_columns)
        if not targets:
            side = {"usage", "isholiday", "split", *(c.lower() for c in f.optional_columns)}
            targets = tuple(n for n in names if n not in ids and n.lower() not in side)
        if not targets:
            raise InvalidInput(f"{f.slug}: the answers have no target column among {', '.join(names)}.")
        return ids, targets, f.prediction_columns or targets

    def check_header(
        self, truth: pd.DataFrame, names: Sequence[str]
    ) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], str]:
        """Are these the columns of a submission? Gives (id columns, target columns, prediction columns, how ids are matched).

        Raises:
            InvalidSubmission: they are not.
        """
        ids, targets, predictions = self.columns(truth)
        aliases, given = _ALIASES.get(self.slug, {}), set(names)
        predictions = tuple(aliases[c] if c not in given and aliases.get(c) in given else c for c in predictions)
        optional, required, match = list(self.facts.optional_columns), [*ids, *predictions], self.facts.id_match
        if self.compat is not None:
            from wmrl_envs.tasks.compat import check_order, override

            check_order(self.facts, list(names), [str(c) for c in truth.columns])
            o = override(self.slug)
            required += o.also_required
            optional += names if o.extra_columns else []
            if o.by_id_only:
                ids, match = ids[:1], "by_place"
            elif o.in_order:
                match = "in_order"
        check_columns(names, required, optional)
        return ids, targets, predictions, match

    def case(self, truth: pd.DataFrame, submission: pd.DataFrame) -> Case:
        """Check columns and ids and bring the rows of the submission into the order of the answers.

        Raises:
            InvalidSubmission: with a message for the agent.
        """
        import pandas as pd

        from wmrl_envs.tasks.metrics import Case

        if not isinstance(submission, pd.DataFrame):
            raise InvalidSubmission(f"The submission is a {type(submission).__name__}; expected a table with a header.")
        ids, targets, predictions, match = self.check_header(truth, [str(c) for c in submission.columns])
        rows = align(truth, submission, ids, match)
        ordered = submission[list(predictions)].iloc[rows].reset_index(drop=True)
        keys = [id_text(truth[c]).to_numpy() for c in ids]
        names = keys[0] if len(keys) == 1 else np.array(["|".join(key) for key in zip(*keys, strict=True)], object)
        return Case(truth.reset_index(drop=True), ordered, targets, predictions, names)

    def validate(self, truth: pd.DataFrame, submission: pd.DataFrame) -> None:
        """Return None if the submission can be graded.

        Raises:
            InvalidSubmission: it cannot; the message names the first offenders and the fix.
        """
        self.metric(truth, submission)

    def metric(self, truth: pd.DataFrame, submission: pd.DataFrame) -> float:
        """The raw score. Rows are matched by id, columns by name; neither frame is changed.

        Returns:
            A float; NaN where the metric is undefined on valid predictions (a constant has no rank correlation), infinite where
            they are so far off that it overflows.

        Raises:
            InvalidSubmission: columns, ids or predictions that cannot be graded.
        """
        from wmrl_envs.tasks.metrics import METRICS

        case = self.case(truth, submission)
        with np.errstate(over="ignore", invalid="ignore"):  # of 1e200 and the like: the score is infinite or NaN then
            if self.compat is not None:
                from wmrl_envs.tasks import compat

                return compat.score(self.facts, case)
            return METRICS[self.facts.metric].score(case, **self.facts.params)


def task_spec(slug: str, compat: str | None = None) -> TaskSpec:
    """How `slug` is graded.

    Args:
        slug: name of the competition.
        compat: None for the right numbers; "mledojo" for those of MLE-Dojo's own graders, defects included.

    Raises:
        InvalidInput: unknown competition (with the nearest names) or unknown `compat`.
    """
    if compat not in (None, "mledojo"):
        raise InvalidInput(f"compat={compat!r}: expected None or 'mledojo'.")
    return TaskSpec(facts(slug), compat)
