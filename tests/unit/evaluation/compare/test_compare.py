"""`wmrl compare` on folders as the commands write them; nothing is executed."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.testing import CliRunner

from wmrl_envs.errors import InvalidInput
from wmrl_envs.outcome import Execution, ExecutionStatus, Outcome
from wmrl_train.config import load_config
from wmrl_train.episodes import store
from wmrl_train.episodes.store import Trajectory, Turn
from wmrl_train.evaluation.compare.differences import compare
from wmrl_train.evaluation.compare.sides import read_sides, settings_that_differ
from wmrl_train.evaluation.folder import robot_episode


def wmrl(*arguments):
    from wmrl_train.cli import app

    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def evaluation(folder, scores, category="tabular", **settings):
    """An evaluation with these scores by task; None: lost to a failure of ours."""
    folder.mkdir(parents=True)
    for task, many in scores.items():
        for repeat, score in enumerate(many):
            outcome = Outcome(ExecutionStatus.OK, score or 0.0)
            turns = [Turn.of("x", outcome, Execution(ExecutionStatus.OK, 0, submission=b"id,y\n"), "")]
            store.append(
                folder / "trajectories.jsonl",
                Trajectory(task, category, repeat, 1, turns, failure="ours" if score is None else None),
            )
    given = {"agent": "a", "tasks": "held_out", "seed": 0, "env": {"max_turns": 4}} | settings
    (folder / "settings.json").write_text(json.dumps(given))
    return folder


def run(folder, overrides, evaluations):
    """A run with evaluations {step: {task: mean}} and ten executions a step."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(load_config("laptop", overrides).to_yaml())
    records = []
    for step in range(max(evaluations) + 1):
        if step:
            cost = {"ledger/executions_paid": 10 * step, "ledger/execute_cpu_s": 2.0 * step, "ledger/learn_cpu_s": 1.0 * step}
            records.append({"step": step, "reward/mean": 0.1 * step} | cost)
        if step in evaluations:
            means = evaluations[step]
            split = {"avg": float(np.mean(list(means.values()))), "by_task": means, "statuses": {"ok": 3, "timeout": 1}}
            records.append({"step": step, "eval": {"train": split, "wall_s": 3.0}})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return folder


def test_differences_are_paired_by_task_and_repeat(tmp_path):
    a = evaluation(tmp_path / "a", {"one": [0.1, 0.5, 0.9], "two": [0.5, 0.5]})
    b = evaluation(tmp_path / "b", {"one": [0.2, 0.6, 1.0], "two": [0.5, 0.4]})
    result = compare(*read_sides([a, b]))
    one, two = result.tasks
    assert (one.first, one.second, one.difference) == pytest.approx((0.5, 0.6, 0.1))
    assert (one.low, one.high) == pytest.approx((0.1, 0.1))  # each repeat gained as much, however different they are
    assert (one.pairs, one.better, one.worse, two.better, two.worse) == (3, 3, 0, 0, 1)
    assert result.overall.difference == pytest.approx((0.1 - 0.05) / 2)
    assert (result.over, result.left_out) == ("pairs", ())


def test_what_only_one_side_has_is_left_out_and_lost_episodes_make_no_pair(tmp_path):
    a = evaluation(tmp_path / "a", {"one": [0.2, 0.4, 0.6], "mine": [1.0]})
    b = evaluation(tmp_path / "b", {"one": [0.4, None], "yours": [1.0]})
    result = compare(*read_sides([a, b]))
    (one,) = result.tasks
    assert (one.pairs, one.difference, one.low, one.high) == (1, pytest.approx(0.2), None, None)
    assert result.left_out == ("mine", "yours")


def test_intervals_cover_a_difference_about_as_often_as_they_say(tmp_path):
    rng, hits = np.random.default_rng(0), 0
    for i in range(60):
        base, gain = rng.random((2, 30))
        a = evaluation(tmp_path / f"{i}a", {"t": list(base / 2)})
        b = evaluation(tmp_path / f"{i}b", {"t": list(base / 2 + gain / 2)})
        row = compare(*read_sides([a, b]), seed=i).overall
        hits += row.low <= 0.25 <= row.high
    assert 0.85 <= hits / 60 <= 1.0


def test_repeats_of_a_robots_start_are_one_pair(tmp_path):
    for name, won in (("a", {0: 1, 1: 0}), ("b", {0: 1, 1: 1})):
        folder = evaluation(tmp_path / name, {})
        for start, success in won.items():
            for repeat in range(8):
                episode = robot_episode("stove", start, repeat, success=bool(success), steps=9)
                store.append(folder / "trajectories.jsonl", episode)
    (row,) = compare(*read_sides([tmp_path / "a", tmp_path / "b"])).tasks
    assert (row.pairs, row.better, row.first, row.second) == (2, 1, 0.5, 1.0)


