"""`wmrl eval --env LIBERO-Long-v0`: the folder, the lock, the policies. Only the simulator is a test double."""

import json
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from wmrl_envs.context import TaskContext
from wmrl_envs.errors import InfrastructureError, InvalidInput
from wmrl_train.evaluation import eval_robots
from wmrl_train.evaluation.eval_robots import RobotEval, evaluate
from wmrl_train.evaluation.folder import read_episodes
from wmrl_train.evaluation.policies import CallableRobot


def wmrl(*arguments):
    from wmrl_train.cli import app

    return CliRunner().invoke(app, list(map(str, arguments)))


class Stove:
    """What the doubles of the simulator share: how many episodes began, and which of them (by number) are lost."""

    def __init__(self):
        self.episodes, self.lost, self.made, self.closed, self.wait = 0, (), [], 0, threading.Event()
        self.wait.set()


class StoveDouble:
    """Test double of LiberoLongEnv: success at once on even initial states."""

    def __init__(self, shared):
        self.unwrapped, self.shared = self, shared

    def context(self):
        return TaskContext("stove", "turn on the stove")

    def reset(self, options):
        self.index = options["init_state"]
        self.shared.episodes += 1
        self.lost = self.shared.episodes in self.shared.lost
        return {"image": np.zeros((4, 4, 3), np.uint8), "index": self.index}, {}

    def step(self, action):
        self.shared.wait.wait(10)
        wmrl = {"status": "infra_error" if self.lost else "ok", "steps": 8, "wall_s": 0.25}
        success = not self.lost and self.index % 2 == 0
        return {"image": np.full((4, 4, 3), 9, np.uint8)}, float(success), success, not success, {"wmrl": wmrl}

    def close(self):
        self.shared.closed += 1


@pytest.fixture
def stove(monkeypatch):
    shared = Stove()
    monkeypatch.setattr("gymnasium.make", lambda *a, **k: shared.made.append(k) or StoveDouble(shared))
    monkeypatch.setattr(eval_robots.catalog, "tasks", lambda *a: [0])
    monkeypatch.setattr(eval_robots.catalog, "find_task", lambda *a: SimpleNamespace(name="stove", index=0))
    monkeypatch.setattr(eval_robots.catalog, "start_states", lambda *a: SimpleNamespace(indices=(0, 1, 20)))
    return shared


def still(observation):
    """An agent of the user's: observation -> actions (k, 7)."""
    return np.zeros((8, 7), np.float32)


AGENT = f"python:{__name__}:still"
STILL = CallableRobot(still)


