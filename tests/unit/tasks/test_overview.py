"""The task overview: every kind of file, the description cap, and never the private folder."""

import json
import os

import numpy as np
import pandas as pd
import pytest

from wmrl_envs.tasks import load_competition, task_context
from wmrl_envs.tasks.inventory import count_rows, inventory
from wmrl_envs.tasks.overview import count_tokens, cut, describe

SLUG = "playground-series-s3e9"


def test_overview_of_a_competition(mledojo_dir):
    context = task_context(load_competition(SLUG, mledojo_dir), timeout_s=60)
    text = context.overview
    assert "train.csv: 30 rows x 4 cols: [id (int), x (float), note (str), Strength (float)]" in text
    assert "test.csv: 10 rows x 3 cols" in text
    assert "Target columns (present in train but not in test).\n['Strength']" in text
    assert "columns = ['id', 'Strength'], 10 rows" in text
    assert "FILL the prediction column(s) with your model output: ['Strength']." in text
    assert "COPY the column(s) ['id']" in text
    assert "  30 5.0" in text
    assert "note: e.g. 'a, b c'" in text
    assert (context.submission_rows, context.timeout_s, context.metric) == (10, 60, "rmse")
    assert {f.name: f.rows for f in context.files}["train.csv"] == 30


def test_the_private_folder_is_never_read(mledojo_dir, monkeypatch):
    competition = load_competition(SLUG, mledojo_dir)
    (competition.public_dir / "innocent.csv").symlink_to(competition.private.answers)
    import builtins
    import io

    opened = []
    real = io.open

    def spy(file, *args, **kwargs):
        opened.append(str(file))
        return real(file, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", spy)
    monkeypatch.setattr(io, "open", spy)
    os.utime(competition.public_dir)
    context = task_context(competition)
    assert not [name for name in opened if "/private/" in name or "innocent" in name]
    assert "innocent" not in context.overview


def test_context_is_remembered_until_the_folder_changes(mledojo_dir):
    competition = load_competition(SLUG, mledojo_dir)
    first = task_context(competition)
    assert task_context(load_competition(SLUG, mledojo_dir)).files is first.files
    (competition.public_dir / "extra.csv").write_text("a,b\n1,2\n")
    os.utime(competition.public_dir, ns=(1, 1))
    assert "extra.csv" in task_context(competition).overview


def test_every_kind_of_file(tmp_path):
    pq = pytest.importorskip("pyarrow")
    assert pq
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"], "c": [True, False], "d": [0.5, 1.5]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_json(tmp_path / "t.json", orient="records")
    frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    (tmp_path / "o.json").write_text(json.dumps({"k": 1, "l": 2}))
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "empty.csv").write_text("")
    np.savez(tmp_path / "z.npz", train=np.zeros((5, 2, 3), np.uint8), test=np.zeros(4))
    np.save(tmp_path / "n.npy", np.zeros((7, 2)))
    from PIL import Image

    (tmp_path / "images").mkdir()
    for i in range(3):
        Image.new("RGB", (32, 16)).save(tmp_path / "images" / f"{i}.png")
    (tmp_path / "many").mkdir()
    for i in range(20):
        (tmp_path / "many" / f"{i}.csv").write_text("p,q\n1,2\n")
    entries = {e.name: e for e in inventory(tmp_path)}
    types = {"a": "int", "b": "str", "c": "bool", "d": "float"}
    for name in ("t.csv", "t.tsv", "t.parquet", "t.json", "t.jsonl"):
        assert (entries[name].rows, dict(entries[name].columns)) == (2, types), name
    assert "dict of 2 items: k, l" in entries["o.json"].note
    assert "not readable" in entries["bad.json"].note
    assert "not readable" in entries["empty.csv"].note
    assert dict(entries["z.npz"].columns) == {"train": "uint8 (5, 2, 3)", "test": "float64 (4,)"}
    assert entries["n.npy"].rows == 7
    assert (entries["images/"].rows, "32 x 16" in entries["images/"].note) == (3, True)
    assert (entries["many/"].rows, list(entries["many/"].columns)) == (20, ["p", "q"])


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b\n1,2\n", 1),
        ("a,b\n1,2", 1),
        ('a,b\n"x\ny",2\n3,4\n', 2),
        ("a,b\r\n1,2\r\n3,4\r\n", 2),
        ('a\n"q ""\n"" "\n', 1),
        ("a\n", 0),
    ],
)
def test_rows_are_counted_outside_quotes(tmp_path, text, rows, monkeypatch):
    path = tmp_path / "x.csv"
    path.write_bytes(text.encode())
    for chunk in (1, 3, 1 << 20):
        monkeypatch.setattr("wmrl_envs.tasks.inventory._CHUNK", chunk)
        assert count_rows(path) == rows


def test_a_large_csv_is_described_without_reading_it_into_memory(tmp_path):
    import tracemalloc

    with (tmp_path / "big.csv").open("wb") as f:
        f.write(b"a,b\n")
        for _ in range(50):
            f.write(b"123456,abcdefgh\n" * 65536)
    tracemalloc.start()
    entry = inventory(tmp_path)[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert entry.rows == 50 * 65536
    assert peak < 40e6


def test_a_short_description_is_kept_whole():
    assert describe("# T\n\n## Evaluation\nAUC.\n") == "# T\n\n## Evaluation\nAUC."


def test_a_long_description_is_cut_and_its_evaluation_appended():
    text = "# T\n\n" + "word " * 3000 + "\n\n## Evaluation\nMean AUC over columns.\n\n## Prizes\nMoney.\n"
    out = describe(text)
    head, tail = out.split("\n[...]\n")
    assert count_tokens(head) <= 900
    assert tail == "## Evaluation\nMean AUC over columns."
    assert "Money" not in out


def test_an_evaluation_section_cut_in_its_middle_is_given_once():
    text = "intro " * 500 + "\n## Evaluation\n" + "score " * 2000
    out = describe(text)
    assert out.count("## Evaluation") == 1
    assert count_tokens(out) <= 900 + 300 + 5


def test_a_description_without_evaluation_is_only_cut():
    assert describe("a " * 5000).endswith("[...]")


def test_cut_never_exceeds():
    text = "Some sentence with words. " * 200
    for n in (1, 10, 50, 333):
        assert count_tokens(cut(text, n)) <= n