def test_runs_are_compared_in_their_last_evaluation_over_tasks(tmp_path):
    a = run(tmp_path / "a", ["run.name=a"], {0: {"one": 0.1, "two": 0.2}, 2: {"one": 0.3, "two": 0.3}})
    b = run(tmp_path / "b", ["run.name=b", "optim.lr=0.002"], {0: {"one": 0.1, "two": 0.2}, 4: {"one": 0.5, "two": 0.7}})
    first, second = sides = read_sides([a, b])
    result = compare(first, second)
    assert (result.over, result.overall.pairs, result.overall.difference) == ("tasks", 2, pytest.approx(0.3))
    assert [d.low for d in result.tasks] == [None, None]
    assert [(p.step, p.executions, p.cpu_s) for p in second.points] == [(0, 0, 0), (4, 40, 12.0)]
    assert [key for key, _ in settings_that_differ(sides)] == ["optim.lr"]
    shown = wmrl(a, b)
    assert shown.exit_code == 0, shown.output
    for words in ("optim.lr", "0.002", "+30.0", "Evaluations during runs", "+45.0", "a: 3 ok, 1 timeout"):
        assert words in shown.output


def test_a_run_and_an_evaluation_are_compared_in_what_both_have(tmp_path):
    a = run(tmp_path / "a", [], {1: {"one": 0.3}})
    b = evaluation(tmp_path / "b", {"one": [0.5, 0.7]})
    sides = read_sides([a, b])
    result = compare(*sides)
    assert (result.overall.first, result.overall.second) == pytest.approx((0.3, 0.6))
    assert settings_that_differ(sides) == []


def test_the_same_twice_differs_in_nothing(tmp_path):
    a = evaluation(tmp_path / "x" / "same", {"one": [0.1, 0.9]})
    b = evaluation(tmp_path / "y" / "same", {"one": [0.1, 0.9]})
    first, second = read_sides([a, b])
    assert (first.name, second.name) == ("x/same", "y/same")
    assert compare(first, second).overall.difference == 0
    assert "The settings are the same." in wmrl(a, b).output


def test_json_has_settings_and_differences_of_each_with_the_first(tmp_path):
    folders = [
        evaluation(tmp_path / name, {"one": [score]}, agent=name) for name, score in (("a", 0.1), ("b", 0.2), ("c", 0.4))
    ]
    report = json.loads(wmrl(*folders, "--json").stdout)
    assert report["settings"] == {"agent": {"a": '"a"', "b": '"b"', "c": '"c"'}}
    assert [c["overall"]["difference"] for c in report["comparisons"]] == pytest.approx([0.1, 0.3])


class Tags(HTMLParser):
    """The elements of a page and their attributes."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_the_page_stands_alone_and_shows_hostile_names_as_text(tmp_path):
    hostile = "<script>alert(1)</script>"
    a = run(tmp_path / "_a$b$", ["run.name=a"], {0: {hostile: 0.1, "two": 0.1}, 2: {hostile: 0.3, "two": 0.2}})
    b = evaluation(tmp_path / "b<img src=x onerror=alert(1)>", {hostile: [0.5], "two": [0.1]}, agent=hostile)
    result = wmrl(a, b, "--page", tmp_path / "new" / "page.html")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "new" / "page.html").read_text()
    page = Tags()
    page.feed(text)
    assert not [tag for tag, _ in page.found if tag in ("script", "iframe", "link", "form", "a")]
    images = [attributes for tag, attributes in page.found if tag == "img"]
    assert len(images) == 4
    assert all(i["src"].startswith("data:image/svg+xml;base64,") and "onerror" not in i for i in images)
    assert "&lt;script&gt;" in text
    assert re.search(r"\+20\.0", text)


@pytest.mark.parametrize("damage", ["nothing", "one", "empty", "metrics", "line"])
def test_what_cannot_be_compared_is_one_sentence(tmp_path, damage):
    a = evaluation(tmp_path / "a", {"one": [0.1]})
    other = tmp_path / "b"
    other.mkdir()
    given = {"nothing": [a, tmp_path / "nowhere"], "one": [a, a], "empty": [a, other]}.get(damage, [a, other])
    if damage in ("metrics", "line"):
        (other / "config.yaml").write_text(load_config("laptop").to_yaml())
        (other / "metrics.jsonl").write_text(
            '{"step": "x", "eval": {"train": {"avg": "high"}}}\n' if damage == "metrics" else "[]\n"
        )
    with pytest.raises(InvalidInput, match=r"neither a run|Nothing to compare|not of `wmrl train`|is damaged"):
        read_sides(given)


def test_a_run_that_is_still_being_written_can_be_compared(tmp_path):
    a = run(tmp_path / "a", [], {0: {"one": 0.1}})
    with (a / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1, "rew')
    b = run(tmp_path / "b", [], {0: {"one": 0.1}})
    (b / "metrics.jsonl").unlink()
    result = wmrl(a, b)
    assert result.exit_code == 0, result.output
    assert "no task in common" in result.output


def test_an_evaluation_without_an_episode_yet_can_be_compared(tmp_path):
    a, b = evaluation(tmp_path / "a", {"one": [0.1]}), evaluation(tmp_path / "b", {}, seed=1)
    result = wmrl(a, b)
    assert result.exit_code == 0, result.output
    assert "no task in common" in result.output
    assert "b: nothing recorded" in result.output


def test_of_many_evaluations_the_terminal_shows_some_with_the_first_and_the_last(tmp_path):
    a = run(tmp_path / "a", [], {step: {"one": step / 200} for step in range(101)})
    b = run(tmp_path / "b", [], {0: {"one": 0.1}})
    lines = [line for line in wmrl(a, b).output.splitlines() if "train" in line]
    assert len(lines) == 12 + 1
    assert " 0 " in lines[0]
    assert "+50.0" in lines[11]