# ---- one folder -----------------------------------------------------------------------------------------------------
def test_two_evaluations_on_one_folder_cannot_run_at_once_and_no_episode_counts_twice(stove, tmp_path):
    stove.wait.clear()
    ended = []

    def go():
        try:
            ended.append(evaluate(STILL, RobotEval(tasks=(0,)), tmp_path))
        except InvalidInput as error:
            ended.append(error)
            stove.wait.set()  # the other one may go on now

    threads = [threading.Thread(target=go) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused, report = ended
    assert "is in use by another evaluation" in str(refused)
    assert report.rates["overall"].episodes == 3
    assert len((tmp_path / "trajectories.jsonl").read_text().splitlines()) == 3
    assert evaluate(STILL, RobotEval(tasks=(0,)), tmp_path).rates["overall"].episodes == 3


def test_an_episode_that_stands_in_the_folder_twice_counts_once(stove, tmp_path):
    evaluate(STILL, RobotEval(tasks=(0,)), tmp_path)
    file = tmp_path / "trajectories.jsonl"
    file.write_text(file.read_text() * 2)
    report = evaluate(STILL, RobotEval(tasks=(0,)), tmp_path)
    assert (report.rates["overall"].episodes, report.statuses, stove.episodes) == (3, {"ok": 3}, 3)


def test_an_episode_that_the_simulator_loses_is_begun_again_after_the_others(tmp_path, stove):
    stove.lost = (1,)
    report = evaluate(STILL, RobotEval(tasks=(0,)), tmp_path)
    assert (stove.episodes, report.statuses) == (4, {"ok": 3})
    assert [t.init_state for t in read_episodes(tmp_path)] == [1, 20, 0]


def test_an_evaluation_is_continued_and_lost_episodes_are_run_again(tmp_path, stove):
    stove.lost = (3, 7)  # an episode and its repetition
    settings = RobotEval(tasks=(0,), repeats=2, videos=1)
    first = evaluate(STILL, settings, tmp_path)
    assert (first.infra_failures, first.statuses) == (1, {"ok": 5, "infra_error": 1})
    second = evaluate(STILL, settings, tmp_path)
    assert stove.episodes == 8  # only the lost one again
    assert (str(second.rates["seen"])[:4], second.rates["unseen"].successes, second.infra_failures) == ("50.0", 1, 0)
    assert (second.rates["best@2"].successes, second.rates["all@2"].episodes) == (2, 3)
    table = json.loads((tmp_path / "table.json").read_text())
    assert table["rates"]["overall"]["successes"] == 2
    assert (table["cost"]["episodes"], table["cost"]["steps"], table["cost"]["simulation_s"]) == (6, 48, 1.5)
    assert (table["cost_of_this_run"]["episodes"], table["cost_of_this_run"]["steps"]) == (1, 8)
    assert {f.name.rsplit("-", 1)[1] for f in tmp_path.glob("*.gif")} == {"success.gif", "failure.gif"}
    assert eval_robots.table(second).row_count == 2
    assert stove.closed == len(stove.made)


def test_copies_of_an_episode_do_not_narrow_an_interval(tmp_path, stove):
    once = evaluate(STILL, RobotEval(tasks=(0,)), tmp_path / "once")
    eight = evaluate(STILL, RobotEval(tasks=(0,), repeats=8), tmp_path / "eight")
    assert (once.copies, eight.copies, stove.episodes) == (False, True, 3 + 24)
    assert eight.rates["overall"] == once.rates["overall"]


def test_a_folder_of_an_earlier_version_is_continued(tmp_path, stove):
    lines = [{"task": "stove", "init_state": 0, "repeat": 0, "success": True, "steps": 5, "infra": False}]
    lines += [{"task": "stove", "init_state": 1, "repeat": 0, "success": False, "steps": 5, "infra": True}]
    (tmp_path / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"task": "sto')
    settings = {"agent": AGENT, "suite": "libero_10", "env": {}}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    report = evaluate(STILL, RobotEval(AGENT, tasks=(0,)), tmp_path)
    assert (stove.episodes, report.rates["overall"].episodes, report.infra_failures) == (2, 3, 0)
    assert [t.steps for t in sorted(read_episodes(tmp_path), key=lambda t: t.key)] == [5, 8, 8]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("{bad", r"settings\.json is not JSON"),
        ("[]", r"settings\.json does not hold the settings"),
        ("[" * 10**5, r"settings\.json is not JSON"),
        ('{"agent": "a", "suite": "libero_10", "env": {}, "more": 1}', "with more=1, now more=None"),
    ],
)
def test_settings_that_are_none_continue_nothing(tmp_path, stove, settings, words):
    evaluate(STILL, RobotEval("a", tasks=(0,)), tmp_path)
    (tmp_path / "settings.json").write_text(settings)
    with pytest.raises(InvalidInput, match=words):
        evaluate(STILL, RobotEval("a", tasks=(0,)), tmp_path)


@pytest.mark.parametrize("line", ["5", '{"task": 1}', "[" * 10**5, '{"task": "stove", "init_state": 0, "repeat": 0}'])
def test_a_line_of_an_earlier_version_that_is_no_episode_is_named(tmp_path, stove, line):
    (tmp_path / "trials.jsonl").write_text(line + "\n")
    with pytest.raises(InvalidInput, match=r"trials\.jsonl holds a line that is no episode"):
        evaluate(STILL, RobotEval("a", tasks=(0,)), tmp_path)


def test_an_evaluation_into_a_file_is_refused(tmp_path, stove):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidInput, match=r"Cannot write to .* --out"):
            evaluate(STILL, RobotEval("a", tasks=(0,)), out)


def test_start_states_of_a_file_are_the_environments_own(tmp_path, stove):
    evaluate(STILL, RobotEval("a", tasks=(0,), init_states="near.npz"), tmp_path)
    assert stove.made[0]["init_states"] == "near.npz"
    with pytest.raises(InvalidInput, match="env="):
        evaluate(STILL, RobotEval("a", tasks=(0,)), tmp_path)


def test_an_evaluation_without_one_scored_episode_is_no_success(tmp_path, stove, monkeypatch):
    def broken(self, options):
        raise InfrastructureError("The renderer is gone.")

    monkeypatch.setattr(StoveDouble, "reset", broken)
    with pytest.raises(InfrastructureError, match=r"Not one of 3 episodes could be scored: The renderer is gone\."):
        evaluate(STILL, RobotEval("a", tasks=(0,)), tmp_path)


# ---- policies -------------------------------------------------------------------------------------------------------
class Together:
    """Test double of a VLAPolicy: remembers the initial states it was shown in each call."""

    def __init__(self):
        self.calls = []

    def act(self, observations, temperature=1.0, seeds=None):
        assert temperature == 0.0
        self.calls.append([o["index"] for o in observations])
        n = len(observations)
        return np.zeros((n, 8, 7)), np.zeros((n, 1)), np.zeros((n, 1))


def test_a_policy_that_takes_batches_acts_in_several_environments_at_once(tmp_path, stove):
    policy = Together()
    report = evaluate(policy, RobotEval("a", tasks=(0,), workers=2), tmp_path)
    assert sorted(map(sorted, policy.calls)) == [[0, 1], [20]]
    assert (len(stove.made), stove.closed, report.rates["overall"].successes) == (2, 2, 2)
    assert {t.init_state: t.score for t in read_episodes(tmp_path)} == {0: 1.0, 1: 0.0, 20: 1.0}


