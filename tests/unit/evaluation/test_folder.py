"""`wmrl eval` and `wmrl rescore` from the command line; only the sandbox is a test double."""

import io
import json
import sys

import pytest
from rich.console import Console

import wmrl_envs.execution
from tests.doubles import ObedientSandbox
from tests.unit.evaluation.conftest import OTHER, SLUG
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_train import cli
from wmrl_train.episodes import store as trajectories
from wmrl_train.evaluation import eval_programs
from wmrl_train.evaluation import folder as folders
from wmrl_train.evaluation.table import aggregate

AGENT = """
import pathlib
CALLS = pathlib.Path(__file__).with_name("calls.txt")

def agent(observation):
    with CALLS.open("a") as f:
        f.write("x")
    return {answer!r}

def broken(observation):
    raise RuntimeError("no such key")
"""


@pytest.fixture
def wmrl(dojo, tmp_path, monkeypatch, capsys):
    """Run the command in a fresh folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(wmrl_envs.execution, "make_sandbox", lambda kind: ObedientSandbox(), raising=False)
    monkeypatch.setattr(sys, "path", ["", *sys.path])

    def run(*arguments, data_dir=dojo[0]):
        extra = ["--data-dir", str(data_dir)] if arguments[0] in ("eval", "rescore") else []
        monkeypatch.setattr(sys, "argv", ["wmrl", *map(str, arguments), *extra])
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, " ".join(err.split())

    return run


@pytest.fixture
def agent(dojo, tmp_path, request):
    """A module of the user's in the current folder, under a name of its own (modules are cached)."""
    name = f"mine_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(AGENT.format(answer="#ok\n" + dojo[1][SLUG]["half"]))
    yield f"python:{name}:agent"
    sys.modules.pop(name, None)


def calls(tmp_path):
    return len((tmp_path / "calls.txt").read_text())


def test_an_evaluation_prints_a_table_and_keeps_its_trajectories(wmrl, agent, tmp_path):
    code, out, err = wmrl("eval", "--agent", agent, "--tasks", SLUG, "--k", 3, "--turns", 1, "--out", "mine")
    assert code == 0, err
    assert SLUG in out
    assert "avg@3" in out
    assert "mean of categories" in out
    stored = trajectories.read(tmp_path / "mine" / "trajectories.jsonl")
    assert [(t.task, len(t.turns), t.valid) for t in stored] == [(SLUG, 1, True)] * 3
    assert stored[0].turns[0].submission_bytes().startswith(b"Id,ACTION\n")
    assert json.loads((tmp_path / "mine" / "table.json").read_text())["tasks"][SLUG]["episodes"] == 3


def test_json_is_one_object_on_standard_output(wmrl, agent):
    code, out, _ = wmrl("eval", "--agent", agent, "--tasks", f"{SLUG},{OTHER}", "-k", 2, "--turns", 1, "--json")
    assert code == 0
    report = json.loads(out)
    assert report["tasks"][SLUG]["valid"] == 1.0
    assert report["tasks"][OTHER]["valid"] == 0.0
    assert set(report["categories"]) == {"tabular", "binary"}
    assert report["overall"]["avg"] == pytest.approx(report["tasks"][SLUG]["avg"] / 2)


def test_a_killed_evaluation_is_continued_and_nothing_is_done_twice(wmrl, agent, tmp_path):
    arguments = ("eval", "--agent", agent, "--tasks", SLUG, "--turns", 1, "--out", "mine")
    wmrl(*arguments, "--k", 2)
    path = tmp_path / "mine" / "trajectories.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole.split(b"\n")[0][:50])  # a kill in the middle of a line
    code, out, err = wmrl(*arguments, "--k", 5, "--json")
    assert code == 0, err
    assert "2 of 5 episodes are there already" in err
    assert json.loads(out)["overall"]["episodes"] == 5
    assert calls(tmp_path) == 5
    assert path.read_bytes().startswith(whole)
    assert sorted(t.repeat for t in trajectories.read(path)) == [0, 1, 2, 3, 4]


def test_other_settings_do_not_continue_it(wmrl, agent):
    arguments = ("eval", "--agent", agent, "--tasks", SLUG, "--k", 1, "--turns", 1, "--out", "mine")
    assert wmrl(*arguments)[0] == 0
    code, _, err = wmrl(*arguments, "--seed", 1)
    assert code == 2
    assert "seed=0, now seed=1" in err


