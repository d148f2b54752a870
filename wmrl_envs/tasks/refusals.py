"""Why a submission got no score: the refusals, whose fault each is, and how a value of the agent's is shown in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_SHOWN = 5
_LONGEST = 2000  # characters of a refusal; names and cells of an agent's file may have any length


class SubmissionError(ValueError):
    """Why a submission got no score.

    Attributes:
        kind: the name of the error in the feedback.
        message: what went wrong, in one line.
        details: more, for the agent, in one line too.
        agents_own: False if it is our failure, which must never count against the agent.
    """

    kind = "SubmissionError"
    message = "Submission failed"
    agents_own = True

    def __init__(self, details: str, message: str | None = None):
        self.details = one_line(details, _LONGEST)
        super().__init__(self.details)
        if message is not None:
            self.message = message


class InvalidSubmission(SubmissionError):
    """The file is not a valid submission: unreadable, wrong columns or ids, or predictions the metric cannot take."""

    kind = "InvalidSubmissionError"
    message = "Submission validation failed"


class EvaluationError(SubmissionError):
    """The grader itself failed: ours, never the agent's."""

    kind = "EvaluationError"
    message = "Failed to evaluate submission"
    agents_own = False


class GroundTruthError(SubmissionError):
    """The answers are missing or unreadable: ours."""

    kind = "GroundTruthError"
    message = "Failed to read ground truth file"
    agents_own = False


class LeaderboardError(SubmissionError):
    """No place on the leaderboard could be worked out: ours."""

    kind = "LeaderboardError"
    message = "Failed to calculate leaderboard position"
    agents_own = False


def cell_text(cell: Any) -> str:
    """A cell as text, whatever it is; a missing one is "".

    >>> cell_text(10**5000)
    'an integer of 16610 bits'
    """
    if isinstance(cell, str):
        return cell
    if cell is None or (isinstance(cell, float) and cell != cell) or type(cell).__name__ in ("NAType", "NaTType"):
        return ""
    try:
        return str(cell)
    except ValueError:  # Python writes out no integer of more than 4300 digits
        return f"an integer of {cell.bit_length()} bits" if isinstance(cell, int) else f"a {type(cell).__name__}"


def one_line(text: str, longest: int = 60) -> str:
    r"""Text of the agent's in one printable line of at most `longest` characters.

    >>> one_line("a\nb\u2028c")
    'a\\nb\\u2028c'
    """
    cut = text if len(text) <= longest else text[: longest - 3] + "..."
    return cut if cut.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in cut)


def quoted(cell: Any, longest: int = 40) -> str:
    """A cell in quotes, for a message."""
    text = cell_text(cell)
    return repr(text if len(text) <= longest else text[:longest] + "...")


def listed(values: Sequence[Any], shown: int = _SHOWN, longest: int = 60) -> str:
    """The first few values, and how many more there are.

    >>> listed([1, 2, 3], shown=2)
    '1, 2 and 1 more'
    """
    texts = [one_line(cell_text(v), longest) for v in values[:shown]]
    more = len(values) - shown
    return ", ".join(texts) + (f" and {more} more" if more > 0 else "")
