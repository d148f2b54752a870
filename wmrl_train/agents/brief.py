"""`Brief`: the few facts of a task that the small policy is told, and the one-line prompt that tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wmrl_envs.context import TaskContext
from wmrl_envs.errors import InvalidInput

PROBABILITY_METRICS = ("roc_auc", "log_loss", "map_at_k")
KINDS = ("num", "cat", "text", "date", "nan")


@dataclass(frozen=True)
class Brief:
    """What a program for the `sklearn` scaffold depends on.

    Attributes:
        target: "reg", "bin", "multi" (classes), "ord" (ordered classes) or "mlabel" (several binary targets).
        num, cat, text, date, nan: column names by kind, as `wmrl_envs.tasks.scaffold.describe` gives them.
    """

    task: str
    category: str
    metric: str
    target: str
    rows: int
    num: tuple[str, ...] = ()
    cat: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    date: tuple[str, ...] = ()
    nan: tuple[str, ...] = ()

    @property
    def asks_for(self) -> str:
        """What a submission holds: "proba", "value" or "label"."""
        if self.metric in PROBABILITY_METRICS:
            return "proba"
        return "value" if self.target in ("reg", "mlabel") else "label"

    @classmethod
    def of(cls, task: str, category: str, metric: str, names: Mapping[str, Any]) -> Brief:
        """From a scaffold's description of a task."""
        if "target_kind" not in names:
            raise InvalidInput(
                f"the small policy writes programs for scaffold='sklearn'; the task {task!r} was opened without it."
            )
        return cls(task, category, metric, names["target_kind"], names["rows"], **{k: tuple(names[k]) for k in KINDS})

    @classmethod
    def from_context(cls, context: TaskContext) -> Brief:
        """From what an environment tells its agent."""
        return cls.of(context.task, context.category, context.metric, context.scaffold_names)


def prompt(brief: Brief, known: bool = True) -> str:
    r"""The prompt: one comment line.

    A task the policy was not trained on (`known=False`) is called `task`, and its metric by what it asks for ("proba",
    "label" or "value"), so that every word is one the policy has seen.

    >>> brief = Brief("hpc-job-speed", "tabular", "qwk", "ord", 3032, num=("hour",), cat=("day",))
    >>> prompt(brief)
    '# hpc-job-speed, qwk, ord, num, cat, tabular\n'
    >>> prompt(brief, known=False)
    '# task, label, ord, num, cat, tabular\n'
    """
    words = [brief.task, brief.metric] if known else ["task", brief.asks_for]
    words += [brief.target, *(kind for kind in KINDS if getattr(brief, kind)), brief.category]
    return "# " + ", ".join(words) + "\n"


def again(failed: bool) -> str:
    r"""The prompt of a later turn: only whether the previous program failed; the task's own line is still in the context.

    >>> again(failed=True)
    '# failed, again\n'
    """
    return f"# {'failed' if failed else 'ran'}, again\n"


def training_briefs() -> list[Brief]:
    """Briefs of the built-in training competitions, read from their public files (`wmrl tasks prepare builtin` makes them)."""
    from wmrl_envs.tasks import list_competitions, load_competition
    from wmrl_envs.tasks.scaffold import describe

    briefs = []
    for slug in list_competitions("train", "builtin"):
        competition = load_competition(slug)
        briefs.append(Brief.of(slug, competition.spec.category, competition.spec.metric_name, describe(competition)))
    return briefs


def known_tasks(tokenizer: Any) -> frozenset[str]:
    """The tasks the policy of this tokenizer was trained on (none for a tokenizer that is not ours)."""
    return frozenset(getattr(tokenizer, "init_kwargs", {}).get("known_tasks", ()))
