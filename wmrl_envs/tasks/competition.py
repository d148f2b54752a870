"""A competition on disk: what the agent may see (`public_dir`), what only the grader reads, and the boards scores are ranked
on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from wmrl_envs import paths
from wmrl_envs.errors import DataNotBuilt, InvalidInput
from wmrl_envs.tasks import layouts
from wmrl_envs.tasks.catalog import facts, list_competitions
from wmrl_envs.tasks.leaderboard import Leaderboard
from wmrl_envs.tasks.spec import TaskSpec, task_spec

log = logging.getLogger(__name__)

__all__ = ["Competition", "list_competitions", "load_competition", "prepared_competitions"]


@dataclass(frozen=True)
class Competition:
    """One competition that is there to be played.

    Attributes:
        spec: its facts and its grader.
        public_dir: the folder agents may read, with the training data and the test features.
        description: the text of the task.
        sample_submission: the sample, a file in `public_dir`.
        private: paths of the answers and of the boards beside them; never handed to a sandbox or to a model.
    """

    spec: TaskSpec
    public_dir: Path
    description: str = field(repr=False)
    sample_submission: Path
    private: layouts.PrivateFiles = field(repr=False)

    @property
    def slug(self) -> str:
        return self.spec.slug

    @property
    def category(self) -> str:
        """tabular, text or image."""
        return self.spec.category

    @property
    def metric(self) -> str:
        """Name of the metric in `wmrl_envs.tasks.metrics.METRICS`."""
        return self.spec.metric_name

    @property
    def metric_params(self) -> dict[str, int | bool | str]:
        return dict(self.spec.facts.params)

    @property
    def higher_is_better(self) -> bool:
        return self.spec.higher_is_better

    @property
    def id_columns(self) -> tuple[str, ...]:
        """Columns of the sample submission that identify a row."""
        wanted = {c.lower() for c in self.spec.facts.id_columns}
        return tuple(c for c in self.submission_columns if c.lower() in wanted) or self.submission_columns[:1]

    @property
    def prediction_columns(self) -> tuple[str, ...]:
        """Columns of the sample submission to fill in."""
        optional = self.spec.facts.optional_columns
        return tuple(c for c in self.submission_columns if c not in self.id_columns and c not in optional)

    @property
    def target_columns(self) -> tuple[str, ...]:
        """What is predicted: the catalogue's columns, else those of the sample submission."""
        return self.spec.facts.target_columns or self.prediction_columns

    @property
    def split(self) -> str:
        return self.spec.split

    @property
    def source(self) -> str:
        return self.spec.source

    @cached_property
    def submission_columns(self) -> tuple[str, ...]:
        """Header of the sample submission."""
        import csv

        with self.sample_submission.open(encoding="utf-8-sig", newline="") as f:
            return tuple(next(csv.reader(f), ()))

    @cached_property
    def board(self) -> Leaderboard | None:
        """The leaderboards, or None if there are none."""
        private, public = self.private.private_board, self.private.public_board
        if private is None and public is None:
            private = layouts.shipped_board(self.slug)
        if private is None and public is None:
            return None
        return Leaderboard.from_csv(
            private=private,
            public=public,
            higher_is_better=self.higher_is_better,
            compat=self.spec.compat,
            name=self.slug,
        )

    @property
    def ranked_by_gap(self) -> bool:
        """Whether a score is DSBench's relative gap, for want of a leaderboard."""
        return self.board is None and self.relative_gap(0.0) is not None

    def require_ranking(self) -> None:
        """Raise `DataNotBuilt` unless scores can be ranked, on a leaderboard or by the relative gap."""
        if self.board is None and not self.ranked_by_gap:
            raise DataNotBuilt(
                f"Competition {self.slug!r} has no leaderboard to rank scores on: put private_leaderboard.csv (columns "
                f"rank,score) beside its {self.private.answers.name}."
            )

    def relative_gap(self, raw_score: float | None) -> float | None:
        """DSBench's relative performance gap: max(0, (raw - baseline) / (ground truth - baseline)).

        0 without a score (or with NaN); None if DSBench has no baseline for this task.
        """
        f = self.spec.facts
        best = f.ground_truth if self.private.ground_truth is None else self.private.ground_truth
        base = f.baseline if self.private.baseline is None else self.private.baseline
        if best is None or base is None or best == base:
            return None
        if raw_score is None or raw_score != raw_score:
            return 0.0
        return max(0.0, (raw_score - base) / (best - base))


def load_competition(slug: str, data_dir: str | Path | None = None, *, compat: str | None = None) -> Competition:
    """The competition `slug`, from MLE-Dojo's prepared layout, DSBench's released layout or the built-in set.

    Args:
        slug: its name; `list_competitions()` has them all.
        data_dir: a folder of prepared competitions, or the folder `<slug>` or `<slug>/data` itself, or the folder of
            DSBench's release; default `wmrl_envs.paths.data_dir()`.
        compat: "mledojo" grades as MLE-Dojo does, defects included.

    Raises:
        InvalidInput: no such competition (the nearest names are suggested).
        DataNotBuilt: its data is not there, or a file of it; the message names the file and the command that makes it.
    """
    spec = task_spec(slug, compat)
    root = Path(data_dir).expanduser().resolve() if data_dir is not None else paths.data_dir()
    found = layouts.find(slug, root)
    if found is None and (elsewhere := layouts.indexed(slug, root)) is not None:
        found = layouts.find(slug, elsewhere)
    if found is None:
        command = "builtin" if spec.source == "builtin" else f"{spec.source} --data-dir DIR"
        raise DataNotBuilt(f"Competition {slug!r} is not prepared in {root}: run `wmrl tasks prepare {command}`.")
    missing = found.missing()
    if missing:
        raise DataNotBuilt(f"Competition {slug!r} lacks {missing[0]}: prepare it again (`wmrl tasks prepare {spec.source}`).")
    return Competition(
        spec=spec,
        public_dir=found.public_dir,
        description=found.description.read_text(encoding="utf-8", errors="replace"),
        sample_submission=found.sample_submission,
        private=found.private,
    )


def prepared_competitions(data_dir: str | Path | None = None) -> Iterator[tuple[str, Competition | str]]:
    """(slug, competition or the reason why it cannot be loaded) for each one with a folder in `data_dir`."""
    root = Path(data_dir).expanduser().resolve() if data_dir is not None else paths.data_dir()
    for slug in layouts.slugs(root):
        try:
            facts(slug)
            yield slug, load_competition(slug, root)
        except (DataNotBuilt, InvalidInput, OSError) as error:
            yield slug, str(error)
