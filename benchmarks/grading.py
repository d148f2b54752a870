"""What grading costs in CPU time: `python benchmarks/grading.py [--rows N] [--repeat K]`.

A submission of N rows and six probability columns (jigsaw-toxic-comment, mean column AUC) is accepted; then files that are refused are
graded against answers of the same size. Seconds of CPU of this process and of those it started, the least of K gradings after a first one.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import psutil

from wmrl_envs.outcome import Execution, ExecutionStatus
from wmrl_envs.tasks import grade, load_competition

SIX = "jigsaw-toxic-comment-classification-challenge"
CLASSES = "forest-cover-type-kernels-only"


def write(root: Path, slug: str, answers: pd.DataFrame) -> None:
    """A competition in MLE-Dojo's layout."""
    data = root / slug / "data"
    for folder in ("public", "private"):
        (data / folder).mkdir(parents=True)
    (data / "public" / "description.txt").write_text("made up")
    answers.head(5).to_csv(data / "public" / "sample_submission.csv", index=False)
    answers.to_csv(data / "private" / "test_answer.csv", index=False)
    pd.DataFrame({"rank": range(1, 11), "score": np.linspace(1, 0, 10)}).to_csv(
        data / "private" / "private_leaderboard.csv", index=False
    )


def cpu_s() -> float:
    """CPU seconds of this process and its children that run."""
    me = psutil.Process()
    return sum(sum(p.cpu_times()[:2]) for p in [me, *me.children(recursive=True)])


def files(root: Path, rows: int) -> dict[str, tuple[str, bytes]]:
    """What -> (competition, submission)."""
    rng = np.random.default_rng(0)
    names = ["toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate"]
    ids = [f"{i:016x}" for i in rng.permutation(rows)]
    answers = pd.DataFrame({"id": ids} | {n: rng.integers(0, 2, rows) for n in names})
    given = pd.DataFrame({"id": rng.permutation(ids)} | {n: rng.random(rows).round(6) for n in names})
    write(root, SIX, answers)
    classes = pd.DataFrame({"Id": range(rows), "Cover_Type": rng.integers(1, 8, rows)})
    write(root, CLASSES, classes)
    csv = {name: frame.to_csv(index=False).encode() for name, frame in (
        ("accepted: six columns of probabilities", given),
        ("refused: a column is missing", given.drop(columns="threat")),
        ("refused: words for numbers", given.assign(threat="word")),
        ("refused: nothing but blanks", given.assign(threat="")),
        ("refused: unknown ids", given.assign(id=[f"x{i}" for i in ids])),
        ("accepted: classes", classes),
        ("refused: probabilities for classes", classes.assign(Cover_Type=rng.random(rows))),
        ("scored: a word of its own in each row", classes.assign(Cover_Type=[f"w{i}" for i in range(rows)])),
    )}  # fmt: skip
    made = {name: (CLASSES if "Cover_Type" in data[:40].decode() else SIX, data) for name, data in csv.items()}
    many = ",".join(f"c{i}" for i in range(24_000)).encode() + b"\n" + b",".join([b"1"] * 24_000)
    return made | {
        "refused: 24,000 columns": (CLASSES, many),
        "refused: a row of 1,000,000 cells": (CLASSES, b"Id,Cover_Type\n0," + b"1," * 1_000_000),
        "graded: one label of 1,000,000 characters": (
            CLASSES,
            csv["accepted: classes"].replace(b"\n0,", b"\n0," + b"9" * 1_000_000, 1),
        ),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=150_000)
    parser.add_argument("--repeat", type=int, default=3)
    a = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, (slug, data) in files(root, a.rows).items():
            competition, times = load_competition(slug, root), []
            for _ in range(a.repeat + 1):
                before = cpu_s()
                outcome = grade(competition, Execution(ExecutionStatus.OK, 0, submission=data))
                times.append(cpu_s() - before)
            print(f"{min(times[1:]):7.2f} s  {outcome.status.value:<18}  {name} ({len(data) / 1e6:.1f} MB)", flush=True)


if __name__ == "__main__":
    main()
