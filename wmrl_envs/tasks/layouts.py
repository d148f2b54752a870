"""Where the files of a competition lie: MLE-Dojo's prepared layout (also that of the built-in ones) and DSBench's release.

MLE-Dojo: <root>/<slug>/data/public/{description.txt, sample_submission.csv, ...}
<root>/<slug>/data/private/{test_answer.csv, private_leaderboard.csv, public_leaderboard.csv}
DSBench:  <root>/data_resplit/<slug>/{train.csv, test.csv, <a sample under any name>}, <root>/answers/<slug>/test_answer.csv,
<root>/task/<slug>.txt, and beside it save_performance/{GT,baseline}/<slug>/result.txt
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from wmrl_envs.tasks.catalog import catalog


@dataclass(frozen=True)
class PrivateFiles:
    """What only the grader reads. `ground_truth`, `baseline`: DSBench's values, where its release has them."""

    answers: Path
    private_board: Path | None = None
    public_board: Path | None = None
    hard_rows: Path | None = None
    ground_truth: float | None = None
    baseline: float | None = None


@dataclass(frozen=True)
class Files:
    """The files of one competition; they need not all exist."""

    public_dir: Path
    description: Path
    sample_submission: Path
    private: PrivateFiles

    def missing(self) -> list[str]:
        """The needed files that are not there."""
        needed = (self.description, self.sample_submission, self.private.answers)
        return [str(path) for path in needed if not path.is_file()]


def find(slug: str, root: Path) -> Files | None:
    """The files of `slug` under `root` in whichever layout it is; None if there is no folder of it."""
    for folder in (root / slug / "data", root / slug):
        if (folder / "public").is_dir():
            return _mledojo(folder)
    # `root` may be the competition's own folder; not if it belongs to another competition we know.
    owner = next((name for name in (root.name, root.parent.name) if name in catalog()), slug)
    if owner == slug:
        for folder in (root, root / "data"):
            if (folder / "public").is_dir():
                return _mledojo(folder)
    for folder in (root, root / "data"):
        if (folder / "data_resplit" / slug).is_dir():
            return _dsbench(slug, folder)
    return None


def slugs(root: Path) -> Iterator[str]:
    """Names of the folders under `root` that look like competitions, sorted."""
    names = set()
    for folder in (root, root / "data_resplit", root / "data" / "data_resplit"):
        if folder.is_dir():
            resplit = folder.name == "data_resplit"
            names |= {p.name for p in folder.iterdir() if p.is_dir() and (resplit or _has_public(p)) and p.name[0] != "."}
    yield from sorted(names)


def _has_public(folder: Path) -> bool:
    return (folder / "data" / "public").is_dir() or (folder / "public").is_dir()


def _mledojo(data: Path) -> Files:
    public, private = data / "public", data / "private"
    return Files(
        public,
        public / "description.txt",
        public / "sample_submission.csv",
        PrivateFiles(
            private / "test_answer.csv",
            _if_there(private / "private_leaderboard.csv"),
            _if_there(private / "public_leaderboard.csv"),
            _if_there(private / "hard_rows.csv"),
        ),
    )


def _dsbench(slug: str, data: Path) -> Files:
    public = data / "data_resplit" / slug
    answers = data / "answers" / slug
    results = {kind: _result(data, kind, slug) for kind in ("GT", "baseline")}
    return Files(
        public,
        data / "task" / f"{slug}.txt",
        _sample(public),
        PrivateFiles(
            answers / "test_answer.csv",
            _board(data, slug, "private"),
            _board(data, slug, "public"),
            None,
            results["GT"],
            results["baseline"],
        ),
    )


def _board(data: Path, slug: str, side: str) -> Path | None:
    folders = (data / "leaderboards" / slug, data.parent / "leaderboards" / slug, data / "answers" / slug)
    return next((f for folder in folders if (f := folder / f"{side}_leaderboard.csv").is_file()), None)


def _sample(public: Path) -> Path:
    """The sample submission, whose name varies: the exact name, one with "submission" or "sample" in it,
    else the odd file out.
    """
    usual = public / "sample_submission.csv"
    if usual.is_file():
        return usual
    others = sorted(p for p in public.glob("*.csv") if p.stem.lower() not in ("train", "test"))
    likely = [p for p in others if "submission" in p.stem.lower() or "sample" in p.stem.lower()]
    return (likely or others or [usual])[0]


def _result(data: Path, kind: str, slug: str) -> float | None:
    for base in (data, data.parent):
        path = base / "save_performance" / kind / slug / "result.txt"
        if path.is_file():
            try:
                return float(path.read_text(encoding="utf-8").strip())
            except ValueError:
                return None
    return None


INDEX = "index.json"


def indexed(slug: str, root: Path) -> Path | None:
    """The folder that `wmrl tasks prepare mledojo|dsbench` has noted for `slug` in `root`, if any."""
    import json

    try:
        entry = json.loads((root / INDEX).read_text(encoding="utf-8")).get(slug)
    except (OSError, ValueError, AttributeError):
        return None
    return Path(entry) if isinstance(entry, str) else None


def _if_there(path: Path) -> Path | None:
    return path if path.is_file() else None


def shipped_board(slug: str) -> Path | None:
    """The reference board of a built-in competition that comes with this package, if there is one."""
    return _if_there(Path(str(resources.files(__package__).joinpath("boards", f"{slug}.csv"))))