class Queue:
    """An agent that keeps something from step to step."""

    def __init__(self):
        self.resets = 0

    def reset(self):
        self.resets += 1

    def __call__(self, observation):
        return np.zeros(7)


def test_an_agent_with_reset_is_told_of_every_episode_and_acts_in_one_at_a_time(tmp_path, stove):
    agent = Queue()
    evaluate(CallableRobot(agent), RobotEval("a", tasks=(0,), workers=2), tmp_path)
    assert (agent.resets, len(stove.made)) == (3, 1)


def broken(observation):
    raise KeyError("wrist_image")


def test_an_agent_that_raises_is_named_with_file_and_line_and_no_environment_stays_open(tmp_path, stove):
    line = broken.__code__.co_firstlineno + 1
    with pytest.raises(
        InvalidInput, match=rf"agent broken raised KeyError: 'wrist_image' \(.*{__file__}, line {line}\); it must"
    ):
        evaluate(CallableRobot(broken), RobotEval("a", tasks=(0,)), tmp_path)
    assert stove.closed == len(stove.made) == 1


# ---- the command ----------------------------------------------------------------------------------------------------
def test_the_command_evaluates_reports_and_goes_on(stove, tmp_path):
    stove.lost = (3, 4)
    arguments = ("eval", "--env", "LIBERO-Long-v0", "--agent", AGENT, "--out", tmp_path / "e")
    result = wmrl(*arguments)
    assert result.exit_code == 0, result.output
    for words in ("overall", "seen", "unseen", "best@1", "all@1", "versions: ", "renderer"):
        assert words in result.output
    log = tmp_path / "e" / "trajectories.jsonl"
    log.write_text(log.read_text() + '{"task": "sto')  # a kill in the middle of a line
    result = wmrl(*arguments, "--k", 2, "--json")
    report = json.loads(result.stdout)
    assert (report["rates"]["overall"]["episodes"], report["rates"]["best@2"]["successes"], report["infra_failures"]) == (
        3,
        2,
        0,
    )
    assert report["repeats_are_copies"]
    assert "2 of 6 episodes are there already" in " ".join(result.stderr.split())
    assert stove.episodes == 4 + 4  # the third one of all was lost, and its repetition
    saved = json.loads((tmp_path / "e" / "table.json").read_text())
    assert saved["settings"]["agent"] == AGENT
    assert {"renderer", "gymnasium", "torch"} <= set(saved["versions"])
    other = wmrl(*arguments, "--k", 2, "--max-steps", 10)
    assert "'max_steps': '10'" in str(other.exception)
    assert "give another folder" in str(other.exception)


def test_a_class_stands_for_an_agent_of_it(stove, tmp_path):
    arguments = ("eval", "--env", "LIBERO-Long-v0", "--agent", f"python:{__name__}:Queue", "--out", tmp_path / "e")
    assert wmrl(*arguments).exit_code == 0
    refused = wmrl(*arguments, "--workers", 2)
    assert "--workers 2: the agent has reset()" in str(refused.exception)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--env", "LIBERO-Long-v1"), "--env 'LIBERO-Long-v1': expected one of"),
        (("--env", "LIBERO-Long-v0", "--turns", 3), "--turns says nothing in LIBERO-Long-v0"),
        (("--suite", "libero_90"), "--suite says nothing in MLEDojo-v0"),
        (("--env", "LIBERO-Long-v0", "--k", 0), "--k 0: expected at least 1"),
        (("--env", "LIBERO-Long-v0", "--workers", 0), "--workers 0: expected at least 1"),
        (("--env", "LIBERO-Long-v0", "--tasks", ","), "--tasks ',': expected indices or names"),
        (("--env", "LIBERO-Long-v0", "--init-states", "1,x"), "--init-states '1,x': expected"),
        (("--env", "LIBERO-Long-v0", "--init-states", "0,,1"), "--init-states '0,,1': expected"),
        (("--env", "LIBERO-Long-v0", "--init-states", "\u00b2"), "--init-states '\u00b2': expected"),
        (("--env", "LIBERO-Long-v0", "--execute-horizon", 2), "--execute-horizon says nothing for a function"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(stove, arguments, words):
    assert words in str(wmrl("eval", "--agent", AGENT, *arguments).exception)


def test_an_agent_that_is_not_there_is_refused(stove, tmp_path):
    assert "no policy" in str(wmrl("eval", "--env", "LIBERO-Long-v0", "--agent", tmp_path / "nothing").exception)


def test_tasks_are_indices_or_names(stove):
    assert eval_robots.parse_tasks(None, "libero_10") == (0,)
    assert eval_robots.parse_tasks("7, KITCHEN_SCENE3_x", "libero_10") == (7, "KITCHEN_SCENE3_x")
    assert eval_robots.parse_tasks("--5,\u00b2,-1", "libero_10") == ("--5", "\u00b2", -1)  # refused by name, as no such task