def test_an_edited_agent_is_another_agent(wmrl, agent, tmp_path):
    arguments = ("eval", "--agent", agent, "--tasks", SLUG, "--k", 1, "--turns", 1)
    assert wmrl(*arguments, "--out", "mine")[0] == 0
    assert wmrl(*arguments)[0] == 0
    module = tmp_path / f"{agent.split(':')[1]}.py"
    module.write_text(module.read_text() + "# better\n")
    code, _, err = wmrl(*arguments, "--out", "mine")
    assert code == 2
    assert "source=" in err
    done = calls(tmp_path)
    assert wmrl(*arguments)[0] == 0
    assert calls(tmp_path) == done + 1


def test_a_folder_in_use_is_refused(wmrl, agent, tmp_path):
    with folders.locked(tmp_path / "mine"):
        code, _, err = wmrl("eval", "--agent", agent, "--tasks", SLUG, "--k", 1, "--out", "mine")
    assert code == 2
    assert "in use" in err


def test_rescoring_uses_todays_boards_and_changes_nothing_stored(wmrl, agent, dojo, tmp_path):
    wmrl("eval", "--agent", agent, "--tasks", SLUG, "--k", 2, "--turns", 1, "--out", "mine")
    path = tmp_path / "mine" / "trajectories.jsonl"
    before = path.read_bytes()
    code, out, err = wmrl("rescore", "mine", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert (report["regraded"], report["changed"]) == (2, 0)
    assert report["avg_before"] == report["overall"]["avg"] == pytest.approx(0.5)

    other = tmp_path / "other"
    import shutil

    shutil.copytree(dojo[0], other)
    for board in ("private", "public"):
        (other / SLUG / "data" / "private" / f"{board}_leaderboard.csv").write_text("rank,score\n1,0.4\n2,0.3\n")
    code, out, err = wmrl("rescore", "mine", "--json", data_dir=other)
    report = json.loads(out)
    assert (report["regraded"], report["changed"], report["overall"]["avg"]) == (2, 2, 1.0)
    assert path.read_bytes() == before
    assert [t.score for t in trajectories.read(tmp_path / "mine" / "rescored.jsonl")] == [1.0, 1.0]
    assert calls(tmp_path) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--agent", "nonsense", "--tasks", SLUG), "python:module:function"),
        (("--agent", "python:nowhere:agent", "--tasks", SLUG), "cannot import 'nowhere'"),
        (("--agent", "python:json:nothing", "--tasks", SLUG), "has no 'nothing'"),
        (("--agent", "python:json", "--tasks", SLUG), "python:module:function"),
        (("--agent", "python:json:decoder", "--tasks", SLUG), "expected a function"),
        (("--agent", "python:json:dumps", "--tasks", "amazon-employe-access"), SLUG),
        (("--agent", "python:json:dumps", "--tasks", ","), "expected one of train"),
        (("--agent", "python:json:dumps", "--tasks", "held_out"), "wmrl tasks prepare"),
        (("--agent", "python:json:dumps", "--tasks", SLUG, "--k", 0), "--k 0"),
        (("--agent", "python:json:dumps", "--tasks", SLUG, "--seed", -1), "--seed -1"),
        (("--agent", "demo", "--tasks", SLUG, "--max-new-tokens", 0), "--max-new-tokens 0"),
        (("--agent", "demo", "--tasks", SLUG, "--temperature", "nan"), "--temperature nan"),
        (("--agent", "openai:nowhere", "--tasks", SLUG), "--agent 'openai:nowhere': expected an address"),
        (("--agent", "python:json:dumps", "--tasks", SLUG, "--out", __file__), "with --out"),
        (("--agent", "python:json:dumps", "--tasks", SLUG, "--workers", 0), "--workers 0"),
        (("--agent", "python:json:dumps", "--tasks", SLUG, "--turns", 0), "max_turns=0"),
        (("--agent", "python:json:dumps", "--tasks", SLUG, "--timeout-s", -1), "timeout_s=-1"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_exit_code_2_and_leaves_no_folder(wmrl, arguments, words, tmp_path):
    code, out, err = wmrl("eval", *arguments)
    assert not list(tmp_path.iterdir())
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


def test_a_folder_without_a_finished_episode_takes_other_settings(wmrl, agent):
    assert wmrl("eval", "--agent", agent, "--tasks", SLUG, "--k", 1, "--out", "mine", "--turns", 0)[0] == 2
    assert wmrl("eval", "--agent", agent, "--tasks", SLUG, "--k", 1, "--out", "mine", "--turns", 1)[0] == 0
    code, _, err = wmrl("eval", "--agent", agent, "--tasks", SLUG, "--k", 1, "--out", "mine", "--turns", 2)
    assert (code, "give another folder with --out" in err) == (2, True)


def test_a_failure_inside_the_lock_is_not_taken_for_one_of_the_lock(tmp_path):
    with pytest.raises(PermissionError, match="of the body"), folders.locked(tmp_path):
        raise PermissionError("of the body")
    with folders.locked(tmp_path):  # released
        pass


def test_an_evaluation_without_one_scored_episode_is_no_success(wmrl, agent, monkeypatch, tmp_path):
    class Broken(ObedientSandbox):
        def run_job(self, job):
            raise InfrastructureError("The disk is full.")

    monkeypatch.setattr(wmrl_envs.execution, "make_sandbox", lambda kind: Broken(), raising=False)
    code, _, err = wmrl("eval", "--agent", agent, "--tasks", SLUG, "-k", 2, "--turns", 1, "--out", tmp_path / "out")
    assert code == 2
    assert "Not one of 2 episodes could be scored: The disk is full." in err


def test_an_agent_that_raises_is_named_and_what_was_done_is_kept(wmrl, agent, tmp_path):
    code, _, err = wmrl("eval", "--agent", agent.replace(":agent", ":broken"), "--tasks", SLUG, "--k", 1)
    assert code == 2
    assert f"RuntimeError: no such key ({tmp_path / agent.split(':')[1]}.py, line 11)" in err


def test_rescoring_something_else_is_refused(wmrl, tmp_path):
    code, _, err = wmrl("rescore", tmp_path)
    assert code == 2
    assert "trajectories.jsonl" in err


@pytest.mark.parametrize("settings", ["[]", "5", '{"env": []}', "[" * 100_000, "{"])
def test_settings_of_something_else_are_not_continued(tmp_path, settings):
    trajectories.append(
        tmp_path / "trajectories.jsonl",
        trajectories.Trajectory("t", "c", 0, 1, [trajectories.Turn("x", "timeout", 0.0, None, "", 1.0)]),
    )
    (tmp_path / "settings.json").write_text(settings)
    with pytest.raises(InvalidInput, match=r"settings\.json .*: give"):
        folders._resume(tmp_path, {"agent": "a"}, ())


@pytest.mark.parametrize("name", ["settings.json", "trajectories.jsonl"])
def test_a_folder_where_a_file_should_be_is_one_sentence(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(InvalidInput, match=f"{name} cannot be"):
        folders._resume(tmp_path, {"agent": "a"}, ())


@pytest.mark.parametrize("width", [40, 80, 100, 140])
def test_a_table_shows_whole_numbers_at_any_width(width):
    class Episode:
        task, category, score, valid, statuses = "a-task-with-a-long-name", "tabular", 0.4567, True, ("ok", "timeout")

    view = eval_programs.rich_table(aggregate([Episode()] * 3), "agent", 3, width)
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(view)
    text = console.export_text()
    assert "45.7" in text
    assert "45.7 - 45.7" in text
    assert ("3 timeout" in text) == (width >= 120)
    assert max(map(len, text.splitlines())) <= width


def test_no_task_is_not_all_tasks(wmrl):
    code, out, err = wmrl("eval", "--agent", "demo", "--tasks", "")
    assert (code, out) == (2, "")
    assert "--tasks '': expected one of" in err


def test_episodes_that_contradict_each_other_are_refused(tmp_path):
    from wmrl_train.episodes import store
    from wmrl_train.evaluation.folder import EPISODES, read_episodes, robot_episode

    for success in (True, True):
        store.append(tmp_path / EPISODES, robot_episode("t", 0, 0, success=success, steps=9))
    assert len(read_episodes(tmp_path)) == 1
    store.append(tmp_path / EPISODES, robot_episode("t", 0, 0, success=False, steps=9))
    with pytest.raises(InvalidInput, match=r"two episodes .* with scores 1\.0 and 0\.0"):
        read_episodes(tmp_path)
