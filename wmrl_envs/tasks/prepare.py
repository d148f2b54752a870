"""Check a folder of MLE-Dojo's or DSBench's data that the user has, and note where its competitions are.

Nothing is downloaded: Kaggle wants its rules accepted competition by competition. What is missing is named, the rest loads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from wmrl_envs import paths
from wmrl_envs.errors import DataNotBuilt, InvalidInput
from wmrl_envs.tasks import layouts
from wmrl_envs.tasks.catalog import list_competitions
from wmrl_envs.tasks.competition import Competition, load_competition
from wmrl_envs.tasks.overview import task_context
from wmrl_envs.tasks.scoring import read_answers

ABSENT = "not in this folder"


@dataclass(frozen=True)
class Checked:
    """What the check of one competition found: `problem` is None if it can be played, `notes` are worth knowing."""

    slug: str
    problem: str | None = None
    notes: tuple[str, ...] = ()


def check_folder(source: str, data_dir: str | Path) -> list[Checked]:
    """Check every competition of `source` ("mledojo" or "dsbench") in `data_dir`, in the order of the catalogue.

    Raises:
        DataNotBuilt: the folder is not there, or holds none of the competitions.
    """
    if source not in ("mledojo", "dsbench"):
        raise InvalidInput(f"source={source!r}: expected 'mledojo' or 'dsbench'.")
    root = Path(data_dir).expanduser().resolve()
    if not root.is_dir():
        raise DataNotBuilt(f"{root} is not a folder; give the folder that holds the data of {source}.")
    checked = [check(slug, root) for slug in list_competitions(source=source, excluded=True)]
    if all(c.problem is not None for c in checked):
        zipped = " Unzip data.zip there first." if (root / "data.zip").is_file() else ""
        expected = "<slug>/data/public" if source == "mledojo" else "data_resplit/<slug> or <slug>/data/public"
        raise DataNotBuilt(
            f"{root} holds no competition of {source} ({expected}): {checked[0].slug}: {checked[0].problem}{zipped}"
        )
    return checked


def check(slug: str, root: Path) -> Checked:
    """Can `slug` be loaded from `root` and graded?"""
    if layouts.find(slug, root) is None:
        raw = root / slug / "raw"
        if raw.is_dir() and any(raw.iterdir()):
            return Checked(slug, f"downloaded but not prepared ({raw}): run MLE-Dojo's prepare step for it")
        if (root / slug).is_dir():
            return Checked(slug, "its folder is empty: accept the rules of the competition on Kaggle, then download it again")
        return Checked(slug, ABSENT)
    try:
        competition = load_competition(slug, root)
        notes = tuple(_notes(competition))
        competition.require_ranking()  # what an environment asks when an episode begins
        task_context(competition)
        return Checked(slug, None, notes)
    except Exception as error:  # one broken competition must not hide the others
        return Checked(slug, str(error) or type(error).__name__)


def _notes(competition: Competition) -> Iterable[str]:
    """Things that make a competition unusual, none of which stop it.

    Raises:
        InvalidInput: the answers and the sample submission do not fit.
    """
    truth = read_answers(competition.private.answers, competition.spec)
    ids, _, predictions = competition.spec.columns(truth)
    wanted = {*ids, *predictions}
    lacking = sorted(wanted - set(competition.submission_columns))
    if lacking and not competition.spec.facts.prediction_columns:
        raise InvalidInput(f"the sample submission lacks the columns {', '.join(lacking)} of the answers")
    if competition.board is None:
        yield ("no leaderboard: scored by DSBench's relative gap" if competition.ranked_by_gap else "no leaderboard")
    elif competition.board.left_out:
        yield f"the {' and '.join(competition.board.left_out)} leaderboard tells nothing and is left out"
    if competition.spec.facts.notes:
        yield competition.spec.facts.notes
    if competition.spec.facts.excluded_because:
        yield f"not in the paper's evaluation: {competition.spec.facts.excluded_because}"


def index(checked: Iterable[Checked], data_dir: str | Path, into: Path | None = None) -> Path:
    """Note where the playable competitions are, so that they are found without naming the folder; returns the index file."""
    root = Path(data_dir).expanduser().resolve()
    target = (into or paths.data_dir()) / layouts.INDEX
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        entries = json.loads(target.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        entries = {}
    entries |= {c.slug: str(root) for c in checked if c.problem is None}
    scratch = target.with_suffix(".tmp")
    scratch.write_text(json.dumps(entries, indent=1, sort_keys=True), encoding="utf-8")
    scratch.replace(target)
    return target
